#include "compiler/planner/stage_bound.h"
#include "compiler/planner/bound_mixture.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
// Of a device's whole memory, in steps' times: more would only make bounds of what does not fit larger.
constexpr double mostMemoryPrice = 50;
// Prices to begin with, of all ranks together.
constexpr double firstMemoryPrices[] = {0.1, 0.5, 2};
// Of the paths to the ends of ranks, so many of the longest are kept for each cut.
constexpr size_t pathsOfACut = 4;
// Linear programs for the first node, and for each part.
constexpr int roundsOfTheWhole = 40, roundsOfAPart = 4;

} // namespace

StageRelaxation::StageRelaxation(const StageProblem &problem, const StagePlan &plan, double incumbent)
    : problem(problem), incumbent(incumbent), stages(problem.stages()), ranks(size_t(problem.ranks())),
      ways(problem.recompute ? std::vector<Recompute>{*problem.recompute} : problem.allowed) {
  gatherUnits();
  gatherBorders();
  addRowPaths();
  std::vector<size_t> modes;
  for (Recompute how : plan.recompute)
    modes.push_back(size_t(std::max<ptrdiff_t>(0, std::find(ways.begin(), ways.end(), how) - ways.begin())) %
                    ways.size());
  pool.push_back(describe(plan.firstUnits, modes));
  if (problem.profile) {
    schedule = simulatedSchedule(problem, pool.back().stages);
    if (schedule && followsTimes(problem.model->setting.schedule)) schedule.reset(); // the table is another for others
    addCriticalPaths(pool.back());
  }
}

void StageRelaxation::gatherUnits() {
  const SplitModel &model = *problem.model;
  const UnitLayout &layout = *model.layout;
  const double microbatches = double(model.setting.microbatches);
  const size_t count = layout.units.size();
  // Compute hides backward for the most part: at most so much of a unit's, whatever others are beside it on the rank.
  Overlap overlap = overlapOf(model);
  double leastForward = 1, fastest = infinity;
  for (const Unit &unit : layout.units)
    for (Recompute how : ways) {
      const UnitActivity &one = problem.activity->of(unit.kind, how);
      if (one.seconds() > 0) leastForward = std::min(leastForward, one.forward / one.seconds());
      if (unit.isBlock) fastest = std::min(fastest, one.seconds());
    }
  double rate =
      microbatches * std::max(overlap.forward, overlap.forward * leastForward + overlap.backward * (1 - leastForward));
  // Blocks of one rank, where it is no slower than the incumbent and leaves every other stage a unit.
  double most = double(count) - double(stages) + double(problem.profile ? problem.profile->chunks : 1);
  if (fastest > 0 && fastest < infinity) most = std::min(most, std::floor(incumbent / microbatches / fastest));
  most = std::max(1.0, most);

  // A parameter that several units read is on the rank of the first, and on that of the last where this is another.
  std::vector<std::vector<double>> extra(count, std::vector<double>(3, 0.0)); // once, hideable, bytes
  const int lastUnit = int(count) - 1;
  GroupShape pair{2, model.setting.devices() / model.setting.pp < model.cluster->devicesPerNode ? 2 : 1};
  for (size_t p = 0; p < layout.shared.size(); ++p) {
    const UnitState &state = problem.state->shared[p];
    const std::vector<int> &readers = layout.shared[p].units;
    bool isApart = ranks > 1 && readers.front() == 0 && readers.back() == lastUnit &&
                   problem.rankOf(0) != problem.rankOf(stages - 1);
    double sum = isApart ? collectiveSeconds(*model.cluster, Collective::AllReduce, pair, state.gradients) : 0;
    for (int unit : {readers.front(), readers.back()}) {
      extra[size_t(unit)][0] += state.update + state.exposed + sum;
      extra[size_t(unit)][1] += state.hideable;
      extra[size_t(unit)][2] += state.bytes();
      if (!isApart) break;
    }
  }

  std::map<std::pair<int, std::vector<double>>, int> known;
  leastOverhead = infinity;
  for (size_t u = 0; u < count; ++u) {
    const Unit &unit = layout.units[u];
    auto [found, isNew] = known.try_emplace({unit.kind, extra[u]}, int(classes.size()));
    classOf.push_back(found->second);
    if (!isNew) continue;
    const UnitState &state = problem.state->kinds[size_t(unit.kind)];
    UnitClass one{
        {}, state.update + state.exposed + extra[u][0], state.hideable + extra[u][1], state.bytes() + extra[u][2]};
    for (Recompute how : ways) {
      const UnitActivity &a = problem.activity->of(unit.kind, how);
      double overhead = a.transient + workspaceBytes(model.setting, a.workspace, state.largestParameter,
                                                     state.gradients, state.parameters);
      leastOverhead = std::min(leastOverhead, overhead);
      one.modes.push_back({a.forward, a.backwardInput, a.backwardWeight, rate * (a.seconds() - a.communication), a.kept,
                           unit.isBlock ? overhead : 0});
    }
    classes.push_back(std::move(one));
  }
  // The workspace is the largest of a rank's units': of each of them a part that cannot make more than the largest.
  for (UnitClass &one : classes)
    for (Mode &mode : one.modes) mode.bytes = std::max(0.0, mode.bytes - leastOverhead) / most;
}

void StageRelaxation::gatherBorders() {
  const SplitModel &model = *problem.model;
  borders.resize(model.layout->units.size());
  if (ranks == 1) return;
  bool crossesNodes = model.setting.devices() / model.setting.pp >= model.cluster->devicesPerNode;
  for (size_t u = 1; u < borders.size(); ++u) {
    Border &border = borders[u];
    border.in = problem.activity->forwardCrossing[u];
    border.back = problem.activity->backwardCrossing[u];
    if (border.in > 0) border.sendForward = sendSeconds(*model.cluster, crossesNodes, border.in);
    if (border.back > 0) border.sendBackward = sendSeconds(*model.cluster, crossesNodes, border.back);
  }
}

// A rank does all its work one after the other, after the first microbatch has come to it; then what it sent back has
// to go down to the first stage. Weights' gradients may come after that.
void StageRelaxation::addRowPaths() {
  const double microbatches = double(problem.model->setting.microbatches);
  const bool splits = problem.profile && problem.profile->splitsBackward;
  for (size_t rank = 0; rank < ranks; ++rank) {
    SchedulePath path;
    path.rank = int(rank);
    for (auto *counts :
         {&path.forward, &path.backwardInput, &path.backwardWeight, &path.sendForward, &path.sendBackward})
      counts->assign(size_t(stages), 0.0);
    int first = stages;
    for (int s = stages; s-- > 0;)
      if (problem.rankOf(s) == int(rank)) {
        first = s;
        path.forward[size_t(s)] = path.backwardInput[size_t(s)] = path.backwardWeight[size_t(s)] = microbatches;
      }
    for (int s = 0; s < first; ++s) {
      ++path.forward[size_t(s)];
      if (problem.rankOf(s) != problem.rankOf(s + 1)) ++path.sendForward[size_t(s)];
    }
    rows.push_back({path, false});
    rows.push_back({path, true});
    if (first == 0) continue;
    for (int s = 0; s < stages; ++s) {
      if (splits && problem.rankOf(s) == int(rank)) path.backwardWeight[size_t(s)] = 0;
      if (s >= first) continue;
      ++path.backwardInput[size_t(s)];
      if (!splits) ++path.backwardWeight[size_t(s)];
      if (problem.rankOf(s) != problem.rankOf(s + 1)) ++path.sendBackward[size_t(s) + 1];
    }
    path.rank = problem.rankOf(0);
    rows.push_back({path, false});
    rows.push_back({path, true});
  }
}

// Longest paths to the end of every rank. Of a table that was cut short, the slowest rank does the rest.
void StageRelaxation::addCriticalPaths(const Cut &cut) {
  if (!schedule) return;
  size_t slowest = 0;
  std::vector<double> work(ranks, 0.0);
  for (int s = 0; s < stages; ++s) {
    const StageTimes &times = cut.stages[size_t(s)];
    work[size_t(problem.rankOf(s))] += times.forward + times.backwardInput + times.backwardWeight;
  }
  for (size_t r = 0; r < ranks; ++r)
    if (work[r] > work[slowest]) slowest = r;
  std::vector<Row> found;
  for (SchedulePath &path : criticalPaths(schedule->table, cut.stages)) {
    for (int s = 0; s < stages; ++s)
      if (problem.rankOf(s) == int(slowest))
        for (auto *counts : {&path.forward, &path.backwardInput, &path.backwardWeight})
          (*counts)[size_t(s)] += double(schedule->rest);
    bool late = cut.hideable[size_t(path.rank)] > cut.hidden[size_t(path.rank)];
    found.push_back({std::move(path), late});
  }
  std::stable_sort(found.begin(), found.end(),
                   [&](const Row &a, const Row &b) { return seconds(a, cut) > seconds(b, cut); });
  if (found.size() > pathsOfACut) found.resize(pathsOfACut);
  for (Row &row : found) rows.push_back(std::move(row));
}

double StageRelaxation::seconds(const Row &row, const Cut &cut) const {
  const size_t rank = size_t(row.path.rank);
  return row.path.seconds(cut.stages) + cut.once[rank] + (row.late ? cut.hideable[rank] - cut.hidden[rank] : 0);
}

StageRelaxation::Multipliers StageRelaxation::mix(const std::vector<double> &weights,
                                                  const std::vector<double> &prices) const {
  Multipliers at;
  at.stages.assign(size_t(stages), {0, 0, 0, 0, 0});
  at.once.assign(ranks, 0.0);
  at.late = at.memory = at.once;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    if (weight == 0) continue;
    const SchedulePath &path = rows[i].path;
    for (size_t s = 0; s < size_t(stages); ++s) {
      at.stages[s].forward += weight * path.forward[s];
      at.stages[s].backwardInput += weight * path.backwardInput[s];
      at.stages[s].backwardWeight += weight * path.backwardWeight[s];
      at.stages[s].sendForward += weight * path.sendForward[s];
      at.stages[s].sendBackward += weight * path.sendBackward[s];
    }
    at.once[size_t(path.rank)] += weight;
    if (rows[i].late) at.late[size_t(path.rank)] += weight;
  }
  for (size_t r = 0; r < prices.size(); ++r) {
    at.memory[r] = prices[r] / problem.memoryLimit;
    at.constant += prices[r] * (leastOverhead / problem.memoryLimit - 1);
  }
  return at;
}

StageRelaxation::Multipliers StageRelaxation::between(const Multipliers &a, const Multipliers &b) {
  auto half = [](double x, double y) { return (x + y) / 2; };
  Multipliers at = b;
  for (size_t s = 0; s < at.stages.size(); ++s) {
    const StageTimes &x = a.stages[s], &y = b.stages[s];
    at.stages[s] = {half(x.forward, y.forward), half(x.backwardInput, y.backwardInput),
                    half(x.backwardWeight, y.backwardWeight), half(x.sendForward, y.sendForward),
                    half(x.sendBackward, y.sendBackward)};
  }
  for (size_t r = 0; r < at.once.size(); ++r) {
    at.once[r] = half(a.once[r], b.once[r]);
    at.late[r] = half(a.late[r], b.late[r]);
    at.memory[r] = half(a.memory[r], b.memory[r]);
  }
  at.constant = half(a.constant, b.constant);
  return at;
}

double StageRelaxation::price(const Mode &mode, const Multipliers &at, int stage) const {
  const StageTimes &times = at.stages[size_t(stage)];
  const int rank = problem.rankOf(stage);
  return times.forward * mode.forward + times.backwardInput * mode.backwardInput +
         times.backwardWeight * mode.backwardWeight - at.late[size_t(rank)] * mode.hidden +
         at.memory[size_t(rank)] * (problem.live(rank) * mode.kept + mode.bytes);
}

bool StageRelaxation::Node::allows(const std::vector<int> &starts) const {
  for (size_t s = 0; s < starts.size(); ++s)
    if (starts[s] < first[s] || starts[s] > last[s]) return false;
  return true;
}

double StageRelaxation::minimise(const Multipliers &at, const Node &node, std::vector<int> &starts,
                                 std::vector<size_t> &modes) const {
  const size_t count = classOf.size(), stageCount = size_t(stages);
  // Of a unit of a class in a stage, with the mode that is best there.
  std::vector<std::vector<double>> cost(stageCount, std::vector<double>(classes.size()));
  std::vector<std::vector<size_t>> modeOf(stageCount, std::vector<size_t>(classes.size(), 0));
  for (size_t s = 0; s < stageCount; ++s) {
    const size_t rank = size_t(problem.rankOf(int(s)));
    for (size_t c = 0; c < classes.size(); ++c) {
      const UnitClass &one = classes[c];
      double least = infinity;
      for (size_t mode = 0; mode < one.modes.size(); ++mode)
        if (double now = price(one.modes[mode], at, int(s)); now < least) {
          least = now;
          modeOf[s][c] = mode;
        }
      cost[s][c] = least + at.once[rank] * one.once + at.late[rank] * one.hideable + at.memory[rank] * one.bytes;
    }
  }
  auto begin = [&](size_t s, size_t u) {
    const Border &border = borders[u];
    return at.stages[s - 1].sendForward * border.sendForward + at.stages[s].sendBackward * border.sendBackward +
           at.memory[size_t(problem.rankOf(int(s) - 1))] * 2 * border.in +
           at.memory[size_t(problem.rankOf(int(s)))] * 2 * (border.in + border.back);
  };
  starts.assign(stageCount, 0);
  double total = at.constant;
  if (!problem.firstUnits.empty()) {
    starts = problem.firstUnits;
    for (size_t u = 0, s = 0; u < count; ++u) {
      if (s + 1 < stageCount && int(u) == starts[s + 1]) total += begin(++s, u);
      total += cost[s][size_t(classOf[u])];
    }
  } else {
    // least[u]: units up to u, which is in stage s.
    std::vector<double> least(count, infinity), before;
    std::vector<std::vector<bool>> begins(stageCount, std::vector<bool>(count, false));
    for (size_t s = 0; s < stageCount; ++s) {
      before.swap(least);
      least.assign(count, infinity);
      for (size_t u = s; u + (stageCount - 1 - s) < count; ++u) {
        double here = u > s || s == 0 ? (u == 0 ? 0 : least[u - 1]) : infinity;
        if (s > 0 && int(u) >= node.first[s] && int(u) <= node.last[s])
          if (double fresh = before[u - 1] + begin(s, u); fresh < here) {
            here = fresh;
            begins[s][u] = true;
          }
        least[u] = here + cost[s][size_t(classOf[u])];
      }
    }
    total += least[count - 1];
    if (least[count - 1] == infinity) return infinity;
    for (size_t s = stageCount - 1, u = count - 1; s > 0; --u)
      if (begins[s][u]) starts[s--] = int(u);
  }
  modes.assign(count, 0);
  for (size_t u = 0, s = 0; u < count; ++u) {
    while (s + 1 < stageCount && int(u) >= starts[s + 1]) ++s;
    modes[u] = modeOf[s][size_t(classOf[u])];
  }
  return total;
}

StageRelaxation::Cut StageRelaxation::describe(const std::vector<int> &starts, const std::vector<size_t> &modes) const {
  Cut cut;
  cut.starts = starts;
  cut.stages.assign(size_t(stages), {0, 0, 0, 0, 0});
  cut.once.assign(ranks, 0.0);
  cut.hideable = cut.hidden = cut.once;
  cut.bytes.assign(ranks, leastOverhead);
  for (size_t u = 0, s = 0; u < classOf.size(); ++u) {
    if (s + 1 < size_t(stages) && int(u) == starts[s + 1]) {
      const Border &border = borders[u];
      cut.stages[s].sendForward = border.sendForward;
      cut.bytes[size_t(problem.rankOf(int(s)))] += 2 * border.in;
      ++s;
      cut.stages[s].sendBackward = border.sendBackward;
      cut.bytes[size_t(problem.rankOf(int(s)))] += 2 * (border.in + border.back);
    }
    const size_t rank = size_t(problem.rankOf(int(s)));
    const UnitClass &one = classes[size_t(classOf[u])];
    const Mode &mode = one.modes[modes[u]];
    cut.stages[s].forward += mode.forward;
    cut.stages[s].backwardInput += mode.backwardInput;
    cut.stages[s].backwardWeight += mode.backwardWeight;
    cut.once[rank] += one.once;
    cut.hideable[rank] += one.hideable;
    cut.hidden[rank] += mode.hidden;
    cut.bytes[rank] += one.bytes + mode.bytes + problem.live(int(rank)) * mode.kept;
  }
  return cut;
}

// The least of a mixture is a bound of the node; where it is, there are new paths.
void StageRelaxation::attempt(const Multipliers &at, Node &node) {
  std::vector<int> starts;
  std::vector<size_t> modes;
  double value = minimise(at, node, starts, modes);
  if (value > node.bound) {
    node.bound = value;
    node.at = at;
  }
  if (value == infinity) return;
  Cut cut = describe(starts, modes);
  met.push_back(starts);
  addCriticalPaths(cut);
  pool.push_back(std::move(cut));
}

void StageRelaxation::solve(Node &node, int rounds, double goal) {
  node.stage = -1;
  bool isKnown = std::any_of(pool.begin(), pool.end(), [&](const Cut &cut) { return node.allows(cut.starts); });
  if (!isKnown || !node.at.stages.empty()) attempt(node.at, node);
  for (; rounds > 0 && programs > 0 && node.bound < goal; --rounds, --programs) {
    std::vector<size_t> among;
    for (size_t c = 0; c < pool.size(); ++c)
      if (node.allows(pool[c].starts)) among.push_back(c);
    const double unit = std::max(1e-30, seconds(rows[0], pool[0])); // so that the program's numbers are about 1
    std::vector<std::vector<double>> values, excesses;
    for (size_t c : among) {
      values.emplace_back();
      excesses.emplace_back();
      for (const Row &row : rows) values.back().push_back(seconds(row, pool[c]) / unit);
      for (double bytes : pool[c].bytes)
        excesses.back().push_back(problem.memoryLimit < infinity ? bytes / problem.memoryLimit - 1 : 0);
    }
    std::optional<BoundMixture> mixture = bestMixture(values, excesses, mostMemoryPrice);
    if (!mixture) return;
    choosePart(node, among, mixture->points);
    for (double &price : mixture->prices) price *= unit;
    Multipliers now = mix(mixture->weights, mixture->prices);
    // Half way to the best mixture known: the linear program's own jump about while few cuts are known.
    if (!node.at.stages.empty()) attempt(between(node.at, now), node);
    if (node.bound >= goal) return;
    attempt(now, node);
    if (mixture->value * unit <= node.bound * (1 + 1e-4)) return; // no mixture is better
  }
}

// The stage whose begin the mixture is least sure of.
void StageRelaxation::choosePart(Node &node, const std::vector<size_t> &among,
                                 const std::vector<double> &points) const {
  double most = 1e-6;
  node.stage = -1;
  for (size_t s = 1; s < size_t(stages); ++s) {
    double sum = 0, mean = 0, square = 0;
    for (size_t i = 0; i < among.size(); ++i) {
      const double start = double(pool[among[i]].starts[s]);
      sum += points[i];
      mean += points[i] * start;
      square += points[i] * start * start;
    }
    if (sum <= 0) return;
    mean /= sum;
    const double variance = square / sum - mean * mean;
    if (variance <= most) continue;
    most = variance;
    node.stage = int(s);
    node.unit = int(std::floor(mean)) + 1;
  }
}

void StageRelaxation::tighten(int most, double goal) {
  programs = most;
  Node whole;
  whole.first.assign(size_t(stages), 0);
  whole.last.assign(size_t(stages), int(classOf.size()));
  // Cuts that know that memory is dear, to begin with.
  std::vector<double> even(rows.size(), 0.0);
  for (const Row &row : rows) even[size_t(&row - rows.data())] = 1 / double(rows.size());
  for (double price : firstMemoryPrices)
    if (problem.memoryLimit < infinity)
      attempt(mix(even, std::vector<double>(ranks, price / double(ranks) * seconds(rows[0], pool[0]))), whole);
  solve(whole, roundsOfTheWhole, goal);
  auto isLater = [](const Node &a, const Node &b) { return a.bound > b.bound; };
  std::vector<Node> nodes = {std::move(whole)};
  while (nodes.front().bound < goal && nodes.front().stage >= 0 && programs > 0) {
    std::pop_heap(nodes.begin(), nodes.end(), isLater);
    Node node = std::move(nodes.back());
    nodes.pop_back();
    for (bool isBefore : {true, false}) {
      Node part = node;
      if (isBefore)
        part.last[size_t(node.stage)] = node.unit - 1;
      else
        part.first[size_t(node.stage)] = node.unit;
      solve(part, roundsOfAPart, goal);
      part.bound = std::max(part.bound, node.bound);
      nodes.push_back(std::move(part));
      std::push_heap(nodes.begin(), nodes.end(), isLater);
    }
  }
  best = std::max(best, nodes.front().bound);
}

} // namespace cleave::planner
