// Order between commands: events, hazards between streams, collectives in their groups.
#include "runtime/plan/dtype.h"
#include "runtime/plan/verify.h"
#include <algorithm>
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
  return a.offset() < b.offset() + byteSize(b) && b.offset() < a.offset() + byteSize(a);
}

} // namespace

// The executor has two threads a device, for stream 0 and for all others; each runs its commands in issue order.
// known[l] of a command is the last command of thread l that is done when it starts (itself, on its own thread).
Status verifyOrder(const plan::Fragment &fragment, const plan::Plan &plan) {
  struct Clock {
    int known[2] = {-1, -1};
  };
  int count = fragment.commands_size();
  std::vector<Clock> clocks(static_cast<size_t>(count));
  std::map<int32_t, int> recorded;
  Clock last[2];
  std::vector<int> asynchronous;
  for (int i = 0; i < count; ++i) {
    const plan::Command &command = fragment.commands(i);
    int lane = command.stream() == 0 ? 0 : 1;
    Clock clock = last[lane];
    for (int32_t event : command.wait_events()) {
      auto found = recorded.find(event);
      if (found == recorded.end())
        return inputError(
            fmt::format("{} waits for event {}, which no command before it records", show(fragment, i), event));
      for (int l = 0; l < 2; ++l)
        clock.known[l] = std::max(clock.known[l], clocks[static_cast<size_t>(found->second)].known[l]);
    }
    clock.known[lane] = i;
    clocks[static_cast<size_t>(i)] = last[lane] = clock;
    if (command.record_event() < 0)
      return inputError(fmt::format("{} records event {}", show(fragment, i), command.record_event()));
    if (command.record_event() && !recorded.emplace(command.record_event(), i).second)
      return inputError(fmt::format("{} records event {} again", show(fragment, i), command.record_event()));
    if (lane == 1) asynchronous.push_back(i);
  }
  // Hazards: a command of the communication thread against the compute commands that run at any time beside it.
  std::vector<std::vector<Access>> accesses(static_cast<size_t>(count));
  if (!asynchronous.empty())
    for (int i = 0; i < count; ++i) accesses[static_cast<size_t>(i)] = accessesOf(fragment.commands(i), &plan);
  for (int a : asynchronous) {
    const Clock &clock = clocks[static_cast<size_t>(a)];
    for (int i = clock.known[0] + 1; i < count; ++i) {
      if (fragment.commands(i).stream() != 0) continue;
      if (clocks[static_cast<size_t>(i)].known[1] >= a) break; // it, and all after it on its thread, wait for a
      for (const Access &one : accesses[static_cast<size_t>(a)])
        for (const Access &two : accesses[static_cast<size_t>(i)])
          if ((one.write || two.write) && overlap(*one.buffer, *two.buffer))
            return inputError(fmt::format("{} (stream {}) and {} (stream 0) may run at the same time, and {} {} of the "
                                          "one overlaps {} {} of the other",
                                          show(fragment, a), fragment.commands(a).stream(), show(fragment, i), one.role,
                                          describe(*one.buffer), two.role, describe(*two.buffer)));
    }
  }
  return Status::ok();
}

// All devices run one program, so every member of a group issues the same collectives; `sequence` must count them in
// issue order, or the plan was put together wrongly. The communication thread takes them in that order and waits only
// for compute commands issued before, so no cycle of waits can form.
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
