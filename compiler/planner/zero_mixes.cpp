#include "compiler/planner/zero_mixes.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

constexpr size_t stages = 2; // of a pair

// A parameter, by ZeRO stage.
struct Options {
  const std::array<Price, stages> &prices;
  const std::array<bool, stages> &isOpen;
  const LeastContention &links;

  double bytes(size_t i) const { return prices[i].parameters + prices[i].gradients + prices[i].optimizer; }
  double seconds(size_t i, const ZeroMixes::Weights &weights) const {
    const double hideable = (i == 0 ? weights.lower : 0) + weights.all + weights.links * links.rate(i, prices[i]);
    return prices[i].update + prices[i].exposed + hideable * prices[i].hideable;
  }
};

// `times` of it: the faster stage, and what the other one saves.
void addTo(ZeroMixes::Costs &costs, const Options &options, const ZeroMixes::Weights &counted, double least,
           double times) {
  size_t at = options.isOpen[0] ? 0 : 1;
  const std::pair lower(options.seconds(0, counted), options.bytes(0)),
      higher(options.seconds(1, counted), options.bytes(1));
  if (options.isOpen[1] && higher < lower) at = 1;
  costs.seconds += times * options.seconds(at, counted);
  costs.bytes += times * (options.bytes(at) - least);
  const size_t other = 1 - at;
  const double saved = options.bytes(at) - options.bytes(other);
  if (!options.isOpen[other] || saved <= 0) return;
  costs.savings.push_back({(options.seconds(other, counted) - options.seconds(at, counted)) / saved, times * saved});
}

} // namespace

ZeroMixes::Spent ZeroMixes::spend(std::vector<Saving> savings, double bytes) {
  std::ranges::sort(savings, {}, &Saving::price);
  Spent spent{0, bytes};
  for (const Saving &saving : savings) {
    if (spent.left <= 0) break;
    spent.seconds += std::min(spent.left, saving.bytes) * saving.price;
    spent.left -= saving.bytes;
    spent.price = saving.price;
  }
  spent.left = std::max(0.0, spent.left);
  return spent;
}

SplitModel ZeroMixes::leanest(const SplitModel &model, size_t pair, const Decided &decided) {
  SplitModel leanest = model;
  leanest.setting.zero = pairs[pair][1];
  leanest.setting.lowerZero = pairs[pair][0];
  if (decided.empty()) return leanest;
  leanest.lowers.edit().assign(model.problem->tensors.size(), false);
  for (auto [v, stage] : decided) leanest.lowers.edit()[size_t(model.variables[v].index)] = stage == 0;
  return leanest;
}

ZeroMixes::ZeroMixes(const SplitModel &model, const std::vector<int> &choice, const ActivityCosts &activity,
                     size_t pair, const Decided &decided) {
  const UnitLayout &layout = *model.layout;
  SplitModel any = model;
  any.setting.zero = 0;
  any.setting.anyZero = zeroBit(pairs[pair][0]) | zeroBit(pairs[pair][1]);
  const double ofStep = stepPrice(any).exposed;
  state = costState(any, choice, ofStep);
  std::vector<SplitModel> models(stages, model);
  for (size_t i = 0; i < stages; ++i) models[i].setting.zero = pairs[pair][i];
  lower = overlapOf(models[0]);
  all = overlapOf(models[1]);
  all = {std::max(all.forward, lower.forward), std::max(all.backward, lower.backward)};
  // What follows from the largest parameter, and from the stage that all have in a model.
  const StateCosts leanest = costState(ZeroMixes::leanest(model, pair, decided), choice, ofStep);
  for (size_t kind = 0; kind < state.kinds.size(); ++kind) {
    state.kinds[kind].largestUpdate = std::min(state.kinds[kind].largestUpdate, leanest.kinds[kind].largestUpdate);
    state.kinds[kind].largestState = std::min(state.kinds[kind].largestState, leanest.kinds[kind].largestState);
  }
  for (size_t p = 0; p < state.shared.size(); ++p) {
    state.shared[p].largestUpdate = std::min(state.shared[p].largestUpdate, leanest.shared[p].largestUpdate);
    state.shared[p].largestState = std::min(state.shared[p].largestState, leanest.shared[p].largestState);
    state.shared[p].sums = std::min(state.shared[p].sums, leanest.shared[p].sums);
  }
  for (size_t at = 0; at < weights.size(); ++at) {
    kinds[at].resize(state.kinds.size());
    shared[at].resize(state.shared.size());
    const auto last = size_t(layout.units.back().kind); // as costState() has it
    kinds[at][last].seconds = ofStep / double(layout.sizeOfKind[last]);
  }
  std::vector<std::array<Price, stages>> prices(model.variables.size());
  std::vector<std::array<bool, stages>> isOpen(model.variables.size(), {true, true});
  for (auto [v, stage] : decided) isOpen[v][1 - stage] = false;
  auto secondsOf = [&](size_t v, size_t i) { return isOpen[v][i] ? prices[v][i].hideable : 0; };
  std::array<Price, stages> beside;
  double longest = 0;
  for (size_t v = 0; v < model.variables.size(); ++v) {
    if (!model.variables[v].isHome) continue;
    for (size_t i = 0; i < stages; ++i) prices[v][i] = homePrice(models[i], model.variables[v], size_t(choice[v]));
    for (size_t i = 0; i < stages; ++i)
      if (isOpen[v][i]) beside[i] += prices[v][i];
    longest += std::max(secondsOf(v, 0), secondsOf(v, 1));
  }
  auto saved = [&](size_t v) {
    const Options options{prices[v], isOpen[v], links};
    return std::abs(options.bytes(0) - options.bytes(1));
  };
  for (size_t v = 0; v < model.variables.size(); ++v)
    if (model.variables[v].isHome && saved(v) > 0) largest.push_back(v);
  std::ranges::stable_sort(largest, std::greater(), saved);
  links = LeastContention(model, activity, pairs[pair], beside, longest);
  crowds.resize(state.kinds.size());
  sharedCrowds.resize(state.shared.size());
  auto addAll = [&](ByWeights &sums, std::vector<LeastContention::Crowd> &crowd, UnitState &own, size_t index, size_t v,
                    double times) {
    const Variable &variable = model.variables[v];
    const Options options{prices[v], isOpen[v], links};
    const Price least = homePrice(any, variable, size_t(choice[v]));
    const Price &known = isOpen[v][0] == isOpen[v][1] ? least : prices[v][isOpen[v][0] ? 0 : 1];
    own.parameters += times / double(variable.count) * (known.parameters - least.parameters);
    own.gradients += times / double(variable.count) * (known.gradients - least.gradients);
    own.optimizer += times / double(variable.count) * (known.optimizer - least.optimizer);
    const double bytes = known.parameters + known.gradients + known.optimizer;
    for (size_t at = 0; at < weights.size(); ++at)
      addTo(sums[at][index], options, weights[at], bytes, times / double(variable.count));
    crowd[index].add(links.crowd(secondsOf(v, 0), secondsOf(v, 1)), times / double(variable.count));
  };
  for (size_t v = 0; v < model.variables.size(); ++v)
    for (const UnitShare &share : model.variables[v].shares)
      if (model.variables[v].isHome)
        addAll(kinds, crowds, state.kinds[size_t(share.kind)], size_t(share.kind), v,
               double(share.count) / double(layout.sizeOfKind[size_t(share.kind)]));
  for (size_t p = 0; p < layout.shared.size(); ++p)
    addAll(shared, sharedCrowds, state.shared[p], p, size_t(layout.shared[p].variable), 1);
}

} // namespace cleave::planner
