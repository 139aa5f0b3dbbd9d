// What ranks say to each other before they go on together.
//
//     Ranks ranks{fabric, 4, 600};
//     Result<std::string> text = ranks.fromRank0("what rank 0 has chosen");
//     Status s = ranks.agreeOn({{"--steps", "100"}});      // "rank 1: --steps is '40', and '100' on rank 0: ..."
//     s = ranks.outcome(readSomething());                  // of all: the error of a rank, where one failed
#pragma once
#include "runtime/comm/communicator.h"
#include <string>
#include <utility>
#include <vector>

namespace cleave::runtime {

using RunRecord = std::vector<std::pair<std::string, std::string>>; // what it is, and its value; in one order

// Errors of all of these: a rank failed, or does not come within `seconds`.
struct Ranks {
  Fabric &fabric;
  int64_t processes;
  double seconds;

  // Rank 0's text, on all ranks; others' is not looked at.
  Result<std::string> fromRank0(std::string text) const;
  // Ok where it is on all ranks; else on all of them what one says that failed, and its status.
  Status outcome(const Status &mine) const;
  // What all ranks need the same of. Error, on all of them: the rank and the value that differs from rank 0's.
  Status agreeOn(const RunRecord &mine) const;
};

} // namespace cleave::runtime
