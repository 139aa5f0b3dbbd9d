#include "compiler/planner/certify/stage_bound.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace cleave::planner {
namespace {

// A path is longer than the program knows by this part at least.
constexpr double longer = 1e-4;
// The part of a bound that the solver's tolerances may cost.
constexpr double tolerance = 1e-6;
// The number of longest paths that are added at a solution.
constexpr size_t pathsOfASolution = 12;
// So many cuts that need memory are bounded one by one; so many of those that were timed are worth trying.
constexpr ptrdiff_t fewCuts = 300;
constexpr size_t mostTried = 12;
// So many programs may leave the bound as it is.
constexpr int patience = 12;
// How far from the best point known towards the last solution paths are looked for.
constexpr double inward = 0.5;

} // namespace

// The least time of each stage's messages, and the link that they go over.
static std::vector<StageTimes> transfersOf(const StageProblem &problem, const LeastTransfers &least) {
  std::vector<StageTimes> times;
  for (size_t s = 0; s < size_t(problem.stages()); ++s)
    times.push_back({0, 0, 0, least.sendForward[s], least.sendBackward[s]});
  for (int s = 0; s + 1 < problem.stages(); ++s)
    times[size_t(s)].linkForward = times[size_t(s) + 1].linkBackward =
        problem.linkBetween(problem.rankOf(s), problem.rankOf(s + 1));
  return times;
}

StageRelaxation::StageRelaxation(const StageProblem &problem, double incumbent, KnownPaths *known)
    : problem(problem), known(known), incumbent(incumbent), stages(problem.stages()), ranks(size_t(problem.ranks())),
      share(chainShare(problem.model->cluster->device, problem.ranks())), least(leastTransfers(problem)),
      transfers(transfersOf(problem, least)), held(leastHeld(problem)),
      ways(problem.recompute ? std::vector<Recompute>{*problem.recompute} : problem.allowed) {
  gatherClasses();
  gatherColumns();
  // Else the table is another for other times, or a step's first actions are done before it begins.
  if (problem.profile && !followsTimes(problem.model->setting.schedule) && problem.profile->isFlushed())
    schedule = simulatedSchedule(problem, std::vector<StageTimes>(size_t(stages)));
  startProgram();
}

void StageRelaxation::gatherClasses() {
  const SplitModel &model = *problem.model;
  const UnitLayout &layout = *model.layout;
  const int count = int(layout.units.size());
  // A parameter that several units read is on the rank of the first, and on that of the last where this is another.
  std::vector<std::array<double, 3>> extra(size_t(count), {0, 0, 0}); // once, hideable, bytes
  const GroupShape pair = pairOfEnds(problem);
  for (size_t p = 0; p < layout.shared.size(); ++p) {
    const Cost &state = problem.state->shared[p];
    const std::vector<int> &readers = layout.shared[p].units;
    bool isApart = ranks > 1 && readers.front() == 0 && readers.back() == count - 1 &&
                   problem.rankOf(0) != problem.rankOf(stages - 1);
    double sum = isApart ? collectiveSeconds(*model.cluster, Collective::AllReduce, pair, state.gradients) : 0;
    for (int unit : {readers.front(), readers.back()}) {
      extra[size_t(unit)][0] += state.update + state.exposed + sum;
      extra[size_t(unit)][1] += state.hideable;
      extra[size_t(unit)][2] += state.stateBytes();
      if (!isApart) break;
    }
  }
  std::map<std::tuple<int, std::array<double, 3>, bool, bool>, int> known;
  for (int u = 0; u < count; ++u) {
    const int kind = layout.units[size_t(u)].kind;
    const bool isFirst = u == 0, isLast = u == count - 1;
    auto [found, isNew] = known.try_emplace({kind, extra[size_t(u)], isFirst, isLast}, int(classes.size()));
    classOf.push_back(found->second);
    if (isNew) {
      const Cost &state = problem.state->kinds[size_t(kind)];
      classes.push_back({kind, 0, isFirst, isLast, state.update + state.exposed + extra[size_t(u)][0],
                         state.hideable + extra[size_t(u)][1], state.stateBytes() + extra[size_t(u)][2]});
    }
    ++classes[size_t(found->second)].count;
  }
}

void StageRelaxation::gatherColumns() {
  const SplitModel &model = *problem.model;
  const UnitLayout &layout = *model.layout;
  const double microbatches = double(model.setting.microbatches);
  // Compute hides backward for the most part: at most so much of a unit's, whatever others are beside it on the rank.
  Overlap overlap = overlapOf(model);
  double leastForward = 1, fastest = infinity;
  leastOverhead = infinity;
  auto overheadOf = [&](int kind, Recompute how) {
    const Cost &a = problem.activity->of(kind, how);
    const Cost &state = problem.state->kinds[size_t(kind)];
    return workspaceBytes(model.setting, a.beside, state);
  };
  for (const Unit &unit : layout.units)
    for (Recompute how : ways) {
      const Cost &one = problem.activity->of(unit.kind, how);
      if (one.compute() > 0) leastForward = std::min(leastForward, one.computeForward() / one.compute());
      if (unit.isBlock) fastest = std::min(fastest, one.seconds());
      leastOverhead = std::min(leastOverhead, overheadOf(unit.kind, how));
    }
  const double rate =
      microbatches * std::max(overlap.forward, overlap.forward * leastForward + overlap.backward * (1 - leastForward));
  // Blocks of one rank, where it is no slower than the incumbent and leaves every other stage a unit.
  double most = double(classOf.size()) - double(stages) + double(problem.profile ? problem.profile->chunks() : 1);
  if (fastest > 0 && fastest < infinity) most = std::min(most, std::floor(incumbent / share / microbatches / fastest));
  most = std::max(1.0, most);
  std::vector<bool> isBlock(size_t(layout.kinds), false);
  for (const Unit &unit : layout.units) isBlock[size_t(unit.kind)] = unit.isBlock;
  for (int s = 0; s < stages; ++s)
    for (size_t c = 0; c < classes.size(); ++c) {
      const UnitClass &one = classes[c];
      if ((one.isFirst && s > 0) || (one.isLast && s + 1 < stages)) continue;
      for (Recompute how : ways) {
        const Cost &a = problem.activity->of(one.kind, how);
        // The workspace is the largest of a rank's units': of each of them a part that cannot make more than the
        // largest.
        const double overhead = isBlock[size_t(one.kind)] ? (overheadOf(one.kind, how) - leastOverhead) / most : 0;
        columns.push_back({s, int(c), a.forward, a.backwardInput, a.backwardWeight,
                           a.seconds() - problem.activity->of(one.kind, ways.front()).seconds(), one.once,
                           one.hideable - rate * a.compute(),
                           one.bytes + problem.live(s) * problem.kept(a) + overhead});
      }
    }
}

double StageRelaxation::bytesOfTransfers(int stage) const {
  const std::vector<int> &cut = problem.firstUnits;
  if (cut.empty()) return least.bytesOf(problem, stage);
  return transferBytes(problem, stage, cut[size_t(stage)],
                       stage + 1 < stages ? cut[size_t(stage) + 1] : int(classOf.size()));
}

void StageRelaxation::startProgram() {
  double all = 0;
  for (size_t u = 0; u < classOf.size(); ++u)
    all += problem.activity->of(problem.model->layout->units[u].kind, ways.front()).seconds();
  scale = std::max(1e-30, all * double(problem.model->setting.microbatches) / double(ranks));
  for (size_t i = 0; i < columns.size(); ++i) program.addColumn(0, double(classes[size_t(columns[i].unitClass)].count));
  program.addColumn(1, infinity); // the step's seconds
  auto add = [&](double lower, double upper, auto &&valueOf) {
    LinearProgram::Rows row;
    row.begin(lower, upper);
    for (size_t i = 0; i < columns.size(); ++i)
      if (const double v = valueOf(columns[i]); v != 0) row.add(int(i), v);
    program.addRows(row);
  };
  for (int c = 0; c < int(classes.size()); ++c) {
    const double count = double(classes[size_t(c)].count);
    add(count, count, [&](const Column &column) { return double(column.unitClass == c); });
  }
  for (int s = 0; s < stages; ++s) {
    if (problem.firstUnits.empty()) {
      add(1, infinity, [&](const Column &column) { return double(column.stage == s); });
      continue;
    }
    const int end = s + 1 < stages ? problem.firstUnits[size_t(s) + 1] : int(classOf.size());
    for (int c = 0; c < int(classes.size()); ++c) {
      const double count =
          double(std::count(classOf.begin() + problem.firstUnits[size_t(s)], classOf.begin() + end, c));
      add(count, count, [&](const Column &column) { return double(column.stage == s && column.unitClass == c); });
    }
  }
  if (problem.memoryLimit < infinity)
    for (int r = 0; r < int(ranks); ++r) {
      double buffers = 0;
      for (int s = 0; s < stages; ++s)
        if (problem.rankOf(s) == r) buffers += bytesOfTransfers(s);
      roomOfRank.push_back(problem.memoryLimit - leastOverhead - buffers);
      add(-infinity, roomOfRank.back() / problem.memoryLimit, [&](const Column &column) {
        return problem.rankOf(column.stage) == r ? column.bytes / problem.memoryLimit : 0;
      });
    }
  // A given cut tells what each rank must compute again, with all that stands beside it.
  if (!problem.firstUnits.empty()) {
    const std::vector<double> again = leastAgainOfCut(problem);
    for (int r = 0; r < int(ranks); ++r) {
      if (again[size_t(r)] <= 0) continue;
      add(again[size_t(r)] / scale, infinity,
          [&](const Column &column) { return problem.rankOf(column.stage) == r ? column.again / scale : 0; });
    }
  }
  addRows(rowPaths());
}

// A rank does all its work one after the other, after the first microbatch has come to it; then what it sent back has
// to go down to the first stage. Weights' gradients may come after that.
std::vector<StageRelaxation::Row> StageRelaxation::rowPaths() const {
  std::vector<Row> rows;
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
    if (problem.profile && !problem.profile->isFlushed()) first = 0; // its first input is there before the step begins
    for (int s = 0; s < first; ++s) {
      ++path.forward[size_t(s)];
      if (problem.rankOf(s) != problem.rankOf(s + 1)) ++path.sendForward[size_t(s)];
    }
    addPath(rows, path, {false, true});
    if (first == 0) continue;
    for (int s = 0; s < stages; ++s) {
      if (splits && problem.rankOf(s) == int(rank)) path.backwardWeight[size_t(s)] = 0;
      if (s >= first) continue;
      ++path.backwardInput[size_t(s)];
      if (!splits) ++path.backwardWeight[size_t(s)];
      if (problem.rankOf(s) != problem.rankOf(s + 1)) ++path.sendBackward[size_t(s) + 1];
    }
    path.rank = problem.rankOf(0);
    addPath(rows, path, {false, true});
  }
  return rows;
}

std::vector<StageTimes> StageRelaxation::timesOf(const std::vector<double> &units) const {
  std::vector<StageTimes> times = transfers;
  for (size_t i = 0; i < columns.size(); ++i) {
    StageTimes &stage = times[size_t(columns[i].stage)];
    stage.forward += units[i] * columns[i].forward;
    stage.backwardInput += units[i] * columns[i].backwardInput;
    stage.backwardWeight += units[i] * columns[i].backwardWeight;
  }
  return times;
}

// The slowest rank does the rest of a table that was cut short.
std::vector<StageRelaxation::Row> StageRelaxation::criticalRows(const std::vector<double> &units) const {
  std::vector<Row> rows;
  if (!schedule) return rows;
  std::vector<StageTimes> times = timesOf(units);
  // The time that messages hold up makes paths long, too: half of it in either pass, since constantOf() counts pairs of
  // these.
  for (size_t s = 0; s < held.size(); ++s) {
    times[s].forward += held[s].seconds / 2;
    times[s].backwardInput += held[s].seconds / 2;
    times[s].sendForward += held[s].sendForward;
    times[s].sendBackward += held[s].sendBackward;
  }
  std::vector<double> work(ranks, 0.0), late(ranks, 0.0);
  for (int s = 0; s < stages; ++s) {
    const StageTimes &stage = times[size_t(s)];
    work[size_t(problem.rankOf(s))] += stage.forward + stage.backwardInput + stage.backwardWeight;
  }
  for (size_t i = 0; i < columns.size(); ++i)
    late[size_t(problem.rankOf(columns[i].stage))] += units[i] * columns[i].late;
  const int slowest = int(std::max_element(work.begin(), work.end()) - work.begin());
  for (SchedulePath &path : criticalPaths(schedule->table, times)) {
    if (schedule->rest > 0)
      for (int s = 0; s < stages; ++s)
        if (problem.rankOf(s) == slowest)
          for (auto *counts : {&path.forward, &path.backwardInput, &path.backwardWeight})
            (*counts)[size_t(s)] += double(schedule->rest);
    const bool isLate = late[size_t(path.rank)] > 0;
    addPath(rows, path, {isLate});
  }
  return rows;
}

void StageRelaxation::addPath(std::vector<Row> &rows, const SchedulePath &path,
                              std::initializer_list<bool> late) const {
  for (bool isLate : late) rows.push_back({path, isLate, false});
  if (share < 1) rows.push_back({path, false, true});
}

double StageRelaxation::partOf(const Row &row) const { return row.isFilled ? constants::unfilledWaits : share; }

double StageRelaxation::constantOf(const Row &row) const {
  double sum = 0;
  for (size_t s = 0; s < held.size(); ++s)
    sum += std::min(row.path.forward[s], row.path.backwardInput[s]) * held[s].seconds +
           row.path.sendForward[s] * (least.sendForward[s] + held[s].sendForward) +
           row.path.sendBackward[s] * (least.sendBackward[s] + held[s].sendBackward);
  return sum * partOf(row);
}

double StageRelaxation::coefficient(const Row &row, const Column &column) const {
  const size_t s = size_t(column.stage);
  double value = row.path.forward[s] * column.forward + row.path.backwardInput[s] * column.backwardInput +
                 row.path.backwardWeight[s] * column.backwardWeight;
  value *= partOf(row);
  if (row.isFilled)
    value += (1 - constants::unfilledWaits) * double(problem.model->setting.microbatches) / double(ranks) *
             (column.forward + column.backwardInput + column.backwardWeight);
  else if (problem.rankOf(column.stage) == row.path.rank)
    value += column.once + (row.late ? column.late : 0);
  return value;
}

double StageRelaxation::seconds(const Row &row, const std::vector<double> &units) const {
  double sum = constantOf(row);
  for (size_t i = 0; i < columns.size(); ++i)
    if (units[i] != 0) sum += units[i] * coefficient(row, columns[i]);
  return sum;
}

double StageRelaxation::lengthOf(std::span<const Row> rows, const std::vector<double> &units) const {
  double most = 0;
  for (const Row &row : rows) most = std::max(most, seconds(row, units));
  return most;
}

bool StageRelaxation::isAllowed(const std::vector<double> &units) const {
  std::vector<double> sizes(size_t(stages), 0.0), left = roomOfRank;
  for (size_t i = 0; i < columns.size(); ++i) {
    sizes[size_t(columns[i].stage)] += units[i];
    if (!left.empty()) left[size_t(problem.rankOf(columns[i].stage))] -= units[i] * columns[i].bytes;
  }
  return problem.firstUnits.empty() && std::ranges::min(sizes) >= 1 - tolerance &&
         std::ranges::all_of(left, [&](double bytes) { return bytes >= -tolerance * problem.memoryLimit; });
}

void StageRelaxation::addRows(std::span<const Row> rows) {
  if (added.empty()) firstAdded = program.rowCount();
  added.insert(added.end(), rows.begin(), rows.end());
  LinearProgram::Rows more;
  for (const Row &row : rows) {
    more.begin(constantOf(row) / scale, infinity);
    for (size_t i = 0; i < columns.size(); ++i)
      if (const double v = coefficient(row, columns[i]); v != 0) more.add(int(i), -v / scale);
    more.add(int(columns.size()), 1);
  }
  program.addRows(more);
}

void StageRelaxation::roundSolution(const std::vector<double> &units) {
  std::vector<double> sizes(size_t(stages), 0.0);
  for (size_t i = 0; i < columns.size(); ++i) sizes[size_t(columns[i].stage)] += units[i];
  std::vector<int> starts(size_t(stages), 0);
  double sum = 0;
  for (int s = 1; s < stages; ++s) {
    sum += sizes[size_t(s) - 1];
    starts[size_t(s)] =
        std::clamp(int(std::lround(sum)), starts[size_t(s) - 1] + 1, int(classOf.size()) - (stages - s));
  }
  if (std::find(met.begin(), met.end(), starts) == met.end()) met.push_back(std::move(starts));
}

// As many units of each class in every stage as in any other, none computed again.
std::vector<double> StageRelaxation::evenUnits() const {
  std::vector<double> units(columns.size(), 0.0);
  for (size_t i = 0; i < columns.size(); i += ways.size()) {
    const UnitClass &one = classes[size_t(columns[i].unitClass)];
    units[i] = one.count / (one.isFirst || one.isLast ? 1.0 : double(stages));
  }
  return units;
}

void StageRelaxation::tighten(int programs, const BoundWanted &wanted, const SearchClock &clock) {
  // Solutions jump from corner to corner: paths that are the longest on the way to the best point known cut off
  // more. And however many paths are added, no program's value is above the longest one at a point that it allows.
  std::vector<double> inner = evenUnits();
  std::vector<Row> rows = criticalRows(inner);
  addRows(rows);
  roundSolution(inner);
  double leastLength = isAllowed(inner) ? lengthOf(rows, inner) : infinity;
  double risen = 0; // the last value that was worth its program, and programs since
  int still = 0;
  for (; programs > 0 && std::max(best, wanted.known) < wanted.goal && !clock.isOver(); --programs) {
    const LinearProgram::Outcome outcome = program.solve();
    if (outcome == LinearProgram::Outcome::Infeasible) best = infinity;
    if (outcome != LinearProgram::Outcome::Optimal) return;
    const double value = program.objective() * scale;
    best = std::max(best, value * (1 - tolerance));
    if (value > risen * (1 + longer)) {
      risen = value;
      still = 0;
    } else if (++still == patience)
      return;
    std::vector<double> units = program.columnValues();
    units.pop_back();
    std::vector<std::pair<double, Row>> found;
    for (const Row &row : knownRows())
      if (const double length = seconds(row, units); length > value * (1 + longer)) found.emplace_back(length, row);
    if (!found.empty()) {
      addLongest(std::move(found));
      continue;
    }
    auto addFrom = [&](const std::vector<double> &point) {
      rows = criticalRows(point);
      for (const Row &row : rows)
        if (const double length = seconds(row, units); length > value * (1 + longer)) found.emplace_back(length, row);
      return lengthOf(rows, point);
    };
    std::vector<double> middle(units);
    if (leastLength < infinity)
      for (size_t i = 0; i < units.size(); ++i) middle[i] = inner[i] + inward * (units[i] - inner[i]);
    if (const double length = addFrom(middle); length < leastLength) {
      leastLength = length;
      inner = middle;
      roundSolution(inner);
    }
    if (found.empty()) addFrom(units);
    if (found.empty()) {
      roundSolution(units);
      return;
    }
    if (leastLength <= wanted.known) return;
    addLongest(std::move(found));
  }
}

void StageRelaxation::addLongest(std::vector<std::pair<double, Row>> found) {
  std::stable_sort(found.begin(), found.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  if (found.size() > pathsOfASolution) found.resize(pathsOfASolution);
  std::vector<Row> rows;
  rows.reserve(found.size());
  for (auto &[length, row] : found) rows.push_back(std::move(row));
  addRows(rows);
}

std::vector<StageRelaxation::Row> StageRelaxation::knownRows() const {
  std::vector<Row> rows;
  if (known)
    for (const SchedulePath &path : *known) addPath(rows, path, {false, true});
  return rows;
}

void StageRelaxation::keepPaths() const {
  if (!known) return;
  const std::vector<double> duals = program.rowDuals();
  for (size_t i = 0; i < added.size(); ++i) {
    const SchedulePath &path = added[i].path;
    const bool decides = std::abs(duals[firstAdded + i]) > tolerance;
    if (decides && std::ranges::find(*known, path) == known->end()) known->push_back(path);
  }
}

StageBound boundStages(const StageProblem &problem, double incumbent, int programs, const BoundWanted &wanted,
                       const SearchClock &clock, KnownPaths *paths) {
  StageBound bound;
  auto relax = [&](const StageProblem &stages, double known) {
    StageRelaxation relaxation(stages, incumbent, paths);
    relaxation.tighten(programs, {wanted.goal, known}, clock);
    relaxation.keepPaths();
    for (const std::vector<int> &starts : relaxation.cuts()) bound.cuts.push_back({starts, 0, false});
    return relaxation.bound();
  };
  std::optional<std::vector<TimedCut>> timed = timeEachCut(problem, incumbent, clock);
  if (!timed) {
    bound.seconds = relax(problem, wanted.known);
    return bound;
  }
  // Those that do not fit as they are: each by itself, if they are few.
  auto isOpen = [&](const TimedCut &cut) { return !cut.fits && cut.seconds < wanted.goal; };
  const bool areFew = std::ranges::count_if(*timed, isOpen) <= fewCuts;
  const double ofAll = areFew ? 0 : relax(problem, wanted.known);
  bound.seconds = incumbent;
  for (const TimedCut &cut : *timed) {
    if (clock.isOver()) break;
    double seconds = std::max(cut.seconds, ofAll);
    if (areFew && isOpen(cut)) {
      StageProblem one = problem;
      one.firstUnits = cut.firstUnits;
      seconds = std::max(seconds, boundOfWholeUnits(one, wanted.goal));
      if (seconds < wanted.goal) seconds = std::max(seconds, relax(one, seconds));
    }
    bound.seconds = std::min(bound.seconds, seconds);
  }
  if (clock.isOver()) bound.seconds = 0; // there may be others
  timed->resize(std::min(timed->size(), mostTried));
  bound.cuts.insert(bound.cuts.begin(), timed->begin(), timed->end());
  return bound;
}

} // namespace cleave::planner
