#include "compiler/planner/search/space/settings.h"
#include "compiler/planner/pipeline/schedule_profile.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d * d != number) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

namespace {

std::vector<int64_t> sizes(int64_t number, const std::optional<int64_t> &fixed, bool isOpen) {
  if (fixed) return number % *fixed == 0 ? std::vector<int64_t>{*fixed} : std::vector<int64_t>{};
  return isOpen ? divisors(number) : std::vector<int64_t>{1};
}

// Attention is what cp has a mechanism for; presets say themselves whether they split sequences.
bool opensSequence(const ProblemFacts &facts, const Constraints &constraints) {
  return constraints.like.empty() && !facts.sequence.attentions.empty();
}

// Presets say themselves where experts are; a grid has their devices.
bool opensExperts(const ProblemFacts &facts, const Constraints &constraints) {
  return constraints.like.empty() && constraints.grid == TensorGrid::None && !facts.expertCounts.empty();
}

// Devices that have other experts have other samples too: where these do not divide over them they would repeat each
// other's work but for the experts', which tp divides as well.
bool dividesExperts(const Problem &problem, const ProblemFacts &facts, const Setting &setting) {
  if (setting.ep == 1) return true;
  auto divides = [&](int64_t experts) { return experts % setting.ep == 0; };
  return std::ranges::any_of(facts.expertCounts, divides) &&
         problem.batch / setting.microbatches % (setting.batchWays() * setting.ep) == 0;
}

// Where a device has several samples, splitting them is at least as good as splitting the sequence.
bool hasOneSample(const Problem &problem, const Setting &setting) {
  return setting.batchDivides && setting.localSamples(problem.batch) == 1;
}

// Chunks a rank may be given: more shorten the bubble and lengthen the communication.
constexpr int interleavedChunks[] = {2, 3, 4, 6, 8};

// The kinds that give the unsplit model's numbers and have a table of their own; those whose tables follow the stages'
// times (zb-1p, zb-2p) have none before there are stages (follow_schedules.cpp). None is always as good as
// another: gpipe and looped-bfs keep most, and where transfers take long nothing waits for a round trip (four ranks,
// eight microbatches, passes of 1, transfers of 0.3: gpipe 34.8, 1f1b 37.8); zb-h2 waits less than zb-h1 and keeps
// more. `units`, `blocks`: that stages are made of.
std::vector<std::string> schedules(const Constraints &constraints, size_t units, size_t blocks,
                                   const Setting &setting) {
  if (constraints.schedule) return {*constraints.schedule};
  if (setting.pp == 1) return {"none"};
  std::vector<std::string> kinds = {"1f1b", "gpipe"};
  // Chunks of as many blocks each, where there are such: the tables are made for those.
  auto isEven = [&](int chunks) { return blocks > 0 && blocks % size_t(setting.pp * chunks) == 0; };
  const bool someAreEven = std::ranges::any_of(interleavedChunks, isEven);
  for (int chunks : interleavedChunks) {
    if (size_t(setting.pp * chunks) > units || (!isEven(chunks) && someAreEven)) continue;
    if (setting.microbatches % setting.pp == 0) kinds.push_back(fmt::format("interleaved:{}", chunks));
    kinds.push_back(fmt::format("looped-bfs:{}", chunks));
  }
  for (const char *kind : {"zb-h1", "zb-h2"}) kinds.emplace_back(kind);
  if (size_t(setting.pp * 2) <= units)
    for (const char *kind : {"zb-v", "dualpipev"}) kinds.emplace_back(kind);
  std::erase_if(kinds, [&](const std::string &kind) {
    const std::string family = kind.substr(0, kind.find(':'));
    return !constraints.schedules.empty() &&
           std::ranges::find(constraints.schedules, family) == constraints.schedules.end();
  });
  return kinds;
}

// Presets are laid as they were published: tp inside a node, then cp, fsdp and dp, stages outermost.
std::vector<AxisOrder> ordersOf(const Cluster &cluster, const Constraints &constraints, const Setting &setting) {
  if (!constraints.like.empty() && constraints.order.empty()) return {usualOrder};
  return openOrders(cluster, setting, constraints.order);
}

} // namespace

std::vector<Setting> openSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                  const Constraints &constraints, bool mustDivide) {
  std::vector<Setting> result;
  int64_t devices = cluster.numDevices(), fsdp = constraints.fsdp.value_or(1);
  int64_t units = int64_t(facts.structure->layout->units.size());
  auto blocks = size_t(std::ranges::count_if(facts.structure->layout->units, &Unit::isBlock));
  std::vector<int64_t> microbatchCounts = divisors(problem.batch);
  for (int64_t pp : sizes(devices, constraints.pp, true)) {
    if (!constraints.pp && (pp > units || pp < constraints.leastRanks)) continue;
    for (int64_t cp : sizes(devices / pp, constraints.cp, opensSequence(facts, constraints)))
      for (int64_t tp : sizes(devices / pp / cp, constraints.tp, true))
        for (int64_t ep : sizes(devices / pp / cp / tp, constraints.ep, opensExperts(facts, constraints))) {
          int64_t rest = devices / pp / cp / tp / ep;
          if (rest % fsdp != 0 || (constraints.dp && *constraints.dp != rest / fsdp)) continue;
          std::vector<AxisOrder> orders;
          for (int64_t microbatches : microbatchCounts) {
            if (constraints.microbatches && *constraints.microbatches != microbatches) continue;
            if (!constraints.microbatches && !facts.samplesMeetAt.empty() && microbatches > 1) continue;
            if (constraints.exceptLast && microbatches == 1) continue; // it keeps all, which has a name of its own
            Setting setting;
            setting.pp = pp;
            setting.dp = rest / fsdp;
            setting.fsdp = fsdp;
            setting.cp = cp;
            setting.ep = ep;
            setting.tp = tp;
            if (constraints.grid != TensorGrid::None) {
              setting.tp = 1;
              setting.grid = constraints.grid;
              setting.gridSide = constraints.gridSide;
              setting.gridDepth = constraints.gridDepth;
            }
            setting.microbatches = microbatches;
            setting.exceptLast = constraints.exceptLast;
            setting.offload = constraints.offload.value_or(Offload::None);
            setting.meetsAtUpdate = problem.meetsAtUpdate;
            setting.batchDivides = problem.batch / microbatches % setting.batchWays() == 0;
            if (setting.batchDivides != mustDivide) continue;
            setting.chunks = setting.chunksOf(problem, constraints.chunks);
            if (!constraints.ep && !dividesExperts(problem, facts, setting)) continue;
            if (!constraints.cp && cp > 1 && !hasOneSample(problem, setting)) continue;
            if (!mustDivide && microbatches > 1 && !constraints.microbatches && pp == 1) continue;
            for (const std::string &schedule : schedules(constraints, size_t(units), blocks, setting)) {
              setting.schedule = pp > 1 ? schedule : "none";
              const ScheduleShape *shape = pp > 1 ? knownShape(schedule, pp) : nullptr;
              if (shape && constraints.stages() > 1 && shape->stages != constraints.stages()) continue;
              setting.weightVersions = shape ? shape->weightVersions : 1;
              if (orders.empty()) orders = ordersOf(cluster, constraints, setting);
              for (const AxisOrder &order : orders) {
                setting.order = order;
                result.push_back(setting);
              }
            }
          }
        }
  }
  return result;
}

std::vector<int> openZeroStages(const Constraints &constraints, const Setting &setting) {
  if (constraints.zero) return {*constraints.zero};
  if (setting.zeroWays() <= 1) return {0};
  return {0, 1, 2, 3};
}

bool mixesZeroStages(const Constraints &constraints, const Setting &setting) {
  return openZeroStages(constraints, setting).size() > 1 && setting.offload == Offload::None &&
         setting.grid == TensorGrid::None;
}

std::vector<Recompute> openRecomputation(const Constraints &constraints, const RecomputeSegments &segments) {
  if (constraints.recompute) return {*constraints.recompute};
  if (!segments.any()) return {Recompute::None};
  if (!segments.hasActivations()) return {Recompute::None, Recompute::Selective, Recompute::Full};
  return {everyRecompute.begin(), everyRecompute.end()};
}

} // namespace cleave::planner
