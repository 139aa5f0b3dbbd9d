// Brings the processes of a run together, and connects those that need each other.
//
//   Rendezvous rendezvous(launch, network, planFingerprint(plan));
//   rendezvous.meet();                        // all go to rank 0, which tells each its parent on the tree
//   rendezvous.take({lane, parent});          // a socket, non-blocking, the caller's from here on
//   rendezvous.connect(pairs, ...);           // later: of a pair, the higher rank goes to the lower
//
// Both sides of each connection prove that they belong to the run (handshake.h). Who listens does so at one address,
// only while ranks connect, and until all have confirmed that they are done; connections that prove nothing neither
// stop nor delay the others (acceptor.h).
#pragma once
#include "runtime/engine/comm/control_plane.h"
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/comm/network.h"
#include "runtime/engine/comm/stream_endpoint.h"
#include "runtime/engine/comm/tcp/acceptor.h"
#include <map>
#include <set>
#include <string>
#include <vector>

namespace cleave::runtime::tcp {

class Rendezvous {
public:
  using Pair = std::pair<int, int>; // lane and peer

  Rendezvous(const Launch &launch, const Network &network, const std::string &plan);
  ~Rendezvous();
  int rank() const { return self.rank; }
  int size() const { return self.size; }
  bool hasRun() const { return self.run.has_value(); } // rank 0 has told it
  uint32_t run() const;                                // then: the same on all ranks, random
  // Sockets to the neighbours on the tree, on the control and the watch lane. Says on standard error, after five
  // seconds and then every half minute, who is missing. Error: an address beyond this host without a secret, other
  // secrets or plans; or who has not come within network.meetingSeconds, and why.
  Status meet();
  // Ends the meeting when all ranks have their neighbours.
  Status confirm(StreamEndpoint &tree, ControlPlane &control);
  // All ranks: sockets for these pairs, which both ends name.
  Status connect(const std::vector<Pair> &pairs, StreamEndpoint &tree, ControlPlane &control, TimeLimit limit);
  int take(Pair pair);                    // -1: there is none
  std::vector<std::string> hosts() const; // by rank
  bool isBeside(int peer) const;          // may share memory with this process

private:
  struct Place;
  Status findHosts();
  Status checkAllowed(const Address &address) const;
  Status listenAsFirst();
  Result<uint16_t> listenBeside(int socket);
  Status listenAgain();
  void place(const Met &met);
  bool isTaken(int lane, int peer) const;
  Status registerAll();
  Status registerAtFirst();
  Status linkTree();
  Status serveAll();
  Status gatherPlaces(ControlPlane &control, int64_t needed, TimeLimit limit, int64_t &allNeeded);
  Status transfer(int socket, void *data, size_t bytes, bool send, int peer);
  Status sendRoll();
  void tellFailure(const Status &why);
  Status receiveRoll();
  std::vector<int> missing() const;
  std::string whoIsMissing() const;
  Status tooLate() const;
  void noteWhenDue();
  void setDeadline(TimeLimit given);
  int socketOf(Pair pair) const;

  const Launch launch;
  const Network &network;
  Self self;
  Acceptor acceptor;
  std::chrono::steady_clock::time_point noteDue, deadline;
  TimeLimit limit{}; // until the deadline, from its beginning
  std::set<Pair> wanted;
  std::map<Pair, int> sockets;
  std::vector<Address> firstHosts; // of rank 0's name
  std::vector<Address> addresses;  // where each rank listens; before all are known, those that this rank needs
  std::vector<uint64_t> domains;   // sharingDomain() of each rank
  Address own{};                   // where this rank listens, or did
  bool isRegistering = true;
  std::string unresolved;
};

} // namespace cleave::runtime::tcp
