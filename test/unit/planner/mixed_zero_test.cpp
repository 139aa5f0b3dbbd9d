// ZeRO stages by group of parameters against every way to give two stages to the parameters of small models.
#include "compiler/planner/explain/decided_model.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/space/search_space.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace cleave::planner {
namespace {

using testing::ProblemBuilder;

// Products of widths of their own, one after the other.
Problem chain(unsigned seed, int operations, int64_t length = 32) {
  std::mt19937 random(seed);
  ProblemBuilder b("chain", 16);
  int64_t h = int64_t(64) << (random() % 3);
  int x = b.input("x", {16, length, h});
  for (int i = 0; i < operations; ++i) {
    int64_t width = int64_t(32) << (random() % 6);
    std::string at = "op" + std::to_string(i);
    x = b.op(at, "Contract", "bsh,hf->bsf", {x, b.parameter(at + ".w", {h, width})});
    h = width;
  }
  b.op("loss", "Sum", "bsh->", {x});
  return b.problem;
}

struct MixedPlans {
  double uniform = infinity, mixed = infinity; // the fastest that fits: one stage for all; any two
  double leanest = infinity, fastest = infinity, atFastest = 0;
};

void enumerateMixes(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                    int64_t microbatches, double limit, MixedPlans &result) {
  ProblemFacts facts = gatherFacts(problem, cluster.device, constraints);
  Setting setting;
  setting.tp = *constraints.tp;
  setting.dp = cluster.numDevices() / setting.tp;
  setting.microbatches = microbatches;
  SplitModel model = *buildModel(problem, facts, cluster, constraints, setting);
  std::vector<std::vector<int>> choices = {{}};
  for (const Variable &variable : model.variables) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int> &choice : choices)
      for (size_t d = 0; d < variable.domain(); ++d) {
        longer.push_back(choice);
        longer.back().push_back(int(d));
      }
    choices = std::move(longer);
  }
  std::erase_if(choices, [&](const std::vector<int> &choice) { return !evaluate(model, choice).isPossible; });
  std::vector<int> parameters;
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (problem.tensors[t].kind == TensorKind::Parameter) parameters.push_back(int(t));
  for (int upper = 0; upper <= 3; ++upper)
    for (int lower = 0; lower <= upper; ++lower)
      for (unsigned set = 0; set < (lower < upper ? 1U << parameters.size() : 1U); ++set) {
        model.setting.zero = upper;
        model.setting.lowerZero = lower;
        model.lowers.edit().assign(problem.tensors.size(), false);
        for (size_t p = 0; p < parameters.size(); ++p) model.lowers.edit()[size_t(parameters[p])] = set & (1U << p);
        for (const std::vector<int> &choice : choices) {
          const Predicted predicted = evaluate(model, choice).predicted;
          const double bytes = predicted.memory.total(), seconds = predicted.stepSeconds;
          result.leanest = std::min(result.leanest, bytes);
          if (seconds < result.fastest) result.atFastest = bytes;
          result.fastest = std::min(result.fastest, seconds);
          if (bytes > limit) continue;
          result.mixed = std::min(result.mixed, seconds);
          if (set == 0) result.uniform = std::min(result.uniform, seconds);
        }
      }
}

// With the microbatches asked for, or all that leave each device samples of its own.
MixedPlans enumerateMixes(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                          double limit) {
  MixedPlans result;
  const int64_t dp = cluster.numDevices() / *constraints.tp;
  for (int64_t microbatches = 1; microbatches <= problem.batch / dp; ++microbatches)
    if (problem.batch % (microbatches * dp) == 0 && constraints.microbatches.value_or(microbatches) == microbatches)
      enumerateMixes(problem, cluster, constraints, microbatches, limit, result);
  return result;
}

TEST(MixedZero, UsesTheMemoryThatOneStageForAllLeaves) {
  int better = 0, possible = 0, exact = 0, count = 0;
  for (unsigned seed = 0; seed < 48; ++seed) {
    const bool isOpen = seed >= 16 && seed < 32; // in microbatches
    const bool isSplit = seed % 4 > 1;           // over tp, too
    Problem problem = chain(seed, isSplit ? 2 : 5);
    Result<Cluster> cluster = parseCluster(seed % 2 ? "cpu:4" : "h100-80g:4");
    ASSERT_TRUE(cluster);
    cluster->device.dispatchSeconds = 0;
    Constraints constraints;
    constraints.pp = 1;
    constraints.tp = isSplit ? 2 : 1;
    // With one microbatch only those with ZeRO-2 and 3 hand gradients on.
    if (!isOpen) constraints.microbatches = seed < 16 ? 2 : 1;
    constraints.recompute = Recompute::None;
    const MixedPlans free = enumerateMixes(problem, *cluster, constraints, infinity);
    for (double part : {0.2, 0.3, 0.7}) {
      const double limit = free.leanest + part * (free.atFastest - free.leanest);
      if (free.atFastest < 1.01 * free.leanest) continue;
      const MixedPlans all = enumerateMixes(problem, *cluster, constraints, limit);
      if (all.uniform == infinity) continue; // stages are mixed where one for all fits
      Cluster small = *cluster;
      small.device.memoryBytes *= limit / cluster->device.usableBytes();
      ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
      Outcome outcome = searchSettings(problem, facts, small, constraints, {.alternatives = false});
      ASSERT_TRUE(outcome.best) << seed;
      const double found = outcome.best->seconds();
      EXPECT_LE(outcome.best->bytes(), limit * (1 + 1e-9)) << seed;
      EXPECT_GE(found, all.mixed * (1 - 1e-9)) << seed;
      EXPECT_LE(found, all.uniform * (1 + 1e-9)) << seed;
      // Stages are mixed in each mesh's best plan: with that one's microbatches.
      if (!isOpen) EXPECT_LE(found, all.mixed * (1 + 1e-9)) << seed;
      EXPECT_LE(outcome.bound, all.uniform * (1 + 1e-9)) << seed << " " << part;
      ++count;
      exact += found <= all.mixed * (1 + 1e-9);
      better += found < all.uniform * (1 - 1e-6);
      possible += all.mixed < all.uniform * (1 - 1e-6);
      // Its decision says the same when it is read back.
      Decision decision = toDecision(problem, *outcome.best);
      Result<DecidedModel> decided = decidedModel(problem, small, decision);
      ASSERT_TRUE(decided) << decided.status().message();
      EXPECT_NEAR(decided->evaluate().predicted.stepSeconds, found, found * 1e-9) << seed;
      EXPECT_NEAR(decided->evaluate().predicted.memory.total(), outcome.best->bytes(), 1) << seed;
    }
  }
  EXPECT_GE(count, 12);
  EXPECT_GE(possible, 20) << count;
  EXPECT_GE(better * 4, possible * 3) << exact << " " << count;
  EXPECT_GE(exact * 2, count);
}

// Stages of a pipeline, every cut and every two ZeRO stages of its parameters.
TEST(MixedZero, InStagesOfPipelines) {
  int count = 0, better = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const Problem problem = chain(seed, 5, 1);
    // Stages are on different nodes: no message waits for a reduction, in which mixes would differ by a ten-millionth.
    Result<Cluster> cluster = parseCluster(seed % 2 ? "cpu:8" : "h100-80g:4x2,software=megatron-core-2024");
    ASSERT_TRUE(cluster);
    cluster->device.dispatchSeconds = 0;
    Constraints constraints;
    constraints.pp = 2;
    constraints.order = {Axis::Pipeline, Axis::Data};
    constraints.dp = 4;
    constraints.microbatches = seed % 3 ? 4 : 2;
    constraints.schedule = "1f1b";
    constraints.recompute = Recompute::None;
    const ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
    Setting setting;
    setting.pp = 2;
    setting.dp = 4;
    setting.microbatches = *constraints.microbatches;
    setting.schedule = "1f1b";
    SplitModel model = *buildModel(problem, facts, *cluster, constraints, setting);
    const std::vector<int> choice(model.variables.size(), 0);
    const ActivityCosts activity = costActivity(model, choice);
    struct Plan {
      double seconds, bytes;
      bool isUniform;
    };
    std::vector<Plan> plans;
    for (int upper = 0; upper <= 3; ++upper)
      for (int lower = 0; lower <= upper; ++lower)
        for (unsigned set = 0; set < (lower < upper ? 32U : 1U); ++set) {
          model.setting.zero = upper;
          model.setting.lowerZero = lower;
          model.lowers.edit().assign(problem.tensors.size(), false);
          for (size_t t = 0, parameter = 0; t < problem.tensors.size(); ++t)
            if (problem.tensors[t].kind == TensorKind::Parameter) model.lowers.edit()[t] = set & (1U << parameter++);
          const StateCosts state = costState(model, choice);
          const StageProblem stages{&model,   &activity,
                                    &state,   scheduleProfile("1f1b", 2, setting.microbatches),
                                    infinity, Recompute::None,
                                    {},       {},
                                    {},       {}};
          const int units = int(model.layout->units.size());
          for (int cut = 1; cut < units; ++cut) {
            const PlanEvaluation evaluation =
                evaluatePlan(stages, {{0, cut}, std::vector<Recompute>(size_t(units), Recompute::None)});
            plans.push_back({evaluation.predicted.stepSeconds, evaluation.predicted.memory.total(), set == 0});
          }
        }
    // The limits with which mixes gain most.
    struct Limit {
      double bytes, uniform = infinity, mixed = infinity;
      double gain() const { return uniform == infinity ? 0 : uniform / mixed; }
    };
    std::vector<Limit> limits;
    for (const Plan &limit : plans) {
      limits.push_back({limit.bytes});
      for (const Plan &plan : plans) {
        if (plan.bytes > limit.bytes) continue;
        limits.back().mixed = std::min(limits.back().mixed, plan.seconds);
        if (plan.isUniform) limits.back().uniform = std::min(limits.back().uniform, plan.seconds);
      }
    }
    std::ranges::sort(limits, {}, &Limit::bytes);
    const auto same = std::ranges::unique(limits, {}, &Limit::bytes);
    limits.erase(same.begin(), same.end());
    std::ranges::stable_sort(limits, std::greater(), &Limit::gain);
    for (size_t i = 0; i < std::min<size_t>(5, limits.size()); ++i) {
      const Limit &limit = limits[i];
      if (limit.uniform == infinity) continue;
      Cluster small = *cluster;
      small.device.memoryBytes *= limit.bytes * (1 + 1e-9) / cluster->device.usableBytes();
      const Outcome outcome = searchSettings(problem, facts, small, constraints, {.alternatives = false});
      ASSERT_TRUE(outcome.best) << seed;
      const double seconds = outcome.best->seconds();
      EXPECT_LE(outcome.best->bytes(), limit.bytes * (1 + 2e-9)) << seed << " " << i;
      EXPECT_NEAR(seconds, limit.mixed, 1e-9 * limit.mixed) << seed << " " << i;
      EXPECT_LE(outcome.bound, limit.uniform * (1 + 1e-9)) << seed << " " << i;
      ++count;
      better += limit.mixed < limit.uniform * (1 - 1e-6);
    }
  }
  EXPECT_GE(count, 20);
  EXPECT_GE(better, 8);
}

// Also where the mesh that a mix makes the fastest is far from it with one stage for all.
TEST(MixedZero, NoMeshThatIsAskedForIsFaster) {
  Problem problem = testing::gpt({24, 48, 192, 8, 6, 1000});
  Result<Cluster> cluster = parseCluster("a100-80g:3x4,software=megatron-2021");
  cluster->device.dispatchSeconds = 0;
  cluster->device.memoryBandwidth = 120e9;
  int mixed = 0;
  for (double mib : {16.0, 18.0, 20.0, 22.0}) {
    cluster->device.memoryBytes = mib * (1 << 20);
    Result<Decision> open = solve(problem, *cluster, Constraints(), {.alternatives = false});
    ASSERT_TRUE(open) << mib;
    for (const char *mesh : {"dp=12", "pp=1,dp=6", "pp=1,dp=4", "pp=2,dp=6"}) {
      Result<Decision> asked =
          solve(problem, *cluster, *parseConstraints({.mesh = mesh}, *cluster), {.alternatives = false});
      if (!asked) continue; // does not fit
      mixed += std::ranges::any_of(asked->notes, [](const std::string &note) { return note.starts_with("ZeRO-"); });
      EXPECT_LE(open->predicted.stepSeconds, asked->predicted.stepSeconds * (1 + 1e-9)) << mib << " " << mesh;
    }
  }
  EXPECT_GT(mixed, 0);
}

} // namespace
} // namespace cleave::planner
