// Bytes that a device sent to others, counted as the commands run: what the messages of a collective carry (a member's
// pieces to the others; all members of a group together send 2(n-1) times the tensor in an all-reduce), and transfers.
//
//   {"final", "all_reduce", {"dp"}, "backward"}: count 12, bytes 393216
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::runtime {

struct Traffic {
  std::string fragment;          // "final", "forward.1"
  std::string op;                // "all_reduce", ..., "send"
  std::vector<std::string> axes; // of a collective's group
  std::string phase;             // "forward", "backward", "update"
  int64_t count = 0, bytes = 0;
  bool isAlike(const Traffic &other) const {
    return fragment == other.fragment && op == other.op && axes == other.axes && phase == other.phase;
  }
};

class Executor;
// {"steps": 3, "devices": [{"rank": 0, "sent": [{"fragment", "op", "axes", "phase", "count", "bytes"}, ...]}, ...]} of
// the devices of this process.
std::string trafficJson(const Executor &executor, int64_t steps);

} // namespace cleave::runtime
