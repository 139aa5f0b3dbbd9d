// Carries the messages of pipeline stages between processes: a thread that takes what sends have put into outgoing
// rings to the transport, and puts what arrives into incoming rings, while the rank's other threads compute.
//
//   Courier courier(transport);
//   courier.open({.from = 0, .to = 1, .channel = 0, .bytes = 4096, .buffers = 2}, 0);   // rank 0: an outgoing route
//   courier.start();
//   Prepared send = courier.prepare(1, 0, false, data, 4096);
#pragma once
#include "runtime/comm/message_ring.h"
#include "runtime/comm/transport.h"
#include "runtime/plan/message_routes.h"
#include <deque>
#include <map>
#include <thread>

namespace cleave::runtime {

class Courier {
public:
  explicit Courier(Transport &transport) : transport(transport) {}
  // Delivers what was sent (for at most ten seconds, and not after `close`), then ends.
  ~Courier();
  void open(const MessageRoute &route, int self);
  void start(); // after the last open
  // The command that sends to, or receives from, the peer (or this rank itself). Error of its run: why the route is
  // closed.
  Result<Prepared> prepare(int peer, int channel, bool receives, std::byte *data, int64_t bytes);
  void close(); // the run is over: waiting commands return
  int64_t allocatedBytes() const;

private:
  struct Line {
    std::unique_ptr<MessageRing> ring;
    AbortFlag closed, failed; // failed: and `failure` says why; written before
    Status failure;
  };
  void run();

  Transport &transport;
  std::deque<Line> lines; // one a route, in the same order
  std::vector<MailRoute> routes;
  std::map<int, Line> own; // by channel: what this rank sends itself; no transport carries it
  AbortFlag aborted;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

} // namespace cleave::runtime
