// Which processes of a run are left when it starts again after one was lost: their new ranks and where they meet.
//
//   Result<Launch> left = agreeOnMembers(launch, network, {"10.0.0.1", "10.0.0.2", ...}, 3);
//   left->size, left->rank, left->host, left->port        // of 4, rank 1 is lost: 0, 2, 3 become 0, 1, 2
//
// All go to the first rank, or, where nobody answers there, to the next. It takes down who comes, waits for so many
// seconds after the last one, and tells the others. Half of the processes, with the first rank, or more go on:
// else two parts of a torn network would both do so.
#pragma once
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/comm/network.h"
#include <string>
#include <vector>

namespace cleave::runtime::tcp {

// `hosts`: by rank, as the last attempt knew them. They meet at the port after the launch's. Error: too few are left.
Result<Launch> agreeOnMembers(const Launch &launch, const Network &network, const std::vector<std::string> &hosts,
                              double seconds);

} // namespace cleave::runtime::tcp
