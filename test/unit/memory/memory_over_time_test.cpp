// The estimate's memory over a step beside that of the plan compiled from the same decision.
#include "compiler/driver/compile.h"
#include "test/unit/memory/plan_liveness.h"
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cleave {
namespace {

struct Split {
  const char *name;
  planner::SplitFlags flags;
  int devices = 1;
};

Result<Compiled> compiled(const std::string &model, const Split &split) {
  const char *given = std::getenv("GOLDEN_DATA");
  CompileRequest request;
  request.model = std::string(given ? given : GOLDEN_DATA) + "/" + model + "/model.onnx";
  auto recipe = recipe::parseRecipeText("{dims: {batch: 32}, loss: {kind: softmax_cross_entropy}, optimizer: {kind: "
                                        "adamw, lr: 0.001}, clip_norm: 1.0, data: {kind: synthetic}}");
  if (!recipe) return recipe.status();
  request.recipe = std::move(*recipe);
  auto cluster = planner::parseCluster(fmt::format("cpu:{}", split.devices));
  if (!cluster) return cluster.status();
  request.cluster = std::move(*cluster);
  request.split = split.flags;
  request.search.alternatives = false;
  return compile(request);
}

double most(const std::vector<planner::MemoryPoint> &points, planner::StepPart part) {
  double bytes = 0;
  for (const planner::MemoryPoint &point : points)
    if (point.part == part) bytes = std::max(bytes, point.memory.total());
  return bytes;
}

std::vector<Split> splits() {
  return {
      {"one device", {.microbatches = "1", .recompute = "none"}},
      {"full recomputation", {.microbatches = "1", .recompute = "full"}},
      {"ddp", {.microbatches = "1", .recompute = "none", .like = "ddp"}, 2},
      {"zero2", {.microbatches = "1", .recompute = "none", .like = "zero2"}, 2},
      {"zero3", {.microbatches = "1", .recompute = "none", .like = "zero3"}, 2},
      {"ddp, 4 microbatches", {.microbatches = "4", .recompute = "none", .like = "ddp"}, 2},
      {"1f1b", {.mesh = "pp=2", .microbatches = "4", .schedule = "1f1b", .recompute = "none"}, 2},
      {"gpipe", {.mesh = "pp=2", .microbatches = "4", .schedule = "gpipe", .recompute = "none"}, 2},
      {"zb-h1", {.mesh = "pp=2", .microbatches = "4", .schedule = "zb-h1", .recompute = "none"}, 2},
  };
}

// How far the estimate may be above the plan in each part of the step: what was measured, rounded up. In the update it
// may be a thirtieth below, which is not the step's most: a plan's inputs are still there, and the estimate has them
// with the activations.
struct Model {
  const char *name;
  double forward, backward, update;
};
constexpr double leastOfUpdate = 0.96;

TEST(MemoryOverTime, FollowsThePlan) {
  using planner::StepPart;
  for (const Model &model : {Model{"mlp", 1.7, 2.35, 1.52}, Model{"gpt2_tiny", 1.58, 1.62, 1.5}})
    for (const Split &split : splits()) {
      const std::string what = fmt::format("{} {}", model.name, split.name);
      Result<Compiled> result = compiled(model.name, split);
      ASSERT_TRUE(result) << what << ": " << result.status().message();
      const auto &points = result->report.memoryOverTime;
      PlanMemory memory; // of the rank that needs most
      for (const plan::Program &program : result->plan.programs())
        if (PlanMemory one = memoryOf(result->plan, program); one.most() > memory.most()) memory = std::move(one);
      for (auto [part, bound] : {std::pair{StepPart::Forward, model.forward},
                                 {StepPart::Backward, model.backward},
                                 {StepPart::Update, model.update}}) {
        const char *name = planner::stepPartNames[size_t(part)];
        const double ratio = most(points, part) / memory.most(name);
        EXPECT_GE(ratio, part == StepPart::Update ? leastOfUpdate : 1) << what << " " << name;
        EXPECT_LE(ratio, bound) << what << " " << name;
      }
      // The step's most is where the plan has it, unless forward and backward passes have about as much.
      const double forward = memory.most("forward"), backward = memory.most("backward");
      if (std::abs(forward / backward - 1) > 0.12)
        EXPECT_EQ(most(points, StepPart::Forward) > most(points, StepPart::Backward), forward > backward) << what;
      EXPECT_LE(most(points, StepPart::Update),
                std::max(most(points, StepPart::Forward), most(points, StepPart::Backward)))
          << what;
    }
}

} // namespace
} // namespace cleave
