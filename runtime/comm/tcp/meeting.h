// Brings the processes of a run together: rank 0 listens at the launch's host and port, the others greet it and learn
// from it where all listen; of every pair of ranks and lane, the higher rank connects, and both prove that they belong
// to the run (greeting.h).
//
//   Result<Sockets> sockets = meet(launch, network, planFingerprint(plan));
//   (*sockets)[lane][peer]      // non-blocking; -1 where a lane has none between the two
//
// Who listens does so at one address only, and strangers neither stop nor delay the others (reception.h). When all have
// met nobody listens any more.
#pragma once
#include "runtime/comm/launch.h"
#include "runtime/comm/network.h"
#include <string>
#include <vector>

namespace cleave::runtime::tcp {

using Sockets = std::vector<std::vector<int>>; // by lane and peer; the caller closes them

// Says on standard error, after five seconds and then every half minute, who is missing. Error: an address beyond this
// host without a secret, other secrets or plans; or who has not come within network.meetingSeconds, and why.
Result<Sockets> meet(const Launch &launch, const Network &network, const std::string &plan);

} // namespace cleave::runtime::tcp
