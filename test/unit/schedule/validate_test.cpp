#include "compiler/schedule/csv.h"
#include "test/unit/schedule/schedules.h"
#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <random>
#include <sstream>

namespace cleave::planner {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Validate, EveryKindIsValid) {
  for (const std::string &kind : everyKind)
    for (int ranks : {1, 2, 3, 4, 8})
      for (int64_t microbatches : {1, 2, 3, 4, 5, 8, 13, 24})
        for (const StageTimes &times : {StageTimes{}, StageTimes{18.522, 18.086, 9.337, 0.601, 0.601},
                                        StageTimes{1, 2, 9, 0.5, 4}, StageTimes{9, 2, 1, 0, 0}}) {
          const PipelineSchedule schedule = make(kind, ranks, microbatches, times);
          EXPECT_EQ(schedule.microbatches, microbatches);
          const Status valid = validate(schedule);
          EXPECT_TRUE(valid.isOk()) << kind << " " << ranks << " x " << microbatches << ": " << valid.message();
        }
}

TEST(Validate, ShapeIsTheTables) {
  for (const std::string &kind : everyKind) {
    const PipelineSchedule schedule = make(kind, 4, 8);
    Result<ScheduleShape> shape = scheduleShape(kind, 4);
    ASSERT_TRUE(shape.isOk());
    EXPECT_EQ(shape->stages, schedule.stages) << kind;
    EXPECT_EQ(shape->rankOfStage, schedule.rankOfStage) << kind;
    const bool splits = std::ranges::any_of(
        schedule.rows[0], [](const ScheduledAction &action) { return action.kind == ActionKind::BackwardInput; });
    EXPECT_EQ(shape->splitsBackward, splits) << kind;
  }
}

TEST(Validate, NamesTheWrongCell) {
  auto broken = [](auto change) {
    PipelineSchedule schedule = make("1f1b", 2, 3); // 0F0 0F1 0B0 0F2 0B1 0B2 / 1F0 1B0 1F1 1B1 1F2 1B2
    change(schedule);
    return validate(schedule).message();
  };
  EXPECT_THAT(broken([](auto &s) { s.rows[1].erase(s.rows[1].begin() + 3); }),
              HasSubstr("the backward pass of stage 1, microbatch 1 is missing in the row of rank 1"));
  EXPECT_THAT(broken([](auto &s) { s.rows[0].push_back(s.rows[0][2]); }),
              HasSubstr("rank 0, cell 7 (0B0): a second time"));
  EXPECT_THAT(broken([](auto &s) { std::swap(s.rows[1][0], s.rows[1][1]); }),
              HasSubstr("rank 1, cell 1 (1B0): before the forward pass of stage 1, microbatch 0"));
  EXPECT_THAT(broken([](auto &s) { s.rows[0][0].stage = 1; }),
              HasSubstr("rank 0, cell 1 (1F0): stage 1 lies on rank 1"));
  EXPECT_THAT(broken([](auto &s) { s.rows[0][0].microbatch = 3; }),
              HasSubstr("rank 0, cell 1 (0F3): there are microbatches 0 to 2"));
  // A swapped send: rank 1 takes the activations in another order than rank 0 sends them.
  EXPECT_THAT(
      broken([](auto &s) { std::swap(s.rows[0][0], s.rows[0][1]); }),
      HasSubstr("rank 0 sends its activation 1 to rank 1 by rank 0, cell 1 (0F1), but the first that rank 1 needs "
                "then is that of rank 1, cell 1 (1F0)"));
  const std::string stuck =
      broken([](auto &s) { std::swap(s.rows[0][1], s.rows[0][2]), std::swap(s.rows[1][1], s.rows[1][2]); });
  EXPECT_THAT(stuck, HasSubstr("rank 0, cell 2 (0B0) waits for 1B0 of rank 1"));
  EXPECT_THAT(stuck, HasSubstr("rank 1, cell 2 (1F1) waits for 0F1 of rank 0"));

  PipelineSchedule halves = make("zb-h1", 2, 2);
  std::swap(*std::ranges::find(halves.rows[0], ScheduledAction{ActionKind::BackwardInput, 0, 1}),
            *std::ranges::find(halves.rows[0], ScheduledAction{ActionKind::BackwardWeight, 0, 1}));
  EXPECT_THAT(validate(halves).message(), HasSubstr("(0W1): before the input gradient of stage 0, microbatch 1"));
}

// The validator accepts exactly those random exchanges of two cells that a run of the definition accepts.
TEST(Validate, AgreesWithRunningTheRows) {
  auto runs = [](const PipelineSchedule &s) {
    std::vector<size_t> next(s.ranks, 0);
    std::vector<ScheduledAction> done;
    auto has = [&](ActionKind kind, int stage, int64_t m) {
      return std::ranges::find(done, ScheduledAction{kind, stage, m}) != done.end();
    };
    auto inputGradient = [&](int stage, int64_t m) {
      return has(ActionKind::Backward, stage, m) || has(ActionKind::BackwardInput, stage, m);
    };
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < s.ranks; ++rank)
        while (next[rank] < s.rows[rank].size()) {
          const auto [kind, stage, m] = s.rows[rank][next[rank]];
          bool ready = true;
          if (kind == ActionKind::Forward)
            ready = stage == 0 || has(ActionKind::Forward, stage - 1, m);
          else if (kind == ActionKind::BackwardWeight)
            ready = inputGradient(stage, m);
          else
            ready = has(ActionKind::Forward, stage, m) && (stage + 1 == s.stages || inputGradient(stage + 1, m));
          if (!ready) break;
          done.push_back(s.rows[rank][next[rank]++]);
          progress = true;
        }
    }
    for (int rank = 0; rank < s.ranks; ++rank)
      if (next[rank] < s.rows[rank].size()) return false;
    return true;
  };
  std::mt19937 random(3);
  int accepted = 0, refused = 0;
  for (const std::string &kind : everyKind)
    for (int trial = 0; trial < 100; ++trial) {
      PipelineSchedule schedule = make(kind, 3, 4);
      auto &row = schedule.rows[random() % 3];
      std::swap(row[random() % row.size()], row[random() % row.size()]);
      const Status valid = validate(schedule);
      ++(valid ? accepted : refused);
      const bool ordered = valid.message().find("matched in order") != std::string::npos;
      EXPECT_EQ(runs(schedule), valid.isOk() || ordered) << kind << ": " << valid.message();
    }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 500);
}

TEST(PeakLive, PublishedFormulas) {
  const int ranks = 4;
  for (int64_t microbatches : {8, 16})
    for (int rank = 0; rank < ranks; ++rank) {
      auto of = [&](const std::string &kind, ActionKind until = ActionKind::BackwardInput) {
        return peakLive(make(kind, ranks, microbatches), until)[rank];
      };
      EXPECT_EQ(of("gpipe"), microbatches);
      EXPECT_EQ(of("looped-bfs:2"), 2 * microbatches);
      EXPECT_EQ(of("1f1b"), ranks - rank);
      EXPECT_EQ(of("pipedream-2bw"), ranks - rank);
      // Megatron-LM: 2 (P - r - 1) + (V - 1) P forwards ahead, and the one that is computed.
      for (int chunks : {2, 3})
        EXPECT_EQ(of("interleaved:" + std::to_string(chunks)),
                  std::min<int64_t>(2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1, microbatches * chunks));
      // Zero-bubble paper, table 2: (P - r) M_B + r M_W and (2 (P - r) - 1) M_B + 2 r M_W, here with r from 0.
      EXPECT_EQ(of("zb-h1"), ranks - rank);
      EXPECT_EQ(of("zb-h2"), 2 * (ranks - rank) - 1);
      EXPECT_EQ(of("zb-h1", ActionKind::BackwardWeight), ranks);
      EXPECT_EQ(of("zb-h2", ActionKind::BackwardWeight), 2 * ranks - 1);
      // ZB-V: the memory of 1F1B's first rank on every rank, in halves; DualPipeV: P + 1 of its P stages, table in
      // DeepSeek's repository, where PP = 2 P counts the halves.
      EXPECT_LE(of("zb-v"), 2 * ranks);
      EXPECT_EQ(of("dualpipev"), 2 * ranks + 1);
    }
  EXPECT_EQ(std::ranges::max(peakLive(make("zb-v", ranks, 16))), 2 * ranks);
}

// A part of a microbatch stays from the input gradient to the weight gradient.
double mostHeld(const std::vector<ScheduledAction> &row) {
  double held = 0, most = 0;
  for (const ScheduledAction &action : row) {
    if (action.kind == ActionKind::Forward) held += 1;
    if (action.kind == ActionKind::BackwardInput) held -= 1 - kWeightPartOfActivations;
    if (action.kind == ActionKind::BackwardWeight) held -= kWeightPartOfActivations;
    most = std::max(most, held);
  }
  return most;
}

TEST(PeakLive, GreedyKeepsItsLimit) {
  const StageTimes times{18.522, 18.086, 9.337, 0.601, 0.601};
  for (int ranks : {2, 4, 8})
    for (int64_t microbatches : {3, 8, 24})
      for (auto [kind, limit] : {std::pair("zb-1p", ranks), std::pair("zb-2p", 2 * ranks)})
        for (const auto &row : make(kind, ranks, microbatches, times).rows)
          EXPECT_LE(mostHeld(row), limit + 1e-9) << kind << " " << ranks << " x " << microbatches;
}

TEST(Csv, ReadsBackIdentically) {
  for (const std::string &kind : everyKind) {
    PipelineSchedule schedule = make(kind, 4, 9);
    Result<PipelineSchedule> back = readCsv(writeCsv(schedule), kind);
    ASSERT_TRUE(back.isOk()) << back.status().message();
    EXPECT_EQ(*back, schedule) << kind;
  }
}

TEST(Csv, SaysWhatIsWrong) {
  auto message = [](const std::string &text) { return readCsv(text, "x.csv").status().message(); };
  EXPECT_THAT(message("0F0,0X0\n"), HasSubstr("x.csv:1: cell 2: '0X0' is no action"));
  EXPECT_THAT(message("0F0,0B0\n,0SEND_F0\n"), HasSubstr("x.csv:2: cell 2: '0SEND_F0' is no action"));
  EXPECT_THAT(message("0F0,0B0\n0F1,0B1\n"), HasSubstr("x.csv:2: cell 1: '0F1': stage 0 is in the line of rank 0"));
  EXPECT_THAT(message("\n\n"), HasSubstr("no action"));
  EXPECT_THAT(message("0F0,0B0\n,\n"), HasSubstr("x.csv:2: no action in this line"));
  EXPECT_THAT(message("1F0,1B0\n"), HasSubstr("stage 0 is in no line"));
  EXPECT_THAT(message("0F0,0B16000000\n"), HasSubstr("some are missing"));
  EXPECT_THAT(message("0F0,0B99999999999999999999\n"), HasSubstr("is no action"));
  EXPECT_THAT(message("0B0,0F0\n"), HasSubstr("before the forward pass"));
}

// PyTorch's own tables (torch.distributed.pipelining 2.15, written by its schedules' str(action)).
PipelineSchedule ofPyTorch(const std::string &name) {
  std::ifstream file(std::string(PYTORCH_SCHEDULES) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  Result<PipelineSchedule> schedule = readCsv(text.str(), name);
  EXPECT_TRUE(schedule.isOk()) << schedule.status().message();
  return schedule ? *schedule : PipelineSchedule{};
}

TEST(PyTorch, SameTables) {
  EXPECT_EQ(make("dualpipev", 4, 12).rows, ofPyTorch("dualpipev_4_12.csv").rows);
  EXPECT_EQ(make("interleaved:2", 4, 8).rows, ofPyTorch("interleaved_2_4_8.csv").rows);
  // In the cool-down PyTorch takes the weight gradients of the first chunk first, we those that wait longest.
  auto withoutWeights = [](PipelineSchedule schedule) {
    for (auto &row : schedule.rows)
      std::erase_if(row, [](const ScheduledAction &action) { return action.kind == ActionKind::BackwardWeight; });
    return schedule.rows;
  };
  EXPECT_EQ(withoutWeights(make("zb-v", 4, 8)), withoutWeights(ofPyTorch("zb-v_4_8.csv")));
  // PyTorch goes back through the microbatches in the reverse order.
  PipelineSchedule breadth = make("looped-bfs", 4, 8);
  for (auto &row : breadth.rows)
    for (ScheduledAction &action : row)
      if (action.kind == ActionKind::Backward) action.microbatch = 7 - action.microbatch;
  EXPECT_EQ(breadth.rows, ofPyTorch("looped-bfs_4_8.csv").rows);
}

TEST(Kinds, TheShapeOfAFileIsOfItsRanksOnly) {
  const std::string file = std::string(PYTORCH_SCHEDULES) + "/dualpipev_4_12.csv";
  Result<ScheduleShape> shape = scheduleShape(file, 4);
  ASSERT_TRUE(shape) << shape.status().message();
  EXPECT_EQ(shape->ranks, 4);
  EXPECT_EQ(shape->stages, 8);
  EXPECT_THAT(scheduleShape(file, 2).status().message(), HasSubstr("a schedule of 4 pipeline ranks, not of 2"));
}

TEST(Kinds, Errors) {
  auto message = [](const std::string &kind, int ranks, int64_t microbatches) {
    Result<PipelineSchedule> schedule = makeSchedule(kind, ranks, microbatches, {});
    EXPECT_FALSE(schedule.isOk()) << kind;
    return schedule.status().message();
  };
  EXPECT_THAT(message("1f2b", 2, 2), HasSubstr("unknown schedule '1f2b'; there are gpipe, 1f1b, interleaved:V"));
  EXPECT_THAT(message("interleaved", 2, 2), HasSubstr("interleaved:2"));
  EXPECT_THAT(message("interleaved:x", 2, 2), HasSubstr("'x'"));
  EXPECT_THAT(message("interleaved:0", 2, 2), HasSubstr("'0'"));
  EXPECT_THAT(message("1f1b:2", 2, 2), HasSubstr("takes no number"));
  EXPECT_THAT(message("1f1b", 0, 2), HasSubstr("pipeline ranks"));
  EXPECT_THAT(message("1f1b", 2, 0), HasSubstr("microbatches"));
  EXPECT_THAT(message("1f1b", 65536, int64_t(1) << 40), HasSubstr("too large"));
  EXPECT_THAT(message("pipedream-2bw", 4, 3), HasSubstr("as many microbatches as pipeline ranks"));
  EXPECT_THAT(message("no/such.csv", 2, 2), HasSubstr("no/such.csv: cannot be read"));
  EXPECT_THAT(scheduleKinds(), Contains("zb-v"));
}

TEST(Kinds, UnrolledStepsAreValid) {
  for (const std::string &kind : {"1f1b", "zb-v", "pipedream-2bw"}) {
    const PipelineSchedule steps = unrolled(make(kind, 3, 6), 3);
    EXPECT_EQ(steps.microbatches, 18);
    EXPECT_TRUE(validate(steps).isOk()) << validate(steps).message();
  }
}

} // namespace
} // namespace cleave::planner
