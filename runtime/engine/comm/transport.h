// What connects the processes of a run, one rank each: TCP and shared memory here, MPI as a plugin.
//
//   transport->need(Transport::computeLane, 3);       // while commands are prepared
//   transport->connect(limits.preparation);           // all ranks: those that need each other are connected
//   transport->endpoint(Transport::computeLane);
//
// When processes have met, only neighbours on the control plane's tree are connected.
#pragma once
#include "runtime/base/status.h"
#include "runtime/engine/comm/control_plane.h"
#include "runtime/engine/comm/endpoint.h"
#include "runtime/engine/comm/health_link.h"
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/comm/network.h"
#include <memory>
#include <string>
#include <vector>

namespace cleave::runtime {

class Transport {
public:
  // The compute thread's and the communication thread's are as those of plan/routine.h; transfers between stages;
  // what processes exchange beside their steps; control planes; and the words of the watch.
  enum Lane { computeLane, communicationLane, transferLane, exchangeLane, controlLane, secondControlLane, healthLane };
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Used by one thread at a time. Its abort flag is the caller's.
  virtual Endpoint &endpoint(Lane lane) = 0;
  virtual ControlPlane &control() = 0;
  // This rank's messages of the lane go to the peer, and the peer's to it.
  virtual void need(Lane lane, int peer) = 0;
  // All ranks: connects those that need each other. Error: a rank cannot be reached within the limit.
  virtual Status connect(TimeLimit limit) = 0;
  // Ends the other processes as far as the transport can. Prints the message and does not return if that ends this one.
  virtual void abort(const std::string &message, int exitStatus) = 0;
  // Where the ranks are, as others reach them; empty: MPI knows.
  virtual std::vector<std::string> hosts() const { return {}; }
  // Lasts as long as the transport.
  virtual HealthLink &healthLink() = 0;
  // A rank whose connection has ended, without waiting; -1: none, or the transport ends this process by itself then.
  virtual int lostPeer() { return -1; }
};

// `plan`: what the plans of all processes have in common (planFingerprint). Error: rank 0 cannot be reached, not all
// processes arrive in time, or they do not belong together (tcp/rendezvous.h).
Result<std::unique_ptr<Transport>> openTcpTransport(const Launch &launch, const Network &network,
                                                    const std::string &plan, const AbortFlag &abort);
// Loads libcleave_comm_mpi.so, which initializes MPI. Error: the plugin or MPI is not installed.
Result<std::unique_ptr<Transport>> openMpiTransport(const AbortFlag &abort);
// The name and version that MPI gives itself, "Open MPI v4.1.4"; does not initialize it. Error: the same.
Result<std::string> mpiVersion();

} // namespace cleave::runtime
