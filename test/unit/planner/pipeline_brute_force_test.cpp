// The whole search (stages, schedules, ZeRO, microbatches, recomputation, shardings) against plain enumeration of every
// plan of small models.
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/space/search_space.h"
#include "compiler/planner/search/space/settings.h"
#include "test/unit/planner/each_cut.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>

namespace cleave::planner {
namespace {

using testing::eachCut;
using testing::ProblemBuilder;

// Residual blocks of one product, or of two with an activation between, and a product that ends in a sum.
Problem stack(unsigned seed, int blocks, bool isDeep) {
  std::mt19937 random(seed);
  auto size = [&](int least, int choices) { return int64_t(1) << (least + int(random() % unsigned(choices))); };
  int64_t s = size(4, 5), h = size(6, 5), wide = h * size(0, 3), out = size(3, 8);
  ProblemBuilder b("stack" + std::to_string(seed), 16);
  int x = b.input("x", {16, s, h});
  for (int i = 0; i < blocks; ++i) {
    std::string at = "block" + std::to_string(i);
    int y = b.op(at + "/up", "Contract", "bsh,hf->bsf", {x, b.parameter(at + ".up", {h, isDeep ? wide : h})});
    if (isDeep) {
      y = b.op(at + "/act", "Exp", "bsf->bsf", {y});
      y = b.op(at + "/down", "Contract", "bsf,fh->bsh", {y, b.parameter(at + ".down", {wide, h})});
    }
    x = b.op(at + "/residual", "Add", "bsh,bsh->bsh", {x, y});
  }
  int y = b.op("head", "Contract", "bsh,ho->bso", {x, b.parameter("head.w", {h, out})});
  b.op("loss", "Sum", "bso->", {y});
  return b.problem;
}

// Every way to recompute blocks.
void eachRecomputation(const std::vector<Unit> &units, const RecomputeSegments &segments,
                       const std::vector<Recompute> &ways,
                       const std::function<void(const std::vector<Recompute> &)> &visit) {
  std::vector<Recompute> recompute(units.size(), Recompute::None);
  std::function<void(size_t)> set = [&](size_t unit) {
    if (unit == units.size()) return visit(recompute);
    for (Recompute way : ways) {
      const int segment = segments.segmentOf[size_t(units[unit].first)];
      if (segment < 0 && way != Recompute::None) continue;
      // Units of one segment are computed again in full together or not at all.
      const bool isWithLast = unit > 0 && segment >= 0 && segments.segmentOf[size_t(units[unit].end) - 1] == segment &&
                              segments.segmentOf[size_t(units[unit - 1].end) - 1] == segment;
      if (isWithLast && (way == Recompute::Full) != (recompute[unit - 1] == Recompute::Full)) continue;
      recompute[unit] = way;
      set(unit + 1);
    }
    recompute[unit] = Recompute::None;
  };
  set(0);
}

void eachAssignment(const SplitModel &model, const std::function<void(const std::vector<int> &)> &visit) {
  std::vector<int> choice(model.variables.size(), 0);
  while (true) {
    visit(choice);
    size_t v = 0;
    while (v < choice.size() && ++choice[v] == int(model.variables[v].domain())) choice[v++] = 0;
    if (v == choice.size()) return;
  }
}

struct Enumerated {
  double seconds = infinity; // of the fastest plan within the memory
  double fastest = infinity, atFastest = 0, leanest = infinity;
  int64_t plans = 0;
};

Enumerated enumerate(const Problem &problem, const Cluster &cluster, const Constraints &constraints, double limit) {
  ProblemFacts facts = gatherFacts(problem, cluster.device, constraints);
  Enumerated result;
  for (Setting setting : openSettings(problem, facts, cluster, constraints, true))
    for (int zero : openZeroStages(constraints, setting)) {
      setting.zero = zero;
      auto model = buildModel(problem, facts, cluster, constraints, setting);
      EXPECT_TRUE(model);
      const ScheduleProfile *profile =
          setting.pp == 1 ? nullptr : scheduleProfile(setting.schedule, setting.pp, setting.microbatches);
      if (setting.pp > 1 && !profile) continue;
      const std::vector<Unit> &units = model->layout->units;
      eachAssignment(*model, [&](const std::vector<int> &choice) {
        if (!evaluate(*model, choice).isPossible) return;
        ActivityCosts activity = costActivity(*model, choice);
        StateCosts state = costState(*model, choice);
        StageProblem stages{&*model, &activity, &state, profile, infinity, std::nullopt, {}, {}};
        eachCut(int(units.size()), stages.stages(), [&](const std::vector<int> &starts) {
          auto price = [&](const std::vector<Recompute> &recompute) {
            StagePlan plan;
            plan.firstUnits = starts;
            plan.recompute = recompute;
            PlanEvaluation evaluation = evaluatePlan(stages, plan);
            double seconds = evaluation.predicted.stepSeconds, bytes = evaluation.predicted.memory.total();
            ++result.plans;
            result.leanest = std::min(result.leanest, bytes);
            if (bytes <= limit) result.seconds = std::min(result.seconds, seconds);
            if (seconds >= result.fastest) return;
            result.fastest = seconds;
            result.atFastest = bytes;
          };
          eachRecomputation(units, model->segments, openRecomputation(constraints, model->segments), price);
        });
      });
    }
  return result;
}

Outcome searched(const Problem &problem, const Cluster &cluster, const Constraints &constraints) {
  ProblemFacts facts = gatherFacts(problem, cluster.device, constraints);
  return searchSettings(problem, facts, cluster, constraints, {.alternatives = false});
}

// The claims of the search, against all plans there are with one ZeRO stage for all parameters (mixed_zero_test.cpp has
// the others).
void expectHonest(const Outcome &outcome, double best, double allowed, const std::string &what) {
  ASSERT_TRUE(outcome.best) << what;
  if (outcome.best->model->lowers.empty()) EXPECT_GE(outcome.best->seconds(), best * (1 - 1e-9)) << what;
  EXPECT_LE(outcome.best->seconds(), best * allowed) << what;
  EXPECT_LE(outcome.bound, best * (1 + 1e-9)) << what;
}

TEST(PipelineBruteForce, StagesSchedulesAndShardings) {
  int64_t exact = 0, count = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    Problem problem = stack(seed, seed % 3 == 0 ? 3 : 1, false);
    Result<Cluster> cluster = parseCluster(seed % 4 == 3 ? "h100-80g:1x4" : seed % 2 ? "a100-80g:2x2" : "v100-32g:4");
    cluster->device.dispatchSeconds = 0; // see WaitingForTheHost
    cluster->device.coreShare = seed < 6 ? 1 : seed % 2 ? 0.5 : 0.25;
    Constraints constraints;
    constraints.recompute = Recompute::None;
    if (seed % 3 == 0) constraints.tp = 1;
    if (seed % 3 == 1) constraints.zero = 0;
    if (seed % 3 == 2) constraints.microbatches = 4;
    if (seed % 3 != 0) {
      constraints.pp = 2;
      constraints.schedule = seed % 2 ? "1f1b" : "gpipe";
    }
    Enumerated all = enumerate(problem, *cluster, constraints, infinity);
    Outcome outcome = searched(problem, *cluster, constraints);
    // Operations are split, and stages cut, as if cores were not shared: what that costs the gap has to say.
    expectHonest(outcome, all.fastest, cluster->device.coreShare < 1 ? 1.1 : 1.02, "seed " + std::to_string(seed));
    exact += outcome.best && outcome.best->seconds() <= all.fastest * (1 + 1e-9);
    ++count;
    EXPECT_GE(all.plans, 100) << seed;
  }
  EXPECT_GE(exact * 10, count * 7);
}

// Every order of the axes, whether it is thought to differ or not; what a node holds is near, the network slow. In the
// last ones the devices under a switch are near.
TEST(PipelineBruteForce, OrdersOfTheMeshAxes) {
  int64_t exact = 0, count = 0, turned = 0;
  for (unsigned seed = 60; seed < 76; ++seed) {
    Problem problem = stack(seed, 1, false);
    Result<Cluster> cluster = parseCluster(seed % 2 ? "a100-80g:2x2" : seed % 4 ? "v100-32g:2x4" : "a100-80g:4x2");
    cluster->device.dispatchSeconds = 0;
    cluster->network.bandwidth /= seed % 3 ? 16 : 1;
    if (seed >= 72) {
      cluster = parseCluster("a100-80g:1x4");
      cluster->device.dispatchSeconds = 0;
      cluster->levels = {{2, cluster->network.bandwidth / 16, 1.25 * cluster->network.latency}};
    }
    Constraints constraints;
    constraints.recompute = Recompute::None;
    constraints.microbatches = 4;
    if (seed % 3 == 0) constraints.zero = 0;
    if (seed % 3 == 1) constraints.pp = 2;
    if (seed % 3 == 2) constraints.tp = 2;
    constraints.schedule = "1f1b";
    std::vector<Axis> order = {Axis::Pipeline, Axis::Data, Axis::Tensor};
    double best = infinity;
    do {
      constraints.order = order;
      best = std::min(best, enumerate(problem, *cluster, constraints, infinity).fastest);
    } while (std::ranges::next_permutation(order).found);
    constraints.order.clear();
    Outcome outcome = searched(problem, *cluster, constraints);
    expectHonest(outcome, best, 1.02, "seed " + std::to_string(seed));
    if (!outcome.best) continue;
    ++count;
    turned += outcome.best->model->setting.order != usualOrder;
    exact += outcome.best->seconds() <= best * (1 + 1e-9);
  }
  EXPECT_GE(turned, 2);
  EXPECT_GE(exact * 10, count * 7);
}

// Experts in stacked weights, dispatched by a mask: their axis is one of the search's.
Problem routed(unsigned seed) {
  std::mt19937 random(seed);
  auto size = [&](int least, int choices) { return int64_t(1) << (least + int(random() % unsigned(choices))); };
  int64_t s = size(3, 3), h = size(4, 4), wide = h * size(0, 6), places = size(1, 3);
  ProblemBuilder b("routed" + std::to_string(seed), 16);
  int x = b.input("x", {16, s, h});
  x = b.op("in", "Contract", "bsh,hk->bsk", {x, b.parameter("in.w", {h, h})});
  int gate = b.op("router", "Contract", "bsh,he->bse", {x, b.parameter("router.w", {h, 4})});
  int mask = b.op("mask", "Mul", "bse,c->bsec", {gate, b.parameter("places", {places})});
  int y = b.op("dispatch", "Contract", "bsec,bsh->ebch", {mask, x});
  y = b.op("up", "Contract", "ebch,ehf->ebcf", {y, b.parameter("up.w", {4, h, wide})});
  y = b.op("down", "Contract", "ebcf,efh->ebch", {y, b.parameter("down.w", {4, wide, h})});
  y = b.op("combine", "Contract", "bsec,ebch->bsh", {mask, y});
  b.op("loss", "Sum", "bsh->", {y});
  return b.problem;
}

TEST(PipelineBruteForce, ExpertsOnAnAxisOfTheirOwn) {
  int64_t chosen = 0, exact = 0, count = 0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    Problem problem = routed(seed);
    Result<Cluster> cluster = parseCluster(seed % 2 ? "cpu:4" : "a100-80g:2x2");
    cluster->device.dispatchSeconds = 0;
    Constraints constraints;
    constraints.recompute = Recompute::None;
    constraints.tp = 1;
    constraints.pp = seed % 4 ? 1 : 2;
    if (seed % 4 == 0) constraints.schedule = "1f1b";
    Enumerated all = enumerate(problem, *cluster, constraints, infinity);
    Outcome outcome = searched(problem, *cluster, constraints);
    expectHonest(outcome, all.fastest, 1.02, "seed " + std::to_string(seed));
    if (!outcome.best) continue;
    ++count;
    chosen += outcome.best->model->setting.ep > 1;
    exact += outcome.best->seconds() <= all.fastest * (1 + 1e-9);
    EXPECT_GE(all.plans, 20) << seed;
  }
  EXPECT_GE(chosen, 3);
  EXPECT_LE(chosen, count - 3);
  EXPECT_GE(exact * 10, count * 7);
}

// Where the host is the slower one, a pass takes its time and what the device does meanwhile is free: no sum over
// operations says so: the shardings are those that the device is fastest with, improved by single changes.
TEST(PipelineBruteForce, WaitingForTheHost) {
  for (unsigned seed = 40; seed < 46; ++seed) {
    Problem problem = stack(seed, 1, false);
    Result<Cluster> cluster = parseCluster("a100-80g:2x2");
    cluster->device.dispatchSeconds = seed % 2 ? 94e-6 : 10e-6; // slower than everything; than some of the passes
    Constraints constraints;
    constraints.recompute = Recompute::None;
    constraints.microbatches = 2;
    if (seed % 3 != 0) {
      constraints.pp = 2;
      constraints.schedule = "1f1b";
    }
    double best = enumerate(problem, *cluster, constraints, infinity).fastest;
    expectHonest(searched(problem, *cluster, constraints), best, 1.06, "seed " + std::to_string(seed));
  }
}

TEST(PipelineBruteForce, RecomputationOfEachBlockWithinTheMemory) {
  int64_t exact = 0, count = 0;
  for (unsigned seed = 20; seed < 26; ++seed) {
    Problem problem = stack(seed, 3, true);
    Result<Cluster> cluster = parseCluster("a100-80g:4");
    cluster->device.dispatchSeconds = 0;
    Constraints constraints;
    constraints.tp = 1;
    if (seed % 3 == 0) constraints.offload = Offload::Optimizer;
    if (seed % 2) constraints.schedule = "1f1b";
    if (seed % 2) constraints.pp = 2;
    constraints.microbatches = 4;
    Enumerated all = enumerate(problem, *cluster, constraints, infinity);
    if (all.atFastest < all.leanest * 1.05) continue; // recomputation brings nothing
    double limit = (all.leanest + all.atFastest) / 2;
    double best = enumerate(problem, *cluster, constraints, limit).seconds;
    cluster->device.memoryBytes *= limit / cluster->device.usableBytes();
    Outcome outcome = searched(problem, *cluster, constraints);
    expectHonest(outcome, best, 1.05, "seed " + std::to_string(seed));
    if (outcome.best) EXPECT_LE(outcome.best->bytes(), limit * (1 + 1e-9)) << seed;
    exact += outcome.best && outcome.best->seconds() <= best * (1 + 1e-9);
    ++count;
  }
  EXPECT_GE(count, 4);
  EXPECT_GE(exact * 10, count * 5);
}

} // namespace
} // namespace cleave::planner
