#include "compiler/planner/zero_mixes.h"
#include <algorithm>
#include <limits>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

constexpr size_t stages = 4;

// A parameter, by ZeRO stage.
struct Options {
  std::array<Price, stages> prices;

  double bytes(size_t i) const { return prices[i].parameters + prices[i].gradients + prices[i].optimizer; }
  double seconds(size_t i, ZeroMixes::Weights weights) const {
    return prices[i].update + prices[i].exposed + ((i <= 1 ? weights.lower : 0) + weights.all) * prices[i].hideable;
  }
};

// `times` of it: along the lower hull of (bytes, seconds), from the fastest stage to the leanest.
void addTo(ZeroMixes::Costs &costs, const Options &options, ZeroMixes::Weights counted, double least, double times) {
  size_t at = 0;
  for (size_t i = 1; i < stages; ++i) {
    const std::pair one(options.seconds(i, counted), options.bytes(i));
    if (one < std::pair(options.seconds(at, counted), options.bytes(at))) at = i;
  }
  costs.seconds += times * options.seconds(at, counted);
  costs.bytes += times * (options.bytes(at) - least);
  while (true) {
    size_t next = at;
    double price = infinity;
    for (size_t i = 0; i < stages; ++i) {
      const double saved = options.bytes(at) - options.bytes(i);
      if (saved <= 0) continue;
      const double one = (options.seconds(i, counted) - options.seconds(at, counted)) / saved;
      if (one < price || (one == price && options.bytes(i) < options.bytes(next))) {
        price = one;
        next = i;
      }
    }
    if (next == at) return;
    costs.savings.push_back({price, times * (options.bytes(at) - options.bytes(next))});
    at = next;
  }
}

} // namespace

ZeroMixes::ZeroMixes(const SplitModel &model, const std::vector<int> &choice) {
  const UnitLayout &layout = *model.layout;
  SplitModel any = model;
  any.setting.zero = 0;
  any.setting.anyZero = true;
  const double ofStep = stepPrice(any).exposed;
  state = costState(any, choice, ofStep);
  std::vector<SplitModel> models(stages, model);
  for (size_t zero = 0; zero < stages; ++zero) {
    models[zero].setting.zero = int(zero);
    const Overlap overlap = overlapOf(models[zero]);
    for (Overlap *of : {&lower, &all})
      if (of == &all || zero <= 1)
        *of = {std::max(of->forward, overlap.forward), std::max(of->backward, overlap.backward)};
  }
  // What follows from the largest parameter, and from the stage that all have in a model.
  const StateCosts leanest = costState(models.back(), choice, ofStep);
  for (size_t kind = 0; kind < state.kinds.size(); ++kind)
    state.kinds[kind].largestUpdate = std::min(state.kinds[kind].largestUpdate, leanest.kinds[kind].largestUpdate);
  for (size_t p = 0; p < state.shared.size(); ++p) {
    state.shared[p].largestUpdate = std::min(state.shared[p].largestUpdate, leanest.shared[p].largestUpdate);
    state.shared[p].sums = std::min(state.shared[p].sums, leanest.shared[p].sums);
  }
  for (size_t at = 0; at < weights.size(); ++at) {
    kinds[at].resize(state.kinds.size());
    shared[at].resize(state.shared.size());
    const auto last = size_t(layout.units.back().kind); // as costState() has it
    kinds[at][last].seconds = ofStep / double(layout.sizeOfKind[last]);
  }
  auto addAll = [&](ByWeights &sums, size_t index, size_t v, double times) {
    const Variable &variable = model.variables[v];
    Options options;
    for (size_t zero = 0; zero < stages; ++zero)
      options.prices[zero] = homePrice(models[zero], variable, size_t(choice[v]));
    const Price least = homePrice(any, variable, size_t(choice[v]));
    const double bytes = least.parameters + least.gradients + least.optimizer;
    for (size_t at = 0; at < weights.size(); ++at)
      addTo(sums[at][index], options, weights[at], bytes, times / double(variable.count));
  };
  for (size_t v = 0; v < model.variables.size(); ++v)
    for (const UnitShare &share : model.variables[v].shares)
      if (model.variables[v].isHome)
        addAll(kinds, size_t(share.kind), v, double(share.count) / double(layout.sizeOfKind[size_t(share.kind)]));
  for (size_t p = 0; p < layout.shared.size(); ++p) addAll(shared, p, size_t(layout.shared[p].variable), 1);
}

} // namespace cleave::planner
