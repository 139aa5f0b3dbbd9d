// The facts of a schedule that the search needs before it has stages: how many activations a rank keeps and how long it
// waits (of two weight versions: in the steady state). Taken from the schedule itself, simulated with stages that are
// all alike.
//
//   scheduleProfile("1f1b", 4, 64)   live {4,3,2,1}, bubble 3: ranks wait as long as three microbatches take
//
// A stage holds a microbatch until the gradients of its weights are done, and has so many slots as it holds at most:
// chunks of one rank do not share them, whose peaks may come at different times.
#pragma once
#include "compiler/schedule/schedule.h"
#include <memory>
#include <mutex>

namespace cleave::planner {

struct ScheduleProfile : ScheduleShape {
  void setLive(std::vector<double> slots);
  std::vector<double> live;      // by stage: microbatches that it has slots for
  std::vector<double> leastLive; // by rank: of its stages
  // Waiting of a rank, in the time that one microbatch takes it (equal passes, no sends). Simulated when it is first
  // asked for: most tables are known for what they keep only.
  double bubble() const;

  std::string kind;         // of the table
  int64_t microbatches = 0; // that it is made for

private:
  mutable std::unique_ptr<std::once_flag> simulated = std::make_unique<std::once_flag>(); // each profile by itself
  mutable double waiting = 0;
};

// By stage, of a table: what `live` of its profile would be.
std::vector<double> slotsOf(const PipelineSchedule &schedule);

// Both from a cache; null when the kind cannot have so many ranks or microbatches. The shape alone takes no table.
const ScheduleShape *knownShape(const std::string &kind, int64_t ranks);
const ScheduleProfile *scheduleProfile(const std::string &kind, int64_t ranks, int64_t microbatches);

} // namespace cleave::planner
