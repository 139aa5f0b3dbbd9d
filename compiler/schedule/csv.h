// Schedules as CSV, the format of torch.distributed.pipelining's compute-only schedules: a line for each pipeline rank,
// a cell for each action, in order: the stage, the kind (F forward, B whole backward, I input gradient, W weight
// gradient) and the microbatch. An empty cell is a rank that idles: it means nothing, since ranks wait for what they
// need anyhow. Stages and microbatches count from 0; a stage lies on the rank in whose line it stands.
//
// Worked example, 1f1b of 2 ranks and 3 microbatches:
//     0F0,0F1,,0B0,0F2,0B1,,0B2
//     ,1F0,1B0,1F1,1B1,1F2,1B2
#pragma once
#include "compiler/schedule/schedule.h"
#include <string_view>

namespace cleave::planner {

// "1F0"
std::string cellText(const ScheduledAction &action);

// A line a rank, no idle cells. readCsv gives the same rows back.
std::string writeCsv(const PipelineSchedule &schedule);

// `name` is the file's, for messages ("x.csv:2: cell 3: ..."). The schedule is valid; errors (Input) say what is not.
Result<PipelineSchedule> readCsv(std::string_view text, const std::string &name);

// readCsv of a file that must be for so many ranks and microbatches; 0: as many as the file has.
Result<PipelineSchedule> readScheduleFile(const std::string &path, int ranks, int64_t microbatches);

} // namespace cleave::planner
