#include "compiler/report/predicted_timeline.h"
#include <gmock/gmock.h>

namespace cleave::report {
namespace {

using ::testing::ElementsAre;

// Two stages, 1f1b, two microbatches: passes of 1 s, a whole backward pass 2 s, sends 0.5 s. After its passes a rank
// takes 2.5 s, of which the update is 1 s; the collectives before it take 4 s.
Report pipeline() {
  Report report;
  report.mesh.axes = {{"pp", 2}, {"dp", 2}};
  report.schedule = "1f1b";
  report.microbatches = 2;
  for (int64_t rank : {0, 1}) {
    Stage stage;
    stage.rank = rank;
    stage.pass = {1, 1, 1, 0.5, 0.5};
    stage.communicationSeconds = 1.5; // 0.25 s of a forward pass, 0.5 s of a backward one
    stage.forwardCommunicationSeconds = 0.5;
    stage.reductionSeconds = 4;
    stage.updateSeconds = 1;
    stage.afterPassesSeconds = 2.5;
    report.stages.push_back(stage);
  }
  return report;
}

TEST(PredictedTimeline, WorkedExampleOfTheSimulator) {
  const std::optional<PredictedTimeline> timeline = predictedTimeline(pipeline());
  ASSERT_TRUE(timeline);
  ASSERT_EQ(timeline->ranks.size(), 2u);
  std::vector<double> starts, collectives, sends; // of rank 0, then of rank 1
  for (const RankTimeline &rank : timeline->ranks)
    for (const TimedPass &pass : rank.passes) {
      starts.push_back(pass.start);
      collectives.push_back(pass.collectives);
      EXPECT_EQ(pass.end - pass.start, pass.action.kind == planner::ActionKind::Forward ? 1 : 2);
      if (pass.sendEnd == pass.sendStart) continue;
      sends.push_back(pass.sendStart);
      EXPECT_EQ(pass.sendEnd - pass.sendStart, 0.5);
    }
  EXPECT_THAT(starts, ElementsAre(0, 1, 5, 8, 1.5, 2.5, 4.5, 5.5));
  EXPECT_THAT(collectives, ElementsAre(0.25, 0.25, 0.5, 0.5, 0.25, 0.5, 0.25, 0.5));
  EXPECT_THAT(sends, ElementsAre(1, 2, 4.5, 7.5)); // two activations, two gradients
  const RankTimeline &first = timeline->ranks[0];  // its last pass ends at 10
  EXPECT_EQ(first.end, 12.5);
  EXPECT_EQ(first.updateStart, 11.5);
  EXPECT_EQ(first.reductionStart, 7.5); // beside the last passes
  EXPECT_EQ(timeline->end, 12.5);
}

TEST(PredictedTimeline, SendsWaitForTheLink) {
  Report report = pipeline();
  report.schedule = "gpipe";
  report.microbatches = 3;
  for (Stage &stage : report.stages) stage.pass = {1, 1, 0, 4, 0};
  const std::optional<PredictedTimeline> timeline = predictedTimeline(report);
  ASSERT_TRUE(timeline);
  for (int64_t microbatch : {0, 1, 2}) {
    const TimedPass &pass = timeline->ranks[0].passes[size_t(microbatch)];
    EXPECT_EQ(pass.sendStart, 1 + 4 * microbatch); // one after the other
    EXPECT_EQ(pass.sendEnd, timeline->ranks[1].passes[size_t(microbatch)].start);
  }
}

TEST(PredictedTimeline, WithoutPipelineThereIsOneRank) {
  Report report = pipeline();
  report.schedule = "none";
  report.mesh.axes = {{"dp", 2}};
  report.stages.resize(1);
  report.stages[0].pass = {1, 1, 1, 0, 0};
  const std::optional<PredictedTimeline> timeline = predictedTimeline(report);
  ASSERT_TRUE(timeline);
  ASSERT_EQ(timeline->ranks.size(), 1u);
  EXPECT_EQ(timeline->ranks[0].passes.size(), 4u);
  EXPECT_EQ(timeline->end, 2 * 3 + 2.5);
}

planner::CollectiveTotal total(const std::string &op, const dist::Axes &axes, double bytes, int64_t count) {
  planner::CollectiveTotal one;
  one.op = op;
  one.axes = axes;
  one.bytes = bytes;
  one.count = count;
  return one;
}

// 16 passes of each kind in a step: 8 microbatches through 4 stages on 2 ranks.
TEST(PredictedTimeline, CollectivesOfAPassAreTheirPartOfTheStep) {
  Report report;
  report.mesh.axes = {{"pp", 2}, {"tp", 2}};
  report.microbatches = 8;
  report.stages.resize(4);
  planner::CollectiveTotal gather = total("all_gather", {"tp"}, 48 * 1024, 48);
  gather.forwardBytes = 16 * 1024;
  gather.backwardBytes = 32 * 1024;
  gather.why = "a reader needs it";
  gather.tensors = {{"h.0.up", 4, 48 * 1024}};
  planner::CollectiveTotal reduction = total("all_reduce", {"dp", "cp"}, 1024, 2);
  reduction.hidden = true;
  reduction.backwardBytes = 1024;
  reduction.why = "gradients";
  planner::CollectiveTotal send = total("send", {"pp"}, 1024, 2);
  report.collectives = {gather, reduction, send};
  EXPECT_THAT(collectiveLines(report, CollectivesOf::Forward),
              ElementsAre("all_gather over tp: 1.00 KiB in 1 (a reader needs it; most of it h.0.up and 3 alike)"));
  EXPECT_THAT(collectiveLines(report, CollectivesOf::Backward),
              ElementsAre("all_gather over tp: 2.00 KiB in 2 (a reader needs it; most of it h.0.up and 3 alike)"));
  EXPECT_THAT(collectiveLines(report, CollectivesOf::Step),
              ElementsAre("all_reduce over dp and cp: 1.00 KiB in 2 (gradients)"));
}

} // namespace
} // namespace cleave::report
