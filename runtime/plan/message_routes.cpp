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
  using Key = std::pair<int64_t, int>;                                                      // peer and channel
  std::map<Key, MessageRoute> routes[2];                                                    // sends, receives
  std::vector<std::map<Key, int>[2]> counts(static_cast<size_t>(program.fragments_size())); // messages of one action
  for (int f = 0; f < program.fragments_size(); ++f) {
    if (!runs[static_cast<size_t>(f)]) continue;
    std::map<Key, int>(&count)[2] = counts[static_cast<size_t>(f)];
    for (const plan::Command &command : program.fragments(f).commands()) {
      if (!command.has_transfer()) continue;
      const plan::Transfer &transfer = command.transfer();
      bool receives = transfer.direction() == plan::Transfer::RECEIVE;
      int64_t peer = evaluate(transfer.peer(), mesh, device);
      Key key{peer, transfer.channel()};
      MessageRoute &route = routes[receives && peer != device][key];
      route.from = receives ? peer : device, route.to = receives ? device : peer;
      route.channel = transfer.channel();
      route.bytes = std::max(route.bytes, byteSize(transfer.buffer()));
      int twice = 2 * ++count[receives][key];
      route.buffers = std::max(route.buffers, transfer.buffers() > 0 ? transfer.buffers() : twice);
    }
  }
  // A captured step always uses the same buffers. Where a message stays in one over the end of a step, the next step's
  // first message must then lie in the buffer behind it: as many messages a step as buffers, or a multiple.
  std::map<Key, int> ofStep[2];
  if (plan.has_cuda() && stepsOverlap(plan))
    for (const plan::Action &action : findRoutine(program, "step")->actions())
      for (int side : {0, 1})
        for (const auto &[key, messages] : counts[static_cast<size_t>(action.fragment())][side])
          ofStep[side][key] += messages;
  std::vector<MessageRoute> all;
  for (int side : {0, 1})
    for (auto &[key, route] : routes[side]) {
      for (int messages = ofStep[side][key]; messages > route.buffers && messages % route.buffers;) ++route.buffers;
      all.push_back(route);
    }
  return all;
}

} // namespace cleave::runtime
