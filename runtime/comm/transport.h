// Messages between processes, one rank each: what ProcessFabric builds collectives on. TCP here, MPI as a plugin.
//
//   transport->exchange(1, 7, sends, receives);     // lane 1, channel 7: all sends and receives, in any order of
//   arrival
//
// Messages between pipeline stages travel while both sides do other things: a courier thread (courier.h) calls `carry`.
//
// Pieces between a pair of ranks on one channel arrive in the order they are sent. A lane is used by one thread at a
// time; a channel belongs to one lane.
#pragma once
#include "runtime/comm/launch.h"
#include "runtime/comm/message_ring.h"
#include "runtime/comm/network.h"
#include "runtime/comm/watch_line.h"
#include "runtime/status.h"
#include "runtime/threads/wait.h"
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace cleave::runtime {

struct Piece {
  int peer = 0;
  std::byte *data = nullptr; // a sent piece is only read
  int64_t bytes = 0;
};

// One direction of messages of a channel between this rank and a peer, and how far its current message is.
struct MailRoute {
  int peer = 0, channel = 0;
  bool outgoing = false;
  MessageRing *ring = nullptr;
  Status failure; // why nothing goes over it any more
  // The transport's own:
  std::byte *data = nullptr; // of the message that is moving; null: none is
  int64_t bytes = 0, done = 0;
  uint32_t granted = 0; // messages that the sender of the route has been told it may send, in all
  uint32_t used = 0;    // of these, sent
  void *request = nullptr;
};

class Transport {
public:
  // Compute thread, communication thread, control, mail, and the watch line (watch_line.h).
  static constexpr int lanes = 5;
  static constexpr int controlLane = 2, mailLane = 3, watchLane = 4;
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns when all pieces are sent and received. Error: a peer is gone, the run was aborted, or peers do not answer
  // for as long as `patience` lasts.
  virtual Status exchange(int lane, int channel, std::span<const Piece> sends, std::span<const Piece> receives,
                          const Patience &patience) = 0;
  // Moves the messages of the routes as far as they go now, without waiting. True: something moved. Always the same
  // routes, on one thread.
  virtual bool carry(std::span<MailRoute> routes) = 0;
  // Sleeps until there may be something to carry or `notify` was called; at most 50 ms. `idle`: how many times in a row
  // nothing moved.
  virtual void rest(std::span<const MailRoute> routes, int64_t idle) = 0;
  virtual void notify() = 0;
  // The routes are not used any more: gives up what was still expected.
  virtual void endMail(std::span<MailRoute>) {}
  // Ends the other processes as far as the transport can. Prints the message and does not return if that ends this one.
  virtual void abort(const std::string &message, int exitStatus) = 0;
  // Where the ranks are, as others reach them; empty: MPI knows.
  virtual std::vector<std::string> hosts() const { return {}; }
  // Lasts as long as the transport.
  virtual WatchLine &watchLine() = 0;
  // A rank whose connection has ended, without waiting; -1: none, or the transport ends this process by itself then.
  virtual int lostPeer() { return -1; }
};

// `plan`: what the plans of all processes have in common (planFingerprint). Error: rank 0 cannot be reached, not all
// processes arrive in time, or they do not belong together (tcp/meeting.h).
Result<std::unique_ptr<Transport>> openTcpTransport(const Launch &launch, const Network &network,
                                                    const std::string &plan);
// Loads libcleave_comm_mpi.so, which initializes MPI. Error: the plugin or MPI is not installed.
Result<std::unique_ptr<Transport>> openMpiTransport();
// The name and version that MPI gives itself, "Open MPI v4.1.4"; does not initialize it. Error: the same.
Result<std::string> mpiVersion();

} // namespace cleave::runtime
