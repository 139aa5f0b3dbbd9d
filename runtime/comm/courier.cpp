#include "runtime/comm/courier.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// Longer messages travel in several: a message of MPI counts its bytes in an int.
constexpr int64_t longestMessage = int64_t(1) << 30;
constexpr auto deliveryTime = std::chrono::seconds(10);

// Gives the reason of a closed route.
class MailCommand final : public PreparedCommand {
public:
  MailCommand(Prepared command, const AbortFlag &failed, const Status &failure)
      : command(std::move(command)), failed(failed), failure(failure) {}
  Status run() override {
    Status status = command->run();
    return !status && failed.raised() ? failure : status;
  }
  int64_t sentBytes() const override { return command->sentBytes(); }

private:
  Prepared command;
  const AbortFlag &failed;
  const Status &failure;
};

} // namespace

void Courier::open(const MessageRoute &route, int self) {
  Line &line = route.from == route.to ? own[route.channel] : lines.emplace_back();
  int64_t pieces = std::max<int64_t>(1, (route.bytes + longestMessage - 1) / longestMessage);
  line.ring = std::make_unique<MessageRing>(std::min(route.bytes, longestMessage),
                                            static_cast<int>(route.buffers * pieces), line.closed);
  if (route.from == route.to) return;
  bool outgoing = route.from == self;
  (outgoing ? line.ring->onPublish : line.ring->onRelease) = [this] { transport.notify(); };
  MailRoute &mail = routes.emplace_back();
  mail.peer = static_cast<int>(outgoing ? route.to : route.from);
  mail.channel = route.channel;
  mail.outgoing = outgoing;
  mail.ring = line.ring.get();
}

void Courier::start() {
  if (!routes.empty()) thread = std::thread([this] { run(); });
}

Result<Prepared> Courier::prepare(int peer, int channel, bool receives, std::byte *data, int64_t bytes) {
  if (auto line = own.find(channel); peer == transport.rank() && line != own.end())
    return prepareMessage(*line->second.ring, data, bytes, receives);
  for (size_t i = 0; i < routes.size(); ++i)
    if (routes[i].peer == peer && routes[i].channel == channel && routes[i].outgoing != receives)
      return Prepared(std::make_unique<MailCommand>(prepareMessage(*lines[i].ring, data, bytes, receives),
                                                    lines[i].failed, lines[i].failure));
  return inputError(fmt::format("no route to rank {}", peer));
}

void Courier::run() {
  auto delivered = [&] {
    return std::all_of(routes.begin(), routes.end(),
                       [](const MailRoute &route) { return !route.outgoing || !route.failure || route.ring->empty(); });
  };
  std::chrono::steady_clock::time_point deadline{};
  for (int64_t idle = 0; !aborted.raised();) {
    bool moved = transport.carry(routes);
    for (size_t i = 0; i < routes.size(); ++i)
      if (!routes[i].failure && !lines[i].failed.raised()) {
        lines[i].failure = routes[i].failure;
        lines[i].failed.raise();
        lines[i].closed.raise();
      }
    idle = moved ? 0 : idle + 1;
    if (stopping) {
      auto now = std::chrono::steady_clock::now();
      if (deadline == std::chrono::steady_clock::time_point{}) deadline = now + deliveryTime;
      if (delivered() || now > deadline) break;
    }
    if (!moved) transport.rest(routes, idle);
  }
  transport.endMail(routes);
}

void Courier::close() {
  aborted.raise();
  for (Line &line : lines) line.closed.raise();
  for (auto &[channel, line] : own) line.closed.raise();
  transport.notify();
}

Courier::~Courier() {
  stopping = true;
  transport.notify();
  if (thread.joinable()) thread.join();
}

int64_t Courier::allocatedBytes() const {
  int64_t bytes = 0;
  for (const Line &line : lines) bytes += line.ring->allocatedBytes();
  for (const auto &[channel, line] : own) bytes += line.ring->allocatedBytes();
  return bytes;
}

} // namespace cleave::runtime
