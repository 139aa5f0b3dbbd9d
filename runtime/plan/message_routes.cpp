#include "runtime/plan/message_routes.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <map>

namespace cleave::runtime {

std::vector<MessageRoute> routesOf(const plan::Plan &plan, const dist::Mesh &mesh, int64_t device) {
  const plan::Program &program = plan.programs(programOf(plan, mesh, device));
  std::vector<bool> runs(static_cast<size_t>(program.fragments_size()), false);
  for (const plan::Routine &routine : program.routines())
    for (const plan::Action &action : routine.actions()) runs[static_cast<size_t>(action.fragment())] = true;
  std::map<int64_t, MessageRoute> routes[2]; // sends, receives; by peer
  for (int f = 0; f < program.fragments_size(); ++f) {
    if (!runs[static_cast<size_t>(f)]) continue;
    std::map<int64_t, int> count[2];
    for (const plan::Command &command : program.fragments(f).commands()) {
      if (!command.has_transfer()) continue;
      const plan::Transfer &transfer = command.transfer();
      bool receives = transfer.direction() == plan::Transfer::RECEIVE;
      int64_t peer = evaluate(transfer.peer(), mesh, device);
      MessageRoute &route = routes[receives][peer];
      route.from = receives ? peer : device, route.to = receives ? device : peer;
      route.bytes = std::max(route.bytes, byteSize(transfer.buffer()));
      route.buffers = std::max(route.buffers, 2 * ++count[receives][peer]);
    }
  }
  std::vector<MessageRoute> all;
  for (auto &side : routes)
    for (auto &[peer, route] : side) all.push_back(route);
  return all;
}

} // namespace cleave::runtime
