// What bounds say that passes wait for links, against hide(), which says what they wait.
#include "compiler/planner/cost/least_contention.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace cleave::planner {
namespace {

// Ranks of random units and parameters, of two ZeRO stages each: none waits less than the bound says.
TEST(LeastContention, NoRankWaitsLess) {
  Result<Cluster> cluster = parseCluster("h100-80g:8x2");
  ASSERT_TRUE(cluster);
  std::mt19937 random(1);
  auto draw = [&](double least, double most) { return least + (most - least) * double(random() % 10001) / 10000; };
  int tight = 0, waiting = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    SplitModel model;
    model.cluster = &*cluster;
    model.setting.microbatches = 1 + int64_t(random() % 8);
    const LeastContention::Pair pair =
        std::array<LeastContention::Pair, 6>{{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}}[random() % 6];
    // Mostly blocks; sometimes units that are not like them.
    UnitLayout layout;
    layout.kinds = 2;
    ActivityCosts activity;
    activity.kinds.resize(2);
    const bool isAlike = random() % 2;
    for (auto &kind : activity.kinds)
      for (UnitActivity &one : kind) {
        one.communicationForward = draw(0, 0.5);
        one.communication = one.communicationForward + draw(0, 0.5);
        one.forward = draw(0.3, 1) + one.communicationForward;
        one.backwardInput = draw(0.3, 2) + one.communication - one.communicationForward;
        const double hidden = draw(1, 3); // links are busy behind products, too
        one.linksForward = {draw(0, hidden) * one.communicationForward, draw(0, hidden) * one.communicationForward};
        one.links = one.linksForward;
        one.links.add({draw(0, 0.5), draw(0, 0.5)});
        if (isAlike) one = activity.kinds[0][0];
      }
    for (int unit = 0; unit < 5; ++unit) layout.units.push_back({.kind = unit == 4, .isBlock = unit < 4});
    model.layout = std::make_shared<UnitLayout>(layout);
    struct Parameter {
      std::array<Price, 2> prices;
      size_t stage;
    };
    std::vector<Parameter> parameters(1 + random() % 4);
    std::array<Price, 2> beside;
    double longest = 0;
    const double node = draw(0, 1), network = draw(0, 1), most = draw(0.1, 8);
    for (Parameter &parameter : parameters) {
      parameter.stage = random() % 2;
      for (size_t i = 0; i < 2; ++i) {
        Price &price = parameter.prices[i];
        price.hideable = draw(0, most);
        const double part = random() % 3 ? 1 : draw(0, 1); // some wait for latencies instead
        price.hideableLinks = {part * node * price.hideable, part * network * price.hideable};
        beside[i] += price;
      }
      longest += std::max(parameter.prices[0].hideable, parameter.prices[1].hideable);
    }
    const LeastContention least(model, activity, pair, beside, longest);
    // The rank's own units, each computed again as it likes.
    UnitActivity work;
    double bound = 0;
    LeastContention::Crowd crowd;
    for (const Parameter &parameter : parameters) {
      const Price &price = parameter.prices[parameter.stage];
      bound += least.rate(parameter.stage, price) * price.hideable;
      crowd.add(least.crowd(parameter.prices[0].hideable, parameter.prices[1].hideable), 1);
    }
    for (int unit = 0; unit < 5; ++unit) {
      const UnitActivity &one = activity.kinds[size_t(unit == 4)][random() % 3];
      work += one;
      LeastContention::Crowd own;
      bound -= least.less(model, PassSeconds::of(one, double(model.setting.microbatches)), own.add(crowd, 0.2));
    }
    model.setting.lowerZero = pair[0];
    model.setting.zero = pair[1];
    BesideSeconds state;
    for (const Parameter &parameter : parameters) {
      const Price &price = parameter.prices[parameter.stage];
      state.seconds += price.hideable;
      if (parameter.stage == 0) state.lower += price.hideable;
      state.links.add(price.hideableLinks);
    }
    const Hidden hidden = hide(model, state, PassSeconds::of(work, double(model.setting.microbatches)));
    const double waits = state.seconds - hidden.seconds + hidden.contention;
    EXPECT_LE(bound, waits + 1e-9 * state.seconds) << trial;
    waiting += waits > 0.05;
    tight += waits > 0.05 && bound > 0.7 * waits;
  }
  EXPECT_GE(waiting, 10000);
  EXPECT_GE(tight * 10, waiting);
}

} // namespace
} // namespace cleave::planner
