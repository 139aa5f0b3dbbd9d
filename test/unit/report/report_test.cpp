#include "compiler/planner/search/driver/search.h"
#include "compiler/report/pricing_source.h"
#include "compiler/report/report.h"
#include "compiler/report/single_changes.h"
#include "compiler/report/split_map.h"
#include "runtime/base/names/folded_names.h"
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

using planner::Cluster;
using ::testing::HasSubstr;
using ::testing::Not;

// y = x w, summed: two nodes.
planner::Problem product() {
  auto problem = planner::Problem::parse(R"(cleave-problem 2
name "product"
batch 32 samples 32 precision fp32
tensor 0 input "x" 4 [32,256] batch 0
tensor 1 parameter "w" 4 [256,512] trainable optimizer 8
tensor 2 activation "y" 4 [32,512] saved
tensor 3 activation "loss" 4 []
node "matmul" "Contract" form product flops 8388608 backward 16777216
  factors 32 256:sum 512
  linear one 11
  reads 0 0 1
  reads 1 1 2
  makes 2 0 2
node "total<&>" "ReduceSum" work reduction flops 16384 backward 16384 cheap
  factors 32:sum 512:sum
  linear jointly 1
  reads 2 0 1
  makes 3
)",
                                         "product");
  EXPECT_TRUE(problem) << problem.status().message();
  return *problem;
}

Report made(const planner::SplitFlags &flags, const char *machines = "cpu:4") {
  Result<Cluster> cluster = planner::parseCluster(machines);
  auto constraints = planner::parseConstraints(flags, *cluster);
  EXPECT_TRUE(constraints) << constraints.status().message();
  auto decision = planner::solve(product(), *cluster, *constraints, {});
  EXPECT_TRUE(decision) << decision.status().message();
  return makeReport(product(), *cluster, *decision);
}

TEST(Report, JsonHasTheStableKeys) {
  auto json = nlohmann::json::parse(renderJson(made({.like = "zero1"})));
  for (const char *key : {"mesh", "zero", "schedule", "microbatches", "recompute", "devices", "predicted", "search",
                          "stages", "collectives", "alternatives"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char *key : {"step_time_s", "compute_s", "exposed_communication_s", "bubble_s", "memory_bytes_per_device",
                          "memory_breakdown", "tflops_per_device", "mfu"})
    EXPECT_TRUE(json["predicted"].contains(key)) << key;
  for (const char *key : {"parameters", "gradients", "optimizer", "activations", "workspace"})
    EXPECT_TRUE(json["predicted"]["memory_breakdown"].contains(key)) << key;
  for (const char *key : {"seconds", "gap", "candidates"}) EXPECT_TRUE(json["search"].contains(key)) << key;
  ASSERT_FALSE(json["collectives"].empty());
  for (const char *key : {"op", "axes", "bytes", "count", "seconds", "why", "tensors", "tensors_more"})
    EXPECT_TRUE(json["collectives"][0].contains(key)) << key;
  ASSERT_FALSE(json["alternatives"].empty());
  for (const char *key : {"name", "mesh", "step_time_s", "memory_bytes_per_device", "fits", "why_not"})
    EXPECT_TRUE(json["alternatives"][0].contains(key)) << key;
  EXPECT_EQ(json["mesh"]["dp"], 4);
  EXPECT_EQ(json["zero"], 1);
  EXPECT_EQ(json["devices"], 4);
}

TEST(Report, TellsOfSplitsThatWereTried) {
  Report report = made({.mesh = "dp=4"});
  planner::Alternative zero1 = *std::ranges::find(report.alternatives, "zero1", &planner::Alternative::name);
  zero1.whyNot.clear();
  planner::Alternative choice = zero1, refused = zero1;
  choice.name = "searched #1", choice.mesh.axes[0].size = 2;
  refused.name = "ddp", refused.whyNot = "its plan needs 2.00 GiB on a device, 1.00 GiB can be used";
  report.tried = {{choice, 3e-3}, {zero1, 2e-3, 0, true}, {refused, 1e-3}};
  noteTriedSplits(report);
  EXPECT_THAT(triedText(report), ::testing::AllOf(::testing::StartsWith("simulation changed the choice to dp=4"),
                                                  ::testing::HasSubstr("(zero1): 2.00 ms simulated"),
                                                  ::testing::HasSubstr("was dp=2"), ::testing::HasSubstr("3.00 ms")));
  EXPECT_THAT(report.notes, ::testing::Contains(::testing::ContainsRegex("^dp=4.*ddp.* was left out: its plan needs")));
  auto ddp = std::ranges::find(report.alternatives, "ddp", &planner::Alternative::name);
  EXPECT_EQ(ddp->whyNot, refused.whyNot);
  EXPECT_NE(renderText(report).find("refined"), std::string::npos);
  auto again = fromJson(renderJson(report));
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(renderJson(*again), renderJson(report));

  report.tried[0].measuredSeconds = 5e-3, report.tried[1].measuredSeconds = 6e-3;
  report.tried[0].isChosen = true, report.tried[1].isChosen = false;
  EXPECT_THAT(triedText(report), ::testing::StartsWith("of 2 splits that were compiled and run the search's choice"));
}

TEST(Report, JsonReadsBack) {
  Report report = made({.mesh = "dp=2,tp=2"});
  auto again = fromJson(renderJson(report));
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(renderJson(*again), renderJson(report));
  EXPECT_EQ(renderText(*again), renderText(report));
}

TEST(Report, BrokenJsonIsRefused) {
  EXPECT_FALSE(fromJson("{"));
  EXPECT_FALSE(fromJson("{}"));
  EXPECT_FALSE(fromJson(R"({"mesh": 3})"));
}

TEST(Report, ExplainComparesCandidatesAndNamesTheChosen) {
  Report report = made({.mesh = "dp=1,tp=4"});
  auto text = explain(report, "matmul");
  ASSERT_TRUE(text) << text.status().message();
  EXPECT_THAT(*text, HasSubstr("chosen"));
  EXPECT_THAT(*text, HasSubstr("b=tp"));
  EXPECT_THAT(*text, HasSubstr("c=tp"));
  EXPECT_THAT(*text, HasSubstr("whole on every device"));
  EXPECT_THAT(
      *text, HasSubstr("the communication with each neighbour, against the next best\n    its result, for total<&>: "));
  auto weight = explain(report, "w");
  ASSERT_TRUE(weight) << weight.status().message();
  EXPECT_THAT(*weight, ::testing::StartsWith("w [256,512] (parameter)\n  layout  "));
  EXPECT_THAT(*weight, ::testing::EndsWith("  read by matmul\n" + *text));
  EXPECT_THAT(explain(report, "matm").status().message(), HasSubstr("there are matmul"));
  EXPECT_THAT(explain(report, "nothing like it").status().message(), HasSubstr("; there are matmul"));
}

TEST(Report, DiffSaysWhatChanged) {
  Report ddp = made({.like = "ddp"}), zero = made({.like = "zero3"});
  EXPECT_THAT(diff(ddp, ddp), HasSubstr("the split is the same"));
  std::string text = diff(ddp, zero);
  EXPECT_THAT(text, HasSubstr("zero                     0 -> 3"));
  EXPECT_THAT(text, HasSubstr("optimizer"));
  EXPECT_THAT(text, HasSubstr("parameters with another layout: 1"));
  // The waiting of a pipeline counts too, or the parts would not be all of the step.
  Report waits = ddp;
  waits.predicted.bubbleSeconds += 1;
  waits.predicted.stepSeconds += 1;
  EXPECT_THAT(diff(ddp, waits), HasSubstr("  bubble                   0 us -> 1.00 s"));
}

TEST(Report, DiffPricesEachChangeByItself) {
  Report left = made({.mesh = "dp=4,tp=1", .zero = "0"}), right = made({.mesh = "dp=2,tp=2", .zero = "1"});
  Result<std::vector<SingleChange>> rows = priceSingleChanges(left, right);
  ASSERT_TRUE(rows) << rows.status().message();
  std::vector<std::string> names;
  for (const SingleChange &row : *rows) names.push_back(row.what);
  EXPECT_THAT(names, testing::ElementsAre("as it is", "mesh dp=2,tp=2", "zero 1", "all of these"));
  // The same figures as when each is asked for by itself.
  EXPECT_DOUBLE_EQ((*rows)[0].stepSeconds, left.predicted.stepSeconds);
  EXPECT_DOUBLE_EQ((*rows)[1].stepSeconds, made({.mesh = "dp=2,tp=2", .zero = "0"}).predicted.stepSeconds);
  EXPECT_DOUBLE_EQ((*rows)[2].stepSeconds, made({.mesh = "dp=4,tp=1", .zero = "1"}).predicted.stepSeconds);
  EXPECT_DOUBLE_EQ((*rows)[3].stepSeconds, right.predicted.stepSeconds);
  EXPECT_THAT(diff(left, right), HasSubstr("each change by itself"));
  left.source = "nonsense";
  EXPECT_FALSE(priceSingleChanges(left, right));
}

// A mesh without its preset would be another split: a grid has axes of its own, Ulysses splits heads.
TEST(Report, DiffKeepsPresetsThatNoOtherFlagSays) {
  Report grid = made({.like = "2d"}), plain = made({.mesh = "dp=4,tp=1", .zero = "3"});
  Result<std::vector<SingleChange>> rows = priceSingleChanges(grid, plain);
  ASSERT_TRUE(rows) << rows.status().message();
  EXPECT_EQ((*rows)[0].whyNot, "");
  EXPECT_DOUBLE_EQ((*rows)[0].stepSeconds, grid.predicted.stepSeconds);
  EXPECT_EQ((*rows)[1].what, "mesh dp=4,tp=1");
  rows = priceSingleChanges(plain, grid);
  ASSERT_TRUE(rows) << rows.status().message();
  EXPECT_EQ((*rows)[1].what, "mesh dp=1,tp=4 like 2d");
  EXPECT_DOUBLE_EQ(rows->back().stepSeconds, grid.predicted.stepSeconds);
}

// On other machines the right one's choices are possible, perhaps, and not on the left one's.
TEST(Report, DiffPricesAllChangesWithTheMachines) {
  Report left = made({.mesh = "dp=4,tp=1", .zero = "0"}), right = made({.mesh = "dp=8,tp=1", .zero = "1"}, "cpu:8");
  Result<std::vector<SingleChange>> rows = priceSingleChanges(left, right);
  ASSERT_TRUE(rows) << rows.status().message();
  EXPECT_EQ(rows->back().what, "all of these");
  EXPECT_EQ(rows->back().whyNot, "");
  EXPECT_DOUBLE_EQ(rows->back().stepSeconds, right.predicted.stepSeconds);
}

TEST(Report, SourceReadsBack) {
  Report report = made({});
  Result<PricingSource> source = unpackSource(report.source);
  ASSERT_TRUE(source) << source.status().message();
  EXPECT_EQ(packSource(source->problem, source->cluster), report.source);
}

TEST(Report, HtmlIsOnePageWithEscapedNames) {
  Report report = made({});
  report.notes = {"<script>b & \"quotes\""};
  std::string html = renderHtml(report);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;b &amp; &quot;quotes&quot;"));
  EXPECT_THAT(html, Not(HasSubstr("<script>b")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
}

TEST(SplitMap, FoldsNamesThatDifferInOnePlace) {
  using names::foldedNames;
  EXPECT_EQ(foldedNames({"up"}), "up");
  EXPECT_EQ(foldedNames({"up", "up"}), "up");
  EXPECT_EQ(foldedNames({"layers.0.up", "layers.1.up", "layers.2.up"}), "layers.0..2.up");
  EXPECT_EQ(foldedNames({"n_9", "n_10"}), "n_9..10");
  EXPECT_EQ(foldedNames({"n_40", "n_55", "n_70"}), "n_40..70..15");
  EXPECT_EQ(foldedNames({"n_7", "n_9", "n_40"}), "n_{7,9,40}");
  EXPECT_EQ(foldedNames({"norm", "norm_2"}), "norm{,_2}");
}

TEST(SplitMap, SaysLayoutsInWords) {
  auto words = [](const char *text, int64_t sampleDim = -1) {
    dist::Sharding layout;
    std::string error;
    EXPECT_TRUE(dist::Sharding::parse(text, layout, error)) << error;
    return layoutInWords(layout, sampleDim);
  };
  EXPECT_EQ(words("[{},{tp}]"), "columns over tp");
  EXPECT_EQ(words("[{dp,tp},{}]"), "rows over dp and tp");
  EXPECT_EQ(words("[{dp},{},{tp}]", 0), "samples over dp, last dimension over tp");
  EXPECT_EQ(words("[{},{cp},{}] partial(tp)", 0), "dimension 2 of 3 over cp, partial sums over tp");
  EXPECT_EQ(words("[{}]"), "whole on every device");
}

TEST(SplitMap, HasLayoutsReadersAndCollectives) {
  const Report report = made({.mesh = "dp=1,tp=4"});
  const std::vector<MapPart> parts = splitMap(report);
  ASSERT_EQ(parts.size(), 1);
  ASSERT_EQ(parts[0].operations.size(), 2);
  const MapOperation &matmul = parts[0].operations[0], &total = parts[0].operations[1];
  EXPECT_EQ(matmul.readers, std::vector<int>{1});
  EXPECT_FALSE(matmul.readBelow);
  ASSERT_EQ(matmul.parameters.size(), 1);
  EXPECT_THAT(matmul.parameters[0].layout, ::testing::StartsWith("256 x 512: "));
  ASSERT_EQ(total.reads.size(), 1);
  EXPECT_EQ(total.reads[0].name, "matmul");
  size_t collectives = matmul.collectives.size() + total.collectives.size();
  for (const planner::TensorCollective &row : report.tensorCollectives) collectives += row.tensor == "gradients' norm";
  EXPECT_EQ(collectives, report.tensorCollectives.size());
  EXPECT_GT(collectives, 0);
}

TEST(Report, ThePlanReplacesEstimates) {
  Report report = made({.like = "zero1"});
  plan::Plan plan;
  for (auto [axis, size] : {std::pair{"dp", 4}, {"tp", 1}}) {
    auto *meshAxis = plan.mutable_mesh()->add_axes();
    meshAxis->set_name(axis);
    meshAxis->set_size(size);
  }
  auto addParameter = [&](plan::Parameter::Role role, bool split, const char *name = "w") {
    auto *parameter = plan.add_parameters();
    parameter->set_name(name);
    parameter->set_dtype(plan::F32);
    parameter->add_shape(256);
    parameter->add_shape(512);
    parameter->set_role(role);
    parameter->add_dims();
    if (split) parameter->add_dims()->add_axes("dp");
  };
  addParameter(plan::Parameter::PARAMETER, false);
  addParameter(plan::Parameter::OPTIMIZER_STATE, true);
  addParameter(plan::Parameter::OPTIMIZER_STATE, true, "previous/w");
  auto *program = plan.add_programs();
  program->set_arena_bytes(1000000);
  program->set_library_workspace_bytes(500);
  for (const char *name : {"evaluate", "final"}) {
    auto *fragment = program->add_fragments();
    fragment->set_name(name);
    auto *collective = fragment->add_commands()->mutable_collective();
    collective->set_op(plan::Collective::REDUCE_SCATTER);
    collective->add_axes("dp");
    collective->add_inputs()->set_dtype(plan::F32);
    collective->mutable_inputs(0)->add_shape(131072);
    collective->set_why("gradient of w");
  }
  auto *routine = program->add_routines();
  routine->set_name("step");
  routine->add_actions()->set_fragment(1);
  Result<Cluster> cluster = planner::parseCluster("cpu:4");
  fillFromPlan(report, plan, *cluster);
  EXPECT_EQ(report.predicted.memory.total(), 1000500);
  EXPECT_EQ(report.predicted.memory.parameters, 256 * 512 * 4 + 256 * 512); // with the weights of the step before
  EXPECT_EQ(report.predicted.memory.optimizer, 256 * 512);
  ASSERT_EQ(report.rankMemory.size(), 1u);
  ASSERT_EQ(report.rankMemory[0].held.size(), 3u);
  EXPECT_EQ(report.rankMemory[0].held[0].name, "w");
  EXPECT_EQ(report.rankMemory[0].held[0].bytes, 256 * 512 * 4);
  EXPECT_EQ(report.rankMemory[0].held[2].kind, "optimizer state");
  ASSERT_EQ(report.collectives.size(), 1u); // evaluation is no part of a step
  EXPECT_EQ(report.collectives[0].count, 1);
  EXPECT_EQ(report.collectives[0].bytes, 524288);
  EXPECT_GT(report.collectives[0].seconds, 0);
  EXPECT_THAT(renderText(report), HasSubstr("gradient of w"));
}

// Every rank's program counts: memory of each stage its own, collectives as the mean, what is sent to another device.
TEST(Report, PlannedFiguresAreThoseOfAllRanks) {
  Report report = made({.like = "zero1"});
  report.stages.resize(2);
  report.stages[1].rank = 1;
  plan::Plan plan;
  for (auto [axis, size] : {std::pair{"pp", 2}, {"dp", 2}}) {
    auto *meshAxis = plan.mutable_mesh()->add_axes();
    meshAxis->set_name(axis);
    meshAxis->set_size(size);
  }
  for (int rank : {0, 1}) {
    auto *program = plan.add_programs();
    program->set_arena_bytes(rank == 0 ? 1000 : 3000);
    auto *fragment = program->add_fragments();
    auto *gather = fragment->add_commands();
    gather->set_stream(1);
    gather->set_record_event(1);
    gather->set_phase(rank == 0 ? "forward" : "backward");
    gather->mutable_collective()->set_op(plan::Collective::ALL_GATHER);
    gather->mutable_collective()->add_axes("dp");
    plan::Buffer *input = gather->mutable_collective()->add_inputs();
    input->set_dtype(plan::F32);
    input->add_shape(rank == 0 ? 25 : 75);
    if (rank == 0) fragment->add_commands()->mutable_fill(); // beside it
    auto *reader = fragment->add_commands();
    reader->mutable_fill();
    reader->add_wait_events(1);
    if (rank == 0)
      for (int64_t peer : {2, 0}) { // to the other rank, and to itself
        auto *send = fragment->add_commands()->mutable_transfer();
        send->set_direction(plan::Transfer::SEND);
        send->mutable_peer()->set_base(peer);
        send->mutable_buffer()->set_dtype(plan::F32);
        send->mutable_buffer()->add_shape(10);
      }
    auto *routine = program->add_routines();
    routine->set_name("step");
    for (int microbatch : {0, 1}) routine->add_actions()->set_microbatch(microbatch);
  }
  fillFromPlan(report, plan, *planner::parseCluster("cpu:4"));
  EXPECT_EQ(report.predicted.memory.total(), 3000);
  EXPECT_EQ(report.stages[0].memoryBytes, 1000 + 2 * (40 + 40)); // two message buffers for each send
  EXPECT_EQ(report.stages[1].memoryBytes, 3000);
  ASSERT_EQ(report.collectives.size(), 2u);
  EXPECT_EQ(report.collectives[0].op, "all_gather");
  EXPECT_EQ(report.collectives[0].bytes, (2 * 2 * 100 + 2 * 2 * 300) / 2); // what the group has together
  EXPECT_EQ(report.collectives[0].forwardBytes, 2 * 2 * 100 / 2);
  EXPECT_EQ(report.collectives[0].backwardBytes, 2 * 2 * 300 / 2);
  EXPECT_EQ(report.collectives[0].count, 2);
  EXPECT_FALSE(report.collectives[0].hidden); // of most of its bytes the next command waits
  EXPECT_EQ(report.collectives[1].op, "send");
  EXPECT_EQ(report.collectives[1].bytes, 2 * 40 / 2);
  EXPECT_TRUE(report.collectives[1].hidden);
}

TEST(Report, Units) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(1536), "1.50 KiB");
  EXPECT_EQ(formatBytes(80.0 * (1 << 30)), "80.0 GiB");
  EXPECT_EQ(formatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(formatSeconds(165.3), "165 s");
  EXPECT_EQ(formatSeconds(4e-6), "4.00 us");
}

} // namespace
} // namespace cleave::report
