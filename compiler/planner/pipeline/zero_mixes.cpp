#include "compiler/planner/pipeline/zero_mixes.h"
#include <algorithm>
#include <cmath>
#include <functional>

namespace cleave::planner {
namespace {

constexpr size_t stages = 2; // of a pair

// A parameter, by ZeRO stage.
struct Options {
  std::array<Price, stages> prices;
  std::array<bool, stages> isOpen = {true, true};

  double bytes(size_t i) const { return prices[i].parameters + prices[i].gradients + prices[i].optimizer; }
  double saved() const { return std::abs(bytes(0) - bytes(1)); }
  bool isDecided() const { return isOpen[0] != isOpen[1]; }
  // Of its collectives, with a stage that it may have.
  double hideable(size_t i) const { return isOpen[i] ? prices[i].hideable : 0; }
  double seconds(size_t i, const ZeroMixes::Weights &weights, const LeastContention &links) const {
    const double hideable = (i == 0 ? weights.lower : 0) + weights.all + weights.links * links.rate(i, prices[i]);
    return prices[i].update + prices[i].exposed + hideable * prices[i].hideable;
  }
};

// `times` of it: the faster stage, and what the other one saves.
void addTo(ZeroMixes::Costs &costs, const Options &options, const ZeroMixes::Weights &counted,
           const LeastContention &links, double least, double times) {
  const std::array<double, stages> seconds = {options.seconds(0, counted, links), options.seconds(1, counted, links)};
  const std::pair lower(seconds[0], options.bytes(0)), higher(seconds[1], options.bytes(1));
  const size_t at = options.isOpen[0] && !(options.isOpen[1] && higher < lower) ? 0 : 1;
  costs.seconds += times * seconds[at];
  costs.bytes += times * (options.bytes(at) - least);
  const size_t other = 1 - at;
  const double saved = options.bytes(at) - options.bytes(other);
  if (!options.isOpen[other] || saved <= 0) return;
  costs.savings.push_back({(seconds[other] - seconds[at]) / saved, times * saved});
}

} // namespace

ZeroMixes::SortedSavings::SortedSavings(std::vector<Saving> given) : savings(std::move(given)), before(1) {
  std::ranges::sort(savings, {}, &Saving::price);
  for (const Saving &one : savings)
    before.push_back({before.back().price + one.price * one.bytes, before.back().bytes + one.bytes});
}

ZeroMixes::Spent ZeroMixes::SortedSavings::spend(double bytes) const {
  if (bytes <= 0 || savings.empty()) return {0, std::max(0.0, bytes), 0};
  // The last of which something is saved.
  const auto next = std::ranges::lower_bound(before, bytes, {}, &Saving::bytes);
  const size_t last = std::min(size_t(next - before.begin()), savings.size()) - 1;
  const double ofLast = std::min(savings[last].bytes, bytes - before[last].bytes);
  return {before[last].price + ofLast * savings[last].price, std::max(0.0, bytes - before.back().bytes),
          savings[last].price};
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

namespace {

// Of every parameter's variable; none of others.
std::vector<Options> optionsOf(const std::vector<SplitModel> &models, const std::vector<int> &choice,
                               const ZeroMixes::Decided &decided) {
  const std::vector<Variable> &variables = models[0].variables;
  std::vector<Options> options(variables.size());
  for (size_t v = 0; v < variables.size(); ++v)
    for (size_t i = 0; i < stages && variables[v].isHome; ++i)
      options[v].prices[i] = homePrice(models[i], variables[v], size_t(choice[v]));
  for (auto [v, stage] : decided) options[v].isOpen[1 - stage] = false;
  return options;
}

LeastContention contentionOf(const SplitModel &model, const ActivityCosts &activity, const LeastContention::Pair &pair,
                             const std::vector<Options> &options) {
  std::array<Price, stages> beside;
  double longest = 0;
  for (size_t v = 0; v < options.size(); ++v) {
    if (!model.variables[v].isHome) continue;
    for (size_t i = 0; i < stages; ++i)
      if (options[v].isOpen[i]) beside[i] += options[v].prices[i];
    longest += std::max(options[v].hideable(0), options[v].hideable(1));
  }
  return {model, activity, pair, beside, longest};
}

} // namespace

// What follows from the largest parameter, and from the stage that all have in a model.
void ZeroMixes::limitTo(const StateCosts &leanest) {
  for (size_t kind = 0; kind < state.kinds.size(); ++kind) {
    state.kinds[kind].largestUpdate = std::min(state.kinds[kind].largestUpdate, leanest.kinds[kind].largestUpdate);
    state.kinds[kind].largestState = std::min(state.kinds[kind].largestState, leanest.kinds[kind].largestState);
  }
  for (size_t p = 0; p < state.shared.size(); ++p) {
    state.shared[p].largestUpdate = std::min(state.shared[p].largestUpdate, leanest.shared[p].largestUpdate);
    state.shared[p].largestState = std::min(state.shared[p].largestState, leanest.shared[p].largestState);
    state.shared[p].sums = std::min(state.shared[p].sums, leanest.shared[p].sums);
  }
}

ZeroMixes::ZeroMixes(const SplitModel &model, const std::vector<int> &choice, const ActivityCosts &activity,
                     size_t pair, const Decided &decided) {
  const UnitLayout &layout = *model.layout;
  SplitModel any = model;
  any.setting.zero = 0;
  any.setting.anyZero = zeroBit(pairs[pair][0]) | zeroBit(pairs[pair][1]);
  const double ofStep = stepPrice(any).exposed;
  state = costState(any, choice, ofStep);
  limitTo(costState(leanest(model, pair, decided), choice, ofStep));
  std::vector<SplitModel> models(stages, model);
  for (size_t i = 0; i < stages; ++i) models[i].setting.zero = pairs[pair][i];
  lower = overlapOf(models[0]);
  all = overlapOf(models[1]);
  all = {std::max(all.forward, lower.forward), std::max(all.backward, lower.backward)};
  const std::vector<Options> options = optionsOf(models, choice, decided);
  for (size_t v = 0; v < options.size(); ++v)
    if (options[v].saved() > 0) largest.push_back(v);
  std::ranges::stable_sort(largest, std::greater(), [&](size_t v) { return options[v].saved(); });
  links = contentionOf(model, activity, pairs[pair], options);
  for (size_t at = 0; at < weights.size(); ++at) {
    kinds[at].resize(state.kinds.size());
    shared[at].resize(state.shared.size());
    const auto last = size_t(layout.units.back().kind); // as costState() has it
    kinds[at][last].seconds = ofStep / double(layout.sizeOfKind[last]);
  }
  crowds.resize(state.kinds.size());
  sharedCrowds.resize(state.shared.size());
  auto addAll = [&](ByWeights &sums, LeastContention::Crowd &crowd, UnitState &own, size_t index, size_t v,
                    double times) {
    const Variable &variable = model.variables[v];
    const Price least = homePrice(any, variable, size_t(choice[v]));
    const Price &known = options[v].isDecided() ? options[v].prices[options[v].isOpen[0] ? 0 : 1] : least;
    const double ofOne = times / double(variable.count);
    own.parameters += ofOne * (known.parameters - least.parameters);
    own.gradients += ofOne * (known.gradients - least.gradients);
    own.optimizer += ofOne * (known.optimizer - least.optimizer);
    const double bytes = known.parameters + known.gradients + known.optimizer;
    for (size_t at = 0; at < weights.size(); ++at) addTo(sums[at][index], options[v], weights[at], links, bytes, ofOne);
    crowd.add(links.crowd(options[v].hideable(0), options[v].hideable(1)), ofOne);
  };
  for (size_t v = 0; v < model.variables.size(); ++v)
    for (const UnitShare &share : model.variables[v].shares) {
      const auto kind = size_t(share.kind);
      if (model.variables[v].isHome)
        addAll(kinds, crowds[kind], state.kinds[kind], kind, v, double(share.count) / double(layout.sizeOfKind[kind]));
    }
  for (size_t p = 0; p < layout.shared.size(); ++p)
    addAll(shared, sharedCrowds[p], state.shared[p], p, size_t(layout.shared[p].variable), 1);
}

} // namespace cleave::planner
