#include "runtime/engine/comm/endpoint.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::runtime {
namespace {

Status failureOf(const Endpoint &endpoint, std::span<const Message> messages, bool isReceived) {
  for (const Message &message : messages) {
    if (!message.isDone) continue;
    if (!message.failure) return message.failure;
    if (isReceived && message.arrived != message.bytes)
      return runError(fmt::format("rank {} sent {} bytes for {}, where {} are expected", message.peer, message.arrived,
                                  endpoint.nameOf(message.tag), message.bytes));
  }
  return Status::ok();
}

} // namespace

void begin(Endpoint &endpoint, std::span<Message> sends, std::span<Message> receives) {
  auto post = [](std::span<Message> messages, auto &&begin) {
    for (Message &message : messages) {
      message.isDone = false, message.arrived = 0, message.failure = {}, message.request = nullptr;
      begin(message);
    }
  };
  post(receives, [&](Message &message) { endpoint.irecv(message); });
  post(sends, [&](Message &message) { endpoint.isend(message); });
}

Status finish(Endpoint &endpoint, std::span<const Message> sends, std::span<const Message> receives,
              const Deadline &deadline) {
  auto isUnderWay = [](const Message &message) { return !message.isDone; };
  for (int64_t idle = 0;;) {
    const bool moved = endpoint.progress();
    if (moved || idle == 0) {
      CLEAVE_RETURN_IF_ERROR(failureOf(endpoint, receives, true));
      CLEAVE_RETURN_IF_ERROR(failureOf(endpoint, sends, false));
      if (std::ranges::none_of(receives, isUnderWay) && std::ranges::none_of(sends, isUnderWay)) return Status::ok();
    }
    idle = moved ? 1 : idle + 1;
    if (moved) continue;
    if (deadline.isAborted()) return runError("the run was aborted");
    if (deadline.isOver()) {
      std::set<int> silent;
      for (std::span<const Message> messages : {sends, receives})
        for (const Message &message : messages)
          if (!message.isDone) silent.insert(message.peer);
      return runError(
          fmt::format("rank {} does not answer for {}", fmt::join(silent, ", rank "), deadline.limit.text()));
    }
    endpoint.wait(idle);
  }
}

void cancel(Endpoint &endpoint, std::span<Message> messages) {
  for (Message &message : messages)
    if (!message.isDone) endpoint.cancel(message);
}

Status exchange(Endpoint &endpoint, std::span<Message> sends, std::span<Message> receives, const Deadline &deadline) {
  begin(endpoint, sends, receives);
  Status status = finish(endpoint, sends, receives, deadline);
  if (!status) cancel(endpoint, sends), cancel(endpoint, receives);
  return status;
}

} // namespace cleave::runtime
