// Order between commands: events, hazards between streams, collectives in their groups.
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace cleave::runtime {
namespace {

std::string show(const plan::Fragment &fragment, int index) {
  return fmt::format("command {} '{}'", index, fragment.commands(index).name());
}

bool overlap(const plan::Buffer &a, const plan::Buffer &b) {
  return a.in_slot() == b.in_slot() && a.on_host() == b.on_host() && a.offset() < b.offset() + byteSize(b) &&
         b.offset() < a.offset() + byteSize(a);
}

} // namespace

std::string showCommand(const plan::Fragment &fragment, int command) {
  return fmt::format("fragment '{}', {}", fragment.name(), show(fragment, command));
}

// Every device has a thread a lane (routine.h); each runs its commands in issue order. known[l] of a command is the
// last command of lane l that is done when it starts (itself, on its own lane).
Status verifyOrder(const plan::Fragment &fragment, const plan::Plan &plan) {
  struct Clock {
    std::array<int, numLanes> known;
    Clock() { known.fill(-1); }
  };
  int count = fragment.commands_size();
  std::vector<Clock> clocks(static_cast<size_t>(count));
  std::map<int32_t, int> recorded;
  std::array<Clock, numLanes> last;
  std::array<std::vector<int>, numLanes> lanes;
  for (int i = 0; i < count; ++i) {
    const plan::Command &command = fragment.commands(i);
    auto lane = static_cast<size_t>(laneOf(command));
    Clock clock = last[lane];
    for (int32_t event : command.wait_events()) {
      auto found = recorded.find(event);
      if (found == recorded.end())
        return inputError(
            fmt::format("{} waits for event {}, which no command before it records", show(fragment, i), event));
      for (size_t l = 0; l < numLanes; ++l)
        clock.known[l] = std::max(clock.known[l], clocks[static_cast<size_t>(found->second)].known[l]);
    }
    clock.known[lane] = i;
    clocks[static_cast<size_t>(i)] = last[lane] = clock;
    if (command.record_event() < 0)
      return inputError(fmt::format("{} records event {}", show(fragment, i), command.record_event()));
    if (command.record_event() && !recorded.emplace(command.record_event(), i).second)
      return inputError(fmt::format("{} records event {} again", show(fragment, i), command.record_event()));
    lanes[lane].push_back(i);
  }
  if (std::all_of(lanes.begin() + 1, lanes.end(), [](const std::vector<int> &lane) { return lane.empty(); }))
    return Status::ok();
  // Hazards: a command against those of another lane that may run at any time beside it.
  std::vector<std::vector<Access>> accesses(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) accesses[static_cast<size_t>(i)] = accessesOf(fragment.commands(i), &plan);
  auto compare = [&](size_t lane, size_t other) -> Status {
    for (int a : lanes[lane]) {
      int done = clocks[static_cast<size_t>(a)].known[other];
      for (auto i = std::upper_bound(lanes[other].begin(), lanes[other].end(), done); i != lanes[other].end(); ++i) {
        if (clocks[static_cast<size_t>(*i)].known[lane] >= a) break; // it, and all after it on its lane, wait for a
        for (const Access &one : accesses[static_cast<size_t>(a)])
          for (const Access &two : accesses[static_cast<size_t>(*i)])
            if ((one.write || two.write) && overlap(*one.buffer, *two.buffer))
              return inputError(fmt::format("{} (stream {}) and {} (stream {}) may run at the same time, and {} {} of "
                                            "the one overlaps {} {} of the other",
                                            show(fragment, a), fragment.commands(a).stream(), show(fragment, *i),
                                            fragment.commands(*i).stream(), one.role, describe(*one.buffer), two.role,
                                            describe(*two.buffer)));
      }
    }
    return Status::ok();
  };
  for (size_t lane = 1; lane < numLanes; ++lane)
    for (size_t other = 0; other < lane; ++other) CLEAVE_RETURN_IF_ERROR(compare(lane, other));
  return Status::ok();
}

// All devices of one program issue the same collectives; `sequence` must count them in issue order, or the plan was put
// together wrongly. Each lane takes its own in that order and waits only for commands issued before, so no
// cycle of waits can form. (Between different programs: verifyPipeline.)
Status verifyCollectives(const plan::Fragment &fragment) {
  std::map<std::vector<std::string>, int32_t> next;
  for (int i = 0; i < fragment.commands_size(); ++i) {
    if (!fragment.commands(i).has_collective()) continue;
    const plan::Collective &collective = fragment.commands(i).collective();
    std::vector<std::string> group(collective.axes().begin(), collective.axes().end());
    std::sort(group.begin(), group.end()); // the same devices
    int32_t &expected = next[group];
    if (collective.sequence() != expected)
      return inputError(fmt::format(
          "{} is number {} of the collectives over {{{}}}, and says {}: the order would differ between devices",
          show(fragment, i), expected, fmt::join(group, ","), collective.sequence()));
    ++expected;
  }
  return Status::ok();
}

} // namespace cleave::runtime
