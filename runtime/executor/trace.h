// Timelines of the commands, in Chrome's trace format (chrome://tracing, Perfetto).
//
//   Trace trace(true);  trace.lane(rank, 0).add(command, begin, end);  trace.write("step.json");
#pragma once
#include "runtime/status.h"
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

// One thread's records; filled by that thread alone, without allocation until `limit` records are there, then dropped.
struct TraceLane {
  struct Record {
    const void *item; // a LaneItem of the executor; names are looked up when writing
    int64_t step, begin, end;
  };
  int64_t rank = 0;
  int stream = 0;
  size_t limit = 0;
  std::vector<Record> records;
  void add(const void *item, int64_t step, int64_t begin, int64_t end) {
    if (records.size() < limit) records.push_back({item, step, begin, end});
  }
};

struct TraceName {
  std::string name, kind, phase;
};

class Trace {
public:
  // At most `recordsPerLane` commands a thread are kept.
  explicit Trace(size_t recordsPerLane) : recordsPerLane(recordsPerLane) {}
  TraceLane &lane(int64_t rank, int stream);
  // `nameOf` maps a record's item to what is shown.
  Status write(const std::string &path, TraceName (*nameOf)(const void *item)) const;

private:
  size_t recordsPerLane;
  std::deque<TraceLane> lanes;
};

} // namespace cleave::runtime
