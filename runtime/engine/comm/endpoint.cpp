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

Status exchange(Endpoint &endpoint, std::span<Message> sends, std::span<Message> receives, const Deadline &deadline) {
  auto post = [](std::span<Message> messages, auto &&begin) {
    for (Message &message : messages) {
      message.isDone = false, message.arrived = 0, message.failure = {}, message.request = nullptr;
      begin(message);
    }
  };
  post(receives, [&](Message &message) { endpoint.irecv(message); });
  post(sends, [&](Message &message) { endpoint.isend(message); });
  auto isUnderWay = [](const Message &message) { return !message.isDone; };
  Status status;
  for (int64_t idle = 0;;) {
    const bool moved = endpoint.progress();
    if (moved || idle == 0) {
      status = failureOf(endpoint, receives, true);
      if (status) status = failureOf(endpoint, sends, false);
      if (!status || (std::ranges::none_of(receives, isUnderWay) && std::ranges::none_of(sends, isUnderWay))) break;
    }
    idle = moved ? 1 : idle + 1;
    if (moved) continue;
    if (deadline.isAborted()) status = runError("the run was aborted");
    if (status && deadline.isOver()) {
      std::set<int> silent;
      for (std::span<Message> messages : {sends, receives})
        for (const Message &message : messages)
          if (!message.isDone) silent.insert(message.peer);
      status =
          runError(fmt::format("rank {} does not answer for {}", fmt::join(silent, ", rank "), deadline.limit.text()));
    }
    if (!status) break;
    endpoint.wait(idle);
  }
  if (!status)
    for (std::span<Message> messages : {sends, receives})
      for (Message &message : messages)
        if (!message.isDone) endpoint.cancel(message);
  return status;
}

} // namespace cleave::runtime
