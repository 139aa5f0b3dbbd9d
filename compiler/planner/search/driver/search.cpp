#include "compiler/planner/search/driver/search.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/names/glob.h"
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/driver/unequal_stages.h"
#include "compiler/planner/search/driver/uneven_batch.h"
#include "compiler/planner/search/space/search_space.h"
#include "compiler/planner/search_clock.h"
#include "compiler/planner/split/split_candidates.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

namespace cleave::planner {
namespace {

int digitsShown(double size) { return size >= 100 ? 0 : size >= 10 ? 1 : 2; }

// Three digits: 4.55 MiB, 30.1 GiB.
std::string bytesText(double bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit < 5; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, digitsShown(bytes), units[unit]);
}

// The next larger size that bytesText() tells exactly.
double roundedUp(double bytes) {
  double unit = 1;
  while (bytes / unit >= 1000) unit *= 1024;
  const double step = unit / std::pow(10, digitsShown(bytes / unit));
  return std::ceil(bytes / step) * step;
}

// Steps whose times differ by no more than this part are as fast.
constexpr double tie = 0.0005;

// Why a plan does not fit: on the device, or what it has in the host's memory.
std::string whatIsShort(const Solution &solution, const Cluster &cluster) {
  const double limit = usableMemory(cluster);
  if (solution.bytes() > limit)
    return fmt::format("needs {} on a device, {} can be used", bytesText(solution.bytes()), bytesText(limit));
  return fmt::format("needs {} of the host's memory for each device, there are {}",
                     bytesText(solution.evaluation.predicted.memory.host),
                     bytesText(cluster.hostMemoryBytes / double(cluster.devicesPerNode)));
}

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
  row.offload = setting.offload;
  row.fits = solution.evaluation.fits;
  if (!row.fits)
    row.whyNot = whatIsShort(solution, cluster);
  else if (row.stepSeconds > bestSeconds * (1 + tie))
    row.whyNot = fmt::format("{:.1f} % slower", (row.stepSeconds / bestSeconds - 1) * 100);
  else if (row.stepSeconds < bestSeconds * (1 - tie))
    row.whyNot =
        fmt::format("{:.1f} % faster, but {}", (1 - row.stepSeconds / bestSeconds) * 100,
                    setting.batchDivides ? "not within what was asked for" : "its devices repeat each other's work");
  else if (row.stepSeconds > bestSeconds)
    row.whyNot = "a tie; the chosen one is not slower";
  return row;
}

Alternative refused(const std::string &name, const std::string &why) {
  Alternative row;
  row.name = name;
  row.whyNot = why;
  return row;
}

// The time that is left, where there is a limit, and what is done with it.
class SearchTime {
public:
  explicit SearchTime(const SearchOptions &options) : options(options), clock(options.seconds) {}
  double elapsed() const { return clock.elapsed(); }
  bool isOver() const { return clock.isOver(); }
  // The search that was asked for, where others come after it.
  SearchOptions first() const {
    constexpr double part = 0.6;
    SearchOptions one = options;
    one.seconds = left(options.alternatives ? part : 1);
    one.progress = tell("");
    return one;
  }
  // One of `parts` searches beside it, which do `what`; of those only the plans are of interest.
  SearchOptions beside(size_t parts, const std::string &what) const {
    SearchOptions one = options;
    one.top = 0;
    one.certifies = false;
    one.onlyBest = true;
    one.progress = tell(what);
    one.seconds = left(1 / double(parts));
    return one;
  }

private:
  double left(double part) const {
    constexpr double least = 1e-6; // 0 would be no limit
    return options.seconds > 0 ? std::max(least, part * (options.seconds - elapsed())) : 0;
  }

  // What a search says, after what was said before it; of one beside it, that it goes on.
  std::function<void(const SearchProgress &)> tell(const std::string &what) const {
    if (!options.progress) return {};
    return [this, what](SearchProgress progress) {
      progress.seconds = elapsed();
      if (what.empty()) {
        main = progress;
      } else {
        main.seconds = progress.seconds;
        main.doing = what;
      }
      if (main.seconds < told + tellInterval) return; // each of many short searches begins with telling
      told = main.seconds;
      options.progress(main);
    };
  }

  const SearchOptions &options;
  SearchClock clock;
  mutable SearchProgress main;         // of the search that was asked for, as far as it has told
  mutable double told = -tellInterval; // when
};

const char *noTimeLeft = "not priced: the time that --search-seconds gives was over";

struct PricedPreset {
  std::string name;
  Constraints constraints;
  Outcome outcome; // neither best nor leanest: its reason says why it cannot be built
  const std::optional<Solution> &solution() const { return outcome.best ? outcome.best : outcome.leastMemory; }
};

std::vector<PricedPreset> pricePresets(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                       const Constraints &given, const SearchTime &time) {
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
    constraints->exceptLast = false; // a way to run a pipeline, and many presets are none
    presets.push_back({preset, *constraints, searchSettings(problem, facts, cluster, *constraints, how)});
  }
  return presets;
}

// Presets have what the search does not look at: grids, replicas of shards, sequences split where samples could be.
// Where nothing is asked for that they would contradict, the fastest of them is chosen if it is faster. Returns its
// name.
std::string choosePreset(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                         const Constraints &given, const SearchTime &time, std::vector<PricedPreset> &presets,
                         Outcome &outcome) {
  Constraints others = given;
  others.microbatches.reset();
  others.recompute.reset(); // presets have been priced with these two
  if (given.exceptLast || !others.str().empty()) return "";
  PricedPreset *fastest = nullptr;
  double least = outcome.best->seconds() * (1 - tie);
  for (PricedPreset &preset : presets) {
    const std::optional<Solution> &best = preset.outcome.best;
    if (!best || !best->model->setting.batchDivides || best->seconds() >= least) continue;
    fastest = &preset;
    least = best->seconds();
  }
  if (!fastest) return "";
  // Presets are priced without a certificate: the one that is chosen is searched again for it.
  SearchOptions how = time.beside(presetNames().size(), "bounds of " + fastest->name);
  how.certifies = true;
  if (Outcome certified = searchSettings(problem, facts, cluster, fastest->constraints, how);
      certified.best && certified.best->seconds() <= least)
    fastest->outcome = std::move(certified);
  const Solution &best = *fastest->outcome.best;
  outcome.notes.push_back(
      fmt::format("the preset {} was chosen: {:.1f} % faster than the best split that is searched without it",
                  fastest->name, 100 * (1 - best.seconds() / outcome.best->seconds())));
  outcome.best = best;
  outcome.bound = std::min(outcome.bound, fastest->outcome.bound);
  outcome.boundOfMixes = std::min(outcome.boundOfMixes, fastest->outcome.boundOfMixes);
  outcome.boundsAllSplits = false;
  const std::string mesh = best.model->setting.mesh().str();
  std::erase_if(outcome.byMesh, [&](const Solution &other) { return other.model->setting.mesh().str() == mesh; });
  outcome.byMesh.insert(outcome.byMesh.begin(), best);
  return fastest->name;
}

std::vector<Alternative> alternativesOf(const Problem &problem, const Cluster &cluster,
                                        const std::vector<PricedPreset> &presets, double bestSeconds) {
  std::vector<Alternative> rows;
  for (const PricedPreset &preset : presets) {
    const std::optional<Solution> &solution = preset.solution();
    if (!solution) {
      rows.push_back(refused(preset.name, preset.outcome.reason.message()));
      continue;
    }
    rows.push_back(describe(preset.name, *solution, cluster, bestSeconds));
    if (!rows.back().fits && cluster.hostMemoryBytes > 0 && rows.back().offload == Offload::None)
      rows.back().whyNot += " without --offload"; // which is opened where the preset is asked for
    if (solution->model->setting.batchDivides) continue;
    std::string &why = rows.back().whyNot;
    why = fmt::format("the batch of {} does not divide{}{}", problem.batch, why.empty() ? "" : "; ", why);
  }
  return rows;
}

// What cannot be executed is a row of the table up to so many times the chosen step.
constexpr double worthShowing = 1.25;

// "3.2 % faster, but cannot be executed yet"; also a note of it where it is faster.
std::string notExecuted(double seconds, const std::string &what, Decision &decision) {
  const double faster = 100 * (1 - seconds / decision.predicted.stepSeconds);
  if (faster <= 0.05) return fmt::format("{:.1f} % slower", std::max(0.0, -faster));
  decision.notes.push_back(
      fmt::format("left out, as it cannot be executed yet: {}, would be {:.1f} % faster", what, faster));
  return fmt::format("{:.1f} % faster, but cannot be executed yet", faster);
}

// A note; where all of the time is over another one says so.
std::string partIsOver(const std::string &what) {
  return fmt::format("the part of --search-seconds that is for {} was over before all were priced", what);
}

// Stages of different device counts, where the splits that were asked for leave that open: what they would bring. They
// are no plan to choose, as nothing executes them.
std::optional<Alternative> unequalStages(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                         const Constraints &given, const SearchTime &time, Decision &decision) {
  const Constraints open;
  const bool isOpen = !given.dp && !given.tp && !given.fsdp && !given.cp && !given.ep && given.like.empty() &&
                      given.pp.value_or(0) != 1 && given.cuts.empty() && given.balance.empty() && given.pins.empty() &&
                      given.recomputeOf.empty() && !given.exceptLast && !given.offload && !given.schedule &&
                      given.sequenceSplit == open.sequenceSplit && facts.samplesMeetAt.empty();
  if (!isOpen || cluster.numDevices() < 3) return std::nullopt;
  const SearchOptions how = time.beside(2, "pricing stages of different device counts");
  SearchClock::Tell tell;
  if (how.progress) tell = [&](double elapsed) { how.progress({.seconds = elapsed}); };
  const SearchClock clock(how.seconds, tell);
  std::optional<UnequalPlan> plan =
      bestUnequalStages(problem, facts, cluster, given, worthShowing * decision.predicted.stepSeconds, clock);
  if (clock.isOver() && !time.isOver()) decision.notes.push_back(partIsOver("stages of different device counts"));
  if (!plan) return std::nullopt;
  Alternative row;
  row.name = "unequal stages";
  row.isExecutable = false;
  row.schedule = "1f1b";
  row.mesh.axes.push_back({"pp", int64_t(plan->stages.size())});
  row.zero = plan->zero;
  row.microbatches = plan->microbatches;
  row.recompute = plan->recompute;
  row.stepSeconds = plan->seconds;
  row.memoryBytes = plan->bytes;
  row.fits = plan->fits;
  const std::string what = plan->str();
  row.whyNot =
      what + "; " + notExecuted(plan->seconds, "pipeline stages of different device counts, " + what, decision);
  return row;
}

// A batch that does not divide over the devices it would be fastest on. Samples that depend on each other need all of
// them anyway.
std::optional<Alternative> unevenBatch(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                       const Constraints &given, const SearchTime &time, Decision &decision) {
  if (!given.like.empty() || !facts.samplesMeetAt.empty() || time.isOver()) return std::nullopt;
  const auto [plan, wasStopped] =
      bestUnevenBatch(problem, cluster, given, worthShowing * decision.predicted.stepSeconds,
                      time.beside(2, "pricing batches in uneven parts"));
  if (wasStopped && !time.isOver()) decision.notes.push_back(partIsOver("batches in uneven parts"));
  if (!plan) return std::nullopt;
  Alternative row;
  row.name = "uneven batch";
  row.isExecutable = false;
  row.schedule = plan->setting.schedule;
  row.mesh = plan->setting.mesh();
  row.zero = plan->setting.zero;
  row.microbatches = plan->setting.microbatches;
  row.recompute = plan->recompute;
  row.stepSeconds = plan->seconds;
  row.memoryBytes = plan->bytes;
  row.offload = plan->setting.offload;
  row.fits = true;
  const std::string what = plan->str(problem.batch);
  row.whyNot = what + "; " + notExecuted(plan->seconds, "a batch in uneven parts, " + what, decision);
  return row;
}

// With devices of twice the memory everything may be chosen again: the least step time known of it.
double secondsWithTwiceTheMemory(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                 const Constraints &constraints, const SearchTime &time, const Outcome &outcome,
                                 Cells &cells) {
  if (time.isOver()) return outcome.best->seconds();
  Cluster larger = cluster;
  larger.device.memoryBytes *= 2;
  SearchOptions how = time.beside(1, "searching with twice the memory");
  how.worth = outcome.best->seconds();
  Outcome priced = searchSettings(problem, facts, larger, constraints, how, cells);
  return priced.best ? std::min(priced.best->seconds(), how.worth) : how.worth;
}

// The best of every other mesh, the fastest first.
std::vector<Alternative> runnersUp(const Cluster &cluster, const SearchOptions &options, const Outcome &outcome) {
  constexpr size_t shown = 7; // of those that the search met anyway
  size_t most = options.top > 0 ? size_t(options.top) : shown;
  std::vector<Alternative> rows;
  for (size_t i = 1; i < outcome.byMesh.size() && rows.size() < most; ++i)
    rows.push_back(describe(fmt::format("searched #{}", i + 1), outcome.byMesh[i], cluster, outcome.best->seconds()));
  return rows;
}

// "dp=2,tp=4 zero 0 microbatches 1 recompute full": with what most blocks do, and how many do something else.
std::string splitText(const Solution &solution) {
  Setting setting = solution.model->setting;
  setting.recompute = mostRecomputed(solution);
  int blocks = 0, others = 0;
  const std::vector<Unit> &units = solution.model->layout->units;
  for (size_t u = 0; u < units.size(); ++u) {
    if (!units[u].isBlock) continue;
    ++blocks;
    others += solution.plan.recompute[u] != setting.recompute;
  }
  std::string text = setting.str();
  const std::string most = fmt::format(" recompute {}", name(setting.recompute));
  if (others > 0) text.insert(text.find(most) + most.size(), fmt::format(" (but {} of {} blocks)", others, blocks));
  return text;
}

// The same without the preset and what it fixes.
Constraints withoutPreset(Constraints given, const Cluster &cluster) {
  if (given.like.empty()) return given;
  const Constraints open;
  Result<Constraints> preset = parseConstraints({.like = given.like}, cluster);
  if (preset && given.zero == preset->zero) given.zero.reset();
  if (preset && given.schedule == preset->schedule) given.schedule.reset();
  if (preset && given.offload == preset->offload) given.offload.reset();
  given.like.clear();
  given.leastRanks = given.exceptLast ? std::max<int64_t>(2, open.leastRanks) : open.leastRanks;
  given.tensorSplit = open.tensorSplit;
  given.grid = open.grid;
  given.sequenceSplit = open.sequenceSplit;
  given.attentionSplit = open.attentionSplit;
  return given;
}

// Any mesh, without preset and pins; all else as it was asked for.
Constraints withoutMesh(const Constraints &given, const Cluster &cluster) {
  Constraints freed = withoutPreset(given, cluster);
  for (std::optional<int64_t> *size : {&freed.dp, &freed.fsdp, &freed.tp, &freed.pp, &freed.cp, &freed.ep})
    size->reset();
  freed.order.clear();
  freed.pins.clear();
  return freed;
}

// Something that was asked for, left to the search.
struct Freeing {
  std::string what;
  std::function<void(Constraints &)> free;
};

std::vector<Freeing> freeingsOf(const Constraints &given, const Cluster &cluster) {
  std::vector<Freeing> freeings;
  if (given.zero && withoutPreset(given, cluster).zero) // not the preset's own
    freeings.push_back({"another --zero", [](Constraints &c) { c.zero.reset(); }});
  if (given.microbatches)
    freeings.push_back({"another --microbatches", [](Constraints &c) { c.microbatches.reset(); }});
  if (given.schedule && withoutPreset(given, cluster).schedule)
    freeings.push_back({"another --schedule", [](Constraints &c) { c.schedule.reset(); }});
  if (!given.balance.empty() || !given.cuts.empty())
    freeings.push_back({"without --balance and --split-at", [](Constraints &c) {
                          c.balance.clear();
                          c.cuts.clear();
                        }});
  const bool isPlain = given.like.empty() && given.pins.empty();
  if (given.dp || given.tp || given.fsdp || given.pp || given.cp || given.ep || !isPlain)
    freeings.push_back({isPlain ? "another mesh" : "another mesh, without preset and pins",
                        [cluster](Constraints &c) { c = withoutMesh(c, cluster); }});
  if (given.recompute || !given.recomputeOf.empty())
    freeings.push_back({"without --recompute", [](Constraints &c) {
                          c.recompute.reset();
                          c.recomputeOf.clear();
                        }});
  return freeings;
}

// The same with more data parallel ways; a preset with nothing beside that it would fix as it is on so many devices.
Constraints withMoreDevices(const Constraints &given, const Cluster &cluster, const Cluster &larger) {
  Constraints freed = given;
  freed.dp.reset();
  auto fixed = [](Constraints of) {
    of.microbatches.reset();
    of.recompute.reset();
    of.recomputeOf.clear();
    of.pins.clear();
    return of.str();
  };
  Result<Constraints> here = parseConstraints({.like = given.like}, cluster);
  Result<Constraints> preset = parseConstraints({.like = given.like}, larger);
  if (given.like.empty() || !here || !preset || given.exceptLast || fixed(given) != fixed(*here)) return freed;
  preset->microbatches = given.microbatches;
  preset->recompute = given.recompute;
  preset->recomputeOf = given.recomputeOf;
  preset->pins = given.pins;
  return *preset;
}

// The same with more in the hosts' memory; none where that is asked for already, or cannot be (parseConstraints).
std::optional<Constraints> withOffload(const Constraints &constraints, Offload offload) {
  Offload given = constraints.offload.value_or(Offload::None);
  if (given == offload || given == Offload::All) return std::nullopt;
  if (constraints.exceptLast && movesActivations(offload)) return std::nullopt;
  Constraints moved = constraints;
  moved.offload = offload;
  if (!movesActivations(offload) && given != Offload::None) return std::nullopt;
  return moved;
}

// What fits with state, or all that can leave, in the hosts' memory, where nothing fits without, the hosts are known
// and nothing was asked for; else `without`. `leastBytes` is the least that any split found needs on a device.
Outcome openHosts(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                  const Constraints &constraints, const std::function<SearchOptions()> &how, Outcome without,
                  double &leastBytes) {
  if (without.best || !without.leastMemory) return without;
  leastBytes = without.leastMemory->bytes();
  if (!without.isComplete || constraints.offload || cluster.hostMemoryBytes == 0) return without;
  for (Offload offload : {Offload::Optimizer, Offload::All}) {
    std::optional<Constraints> moved = withOffload(constraints, offload);
    if (!moved) continue;
    Outcome other = searchSettings(problem, facts, cluster, *moved, how());
    if (other.leastMemory) leastBytes = std::min(leastBytes, other.leastMemory->bytes());
    if (!other.best) {
      without.isComplete &= other.isComplete;
      continue;
    }
    other.notes.push_back(fmt::format("no split fits without the hosts' memory: the leanest needs {} on a device",
                                      bytesText(without.leastMemory->bytes())));
    other.candidates += without.candidates;
    return other;
  }
  return without;
}

// Nothing fits: what would, each priced. `leastBytes` as openHosts() has it.
Status whatWouldFit(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                    const Constraints &constraints, const SearchTime &time, const Outcome &outcome, double leastBytes) {
  const Solution &least = *outcome.leastMemory;
  const MemoryBreakdown &memory = least.evaluation.predicted.memory;
  const bool isHostShort = least.bytes() <= usableMemory(cluster);
  std::string message =
      fmt::format("no plan fits: the leanest split found ({}) needs {} on a device (parameters {}, gradients {}, "
                  "optimizer {}, activations {}, workspace {}), of {} it can use {}{}",
                  splitText(least), bytesText(least.bytes()), bytesText(memory.parameters), bytesText(memory.gradients),
                  bytesText(memory.optimizer), bytesText(memory.activations), bytesText(memory.workspace),
                  bytesText(cluster.device.memoryBytes), bytesText(usableMemory(cluster)),
                  isHostShort ? "; it " + whatIsShort(least, cluster) : "");
  std::vector<std::string> changes;
  bool areAllTried = true;
  auto found = [&](const std::string &change, const Cluster &on,
                   const Constraints &with) -> std::optional<std::string> {
    constexpr size_t parts = 4; // of what is left: the first ones find most
    if (time.isOver()) {
      areAllTried = false;
      return std::nullopt;
    }
    auto how = [&] { return time.beside(parts, "what would fit: " + change); };
    double needed = 0;
    const Outcome changed =
        openHosts(problem, facts, on, with, how, searchSettings(problem, facts, on, with, how()), needed);
    if (!changed.best) return std::nullopt;
    return fmt::format("{}: {} fits with {}, {:.4g} s a step", change, splitText(*changed.best),
                       bytesText(changed.best->bytes()), changed.best->seconds());
  };
  auto attempt = [&](const std::string &change, const Cluster &on, const Constraints &with) {
    std::optional<std::string> line = found(change, on, with);
    if (line) changes.push_back(*line);
    return bool(line);
  };
  std::vector<Freeing> freeings = freeingsOf(constraints, cluster);
  for (const Freeing &one : freeings) {
    Constraints freed = constraints;
    one.free(freed);
    attempt(one.what, cluster, freed);
  }
  // Where the hosts' memory is known the search has tried it.
  const bool isOffloadTried = cluster.hostMemoryBytes > 0 && !constraints.offload;
  // A search takes seconds: of machines a few times too small none is made. Nothing needs less than its part of what
  // the leanest split needs; twice as much is left to what was not found.
  auto isFarTooSmall = [&](double parts, const Cluster &on) { return leastBytes / parts > 2 * usableMemory(on); };
  for (Offload offload : {Offload::Optimizer, Offload::All})
    if (std::optional<Constraints> moved = withOffload(constraints, offload); moved && !isOffloadTried)
      if (attempt(fmt::format("--offload {}", name(offload)), cluster, *moved)) break;
  if (constraints.offload) freeings.push_back({"without --offload", [](Constraints &c) { c.offload.reset(); }});
  if (changes.empty() && freeings.size() > 1) { // none of them by itself: together, without those that need not be
    auto together = [&](const std::vector<Freeing> &some) {
      Constraints freed = constraints;
      std::vector<std::string> names;
      for (const Freeing &one : some) {
        one.free(freed);
        names.push_back(one.what);
      }
      return found(fmt::format("{}", fmt::join(names, " and ")), cluster, freed);
    };
    std::optional<std::string> line = together(freeings);
    for (size_t i = freeings.size(); line && i-- > 0 && freeings.size() > 2;) {
      std::vector<Freeing> fewer = freeings;
      fewer.erase(fewer.begin() + ptrdiff_t(i));
      std::optional<std::string> less = together(fewer);
      if (!less) continue;
      freeings = std::move(fewer);
      line = std::move(less);
    }
    if (line) changes.push_back(*line);
  }
  auto attemptOnNodes = [&](int64_t nodes) {
    Cluster larger = cluster;
    larger.nodes = nodes;
    if (isFarTooSmall(double(nodes) / double(cluster.nodes), larger)) return false;
    const Constraints more = withMoreDevices(constraints, cluster, larger);
    const char *also = constraints.dp && !more.dp ? " and another --mesh dp" : "";
    return attempt(fmt::format("{} devices{}", larger.numDevices(), also), larger, more);
  };
  for (int64_t nodes = 2 * cluster.nodes; nodes <= 64 * cluster.nodes && !cluster.device.isCpu(); nodes *= 2) {
    if (!attemptOnNodes(nodes)) continue;
    // Half as many do not do: three quarters may.
    if (nodes % 4 == 0 && attemptOnNodes(nodes / 4 * 3)) changes.erase(changes.end() - 2);
    break;
  }
  auto attemptWithMemory = [&](double bytes) {
    Cluster larger = cluster;
    larger.device.memoryBytes = bytes;
    return !isFarTooSmall(1, larger) && attempt(fmt::format("devices with {}", bytesText(bytes)), larger, constraints);
  };
  // As much as the leanest split needs, with the hosts' memory or, where there is too little of it, without.
  const double usablePart = usableMemory(cluster) / cluster.device.memoryBytes;
  std::vector<double> sizes;
  for (double bytes : {leastBytes, least.bytes()})
    if (bytes > usableMemory(cluster)) sizes.push_back(roundedUp(bytes / usablePart));
  for (double factor : {1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0})
    sizes.push_back(factor * cluster.device.memoryBytes);
  std::ranges::sort(sizes);
  for (double size : sizes)
    if (attemptWithMemory(size)) break;
  for (double factor : {2.0, 4.0, 8.0, 16.0}) {
    if (!isHostShort) break;
    Cluster larger = cluster;
    larger.hostMemoryBytes *= factor;
    if (attempt(fmt::format("hosts with {}", bytesText(larger.hostMemoryBytes)), larger, constraints)) break;
  }
  if (!areAllTried) message += "; the time that --search-seconds gives was over before every single change was tried";
  if (changes.empty() && areAllTried) message += "; no single change helps";
  for (const std::string &change : changes) message += "\n  " + change;
  return {ErrorKind::NoFit, message};
}

// A pin must name something, have its rank, and put batch axes only where samples are.
Status checkPins(const Problem &problem, const Constraints &constraints) {
  if (constraints.pins.empty()) return Status::ok();
  std::vector<int64_t> batchDims = problem.batchDims();
  for (const Pin &pin : constraints.pins) {
    bool matches = false;
    auto wrong = [&](const std::string &why) {
      return Status(ErrorKind::Usage, fmt::format("--pin {}: {}", pin.text, why));
    };
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      const Tensor &tensor = problem.tensors[t];
      if (!names::matchGlob(pin.glob, tensor.name)) continue;
      matches = true;
      if (tensor.dims.size() != pin.dims.size())
        return wrong(fmt::format(
            "'{}' has {} dimensions, the pin {}; heads count for themselves where they are split: it is [{}]",
            tensor.name, tensor.dims.size(), pin.dims.size(), fmt::join(tensor.dims, ", ")));
      for (size_t dim = 0; dim < pin.dims.size(); ++dim)
        for (const std::string &axis : pin.dims[dim]) {
          if (axis == "tp" || batchDims[t] == int64_t(dim)) continue;
          return wrong(fmt::format("axis '{}' splits samples, and dimension {} of '{}' does not count them{}", axis,
                                   dim, tensor.name,
                                   tensor.kind == TensorKind::Parameter ? "; --zero 3 splits parameters over it" : ""));
        }
    }
    if (!matches) {
      std::vector<std::string> known;
      for (const Tensor &tensor : problem.tensors) known.push_back(tensor.name);
      return wrong(fmt::format("no tensor or parameter matches '{}'{}", pin.glob, names::suggestion(pin.glob, known)));
    }
  }
  return Status::ok();
}

// Ulysses splits attention by its heads; where they do not divide, its queries stay split by their positions.
void noteGatheredAttention(const Problem &problem, const SequenceFactors &sequence, const SplitModel &model,
                           std::vector<std::string> &notes) {
  int64_t cp = model.setting.cp;
  if (cp == 1 || model.attentionSplit != AttentionSplit::Ulysses) return;
  size_t count = 0;
  std::string first;
  for (const AttentionNodes &attention : sequence.attentions) {
    if (model.contextByHeads[size_t(attention.weigh)] || count++ > 0) continue;
    const Node &node = problem.nodes[size_t(attention.weigh)];
    int64_t heads = sequence.heads[size_t(attention.weigh)];
    first = fmt::format("'{}' ({})", node.name,
                        heads < 0 ? "one head" : fmt::format("{} heads", node.rule.factors[size_t(heads)].size));
  }
  if (count > 0)
    notes.push_back(
        fmt::format("Ulysses cannot split the heads of {} over cp={}{}: queries stay split by position, and "
                    "every device gathers all keys and values, so that their memory does not fall; choose "
                    "a cp that divides the heads, or --like ring",
                    first, cp, count > 1 ? fmt::format(" and of {} more like it", count - 1) : ""));
}

// Where nothing of the model divides by the tensor parallel devices all of them do the same.
void noteRepeatedWork(const Problem &problem, Decision &decision) {
  const int64_t tp = decision.mesh.axisSize("tp");
  if (tp == 1) return;
  bool splitsAny = false, splitsProducts = false, hasProducts = false;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const bool isSplit = std::ranges::any_of(
        decision.nodes[i].split, [](const dist::Axes &axes) { return std::ranges::find(axes, "tp") != axes.end(); });
    const bool isProduct = !problem.nodes[i].cheap && problem.nodes[i].flops > 0;
    splitsAny |= isSplit;
    splitsProducts |= isSplit && isProduct;
    hasProducts |= isProduct;
  }
  if (hasProducts ? splitsProducts : splitsAny) return;
  decision.notes.push_back(fmt::format("tp={} splits no {} of the model: its devices repeat each other's work", tp,
                                       hasProducts ? "product" : "operation"));
}

} // namespace

Cluster usedBy(const Problem &problem, Cluster cluster) {
  if (problem.writesAttention && !computeCapability(cluster.device.kind).empty()) cluster.device.fusedAttention = false;
  return cluster;
}

Result<Decision> solve(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                       const SearchOptions &options) {
  SearchTime time(options);
  CLEAVE_RETURN_IF_ERROR(problem.check());
  CLEAVE_RETURN_IF_ERROR(checkPins(problem, constraints));
  ProblemFacts facts = gatherFacts(problem, constraints);
  auto counts = [](int64_t dim) { return dim >= 0; };
  if (constraints.sequenceSplit == SequenceSplit::On && std::ranges::none_of(facts.sequenceDims, counts))
    return {Status(ErrorKind::Usage,
                   fmt::format("{} splits the sequence, but no tensor of {} has a dimension that counts positions "
                               "(beside samples and features); leave it out",
                               constraints.like.empty() ? "--sequence-parallel" : "--like " + constraints.like,
                               problem.name.empty() ? "this model" : problem.name))};
  Cells cells(problem, facts, cluster, constraints);
  Outcome outcome = searchSettings(problem, facts, cluster, constraints, time.first(), cells);
  double leastBytes = 0;
  outcome =
      openHosts(problem, facts, cluster, constraints, [&] { return time.first(); }, std::move(outcome), leastBytes);
  if (!outcome.best && outcome.leastMemory && !outcome.isComplete)
    return {
        Status(ErrorKind::NoFit,
               fmt::format("no plan that fits was found in {:.3g} s of search; the leanest so far ({}) needs {} on a "
                           "device, of which {} can be used: give --search-seconds more time, or leave it out",
                           time.elapsed(), splitText(*outcome.leastMemory), bytesText(outcome.leastMemory->bytes()),
                           bytesText(usableMemory(cluster))))};
  if (!outcome.best && outcome.leastMemory)
    return {whatWouldFit(problem, facts, cluster, constraints, time, outcome, leastBytes)};
  if (!outcome.best) return {outcome.reason};
  std::vector<PricedPreset> presets;
  if (options.alternatives) presets = pricePresets(problem, facts, cluster, constraints, time);
  const std::string chosen = choosePreset(problem, facts, cluster, constraints, time, presets, outcome);
  Decision decision = toDecision(problem, *outcome.best);
  decision.like = chosen.empty() ? constraints.like : chosen;
  decision.notes.insert(decision.notes.begin(), outcome.notes.begin(), outcome.notes.end());
  if (!facts.samplesMeetAt.empty() && !constraints.microbatches)
    decision.notes.push_back("samples of a batch can meet at '" + facts.samplesMeetAt +
                             "' (as in batch statistics): the search keeps the batch in one microbatch; with "
                             "--microbatches N only the samples of a microbatch meet");
  noteGatheredAttention(problem, facts.sequence, *outcome.best->model, decision.notes);
  noteRepeatedWork(problem, decision);
  decision.candidates = outcome.candidates;
  decision.gap = std::max(0.0, 1 - outcome.boundOfMixes / outcome.best->seconds());
  decision.gapIsOfAllSplits = outcome.boundsAllSplits;
  if (options.alternatives) {
    decision.alternatives = alternativesOf(problem, cluster, presets, outcome.best->seconds());
    if (std::optional<Alternative> row = unequalStages(problem, facts, cluster, constraints, time, decision))
      decision.alternatives.push_back(std::move(*row));
    if (std::optional<Alternative> row = unevenBatch(problem, facts, cluster, constraints, time, decision))
      decision.alternatives.push_back(std::move(*row));
    decision.twiceMemorySeconds = secondsWithTwiceTheMemory(problem, facts, cluster, constraints, time, outcome, cells);
    if (time.isOver())
      decision.notes.push_back("the time that --search-seconds gives was over before all alternatives were priced, and "
                               "all that twice the memory would bring");
  }
  for (Alternative &row : runnersUp(cluster, options, outcome)) decision.alternatives.push_back(std::move(row));
  decision.searchSeconds = time.elapsed();
  CLEAVE_RETURN_IF_ERROR(verify(problem, decision));
  return decision;
}

} // namespace cleave::planner
