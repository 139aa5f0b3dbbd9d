// Pipelines of stages with different device counts: priced as equal ones are, and searched against every one of them.
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/driver/unequal_stages.h"
#include "compiler/planner/search/space/cells.h"
#include "compiler/planner/search/space/search_space.h"
#include "compiler/planner/search/space/settings.h"
#include "test/unit/planner/each_cut.h"
#include "test/unit/planner/problem_builder.h"
#include <functional>
#include <gtest/gtest.h>

namespace cleave::planner {
namespace {

using testing::ProblemBuilder;

// Blocks of two products, and a head so wide that it takes as long as `head` blocks.
Problem stack(int blocks, int64_t h, int64_t head, int64_t batch) {
  ProblemBuilder b("stack", batch);
  int x = b.input("x", {batch, 64, h});
  for (int i = 0; i < blocks; ++i) {
    std::string at = "block" + std::to_string(i);
    int y = b.op(at + "/up", "Contract", "bsh,hf->bsf", {x, b.parameter(at + ".up", {h, 4 * h})});
    y = b.op(at + "/act", "Exp", "bsf->bsf", {y});
    y = b.op(at + "/down", "Contract", "bsf,fh->bsh", {y, b.parameter(at + ".down", {4 * h, h})});
    x = b.op(at + "/residual", "Add", "bsh,bsh->bsh", {x, y});
  }
  b.op("loss", "Sum", "bso->",
       {b.op("head", "Contract", "bsh,ho->bso", {x, b.parameter("head.w", {h, 8 * h * head})})});
  return b.problem;
}

TEST(UnequalStages, EqualOnesCostWhatARegularMeshCosts) {
  Problem problem = stack(5, 256, 1, 16);
  for (const char *name : {"a100-80g:8", "h100-80g:2x4", "cpu:8"})
    for (int zero : {0, 1, 3}) {
      Result<Cluster> cluster = parseCluster(name);
      Constraints constraints;
      constraints.recompute = Recompute::None;
      ProblemFacts facts = gatherFacts(problem, constraints);
      UnequalPlan plan;
      plan.microbatches = 4;
      plan.zero = zero;
      plan.stages = {{4, 2, 0}, {4, 2, 3}};
      UnequalPricing pricing(problem, facts, *cluster, constraints);
      std::optional<UnequalPlan> priced = pricing.price(plan);
      ASSERT_TRUE(priced);
      Setting setting;
      setting.pp = setting.dp = setting.tp = 2;
      setting.microbatches = 4;
      setting.zero = zero;
      setting.schedule = "1f1b";
      Cells cells(problem, facts, *cluster, constraints);
      Cell &cell = cells.at(setting);
      cells.solve(cell);
      SplitModel model = cells.modelFor(cell, setting);
      StateCosts state = costState(model, cell.variants[0].choice);
      StageProblem stages{&model,
                          &cells.activityOf(cell, 0, model),
                          &state,
                          scheduleProfile("1f1b", 2, 4),
                          usableMemory(*cluster),
                          Recompute::None,
                          {},
                          {},
                          {},
                          {}};
      PlanEvaluation regular = evaluatePlan(stages, planCut(stages, {0, 3}));
      EXPECT_NEAR(priced->seconds, regular.predicted.stepSeconds, 1e-9 * priced->seconds) << name << zero;
      EXPECT_NEAR(priced->bytes, regular.predicted.memory.total(), 1) << name << zero;
    }
}

// Every number of devices, cut, and every stage in ways of its own.
TEST(UnequalStages, TheBestOfThemIsFoundOrNearlySo) {
  int exact = 0, count = 0, mixed = 0;
  for (int64_t head : {1, 3, 6})
    for (bool isLarge : {false, true})
      for (bool isSlow : {false, true}) {
        const int64_t h = isLarge ? 512 : 256, devices = isLarge ? 6 : 4;
        Problem problem = stack(3, h, head, 24);
        Result<Cluster> cluster = parseCluster("v100-32g:" + std::to_string(devices));
        cluster->device.dispatchSeconds = 0;
        if (isSlow) cluster->node.bandwidth /= 8;
        Constraints constraints;
        constraints.recompute = Recompute::None;
        if (isLarge) constraints.pp = 2;
        ProblemFacts facts = gatherFacts(problem, constraints);
        UnequalPricing pricing(problem, facts, *cluster, constraints);
        const int units = int(facts.structure->layout->units.size());
        UnequalPlan best;
        best.seconds = infinity;
        int64_t priced = 0;
        std::vector<std::vector<int64_t>> compositions = {{1, 3}, {3, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 1}};
        if (isLarge) compositions = {{1, 5}, {2, 4}, {4, 2}, {5, 1}};
        for (const std::vector<int64_t> &sizes : compositions)
          for (int64_t microbatches : {4, 6, 8, 12, 24})
            for (int zero = 0; zero <= 3; ++zero) {
              if (microbatches < 2 * int64_t(sizes.size())) continue;
              UnequalPlan plan;
              plan.microbatches = microbatches;
              plan.zero = zero;
              for (int64_t size : sizes) plan.stages.push_back({size, 1, 0});
              std::function<void(size_t)> split = [&](size_t stage) {
                if (stage < sizes.size()) {
                  for (int64_t tp : divisors(sizes[stage])) {
                    plan.stages[stage].tp = tp;
                    split(stage + 1);
                  }
                  return;
                }
                testing::eachCut(units, int(sizes.size()), [&](const std::vector<int> &starts) {
                  for (size_t s = 0; s < starts.size(); ++s) plan.stages[s].firstUnit = starts[s];
                  std::optional<UnequalPlan> one = pricing.price(plan);
                  if (!one || !one->fits) return;
                  if (one->seconds < best.seconds) best = *one;
                  ++priced;
                });
              };
              split(0);
            }
        EXPECT_GE(priced, 500);
        std::optional<UnequalPlan> found =
            bestUnequalStages(problem, facts, *cluster, constraints, infinity, SearchClock());
        ASSERT_TRUE(found);
        EXPECT_GE(found->seconds, best.seconds * (1 - 1e-9));
        EXPECT_LE(found->seconds, best.seconds * 1.02) << found->str() << ", best " << best.str();
        EXPECT_FALSE(bestUnequalStages(problem, facts, *cluster, constraints, best.seconds, SearchClock()));
        exact += found->seconds <= best.seconds * (1 + 1e-9);
        ++count;
        // Ways that one number for all, cut down to what divides a stage's devices, would not give.
        int64_t most = 1;
        for (const UnequalStage &stage : best.stages) most = std::max(most, stage.tp);
        for (const UnequalStage &stage : best.stages) {
          int64_t cutDown = std::min(most, stage.devices);
          while (stage.devices % cutDown != 0) --cutDown;
          if (stage.tp == cutDown) continue;
          ++mixed;
          break;
        }
      }
  EXPECT_GE(exact * 10, count * 8);
  EXPECT_GE(mixed, 1);
}

// What a stage must compute again follows from its own memory, whatever the others have.
TEST(UnequalStages, EachStageKeepsWithinItsMemory) {
  Problem problem = stack(6, 512, 2, 32);
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  Constraints constraints;
  ProblemFacts facts = gatherFacts(problem, constraints);
  std::optional<UnequalPlan> roomy = bestUnequalStages(problem, facts, *cluster, constraints, infinity, SearchClock());
  ASSERT_TRUE(roomy);
  double before = roomy->seconds;
  int found = 0;
  for (double part : {0.8, 0.6, 0.4}) {
    Cluster smaller = *cluster;
    smaller.device.memoryBytes *= part * roomy->bytes / usableMemory(*cluster);
    std::optional<UnequalPlan> plan = bestUnequalStages(problem, facts, smaller, constraints, infinity, SearchClock());
    if (!plan) break;
    ++found;
    EXPECT_TRUE(plan->fits);
    EXPECT_LE(plan->bytes, usableMemory(smaller));
    EXPECT_GE(plan->seconds, before * (1 - 1e-2)) << part; // what is found is no optimum
    before = plan->seconds;
  }
  EXPECT_GE(found, 2);
}

// 3 units that take as long as one: on 4 devices a stage of one of them has one device, the others three.
TEST(UnequalStages, AHeavyHeadGetsMoreDevices) {
  Problem problem = stack(1, 1024, 3, 96);
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  cluster->device.dispatchSeconds = 0;
  Constraints constraints;
  constraints.recompute = Recompute::None;
  ProblemFacts facts = gatherFacts(problem, constraints);
  UnequalPricing pricing(problem, facts, *cluster, constraints);
  auto seconds = [&](int64_t first, int64_t second) {
    UnequalPlan plan;
    plan.microbatches = 16;
    plan.stages = {{first}, {second}};
    std::optional<UnequalPlan> chosen = pricing.choose(plan, infinity, SearchClock());
    EXPECT_TRUE(chosen);
    return chosen ? chosen->seconds : infinity;
  };
  EXPECT_LT(seconds(1, 3), 0.9 * seconds(2, 2));
  EXPECT_LT(seconds(1, 3), 0.9 * seconds(3, 1));
}

} // namespace
} // namespace cleave::planner
