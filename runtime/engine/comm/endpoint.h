// Messages between the ranks of a run, seen from one lane of one rank: what collectives, transfers and the control
// plane are built on. Streams of bytes (stream_endpoint.h) or MPI (mpi_transport.cpp) carry them.
//
//   Message to{.peer = 1, .tag = 7, .data = a, .bytes = 4096}, from{.peer = 1, .tag = 7, .data = b, .bytes = 4096};
//   endpoint.isend(to), endpoint.irecv(from);
//   for (int64_t idle = 0; !to.isDone || !from.isDone;)
//     if (endpoint.progress()) idle = 0;
//     else endpoint.wait(++idle);
//
// Messages of one tag between a pair of ranks arrive in the order in which they are sent. On an ordered lane both ends
// name their messages in the same order, and a message that is not the expected one is an error that names both. On an
// announced lane a message travels once the receiver has asked for it, so that a tag that nobody takes holds up no
// other. Only transfers between stages go on an announced lane. An endpoint is used by one thread at a
// time.
#pragma once
#include "runtime/base/status.h"
#include "runtime/base/threads/wait.h"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace cleave::runtime {

// The endpoint keeps its address until it is done or cancelled.
struct Message {
  int peer = 0;
  uint32_t tag = 0;
  std::byte *data = nullptr; // a sent message is only read
  int64_t bytes = 0;         // sent or expected; on an announced lane at most so many are received
  // The endpoint's own:
  bool isDone = false;
  int64_t arrived = 0; // bytes of a received message
  Status failure = {}; // once it is done
  void *request = nullptr;
};

constexpr int64_t maxMessageBytes = int64_t(1) << 30; // longer ones travel in several: MPI counts bytes in an int

class Endpoint {
public:
  virtual ~Endpoint() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void isend(Message &message) = 0;
  virtual void irecv(Message &message) = 0;
  // Moves messages as far as they go now, without waiting. True: something moved.
  virtual bool progress() = 0;
  // Sleeps until something may move or `notify` was called; at most 50 ms. `idle`: how many times in a row nothing
  // moved.
  virtual void wait(int64_t idle) = 0;
  // Ends a wait; from any thread.
  virtual void notify() {}
  // Forgets a message that is not done. One that is half-way takes the connection to its peer with it.
  virtual void cancel(Message &message) = 0;
  // A tag as messages name it; set before the first message.
  std::function<std::string(uint32_t tag)> nameOf = [](uint32_t tag) { return "tag " + std::to_string(tag); };
};

// Hands over messages, for `finish` to wait for.
void begin(Endpoint &endpoint, std::span<Message> sends, std::span<Message> receives);
// Returns when all of these, which were begun, are sent and received. Error: a peer is gone or sends something else, the
// run was aborted, or not all is done when `deadline` is over; the message names the peers.
Status finish(Endpoint &endpoint, std::span<const Message> sends, std::span<const Message> receives,
              const Deadline &deadline);
// Forgets those that are not done.
void cancel(Endpoint &endpoint, std::span<Message> messages);
// Begins and finishes; cancels after an error.
Status exchange(Endpoint &endpoint, std::span<Message> sends, std::span<Message> receives, const Deadline &deadline);

} // namespace cleave::runtime
