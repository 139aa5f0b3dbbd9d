// Timelines of the commands, in Chrome's trace format (chrome://tracing, Perfetto).
//
//   Trace trace(plan.mesh(), 1000);
//   trace.lane(rank, computeLane).add({&command, &action, &fragment, step, begin, end});
//   trace.write("step.json");
//
// A process for each rank, a thread for each of its lanes. On the compute lane every action ("F 3 stage 1") is a slice
// around its commands, from the first command's begin to the last one's end.
#pragma once
#include "plan/plan.pb.h"
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

// One lane's records; filled by one thread, without allocation until `limit` records are there, then dropped.
struct TraceLane {
  struct Record {
    const plan::Command *command; // null: the whole action
    const plan::Action *action;
    const plan::Fragment *fragment;
    int64_t step, begin, end; // nanoseconds
  };
  int64_t rank = 0;
  int lane = 0;
  size_t limit = 0;
  std::vector<Record> records;
  void add(const Record &record) {
    if (records.size() < limit) records.push_back(record);
  }
};

class Trace {
public:
  // At most `recordsPerLane` commands a thread are kept.
  Trace(const plan::Mesh &mesh, size_t recordsPerLane) : mesh(mesh), recordsPerLane(recordsPerLane) {}
  TraceLane &lane(int64_t rank, int lane);
  const std::deque<TraceLane> &all() const { return lanes; }
  Status write(const std::string &path) const;

private:
  const plan::Mesh &mesh;
  size_t recordsPerLane;
  std::deque<TraceLane> lanes;
};

} // namespace cleave::runtime
