#include "compiler/planner/facts/stage_units.h"
#include "runtime/base/names/glob.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>

namespace cleave::planner {
namespace {

// What a node does with weights, as they lie or laid out otherwise: look up rows of a table, compute with all of one.
enum class WeightUse : uint8_t { None, Lookup, Product };

std::vector<WeightUse> weightUses(const Problem &problem) {
  const std::vector<bool> areWeights = problem.areWeights(false);
  std::vector<WeightUse> uses;
  for (const Node &node : problem.nodes) {
    const bool isLookup = node.kind.form == dist::Form::Gather && !anyIn(areWeights, node.results);
    uses.push_back(!anyIn(areWeights, node.operands) ? WeightUse::None
                   : !node.cheap                     ? WeightUse::Product
                   : isLookup                        ? WeightUse::Lookup
                                                     : WeightUse::None);
  }
  return uses;
}

// Cuts [begin, end) between operations with weights, each time where the fewest bytes cross. Embeddings that follow
// each other stay together.
void cutStretch(const std::vector<WeightUse> &uses, const std::vector<double> &live, int begin, int end, int &kinds,
                std::vector<Unit> &units) {
  int start = begin, last = -1;
  for (int i = begin; i < end; ++i) {
    const WeightUse use = uses[size_t(i)];
    if (use == WeightUse::None) continue;
    if (last >= 0 && (use != WeightUse::Lookup || uses[size_t(last)] != WeightUse::Lookup)) {
      int cut = last + 1;
      for (int at = last + 1; at <= i; ++at)
        if (live[size_t(at)] < live[size_t(cut)]) cut = at;
      units.push_back({start, cut, kinds++, false});
      start = cut;
    }
    last = i;
  }
  if (start == end) return;
  // Without an operation of weight it is part of what stands before it.
  if (last < 0 && !units.empty() && !units.back().isBlock)
    units.back().end = end;
  else
    units.push_back({start, end, kinds++, false});
}

} // namespace

std::vector<Unit> findUnits(const Graph &graph, const std::vector<Repeat> &repeats, const std::vector<int> &cuts) {
  const Problem &problem = graph.problem;
  std::vector<Unit> units;
  const std::vector<double> live = problem.liveBytes();
  const std::vector<WeightUse> uses = weightUses(problem);
  int at = 0, kinds = 0;
  for (const Repeat &repeat : repeats) {
    const auto first = uses.begin() + repeat.first;
    if (std::find(first, first + repeat.period, WeightUse::Product) == first + repeat.period) continue;
    cutStretch(uses, live, at, repeat.first, kinds, units);
    for (int i = 0; i < repeat.count; ++i)
      units.push_back({repeat.first + i * repeat.period, repeat.first + (i + 1) * repeat.period, kinds, true});
    ++kinds;
    at = repeat.end();
  }
  cutStretch(uses, live, at, int(problem.nodes.size()), kinds, units);
  // Nothing but work on inputs (casts, masks), which is done where it is read, is no stage.
  auto isOnInputs = [&](const Node &node) { return !anyIn(graph.needsGradient, node.results); };
  if (units.size() > 1 && std::all_of(problem.nodes.begin(), problem.nodes.begin() + units.front().end, isOnInputs)) {
    units[1].first = 0;
    units[1].kind = kinds++;
    units.erase(units.begin());
  }
  for (int cut : cuts) {
    auto isInside = [&](const Unit &unit) { return unit.first < cut && cut < unit.end; };
    auto unit = std::find_if(units.begin(), units.end(), isInside);
    if (unit == units.end()) continue;
    Unit rest{cut, unit->end, kinds++, unit->isBlock};
    *unit = {unit->first, cut, kinds++, unit->isBlock};
    units.insert(std::next(unit), rest);
  }
  return units;
}

Result<std::vector<int>> splitPlaces(const Problem &problem, const Constraints &constraints) {
  std::vector<int> starts;
  for (const StageCut &cut : constraints.cuts) {
    int first = -1, last = -1;
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      if (!names::matchGlob(cut.glob, problem.nodes[i].name)) continue;
      if (first < 0) first = int(i);
      last = int(i);
    }
    if (first < 0) {
      std::vector<std::string> known;
      for (const Node &node : problem.nodes) known.push_back(node.name);
      return {
          Status(ErrorKind::Usage, fmt::format("--split-at {}: no node matches{}; the model's are called '{}', '{}' or "
                                               "'{}', for example (* stands for any text; :before or :after behind "
                                               "the name says on which side)",
                                               cut.text, names::suggestion(cut.glob, known), known.front(),
                                               known[known.size() / 2], known.back()))};
    }
    int start = cut.after ? last + 1 : first;
    if (start == 0 || start == int(problem.nodes.size()))
      return {Status(ErrorKind::Usage,
                     fmt::format("--split-at {}: leaves no node {} it", cut.text, cut.after ? "after" : "before"))};
    starts.push_back(start);
  }
  std::sort(starts.begin(), starts.end());
  if (std::adjacent_find(starts.begin(), starts.end()) != starts.end())
    return {Status(ErrorKind::Usage, "--split-at: two cuts fall on one place, the stage between them is empty")};
  return starts;
}

Result<std::vector<int>> pinnedStageStarts(const Problem &problem, const std::vector<Unit> &units,
                                           const Constraints &constraints) {
  std::vector<int> starts;
  if (!constraints.cuts.empty()) {
    Result<std::vector<int>> places = splitPlaces(problem, constraints);
    if (places) places->insert(places->begin(), 0);
    return places;
  }
  if (constraints.balance.empty()) return starts;
  int64_t asked = std::accumulate(constraints.balance.begin(), constraints.balance.end(), int64_t(0));
  int64_t blocks = std::count_if(units.begin(), units.end(), [](const Unit &unit) { return unit.isBlock; });
  if (asked != blocks && asked != int64_t(units.size()))
    return {Status(ErrorKind::Usage,
                   fmt::format("--balance {}: the sum is {}, but the model has {} repeated blocks and {} units in all",
                               fmt::join(constraints.balance, ","), asked, blocks, units.size()))};
  starts.push_back(0);
  size_t stage = 0;
  int64_t taken = 0;
  for (const Unit &unit : units) {
    bool counts = asked != blocks || unit.isBlock;
    if (counts && taken == constraints.balance[stage] && stage + 1 < constraints.balance.size()) {
      starts.push_back(unit.first);
      ++stage;
      taken = 0;
    }
    taken += counts;
  }
  return starts;
}

std::vector<int> stagesOfNodes(const Problem &problem, const std::vector<int> &starts) {
  std::vector<int> stages(problem.nodes.size(), 0);
  for (size_t i = 0; i < stages.size(); ++i)
    stages[i] = int(std::upper_bound(starts.begin(), starts.end(), int(i)) - starts.begin()) - 1;
  const std::vector<bool> needsGradient = problem.needsGradient();
  constexpr int unread = std::numeric_limits<int>::max();
  std::vector<int> firstReader(problem.tensors.size(), unread);
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    int reader = unread;
    for (int tensor : node.results) reader = std::min(reader, firstReader[size_t(tensor)]);
    // Where one of its results is read by nobody it stays with the others.
    if (!anyIn(needsGradient, node.results) && reader != unread) stages[i] = reader;
    for (int tensor : node.operands) firstReader[size_t(tensor)] = std::min(firstReader[size_t(tensor)], stages[i]);
  }
  return stages;
}

} // namespace cleave::planner
