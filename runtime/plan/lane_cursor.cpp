#include "runtime/plan/lane_cursor.h"
#include <map>

namespace cleave::runtime {

LaneCommands laneCommandsOf(const plan::Fragment &fragment) {
  LaneCommands lanes;
  std::map<int32_t, std::pair<int, int>> recorded; // by event: lane and item
  for (int c = 0; c < fragment.commands_size(); ++c) {
    const plan::Command &command = fragment.commands(c);
    const int lane = laneOf(command);
    std::vector<LaneCommand> &items = lanes[static_cast<size_t>(lane)];
    LaneCommand &own = items.emplace_back(c);
    for (int32_t event : command.wait_events())
      if (const auto &at = recorded.at(event); at.first != lane) own.waits.push_back(at);
    if (command.record_event()) recorded[command.record_event()] = {lane, static_cast<int>(items.size()) - 1};
  }
  return lanes;
}

} // namespace cleave::runtime
