// Timelines of the commands, in Chrome's trace format (chrome://tracing, Perfetto).
//
//   Trace trace(plan, {.recordsPerLane = 1000, .firstStep = 10, .lastStep = 12});
//   trace.lane(rank, computeLane).add({&command, &action, &fragment, step, begin, end});
//   trace.write("step.json");
//
// A process for each rank, a thread for each of its lanes. On the compute lane every action ("F 3 stage 1") is a slice
// around its commands, from the first command's begin to the last one's end. Arrows lead from each send to its receive.
// A counter shows the memory in use (trace_memory.h). Steps count from 1, as in the metrics.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace cleave::runtime {

inline int64_t nowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The records to keep: at most so many commands and actions a lane, of these steps, which count from 1.
struct TraceOptions {
  size_t recordsPerLane = 0; // 0: no trace
  int64_t firstStep = 1, lastStep = INT64_MAX;
};

// One lane's records; filled by one thread, without allocation until `limit` records are there, then dropped.
struct TraceLane {
  struct Record {
    const plan::Command *command; // null: the whole action
    const plan::Action *action;
    const plan::Fragment *fragment;
    int64_t step, begin, end; // step from 0; nanoseconds
  };
  int64_t rank = 0;
  int lane = 0;
  TraceOptions options = {};
  std::vector<Record> records;
  bool isFull() const { return records.size() >= options.recordsPerLane; }
  void add(const Record &record) {
    const int64_t step = record.step + 1;
    if (!isFull() && step >= options.firstStep && step <= options.lastStep) records.push_back(record);
  }
};

class Trace {
public:
  Trace(const plan::Plan &plan, const TraceOptions &options) : plan(plan), options(options) {}
  TraceLane &lane(int64_t rank, int lane);
  // Is the step, which counts from 0, before those that are kept; after them?
  bool isBefore(int64_t step) const { return step + 1 < options.firstStep; }
  bool isAfter(int64_t step) const { return step + 1 > options.lastStep; }
  const std::deque<TraceLane> &all() const { return lanes; }
  Status write(const std::string &path) const;

private:
  const plan::Plan &plan;
  TraceOptions options;
  std::deque<TraceLane> lanes;
};

} // namespace cleave::runtime
