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
    row.whyNot = whatIsShort(solution, cluster);
  else if (row.stepSeconds > bestSeconds * (1 + tie))
    row.whyNot = fmt::format("{:.1f} % slower", (row.stepSeconds / bestSeconds - 1) * 100);
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

const char *noTimeLeft = "not priced: the time that --search-seconds gives was over";

} // namespace

std::string whatIsShort(const Solution &solution, const Cluster &cluster) {
  const double limit = usableMemory(cluster);
  if (solution.bytes() > limit)
    return fmt::format("needs {} on a device, {} can be used", bytesText(solution.bytes()), bytesText(limit));
  return fmt::format("needs {} of the host's memory for each device, there are {}",
                     bytesText(solution.evaluation.predicted.memory.host),
                     bytesText(cluster.hostMemoryBytes / double(cluster.devicesPerNode)));
}

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
  const Constraints &given = asked.constraints;
  Constraints others = given;
  others.microbatches.reset();
  others.recompute.reset();
  others.chunks.reset(); // presets have been priced with these three
  if (given.exceptLast || !others.str().empty()) return "";
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

std::vector<Alternative> runnersUp(const Cluster &cluster, const SearchOptions &options, const Outcome &outcome) {
  constexpr size_t shown = 7; // of those that the search met anyway
  size_t most = options.top > 0 ? size_t(options.top) : shown;
  std::vector<Alternative> rows;
  for (size_t i = 1; i < outcome.byMesh.size() && rows.size() < most; ++i)
    rows.push_back(describe(fmt::format("searched #{}", i + 1), outcome.byMesh[i], cluster, outcome.best->seconds()));
  return rows;
}

} // namespace cleave::planner
