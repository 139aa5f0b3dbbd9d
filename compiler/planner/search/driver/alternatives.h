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

// Why a plan does not fit: on the device, or what it has in the host's memory.
std::string whatIsShort(const Solution &solution, const Cluster &cluster);

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
// The best of every other mesh, the fastest first.
std::vector<Alternative> runnersUp(const Cluster &cluster, const SearchOptions &options, const Outcome &outcome);

} // namespace cleave::planner
