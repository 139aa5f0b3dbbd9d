#include "runtime/engine/executor/traffic.h"
#include "runtime/engine/executor/executor.h"
#include <nlohmann/json.hpp>

namespace cleave::runtime {

std::string trafficJson(const Executor &executor, int64_t steps) {
  nlohmann::json out{{"steps", steps}, {"devices", nlohmann::json::array()}};
  for (int64_t device : executor.devices()) {
    nlohmann::json sent = nlohmann::json::array();
    for (const Traffic &one : executor.traffic(device))
      sent.push_back({{"fragment", one.fragment},
                      {"op", one.op},
                      {"axes", one.axes},
                      {"phase", one.phase},
                      {"count", one.count},
                      {"bytes", one.bytes}});
    out["devices"].push_back({{"rank", device}, {"sent", sent}});
  }
  return out.dump(1) + "\n";
}

} // namespace cleave::runtime
