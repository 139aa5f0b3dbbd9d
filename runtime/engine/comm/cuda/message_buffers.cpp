#include "runtime/engine/comm/cuda/message_buffers.h"
#include "runtime/engine/comm/cuda/strided_pieces.h"
#include "runtime/plan/dtype.h"

namespace cleave::runtime::cuda {
namespace {

class BufferedTransfer final : public PreparedCommand {
public:
  BufferedTransfer(const StreamFabric &fabric, MessageBuffers &route, CudaDevice &device, Stream stream)
      : fabric(fabric), route(route), device(device), stream(stream) {}
  Status run() override { return runError("a transfer is issued, not run"); }
  Result<bool> issue() override {
    auto buffers = static_cast<int64_t>(route.written.size());
    if (receives ? route.taken == route.sent : route.sent - route.taken == buffers) return false;
    int64_t message = receives ? route.taken : route.sent, runNumber = fabric.currentRun();
    Address place = route.memory.address() + static_cast<Address>(message % buffers * route.stride);
    StreamEvent &before = route.of(receives ? route.written : route.read, message),
                &after = route.of(receives ? route.read : route.written, message);
    CLEAVE_RETURN_IF_ERROR(before.waitOn(stream, runNumber));
    CLEAVE_RETURN_IF_ERROR(copyRectangle(device.gpu(), {0, 0, bytes, 1, bytes, bytes}, receives ? place : data,
                                         receives ? data : place, stream));
    CLEAVE_RETURN_IF_ERROR(after.record(stream, runNumber));
    ++(receives ? route.taken : route.sent);
    return true;
  }
  Address data = 0;
  int64_t bytes = 0;
  bool receives = false;

private:
  const StreamFabric &fabric;
  MessageBuffers &route;
  CudaDevice &device;
  Stream stream;
};

} // namespace

Status MessageBuffers::open(const CudaDevice &sender, const CudaDevice &receiver, const MessageRoute &message) {
  stride = (message.bytes + 255) / 256 * 256;
  CLEAVE_RETURN_IF_ERROR(memory.allocate(sender.gpu(), stride * message.buffers, sender.stream(computeLane)));
  for (int i = 0; i < message.buffers; ++i) {
    CLEAVE_RETURN_IF_ERROR(written.emplace_back().make(sender.gpu()));
    CLEAVE_RETURN_IF_ERROR(read.emplace_back().make(receiver.gpu()));
  }
  return sender.synchronize();
}

Prepared bufferedTransfer(const StreamFabric &fabric, MessageBuffers &route, CudaDevice &device, int lane,
                          const plan::Transfer &transfer) {
  auto command = std::make_unique<BufferedTransfer>(fabric, route, device, device.stream(lane));
  command->data = device.address(transfer.buffer().offset());
  command->bytes = byteSize(transfer.buffer());
  command->receives = transfer.direction() == plan::Transfer::RECEIVE;
  return command;
}

} // namespace cleave::runtime::cuda
