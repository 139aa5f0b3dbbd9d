// Pipeline schedules as CSV: read or refused with a word; what is read can be run, and writes itself as CSV that is
// read as the same.
#include "compiler/schedule/csv.h"
#include "test/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace cleave;
  auto schedule = planner::readCsv(fuzz::textOf(data, size), "schedule.csv");
  if (!schedule) return fuzz::refused(schedule.status());
  auto again = planner::readCsv(planner::writeCsv(*schedule), "schedule.csv");
  fuzz::require(bool(again), "refuses its own text: " + again.status().message());
  fuzz::require(again->rows == schedule->rows && again->rankOfStage == schedule->rankOfStage,
                "its own text is another schedule");
  (void)planner::peakLive(*schedule);
  (void)planner::peakSlots(*schedule);
  (void)planner::stepActions(*schedule);
  return 0;
}
