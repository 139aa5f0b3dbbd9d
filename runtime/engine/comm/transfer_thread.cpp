#include "runtime/engine/comm/transfer_thread.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

constexpr auto deliveryTime = std::chrono::seconds(10);

// Gives the reason of a closed route.
class TransferCommand final : public PreparedCommand {
public:
  TransferCommand(Prepared command, const AbortFlag &failed, const Status &failure)
      : command(std::move(command)), failed(failed), failure(failure) {}
  Status run() override {
    Status status = command->run();
    return !status && failed.raised() ? failure : status;
  }

private:
  Prepared command;
  const AbortFlag &failed;
  const Status &failure;
};

} // namespace

void TransferThread::open(const MessageRoute &opened) {
  Route &route = opened.from == opened.to ? own[opened.channel] : routes.emplace_back();
  const int64_t pieces = std::max<int64_t>(1, (opened.bytes + maxMessageBytes - 1) / maxMessageBytes);
  route.ring = std::make_unique<MessageRing>(std::min(opened.bytes, maxMessageBytes),
                                             static_cast<int>(opened.buffers * pieces), route.closed);
  if (opened.from == opened.to) return;
  route.isOutgoing = opened.from == endpoint.rank();
  route.peer = static_cast<int>(route.isOutgoing ? opened.to : opened.from);
  route.channel = opened.channel;
  route.messages.resize(route.ring->buffers());
  (route.isOutgoing ? route.ring->onPublish : route.ring->onRelease) = [this] { endpoint.notify(); };
}

std::vector<int> TransferThread::peers() const {
  std::vector<int> all;
  for (const Route &route : routes) all.push_back(route.peer);
  return all;
}

void TransferThread::start() {
  if (!routes.empty() && !thread.joinable()) thread = std::thread([this] { run(); });
}

Result<Prepared> TransferThread::prepare(int peer, int channel, bool receives, std::byte *data, int64_t bytes) {
  if (auto route = own.find(channel); peer == endpoint.rank() && route != own.end())
    return prepareMessage(*route->second.ring, data, bytes, receives);
  for (Route &route : routes)
    if (route.peer == peer && route.channel == channel && route.isOutgoing != receives)
      return Prepared(std::make_unique<TransferCommand>(prepareMessage(*route.ring, data, bytes, receives),
                                                        route.failed, route.failure));
  return inputError(fmt::format("no route to rank {}", peer));
}

void TransferThread::fail(Route &route, const Status &why) {
  route.failure = why;
  route.failed.raise();
  route.closed.raise();
}

// Begins a message for each buffer that is full (outgoing) or free (incoming), and ends those that are done, in order.
bool TransferThread::move(Route &route) {
  if (route.failed.raised()) return false;
  bool any = false;
  for (; route.begun - route.ended < route.messages.size(); ++route.begun, any = true) {
    int64_t bytes = route.ring->bytesOfBuffer();
    std::byte *data = route.isOutgoing ? route.ring->tryTake(bytes, route.begun - route.ended)
                                       : route.ring->tryClaim(route.begun - route.ended);
    if (!data) break;
    Message &message = route.messages[route.begun % route.messages.size()];
    message = {.peer = route.peer, .tag = static_cast<uint32_t>(route.channel), .data = data, .bytes = bytes};
    route.isOutgoing ? endpoint.isend(message) : endpoint.irecv(message);
  }
  for (; route.ended < route.begun; ++route.ended, any = true) {
    Message &message = route.messages[route.ended % route.messages.size()];
    if (!message.isDone) break;
    if (!message.failure) {
      fail(route, message.failure);
      return true;
    }
    route.isOutgoing ? route.ring->release() : route.ring->publish(message.arrived);
  }
  return any;
}

void TransferThread::run() {
  auto isDelivered = [](const Route &route) {
    return !route.isOutgoing || route.failed.raised() || (route.ring->empty() && route.begun == route.ended);
  };
  std::chrono::steady_clock::time_point deadline{};
  for (int64_t idle = 0; !aborted.raised();) {
    bool moved = endpoint.progress();
    for (Route &route : routes) moved |= move(route);
    idle = moved ? 0 : idle + 1;
    if (stopping) {
      auto now = std::chrono::steady_clock::now();
      if (deadline == std::chrono::steady_clock::time_point{}) deadline = now + deliveryTime;
      if (std::ranges::all_of(routes, isDelivered) || now > deadline) break;
    }
    if (!moved) endpoint.wait(idle);
  }
  for (Route &route : routes)
    for (Message &message : route.messages)
      if (message.data && !message.isDone) endpoint.cancel(message);
}

void TransferThread::close() {
  aborted.raise();
  for (Route &route : routes) route.closed.raise();
  for (auto &[channel, route] : own) route.closed.raise();
  endpoint.notify();
}

TransferThread::~TransferThread() {
  stopping = true;
  endpoint.notify();
  if (thread.joinable()) thread.join();
}

int64_t TransferThread::allocatedBytes() const {
  int64_t bytes = 0;
  for (const Route &route : routes) bytes += route.ring->allocatedBytes();
  for (const auto &[channel, route] : own) bytes += route.ring->allocatedBytes();
  return bytes;
}

} // namespace cleave::runtime
