// Messages between processes, one rank each: what ProcessFabric builds collectives on. TCP here, MPI as a plugin.
//
//   transport->exchange(1, 7, sends, receives);     // lane 1, channel 7: all sends and receives, in any order of
//   arrival
//
// Pieces between a pair of ranks on one channel arrive in the order they are sent. A lane is used by one thread at a
// time; a channel belongs to one lane.
#pragma once
#include "runtime/comm/wait.h"
#include "runtime/status.h"
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

class Transport {
public:
  static constexpr int lanes = 3; // compute thread, communication thread, control
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns when all pieces are sent and received. Error: a peer is gone, or `abort` was raised.
  virtual Status exchange(int lane, int channel, std::span<const Piece> sends, std::span<const Piece> receives,
                          const AbortFlag &abort) = 0;
  // Ends the other processes as far as the transport can. Prints the message and does not return if that ends this one.
  virtual void abort(const std::string &message, int exitStatus) = 0;
};

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Error: variables missing, or not all processes arrive within two minutes.
Result<std::unique_ptr<Transport>> openTcpTransport();
// Loads libcleave_comm_mpi.so, which initializes MPI. Error: the plugin or MPI is not installed.
Result<std::unique_ptr<Transport>> openMpiTransport();

} // namespace cleave::runtime
