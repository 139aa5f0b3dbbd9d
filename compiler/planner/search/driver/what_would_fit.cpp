#include "compiler/planner/search/driver/what_would_fit.h"
#include "compiler/planner/search/driver/alternatives.h"
#include "compiler/planner/search/driver/size_text.h"
#include "compiler/planner/search/space/search_space.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

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

// The changes of what was asked for, or of the machines, that are tried one after the other.
class Changes {
public:
  Changes(const SearchCase &asked, const Outcome &outcome, double leastBytes)
      : asked(asked), least(*outcome.leastMemory), leastBytes(leastBytes),
        freeings(freeingsOf(asked.constraints, asked.cluster)) {}

  bool isHostShort() const { return least.bytes() <= asked.cluster.device.usableBytes(); }

  // "; no single change helps", or a line for each that does.
  std::string text() {
    attemptFreeings();
    attemptOffload();
    if (lines.empty() && freeings.size() > 1) attemptTogether();
    attemptDevices();
    attemptMemory();
    attemptHosts();
    std::string all;
    if (!areAllTried) all += "; the time that --search-seconds gives was over before every single change was tried";
    if (lines.empty() && areAllTried) all += "; no single change helps";
    for (const std::string &line : lines) all += "\n  " + line;
    return all;
  }

private:
  std::optional<std::string> found(const std::string &change, const Cluster &on, const Constraints &with) {
    constexpr size_t parts = 4; // of what is left: the first ones find most
    if (asked.time.isOver()) {
      areAllTried = false;
      return std::nullopt;
    }
    const SearchCase other{asked.problem, asked.facts, on, with, asked.time};
    auto how = [&] { return asked.time.beside(parts, "what would fit: " + change); };
    double needed = 0;
    const Outcome changed = openHosts(other, how, other.search(with, how()), needed);
    if (!changed.best) return std::nullopt;
    return fmt::format("{}: {} fits with {}, {:.4g} s a step", change, splitText(*changed.best),
                       bytesText(changed.best->bytes()), changed.best->seconds());
  }

  bool attempt(const std::string &change, const Cluster &on, const Constraints &with) {
    std::optional<std::string> line = found(change, on, with);
    if (line) lines.push_back(*line);
    return bool(line);
  }

  // A search takes seconds: of machines a few times too small none is made. Nothing needs less than its part of what
  // the leanest split needs; twice as much is left to what was not found.
  bool isFarTooSmall(double parts, const Cluster &on) const { return leastBytes / parts > 2 * on.device.usableBytes(); }

  void attemptFreeings() {
    for (const Freeing &one : freeings) {
      Constraints freed = asked.constraints;
      one.free(freed);
      attempt(one.what, asked.cluster, freed);
    }
  }

  // Where the hosts' memory is known the search has tried it.
  void attemptOffload() {
    const Constraints &given = asked.constraints;
    const bool isTried = asked.cluster.hostMemoryBytes > 0 && !given.offload;
    for (Offload offload : {Offload::Optimizer, Offload::All})
      if (std::optional<Constraints> moved = withOffload(given, offload); moved && !isTried)
        if (attempt(fmt::format("--offload {}", name(offload)), asked.cluster, *moved)) break;
    if (given.offload) freeings.push_back({"without --offload", [](Constraints &c) { c.offload.reset(); }});
  }

  // None of them by itself: together, without those that need not be.
  void attemptTogether() {
    auto together = [&](const std::vector<Freeing> &some) {
      Constraints freed = asked.constraints;
      std::vector<std::string> names;
      for (const Freeing &one : some) {
        one.free(freed);
        names.push_back(one.what);
      }
      return found(fmt::format("{}", fmt::join(names, " and ")), asked.cluster, freed);
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
    if (line) lines.push_back(*line);
  }

  bool attemptOnNodes(int64_t nodes) {
    Cluster larger = asked.cluster;
    larger.nodes = nodes;
    if (isFarTooSmall(double(nodes) / double(asked.cluster.nodes), larger)) return false;
    const Constraints more = withMoreDevices(asked.constraints, asked.cluster, larger);
    const char *also = asked.constraints.dp && !more.dp ? " and another --mesh dp" : "";
    return attempt(fmt::format("{} devices{}", larger.numDevices(), also), larger, more);
  }

  void attemptDevices() {
    const int64_t here = asked.cluster.nodes;
    for (int64_t nodes = 2 * here; nodes <= 64 * here && !asked.cluster.device.isCpu(); nodes *= 2) {
      if (!attemptOnNodes(nodes)) continue;
      // Half as many do not do: three quarters may.
      if (nodes % 4 == 0 && attemptOnNodes(nodes / 4 * 3)) lines.erase(lines.end() - 2);
      break;
    }
  }

  // As much as the leanest split needs, with the hosts' memory or, where there is too little of it, without.
  void attemptMemory() {
    const double has = asked.cluster.device.memoryBytes, usable = asked.cluster.device.usableBytes();
    std::vector<double> sizes;
    for (double bytes : {leastBytes, least.bytes()})
      if (bytes > usable) sizes.push_back(roundedUp(bytes / (usable / has)));
    for (double factor : {1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0})
      sizes.push_back(factor * has);
    std::ranges::sort(sizes);
    for (double size : sizes) {
      Cluster larger = asked.cluster;
      larger.device.memoryBytes = size;
      if (isFarTooSmall(1, larger)) continue;
      if (attempt(fmt::format("devices with {}", bytesText(size)), larger, asked.constraints)) break;
    }
  }

  void attemptHosts() {
    if (!isHostShort()) return;
    for (double factor : {2.0, 4.0, 8.0, 16.0}) {
      Cluster larger = asked.cluster;
      larger.hostMemoryBytes *= factor;
      if (attempt(fmt::format("hosts with {}", bytesText(larger.hostMemoryBytes)), larger, asked.constraints)) break;
    }
  }

  const SearchCase &asked;
  const Solution &least;
  double leastBytes;
  std::vector<Freeing> freeings;
  std::vector<std::string> lines;
  bool areAllTried = true;
};

} // namespace

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

Outcome openHosts(const SearchCase &asked, const std::function<SearchOptions()> &how, Outcome without,
                  double &leastBytes) {
  const Cluster &cluster = asked.cluster;
  const Constraints &constraints = asked.constraints;
  if (without.best || !without.leastMemory) return without;
  leastBytes = without.leastMemory->bytes();
  if (!without.isComplete || constraints.offload || cluster.hostMemoryBytes == 0) return without;
  for (Offload offload : {Offload::Optimizer, Offload::All}) {
    std::optional<Constraints> moved = withOffload(constraints, offload);
    if (!moved) continue;
    Outcome other = asked.search(*moved, how());
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

Status whatWouldFit(const SearchCase &asked, const Outcome &outcome, double leastBytes) {
  const Cluster &cluster = asked.cluster;
  const Solution &least = *outcome.leastMemory;
  const MemoryBreakdown &memory = least.evaluation.predicted.memory;
  Changes changes(asked, outcome, leastBytes);
  const std::string message =
      fmt::format("no plan fits: the leanest split found ({}) needs {} on a device (parameters {}, gradients {}, "
                  "optimizer {}, activations {}, workspace {}), of {} it can use {}{}",
                  splitText(least), bytesText(least.bytes()), bytesText(memory.parameters), bytesText(memory.gradients),
                  bytesText(memory.optimizer), bytesText(memory.activations), bytesText(memory.workspace),
                  bytesText(cluster.device.memoryBytes), bytesText(cluster.device.usableBytes()),
                  changes.isHostShort() ? "; it " + whatIsShort(least.evaluation.predicted.memory, cluster) : "");
  return {ErrorKind::NoFit, message + changes.text()};
}

} // namespace cleave::planner
