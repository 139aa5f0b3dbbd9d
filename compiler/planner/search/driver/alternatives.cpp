#include "compiler/planner/search/driver/alternatives.h"
#include "compiler/planner/search/driver/size_text.h"
#include "compiler/planner/search/space/search_space.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

// Steps whose times differ by no more than this part are as fast.
constexpr double tie = 0.0005;

Alternative describe(const std::string &name, const Solution &solution, const Cluster &cluster, double bestSeconds) {
  const Setting &setting = solution.model->setting;
  const double error = cluster.device.predictionError; // what differs by less is equal, for all that the model knows
  Alternative row;
  row.name = name;
  row.schedule = setting.schedule;
  row.mesh = setting.mesh();
  row.zero = setting.zero;
  row.microbatches = setting.microbatches;
  row.recompute = mostRecomputed(solution);
  row.stepSeconds = solution.seconds();
  row.memoryBytes = solution.bytes();
  row.computeSeconds = solution.evaluation.predicted.computeSeconds;
  row.exposedCommunicationSeconds = solution.evaluation.predicted.exposedCommunicationSeconds;
  row.bubbleSeconds = solution.evaluation.predicted.bubbleSeconds;
  row.offload = setting.offload;
  row.fits = solution.evaluation.fits;
  if (!row.fits)
    row.whyNot = whatIsShort(solution.evaluation.predicted.memory, cluster);
  else if (row.stepSeconds > bestSeconds * (1 + tie))
    row.whyNot = fmt::format("{}{:.1f} % slower", row.stepSeconds > bestSeconds * (1 + error) ? "" : "equal: ",
                             (row.stepSeconds / bestSeconds - 1) * 100);
  else if (row.stepSeconds < bestSeconds * (1 - tie))
    row.whyNot = fmt::format("{:.1f} % faster, but excluded by the flags", (1 - row.stepSeconds / bestSeconds) * 100);
  else if (row.stepSeconds > bestSeconds)
    row.whyNot = "as fast";
  return row;
}

Alternative refused(const std::string &name, const std::string &why) {
  Alternative row;
  row.name = name;
  row.whyNot = why;
  return row;
}

// Presets have been priced with these three, and contradict all else that may be asked for.
bool allowsPresets(Constraints given) {
  given.microbatches.reset();
  given.recompute.reset();
  given.chunks.reset();
  return !given.exceptLast && given.str().empty();
}

// As far as their prices tell: ZeRO 1 and 2 of one microbatch are the same.
bool isSame(const Solution &one, const Solution &other) {
  return one.seconds() == other.seconds() && one.model->setting.mesh().str() == other.model->setting.mesh().str();
}

std::string nameOfRank(size_t index) { return fmt::format("searched #{}", index + 1); }

const char *noTimeLeft = "not priced: the time that --search-seconds gives was over";

} // namespace

std::vector<PricedPreset> pricePresets(const SearchCase &asked) {
  const auto &[problem, facts, cluster, given, time] = asked;
  std::vector<PricedPreset> presets;
  size_t left = presetNames().size() + 1; // and the search with more memory
  for (const std::string &preset : presetNames()) {
    const SearchOptions how = time.beside(left--, "pricing " + preset);
    if (preset.ends_with("-offload") && cluster.hostMemoryBytes == 0) continue; // nobody says that there is a host
    SplitFlags flags;
    flags.like = preset;
    Result<Constraints> constraints = parseConstraints(flags, cluster);
    if (!constraints) {
      presets.push_back({preset, {}, {}});
      presets.back().outcome.reason = constraints.status();
      continue;
    }
    if (time.isOver()) {
      presets.push_back({preset, {}, {}});
      presets.back().outcome.reason = {ErrorKind::NoFit, noTimeLeft};
      continue;
    }
    constraints->microbatches = given.microbatches;
    constraints->recompute = given.recompute;
    constraints->chunks = given.chunks;
    constraints->exceptLast = false; // a way to run a pipeline, and many presets are none
    presets.push_back({preset, *constraints, asked.search(*constraints, how)});
  }
  return presets;
}

std::string choosePreset(const SearchCase &asked, std::vector<PricedPreset> &presets, Outcome &outcome) {
  if (!allowsPresets(asked.constraints)) return "";
  PricedPreset *fastest = nullptr;
  double least = outcome.best->seconds() * (1 - tie);
  for (PricedPreset &preset : presets) {
    const std::optional<Solution> &best = preset.outcome.best;
    if (!best || best->seconds() >= least) continue;
    fastest = &preset;
    least = best->seconds();
  }
  if (!fastest) return "";
  // Presets are priced without a certificate: the one that is chosen is searched again for it.
  SearchOptions how = asked.time.beside(presetNames().size(), "bounds of " + fastest->name);
  how.certifies = true;
  if (Outcome certified = asked.search(fastest->constraints, how); certified.best && certified.best->seconds() <= least)
    fastest->outcome = std::move(certified);
  const Solution &best = *fastest->outcome.best;
  outcome.notes.push_back(
      fmt::format("the preset {} was chosen: {:.1f} % faster than the best split that is searched without it",
                  fastest->name, 100 * (1 - best.seconds() / outcome.best->seconds())));
  outcome.best = best;
  outcome.bound = std::min(outcome.bound, fastest->outcome.bound);
  const std::string mesh = best.model->setting.mesh().str();
  std::erase_if(outcome.byMesh, [&](const Solution &other) { return other.model->setting.mesh().str() == mesh; });
  outcome.byMesh.insert(outcome.byMesh.begin(), best);
  return fastest->name;
}

std::vector<Alternative> alternativesOf(const SearchCase &asked, const std::vector<PricedPreset> &presets,
                                        double bestSeconds) {
  std::vector<Alternative> rows;
  for (const PricedPreset &preset : presets) {
    const std::optional<Solution> &solution = preset.solution();
    if (!solution) {
      rows.push_back(refused(preset.name, preset.outcome.reason.message()));
      continue;
    }
    rows.push_back(describe(preset.name, *solution, asked.cluster, bestSeconds));
    if (!rows.back().fits && asked.cluster.hostMemoryBytes > 0 && rows.back().offload == Offload::None)
      rows.back().whyNot += " without --offload"; // which is opened where the preset is asked for
  }
  return rows;
}

std::vector<Alternative> runnersUp(const Cluster &cluster, const SearchOptions &options, const Outcome &outcome,
                                   const Solution &chosen) {
  constexpr size_t shown = 7; // of those that the search met anyway
  size_t most = options.top > 0 ? size_t(options.top) : shown;
  std::vector<Alternative> rows;
  for (size_t i = 0; i < outcome.byMesh.size() && rows.size() < most; ++i)
    if (!isSame(outcome.byMesh[i], chosen))
      rows.push_back(describe(nameOfRank(i), outcome.byMesh[i], cluster, chosen.seconds()));
  return rows;
}

std::vector<RankedPlan> fastestPlans(const SearchCase &asked, const std::vector<PricedPreset> &presets,
                                     const std::string &preset, const Outcome &outcome, int64_t count) {
  const std::string &like = asked.constraints.like;
  std::vector<RankedPlan> plans;
  auto add = [&](const std::string &name, const std::string &of, const Solution &solution) {
    if (std::ranges::none_of(plans, [&](const RankedPlan &plan) { return isSame(*plan.solution, solution); }))
      plans.push_back({describe(name, solution, asked.cluster, solution.seconds()), of, &solution});
  };
  add(preset.empty() ? nameOfRank(0) : preset, preset.empty() ? like : preset, *outcome.best);
  for (size_t i = 0; i < outcome.byMesh.size(); ++i) add(nameOfRank(i), like, outcome.byMesh[i]);
  if (allowsPresets(asked.constraints))
    for (const PricedPreset &one : presets)
      if (one.outcome.best) add(one.name, one.name, *one.outcome.best);
  std::stable_sort(plans.begin() + 1, plans.end(), [](const RankedPlan &a, const RankedPlan &b) {
    return a.solution->seconds() < b.solution->seconds();
  });
  plans.resize(std::min(plans.size(), size_t(std::max<int64_t>(1, count))));
  return plans;
}

} // namespace cleave::planner
