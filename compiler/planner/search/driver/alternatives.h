// Plans beside the chosen one: what each preset would take, and the best of every other mesh that the search met.
//
//   std::vector<PricedPreset> presets = pricePresets(asked);
//   const std::string preset = choosePreset(asked, presets, outcome);   // "fsdp"; "" where none is faster
//   decision.alternatives = alternativesOf(asked, presets, outcome.best->seconds());
#pragma once
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/search/driver/search_case.h"
#include <string>
#include <vector>

namespace cleave::planner {

struct PricedPreset {
  std::string name;
  Constraints constraints;
  Outcome outcome; // neither best nor leanest: its reason says why it cannot be built
  const std::optional<Solution> &solution() const { return outcome.best ? outcome.best : outcome.leastMemory; }
};

std::vector<PricedPreset> pricePresets(const SearchCase &asked);
// Presets have what the search does not look at: grids, replicas of shards, sequences split where samples could be.
// Where nothing is asked for that they would contradict, the fastest of them is chosen if it is faster. Returns its
// name.
std::string choosePreset(const SearchCase &asked, std::vector<PricedPreset> &presets, Outcome &outcome);
std::vector<Alternative> alternativesOf(const SearchCase &asked, const std::vector<PricedPreset> &presets,
                                        double bestSeconds);
// The best of every mesh but that of `chosen`, the fastest first.
std::vector<Alternative> runnersUp(const Cluster &cluster, const SearchOptions &options, const Outcome &outcome,
                                   const Solution &chosen);

struct RankedPlan {
  Alternative row;  // as alternatives show it
  std::string like; // Decision::like
  const Solution *solution = nullptr;
};
// The choice, then the fastest of the others: the best of every other mesh, and presets where the search may choose
// them. `preset`: the choice's.
std::vector<RankedPlan> fastestPlans(const SearchCase &asked, const std::vector<PricedPreset> &presets,
                                     const std::string &preset, const Outcome &outcome, int64_t count);

} // namespace cleave::planner
