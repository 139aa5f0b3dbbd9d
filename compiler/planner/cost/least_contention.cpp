#include "compiler/planner/cost/least_contention.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Where collectives take longer than this, what compute does not hide of them is no less than what they make wait.
double roomOf(const Window &window) {
  return window.hides + std::max({window.waited, window.links.node, window.links.network});
}

} // namespace

LeastContention::LeastContention(const SplitModel &model, const ActivityCosts &activity, const Pair &stages,
                                 const std::array<Price, 2> &beside, double longest)
    : stages(stages) {
  Price all = beside[0];
  all += beside[1];
  // Where gradients have more room than ZeRO's collectives a lower stage may hide more than a higher one.
  if (all.hideable <= 0 || model.cluster->device.gradientOverlap > model.cluster->device.overlap) return;
  const double microbatches = double(model.setting.microbatches);
  UnitActivity blocks; // whatever it is, there are bounds; close ones of ranks that do as much of each
  for (const Unit &unit : model.layout->units)
    if (unit.isBlock) blocks += activity.of(unit.kind, Recompute::None);
  const PassSeconds passes = PassSeconds::of(blocks, microbatches);
  const Window lower = windowOf(model, stages[0], passes), higher = windowOf(model, stages[1], passes);
  if (higher.turn() <= 0) return;
  for (const auto &kind : activity.kinds)
    for (const UnitActivity &one : kind)
      if (const Window window = windowOf(model, stages[1], PassSeconds::of(one, microbatches)); window.turn() > 0)
        crowding = std::max(crowding, roomOf(window) / window.turn());
  turns = lower.turn() / higher.turn();
  // The busier link first: both together count no more than it.
  auto [first, second] = higher.links.node > higher.links.network
                             ? std::pair(&LinkSeconds::node, &LinkSeconds::network)
                             : std::pair(&LinkSeconds::network, &LinkSeconds::node);
  parts.*first = std::min(1.0, all.hideableLinks.*first / all.hideable);
  parts.*second = std::min(1 - parts.*first, all.hideableLinks.*second / all.hideable);
  isRoomy = std::max(longest, higher.turn()) < roomOf(higher);
  rates[1] = std::min(1.0, onLinks(higher.links) / roomFor(higher, {0, longest}));
  const double inLine = std::max({beside[0].hideable + turns * beside[1].hideable, lower.turn()});
  if (inLine > 0) rates[0] = std::min(rates[1], onLinks(lower.links) / inLine);
  isKnown = true;
}

double LeastContention::rate(size_t stage, const Price &price) const {
  if (!isKnown || price.hideable <= 0) return 0;
  double others = 0; // part of it that does not use the links as the rest does
  for (auto link : {&LinkSeconds::node, &LinkSeconds::network})
    if (parts.*link > 0) others = std::max(others, 1 - price.hideableLinks.*link / (parts.*link * price.hideable));
  return rates[stage] - rates[1] * others;
}

double LeastContention::roomFor(const Window &higher, const Crowd &crowd) const {
  return isRoomy ? std::max(crowd.all, higher.turn()) : roomOf(higher);
}

double LeastContention::lessRoom(const Window &lower, const Window &higher) const {
  return crowding * std::max(0.0, lower.turn() - turns * higher.turn());
}

double LeastContention::less(const SplitModel &model, const PassSeconds &passes, const Crowd &crowd) const {
  if (!isKnown) return 0;
  const Window lower = windowOf(model, stages[0], passes), higher = windowOf(model, stages[1], passes);
  const double inLine = std::max(crowd.inLine + lessRoom(lower, higher), lower.turn());
  return std::max(0.0, rates[1] * roomFor(higher, crowd) - onLinks(higher.links)) +
         std::max(0.0, rates[0] * inLine - onLinks(lower.links));
}

} // namespace cleave::planner
