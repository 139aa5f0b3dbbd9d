#include "compiler/planner/cost/activity_costs.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/cost/update_bytes.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <cmath>
#include <optional>

namespace cleave::planner {
namespace {

// Seconds a host needs for one kernel. Processes do not hand kernels over in step: of a group that waits for each other
// in every unit, the slowest counts.
double dispatchSeconds(const SplitModel &model) {
  const double group = double(model.setting.tp * model.setting.gridDevices() * model.setting.cp * model.setting.ep);
  return model.cluster->device.dispatchSeconds * (1 + constants::hostPace * std::log2(group));
}

// Seconds the host needs to hand over what a unit's passes launch.
struct UnitDispatch {
  double forward = 0, backwardInput = 0, backwardWeight = 0, again = 0;
};

// Passes that the host cannot feed fast enough wait for it.
void waitForHost(Cost &unit, const UnitDispatch &host) {
  double device = unit.seconds();
  double again = std::max(unit.again, host.again);
  unit.forward = std::max(unit.forward, host.forward);
  unit.backwardInput = std::max(unit.backwardInput - unit.again, host.backwardInput) + again;
  unit.backwardWeight = std::max(unit.backwardWeight, host.backwardWeight);
  unit.again = again;
  unit.waiting = unit.seconds() - device;
}

// One of the microbatches is not computed again: times are means over all.
void keepLast(ActivityCosts &costs, double microbatches) {
  for (auto &kind : costs.kinds)
    for (Recompute how : everyRecompute) {
      if (how == Recompute::None) continue;
      Cost &one = kind[size_t(how)];
      const Cost &plain = kind[size_t(Recompute::None)];
      auto mean = [&](double &value, double other) { value += (other - value) / microbatches; };
      mean(one.backwardInput, plain.backwardInput);
      mean(one.backwardWeight, plain.backwardWeight);
      mean(one.communication, plain.communication);
      mean(one.links.node, plain.links.node);
      mean(one.links.network, plain.links.network);
      mean(one.waiting, plain.waiting);
      mean(one.again, 0);
    }
}

} // namespace

ActivityCosts costActivity(const SplitModel &given, const std::vector<int> &choice) {
  const UnitLayout &layout = *given.layout;
  ActivityCosts costs;
  costs.kinds.resize(size_t(layout.kinds));
  costs.forwardCrossing.assign(layout.units.size() + 1, 0.0);
  costs.backwardCrossing = costs.forwardCrossing;
  SplitModel model = given;
  const double microbatches = double(model.setting.microbatches), dispatch = dispatchSeconds(model);
  std::array<std::vector<UnitDispatch>, everyRecompute.size()> host;
  host.fill(std::vector<UnitDispatch>(costs.kinds.size()));
  auto partOf = [&](const UnitShare &share) {
    return double(share.count) / double(layout.sizeOfKind[size_t(share.kind)]);
  };
  auto launch = [&](const Variable &variable, const Candidate &candidate, double weights, Recompute how) {
    for (const UnitShare &share : variable.shares) {
      UnitDispatch &sum = host[size_t(how)][size_t(share.kind)];
      const double seconds = dispatch * partOf(share);
      sum.forward += seconds * candidate.forwardLaunches;
      sum.backwardInput += seconds * candidate.backwardLaunches * (1 - weights);
      sum.backwardWeight += seconds * candidate.backwardLaunches * weights;
      sum.again += seconds * launchesAgain(how, variable, candidate);
    }
  };
  auto add = [&](const std::vector<UnitShare> &shares, const Cost &one, Recompute how) {
    for (const UnitShare &share : shares) costs.kinds[size_t(share.kind)][size_t(how)].add(one, partOf(share));
  };
  // A thing has one price for all ways of recomputation that do it again alike.
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (variable.isHome) continue;
    const size_t chosen = size_t(choice[v]);
    const double times = double(variable.count) * microbatches;
    std::array<std::optional<Cost>, 3> known; // not done again, in part, whole
    for (Recompute how : everyRecompute) {
      model.setting.recompute = how;
      const bool isWhole = how != Recompute::Activations;
      std::optional<Cost> &one = known[isComputedAgain(model, variable) ? 1 + size_t(isWhole) : 0];
      if (!one) one = nodePrice(model, variable, chosen).add(exchangePrice(model, variable, chosen)).times(1 / times);
      add(variable.shares, *one, how);
      launch(variable, variable.candidates[chosen], weightPart(model, variable), how);
    }
  }
  for (const Flow &flow : model.flows) {
    const Layout produced = producedLayout(model, flow, choice);
    const UseSet uses = usesOf(model, flow, choice);
    const double times = double(flow.count) * microbatches;
    std::array<std::optional<Cost>, 2> known;
    for (Recompute how : everyRecompute) {
      model.setting.recompute = how;
      std::optional<Cost> &one = known[size_t(isSentAgain(model, flow))];
      if (!one) one = transferPrice(model, flow, produced, uses).times(1 / times);
      add(flow.shares, *one, how);
    }
  }
  for (Recompute how : everyRecompute) {
    model.setting.recompute = how;
    const std::vector<Cost> memory = unitMemory(model, choice);
    for (size_t kind = 0; kind < costs.kinds.size(); ++kind) {
      Cost &one = costs.kinds[kind][size_t(how)];
      one.add(memory[kind]);
      waitForHost(one, host[size_t(how)][kind]);
    }
  }
  if (model.setting.exceptLast) keepLast(costs, microbatches);
  for (const UnitLayout::Passing &passing : layout.passing)
    costs.passing.push_back(sentBytes(model, model.flows[size_t(passing.flow)], choice));
  for (size_t border = 1; border < layout.units.size(); ++border) {
    if (layout.crossings[border] == layout.crossings[border - 1]) { // between repetitions of a block
      costs.forwardCrossing[border] = costs.forwardCrossing[border - 1];
      costs.backwardCrossing[border] = costs.backwardCrossing[border - 1];
      continue;
    }
    for (int index : layout.crossings[border]) {
      const Flow &flow = model.flows[size_t(index)];
      const double bytes = sentBytes(model, flow, choice);
      costs.forwardCrossing[border] += bytes;
      if (flow.gradient) costs.backwardCrossing[border] += bytes * flow.gradientRatio;
    }
  }
  return costs;
}

bool dependsOnBatchWays(const SplitModel &model, const std::vector<int> &choice) {
  for (size_t v = 0; v < model.variables.size(); ++v) {
    if (model.variables[v].isHome) continue;
    for (const Exchange &exchange : model.variables[v].candidates[size_t(choice[v])].exchanges)
      if (exchange.isOverBatch() || exchange.onceAStep) return true;
  }
  // A parameter's gradient is combined once a step.
  return std::ranges::any_of(model.flows, [&](const Flow &flow) {
    if (model.problem->tensors[size_t(flow.tensor)].kind != TensorKind::Parameter || !flow.gradient) return false;
    return transferPrice(model, flow, producedLayout(model, flow, choice), usesOf(model, flow, choice)).communication >
           0;
  });
}

double leastPassSeconds(const SplitModel &model, Recompute how) {
  struct Least {
    Cost device;
    UnitDispatch host;
    double together = 0; // each operation takes one candidate for both passes; host dispatch is left out
  };
  std::vector<Least> kinds(size_t(model.layout->kinds));
  double dispatch = dispatchSeconds(model);
  for (const Variable &variable : model.variables) {
    if (variable.isHome || variable.candidates.empty()) continue;
    double forward = infinity, backward = infinity, together = infinity;
    double again = infinity, forwardLaunches = infinity, backwardLaunches = infinity, launches = infinity;
    for (const Candidate &candidate : variable.candidates) {
      forward = std::min(forward, candidate.forward);
      backward = std::min(backward, candidate.backward);
      forwardLaunches = std::min(forwardLaunches, candidate.forwardLaunches);
      backwardLaunches = std::min(backwardLaunches, candidate.backwardLaunches);
      const double oneAgain = secondsAgain(how, variable, candidate);
      again = std::min(again, oneAgain);
      launches = std::min(launches, launchesAgain(how, variable, candidate));
      together = std::min(together, candidate.forward + candidate.backward + oneAgain);
    }
    const double weights = weightPart(model, variable);
    for (const UnitShare &share : variable.shares) {
      Least &sum = kinds[size_t(share.kind)];
      double times = double(share.count);
      sum.together += times * together;
      sum.device.forward += times * forward;
      sum.device.again += times * again;
      sum.device.backwardInput += times * (backward * (1 - weights) + again);
      sum.device.backwardWeight += times * backward * weights;
      sum.host.forward += times * dispatch * forwardLaunches;
      sum.host.again += times * dispatch * launches;
      sum.host.backwardInput += times * dispatch * backwardLaunches * (1 - weights);
      sum.host.backwardWeight += times * dispatch * backwardLaunches * weights;
    }
  }
  double seconds = 0;
  for (Least &sum : kinds) {
    waitForHost(sum.device, sum.host);
    seconds += std::max(sum.together, sum.device.seconds());
  }
  return seconds * double(model.setting.microbatches);
}

double leastUpdateSeconds(const SplitModel &model) {
  double seconds = stepPrice(model).exposed;
  const Overlap overlap = overlapOf(model);
  const bool hides = overlap.forward > 0 || overlap.backward > 0;
  for (const Variable &variable : model.variables) {
    if (!variable.isHome) continue;
    double least = infinity;
    for (size_t home = 0; home < variable.domain(); ++home) {
      const Cost price = homePrice(model, variable, home);
      least = std::min(least, price.update + price.exposed + (hides ? 0 : price.hideable));
    }
    seconds += least;
  }
  return seconds;
}

Cost parameterCost(const SplitModel &model, const Variable &variable, size_t home, CollectiveSink *sink) {
  Cost cost = homePrice(model, variable, home, sink);
  const Layout layout = variable.homes[home];
  cost.largestParameter = model.gatheredBytes(variable.index, layout);
  cost.largestGradient = model.gradientBytesOf(variable.index, layout);
  cost.largestUpdate = updateBytes(model, variable.index, layout);
  cost.largestState = cost.host / double(variable.count);
  return cost;
}

StateCosts costState(const SplitModel &model, const std::vector<int> &choice) {
  const StepPrice ofStep = stepPrice(model);
  StateCosts costs = costState(model, choice, ofStep.exposed);
  costs.ofOtherRanks = ofStep.ofEachRank;
  return costs;
}

StateCosts costState(const SplitModel &model, const std::vector<int> &choice, double ofStep) {
  const UnitLayout &layout = *model.layout;
  StateCosts costs;
  costs.kinds.resize(size_t(layout.kinds));
  auto one = [&](size_t v) {
    const Variable &variable = model.variables[v];
    Cost cost = parameterCost(model, variable, size_t(choice[v])).times(1 / double(variable.count));
    cost.elements = double(model.problem->tensors[size_t(variable.index)].elements());
    return cost;
  };
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (!variable.isHome || variable.shares.empty()) continue;
    const Cost cost = one(v);
    for (const UnitShare &share : variable.shares)
      costs.kinds[size_t(share.kind)].add(cost, double(share.count) / double(layout.sizeOfKind[size_t(share.kind)]));
  }
  const auto last = size_t(layout.units.back().kind); // the loss
  costs.kinds[last].exposed += ofStep / double(layout.sizeOfKind[last]);
  const std::vector<double> sums = sumsOfShared(model, choice);
  for (size_t i = 0; i < layout.shared.size(); ++i) {
    costs.shared.push_back(one(size_t(layout.shared[i].variable)));
    costs.shared.back().sums = sums[i];
  }
  if (model.setting.zero >= 3) {
    const std::vector<double> gathered = gatheredAgain(model, choice);
    for (size_t kind = 0; kind < costs.kinds.size(); ++kind) costs.kinds[kind].gatheredAgain = gathered[kind];
  }
  return costs;
}

} // namespace cleave::planner
