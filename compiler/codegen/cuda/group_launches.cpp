#include "compiler/codegen/cuda/group_launches.h"
#include "runtime/plan/accesses.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace cleave::codegen {
namespace {

struct Range : runtime::ByteRange { // of the arena
  bool isWritten;
};

class Grouping {
public:
  Grouping(const plan::Plan &plan, plan::Fragment &fragment) : plan(plan), fragment(fragment) {}

  void run() {
    auto commands = std::move(*fragment.mutable_commands());
    fragment.clear_commands();
    for (plan::Command &command : commands) {
      const bool waits = mayWait(command);
      std::vector<Range> ranges = rangesOf(command);
      // An event says that all before it on its stream is done: nothing may leave that past.
      if (command.record_event() != 0 || meetsWaiting(ranges)) flush();
      if (waits) {
        waiting.push_back(std::move(command));
        for (const Range &range : ranges) {
          touched.add(range);
          if (range.isWritten) written.add(range);
        }
      } else {
        *fragment.add_commands() = std::move(command);
      }
    }
    flush();
  }

private:
  static bool mayWait(const plan::Command &command) {
    if (!command.has_launch() || command.stream() != 0 || command.record_event() != 0 || command.wait_events_size() > 0)
      return false;
    const auto &buffers = command.launch().buffers();
    return std::none_of(buffers.begin(), buffers.end(), [](const plan::Buffer &buffer) { return buffer.in_slot(); });
  }

  // Where a slot lies is known when the action runs: it meets whatever is not persistent, so everything.
  std::vector<Range> rangesOf(const plan::Command &command) const {
    std::vector<Range> ranges;
    for (const runtime::Access &access : runtime::accessesOf(command, &plan)) {
      const plan::Buffer &buffer = *access.buffer;
      if (buffer.on_host()) continue; // what a launch reads or writes is not there
      ranges.push_back(buffer.in_slot() ? Range{{0, INT64_MAX}, true} : Range{runtime::bytesOf(buffer), access.write});
    }
    return ranges;
  }
  bool meetsWaiting(const std::vector<Range> &ranges) const {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const Range &a) { return (a.isWritten ? touched : written).meets(a); });
  }

  using Kernel = std::pair<int32_t, std::vector<std::string>>; // with its phase and scalars
  static Kernel kernelOf(const plan::Command &command) {
    Kernel kernel{command.launch().kernel(), {command.phase()}};
    for (const plan::AffineOfCoordinate &scalar : command.launch().scalars())
      kernel.second.push_back(scalar.SerializeAsString());
    return kernel;
  }

  void flush() {
    std::map<Kernel, size_t> numbers;
    std::vector<std::vector<size_t>> groups; // of one kernel, in the order of their first members
    for (size_t i = 0; i < waiting.size(); ++i) {
      auto [known, isNew] = numbers.try_emplace(kernelOf(waiting[i]), groups.size());
      if (isNew) groups.emplace_back();
      groups[known->second].push_back(i);
    }
    for (const std::vector<size_t> &members : groups) {
      plan::Command &first = waiting[members.front()], &command = *fragment.add_commands();
      if (members.size() == 1) {
        command = std::move(first);
        continue;
      }
      command.set_name(first.name() + " and " + std::to_string(members.size() - 1) + " more");
      command.set_phase(first.phase());
      for (size_t member : members) *command.mutable_launch_group()->add_parts() = waiting[member].launch();
    }
    waiting.clear();
    touched.clear();
    written.clear();
  }

  const plan::Plan &plan;
  plan::Fragment &fragment;
  std::vector<plan::Command> waiting;   // none meets another
  runtime::ByteRanges touched, written; // by them
};

} // namespace

void groupLaunches(plan::Plan &plan) {
  for (plan::Program &program : *plan.mutable_programs())
    for (plan::Fragment &fragment : *program.mutable_fragments()) Grouping(plan, fragment).run();
}

} // namespace cleave::codegen
