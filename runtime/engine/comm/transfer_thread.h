// Moves the messages of pipeline stages between processes, while the rank's other threads compute: takes what sends
// have put into outgoing rings to the peers, and puts what arrives into incoming rings.
//
//   TransferThread transfers(endpoint, 0);
//   transfers.open({.from = 0, .to = 1, .channel = 0, .bytes = 4096, .buffers = 2});   // rank 0: an outgoing route
//   transfers.start();
//   Prepared send = transfers.prepare(1, 0, false, data, 4096);
#pragma once
#include "runtime/engine/comm/endpoint.h"
#include "runtime/engine/comm/message_ring.h"
#include "runtime/plan/message_routes.h"
#include <deque>
#include <map>
#include <thread>

namespace cleave::runtime {

class TransferThread {
public:
  // The endpoint's lane is announced: a receiver asks for as many messages as it has buffers.
  explicit TransferThread(Endpoint &endpoint) : endpoint(endpoint) {}
  // Delivers what was sent (for at most ten seconds, and not after `close`), then ends.
  ~TransferThread();
  void open(const MessageRoute &route);
  std::vector<int> peers() const; // of the routes
  void start();                   // after the last open, when the peers are connected
  // The command that sends to, or receives from, the peer (or this rank itself). Error of its run: why the route is
  // closed.
  Result<Prepared> prepare(int peer, int channel, bool receives, std::byte *data, int64_t bytes);
  void close(); // the run is over: waiting commands return
  int64_t allocatedBytes() const;

private:
  struct Route {
    int peer = 0, channel = 0;
    bool isOutgoing = false;
    std::unique_ptr<MessageRing> ring;
    std::vector<Message> messages; // one per buffer, used in turn
    size_t begun = 0, ended = 0;   // messages
    AbortFlag closed, failed;      // failed: and `failure` says why; written before
    Status failure;
  };
  void run();
  bool move(Route &route);
  void fail(Route &route, const Status &why);

  Endpoint &endpoint;
  std::deque<Route> routes;
  std::map<int, Route> own; // by channel: what this rank sends itself; no endpoint carries it
  AbortFlag aborted;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

} // namespace cleave::runtime
