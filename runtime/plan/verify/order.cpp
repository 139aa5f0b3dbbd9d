// Order between commands: events, hazards between streams, collectives in their groups.
#include "runtime/plan/accesses.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cleave::runtime {
namespace {

std::string show(const plan::Fragment &fragment, int index) {
  return fmt::format("command {} '{}'", index, fragment.commands(index).name());
}

} // namespace

std::string showCommand(const plan::Fragment &fragment, int command) {
  return fmt::format("fragment '{}', {}", fragment.name(), show(fragment, command));
}

Status verifyOrder(const plan::Fragment &fragment, const plan::Plan &plan) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<LaneClock> clocks, clocksOf(fragment));
  std::array<std::vector<int>, numLanes> lanes;
  std::vector<std::vector<Access>> accesses;
  for (int i = 0; i < fragment.commands_size(); ++i)
    lanes[static_cast<size_t>(laneOf(fragment.commands(i)))].push_back(i);
  if (std::all_of(lanes.begin() + 1, lanes.end(), [](const std::vector<int> &lane) { return lane.empty(); }))
    return Status::ok();
  // Hazards: a command against those of another lane that may run at any time beside it.
  for (const plan::Command &command : fragment.commands()) accesses.push_back(accessesOf(command, &plan));
  auto compare = [&](size_t lane, size_t other) -> Status {
    for (int a : lanes[lane]) {
      int done = clocks[static_cast<size_t>(a)].done[other];
      for (auto i = std::upper_bound(lanes[other].begin(), lanes[other].end(), done); i != lanes[other].end(); ++i) {
        if (clocks[static_cast<size_t>(*i)].done[lane] >= a) break; // it, and all after it on its lane, wait for a
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
