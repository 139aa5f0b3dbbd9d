#include "compiler/planner/search/space/assignment.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/infinity.h"
#include "compiler/tuning.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

namespace cleave::planner {
namespace {

// More than any all-reduce can cost for a gather.
constexpr double unwantedWeight = 1e3;
// A tensor's readers can want this many different sets of layouts before rare combinations are left out.
constexpr size_t mostUseSets = 160;

size_t producerDomain(const SplitModel &model, const Flow &flow) {
  return flow.producer < 0 ? 1 : model.variables[size_t(flow.producer)].domain();
}

Layout produces(const SplitModel &model, const Flow &flow, size_t value) {
  if (flow.producer < 0) return whole;
  const Variable &variable = model.variables[size_t(flow.producer)];
  return variable.isHome ? variable.homes[value] : variable.candidates[value].results[flow.result];
}

// The uses that a reading variable asks of the flow's tensor with each of its candidates.
std::vector<UseSet> asks(const SplitModel &model, const Flow &flow, int reader) {
  std::vector<UseSet> sets(model.variables[size_t(reader)].domain(), 0);
  for (const Flow::Read &read : flow.reads)
    for (size_t d = 0; read.variable == reader && d < sets.size(); ++d)
      sets[d] |= bit(model.variables[size_t(reader)].candidates[d].uses[read.operand]);
  return sets;
}

// Unions of one set of each reader.
std::vector<UseSet> unions(const std::vector<std::vector<UseSet>> &readers) {
  std::set<UseSet> reached = {0};
  UseSet all = 0;
  for (const auto &sets : readers) {
    std::set<UseSet> next;
    for (UseSet have : reached)
      for (UseSet set : sets) next.insert(have | set);
    for (UseSet set : sets) all |= set;
    reached = std::move(next);
    if (reached.size() <= 8 * mostUseSets) continue;
    std::erase_if(reached, [&](UseSet set) { return std::popcount(set) > 2; });
  }
  if (reached.size() > mostUseSets) {
    std::vector<UseSet> kept(reached.begin(), reached.end());
    std::sort(kept.begin(), kept.end(),
              [](UseSet a, UseSet b) { return std::pair(std::popcount(a), a) < std::pair(std::popcount(b), b); });
    kept.resize(mostUseSets);
    kept.push_back(all); // more than is asked for is allowed
    return kept;
  }
  return {reached.begin(), reached.end()};
}

// The most that a price can come to, of homes and of flows.
template <typename Bytes> double mostOfHomes(const SplitModel &model, Bytes bytes) {
  double sum = 0;
  for (const Variable &variable : model.variables) {
    double most = 0;
    for (size_t home = 0; variable.isHome && home < variable.domain(); ++home)
      most = std::max(most, bytes(homePrice(model, variable, home)));
    sum += most;
  }
  return sum;
}
template <typename Bytes> double mostOfFlows(const SplitModel &model, Bytes bytes) {
  double sum = 0;
  for (const Flow &flow : model.flows) {
    double most = 0;
    for (size_t p = 0; p < producerDomain(model, flow); ++p)
      most = std::max(most, bytes(model, flow, produces(model, flow, p), ~UseSet(0)));
    sum += most;
  }
  return sum;
}

// The parameter that is largest where it is least split; -1: none.
int findLargestHome(const SplitModel &model) {
  int found = -1;
  double largest = 0;
  for (size_t v = 0; v < model.variables.size(); ++v)
    for (const Variable &variable = model.variables[v]; const Layout home : variable.homes)
      if (const double bytes = model.gatheredBytes(variable.index, home); bytes > largest) {
        largest = bytes;
        found = int(v);
      }
  return found;
}

double gradientBytes(const Cost &price) { return price.gradients + price.inRoom; }
double bucketBytes(const Cost &price) { return price.parameters + gradientBytes(price); }

// The part of each term that surely counts in a sum that counts up to a limit.
double partWithin(double limit, double all) { return all > limit ? limit / all : 1; }

// The least memory because of one flow's layouts: a parameter that tp gathers, or a reader's workspace with the
// gradient that it hands on. Which candidate of which reader asks for a layout is not told here: the one that has least
// counts for each layout.
double flowWorkspace(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses) {
  if (model.setting.tp <= 1) return 0;
  if (const double gathered = gatheredParameterBytes(model, flow, produced, uses); gathered > 0)
    return std::min(gathered, 2 * std::max(double(tuning::gatherBlockBytes), aligned(flow.bytes)));
  std::map<UseSet, double> least;
  for (const Flow::Read &read : flow.reads) {
    const Variable &reader = model.variables[size_t(read.variable)];
    for (size_t d = 0; d < reader.domain(); ++d) {
      const Use &use = reader.candidates[d].uses[read.operand];
      const double handedOn = handedOnBytes(model, flow, produced, read, d);
      if (handedOn <= 0 || !(uses & bit(use))) continue;
      double &of = least.try_emplace(bit(use), infinity).first->second;
      of = std::min(of, nodeWorkspace(model, reader, d, handedOn));
    }
  }
  double most = 0;
  for (auto [use, workspace] : least) most = std::max(most, workspace);
  return most;
}

double largestWorkspace(const SplitModel &model, const std::vector<int> &choice) {
  double largest = 0;
  for (size_t v = 0; v < model.variables.size(); ++v)
    if (!model.variables[v].isHome)
      largest = std::max(largest, nodeWorkspace(model, model.variables[v], size_t(choice[v])));
  for (const Flow &flow : model.flows)
    largest =
        std::max(largest, flowWorkspace(model, flow, producedLayout(model, flow, choice), usesOf(model, flow, choice)));
  return largest;
}

} // namespace

InnerProblem::InnerProblem(const SplitModel &model, EliminationPlans *plans) : model(model), plans(plans) {
  findPartsOfPasses();
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    domains.push_back(int(variable.domain()));
    PricedTable table{{int(v)}, {}};
    for (size_t d = 0; d < variable.domain(); ++d) {
      Cost price = variable.isHome ? homePrice(model, variable, d, nullptr, true) : nodePrice(model, variable, d);
      if (!variable.isHome) price.add(exchangePrice(model, variable, d));
      double beside = ofPasses.buckets * bucketBytes(price) + ofPasses.scattered * gradientBytes(price);
      if (int(v) == largestHome) beside += 2 * model.gatheredBytes(variable.index, variable.homes[d]);
      const double forward = price.computeForward();
      table.cells.push_back({price.update + price.exposed + price.communication, forward, price.compute() - forward,
                             price.hideable, price.stateBytes() + beside,
                             variable.isHome ? 0 : nodeWorkspace(model, variable, d)});
    }
    tables.push_back(std::move(table));
  }
  const double ofStep = stepPrice(model).exposed;
  for (Cell &cell : tables.front().cells) cell.seconds += ofStep;
  std::set<int> kindsAgain;
  for (const Flow &flow : model.flows)
    for (const UnitShare &share : flow.shares)
      if (isRecomputed(model, flow)) kindsAgain.insert(share.kind);
  // One kind of unit is computed again at a time, which counts: the one that needs most, and so no less than the mean.
  againPart = 1 / double(std::max<size_t>(1, kindsAgain.size()));
  for (const Flow &flow : model.flows) addFlow(flow);
}

void InnerProblem::findPartsOfPasses() {
  const Setting &setting = model.setting;
  const double bucket = tuning::bucketBytes;
  const bool isReduced = setting.gradientWays() > 1;
  if (isReduced) ofPasses.buckets = partWithin(bucket, mostOfHomes(model, bucketBytes));
  if (isReduced && setting.zero >= 2)
    ofPasses.scattered = 2 * partWithin(bucket / double(setting.zeroWays()), mostOfHomes(model, gradientBytes));
  if (!isReduced) ofPasses.combined = partWithin(bucket, mostOfFlows(model, combinedBytes));
  if (setting.zero >= 3) largestHome = findLargestHome(model);
  ofPasses.gathered = partWithin(2 * tuning::gatherBlockBytes, mostOfFlows(model, gatheredParameterBytes));
}

void InnerProblem::addFlow(const Flow &flow) {
  std::vector<int> readers;
  for (const Flow::Read &read : flow.reads)
    if (std::find(readers.begin(), readers.end(), read.variable) == readers.end()) readers.push_back(read.variable);
  auto cell = [&](Layout layout, UseSet uses) {
    const Cost price = flowPrice(model, flow, layout, uses, nullptr, model.onlyAllReduces ? unwantedWeight : 1);
    const double bytes = (price.kept + price.sums) * (isRecomputed(model, flow) ? againPart : 1) +
                         ofPasses.gathered * gatheredParameterBytes(model, flow, layout, uses) +
                         ofPasses.combined * combinedBytes(model, flow, layout, uses);
    return Cell{price.communication, 0, 0, 0, bytes, flowWorkspace(model, flow, layout, uses)};
  };
  size_t made = producerDomain(model, flow);
  if (readers.empty() || flow.producer < 0) {
    // Each reader by itself: inputs and constants cost nothing but their bytes.
    if (flow.producer >= 0) {
      PricedTable table{{flow.producer}, {}};
      for (size_t p = 0; p < made; ++p) table.cells.push_back(cell(produces(model, flow, p), 0));
      tables.push_back(std::move(table));
    } else {
      tables.push_back({{}, {cell(whole, 0)}});
    }
    for (int reader : readers) {
      PricedTable table{{reader}, {}};
      for (UseSet uses : asks(model, flow, reader))
        table.cells.push_back({flowPrice(model, flow, whole, uses).communication});
      tables.push_back(std::move(table));
    }
    return;
  }
  std::vector<std::vector<UseSet>> asked;
  for (int reader : readers) asked.push_back(asks(model, flow, reader));
  // One reader: a table over producer and reader.
  if (readers.size() == 1) {
    int reader = readers[0];
    PricedTable table{{std::min(flow.producer, reader), std::max(flow.producer, reader)}, {}};
    if (reader == flow.producer) {
      table.scope = {reader};
      for (size_t d = 0; d < made; ++d) table.cells.push_back(cell(produces(model, flow, d), asked[0][d]));
    } else {
      bool producerFirst = flow.producer < reader;
      size_t first = producerFirst ? made : asked[0].size(), second = producerFirst ? asked[0].size() : made;
      for (size_t i = 0; i < first; ++i)
        for (size_t j = 0; j < second; ++j)
          table.cells.push_back(cell(produces(model, flow, producerFirst ? i : j), asked[0][producerFirst ? j : i]));
    }
    tables.push_back(std::move(table));
    return;
  }
  // Several: a variable for the set of uses, priced against the producer and tied to every reader.
  std::vector<UseSet> sets = unions(asked);
  int hub = int(domains.size());
  domains.push_back(int(sets.size()));
  PricedTable table{{flow.producer, hub}, {}};
  for (size_t p = 0; p < made; ++p)
    for (UseSet set : sets) table.cells.push_back(cell(produces(model, flow, p), set));
  tables.push_back(std::move(table));
  for (size_t r = 0; r < readers.size(); ++r) {
    PricedTable tie{{readers[r], hub}, {}};
    for (UseSet wanted : asked[r])
      for (UseSet set : sets) tie.cells.push_back({(wanted & ~set) == 0 ? 0 : infinity});
    tables.push_back(std::move(tie));
  }
}

double InnerProblem::computeBound(const SplitModel &model) {
  double sum = 0;
  for (const Variable &variable : model.variables) {
    double least = variable.isHome ? 0 : infinity;
    for (const Candidate &candidate : variable.candidates)
      least = std::min(least, candidate.forward + candidate.backward);
    sum += least * double(variable.count) * double(model.setting.microbatches);
  }
  return sum;
}

double InnerProblem::mostUpdateSeconds() const {
  double sum = stepPrice(model).exposed;
  for (const Variable &variable : model.variables) {
    double most = 0;
    for (size_t home = 0; variable.isHome && home < variable.domain(); ++home) {
      const Cost price = homePrice(model, variable, home);
      most = std::max(most, price.update + price.exposed);
    }
    sum += most;
  }
  return sum;
}

Minimum InnerProblem::minimize(const Weights &weights) const {
  Overlap overlap = overlapOf(model);
  auto value = [&](const Cell &cell) {
    if (cell.seconds == infinity || cell.workspace > weights.workspace) return infinity;
    double time = cell.seconds + cell.forward * (1 - weights.theta * overlap.forward) +
                  cell.backward * (1 - weights.theta * overlap.backward) + weights.theta * cell.hideable;
    return weights.time * time + weights.lambda * cell.bytes;
  };
  FactorGraph graph{domains, {}};
  graph.tables.reserve(tables.size());
  for (const PricedTable &table : tables) {
    Table plain;
    // A variable with one choice is no neighbour of anything: a weight that thousands of operations read would be of
    // them all.
    std::ranges::copy_if(table.scope, std::back_inserter(plain.scope), [&](int v) { return domains[size_t(v)] > 1; });
    plain.values.reserve(table.cells.size());
    for (const Cell &cell : table.cells) plain.values.push_back(value(cell));
    graph.tables.push_back(std::move(plain));
  }
  if (!plan) plan = &(plans ? *plans : ownPlans).of(graph);
  isExact = plan->order.has_value();
  Minimum minimum = isExact ? eliminate(graph, *plan->order) : improveInTurns(graph, plan->turns);
  // Any assignment computes at least this, and memory costs nothing less than nothing.
  if (!isExact) minimum.bound = weights.theta > 0 ? -infinity : weights.time * computeBound(model);
  minimum.assignment.resize(model.variables.size());
  return minimum;
}

void InnerProblem::offer(const std::vector<int> &choice, double memoryLimit, Assignment &best) const {
  Evaluation evaluation = evaluate(model, choice);
  if (!evaluation.isPossible) return;
  const Predicted &now = evaluation.predicted, &was = best.evaluation.predicted;
  bool fits = now.memory.total() <= memoryLimit;
  bool isBetter =
      best.choice.empty() || (fits && !best.fits) ||
      (fits == best.fits && (fits ? now.stepSeconds < was.stepSeconds : now.memory.total() < was.memory.total()));
  if (!isBetter) return;
  best.choice = choice;
  best.evaluation = evaluation;
  best.fits = fits;
}

// Bisection over the price of memory.
void InnerProblem::improve(double theta, double workspace, double memoryLimit, Assignment &best,
                           const SearchClock &clock) const {
  double low = 0, high = 0;
  auto attempt = [&](double lambda) {
    const Minimum minimum = minimize({theta, lambda, 1, workspace});
    if (workspace == infinity) best.bound = std::max(best.bound, minimum.bound - lambda * memoryLimit);
    offer(minimum.assignment, memoryLimit, best);
    return evaluate(model, minimum.assignment).predicted.memory.total() <= memoryLimit;
  };
  double lambda = best.evaluation.predicted.stepSeconds / std::max(1.0, memoryLimit) * 0.01;
  for (int i = 0; i < 24 && high == 0 && !clock.isOver(); ++i, lambda *= 4) {
    if (attempt(lambda))
      high = lambda;
    else
      low = lambda;
  }
  for (int i = 0; i < 10 && high > 0 && !clock.isOver(); ++i) {
    double middle = low > 0 ? std::sqrt(low * high) : high / 2;
    (attempt(middle) ? high : low) = middle;
    if (best.fits && best.evaluation.predicted.stepSeconds <= best.bound * 1.0001) break;
  }
}

double InnerProblem::findWorkspace(double memoryLimit, Assignment &best, const SearchClock &clock) const {
  double workspace = infinity;
  for (int i = 0; i < 24 && !clock.isOver(); ++i) {
    const Minimum least = minimize({0, 1, 1e-6, workspace});
    if (least.value == infinity) return 0.0; // some operation needs more, whatever its split
    offer(least.assignment, memoryLimit, best);
    if (evaluate(model, least.assignment).predicted.memory.total() <= memoryLimit) return workspace;
    workspace = largestWorkspace(model, least.assignment) * (1 - 1e-9);
  }
  return 0.0;
}

Assignment InnerProblem::solve(double memoryLimit, double incumbent, const SearchClock &clock) const {
  Assignment solved = search(memoryLimit, incumbent, clock);
  solved.isExact = isExact;
  return solved;
}

Assignment InnerProblem::search(double memoryLimit, double incumbent, const SearchClock &clock) const {
  Assignment best;
  if (std::all_of(domains.begin(), domains.end(), [](int domain) { return domain == 1; })) {
    best.choice.assign(model.variables.size(), 0);
    best.evaluation = evaluate(model, best.choice);
    best.fits = best.evaluation.predicted.memory.total() <= memoryLimit;
    best.bound = best.evaluation.predicted.stepSeconds;
    best.isPruned = best.bound >= incumbent;
    return best;
  }
  bool isTight = false;
  for (double theta : {1.0, 0.0}) {
    const Minimum minimum = minimize({theta, 0, 1});
    double seconds = evaluate(model, minimum.assignment).predicted.stepSeconds;
    // Where the preset's wish could not be met, its weight is part of the minimum.
    best.bound = std::max(best.bound, std::min(minimum.bound, seconds));
    if (best.bound >= incumbent) {
      best.isPruned = true;
      return best;
    }
    offer(minimum.assignment, memoryLimit, best);
    isTight = seconds <= minimum.value * (1 + 1e-9);
    if (isTight) break;
  }
  if (best.fits) return best;
  const double workspace = findWorkspace(memoryLimit, best, clock);
  if (!best.fits) return best;
  for (double theta : {1.0, 0.0}) {
    if (theta == 0 && isTight) continue;
    improve(theta, infinity, memoryLimit, best, clock);
    if (workspace < infinity) improve(theta, workspace, memoryLimit, best, clock);
  }
  return best;
}

} // namespace cleave::planner
