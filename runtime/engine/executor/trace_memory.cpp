#include "runtime/engine/executor/trace_memory.h"
#include "runtime/plan/accesses.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <map>

namespace cleave::runtime {
namespace {

struct Use {
  int64_t begin, end;  // nanoseconds
  int64_t first, last; // bytes [first, last) of the arena
  bool isWrite;
};

std::vector<Use> usesOf(const plan::Plan &plan, const plan::Program &program, int64_t rank,
                        const std::deque<TraceLane> &lanes) {
  std::vector<Use> uses;
  for (const TraceLane &lane : lanes) {
    if (lane.rank != rank) continue;
    for (const TraceLane::Record &record : lane.records) {
      if (!record.command) continue;
      for (const Access &access : accessesOf(*record.command, &plan)) {
        if (access.buffer->on_host()) continue;
        const int64_t first = placeOf(*access.buffer, program, *record.fragment, record.action->slot());
        const int64_t last = first + byteSize(*access.buffer);
        if (first < last && first >= program.persistent_bytes())
          uses.push_back({record.begin, record.end, first, last, access.write});
      }
    }
  }
  // The reads of a command come before its writes.
  std::ranges::stable_sort(uses, {}, [](const Use &use) { return std::pair(use.begin, use.isWrite); });
  return uses;
}

// Bytes that are always used together.
struct Segment {
  int64_t bytes = 0;
  int64_t written = -1, needed = -1; // when its value was; -1: it has none
};

} // namespace

std::vector<MemoryInUse> memoryInUse(const plan::Plan &plan, const plan::Program &program, int64_t rank,
                                     const std::deque<TraceLane> &lanes) {
  const std::vector<Use> uses = usesOf(plan, program, rank, lanes);
  std::vector<int64_t> borders;
  for (const Use &use : uses) borders.push_back(use.first), borders.push_back(use.last);
  std::ranges::sort(borders);
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  std::vector<Segment> segments(borders.empty() ? 0 : borders.size() - 1);
  for (size_t i = 0; i < segments.size(); ++i) segments[i].bytes = borders[i + 1] - borders[i];
  std::map<int64_t, int64_t> changes; // bytes by time
  auto close = [&](const Segment &segment) {
    if (segment.written < 0) return;
    changes[segment.written] += segment.bytes;
    changes[segment.needed] -= segment.bytes;
  };
  for (const Use &use : uses) {
    const auto first = size_t(std::ranges::lower_bound(borders, use.first) - borders.begin());
    for (size_t i = first; i < segments.size() && borders[i] < use.last; ++i) {
      Segment &segment = segments[i];
      if (use.isWrite) {
        close(segment);
        segment.written = use.begin;
        segment.needed = use.end;
      } else if (segment.written >= 0)
        segment.needed = std::max(segment.needed, use.end);
    }
  }
  for (const Segment &segment : segments) close(segment);
  std::vector<MemoryInUse> points;
  int64_t bytes = 0;
  for (const auto &[time, change] : changes) {
    bytes += change;
    if (change != 0) points.push_back({time, bytes});
  }
  return points;
}

} // namespace cleave::runtime
