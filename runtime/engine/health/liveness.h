// Who of a run's ranks keeps the others waiting: judged from what each says of itself, now and then.
//
//   Liveness liveness(4, 3.0, true);
//   liveness.heard(2, {.state = RankReport::Waiting, .progress = 812, .host = "b", .where = "step 9, ..."});
//   liveness.pass(0.1);                                   // seconds in which this process was awake
//   if (std::optional<std::string> cause = liveness.judge()) ...
//       // "rank 2 does not answer for 2.8 s (host b, last heard of in step 9, ...; --step-timeout)"
//
// Time counts while somebody runs a routine, and only what this process was awake: a job that was suspended as a whole
// has lost nobody.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave::runtime {

// A rank's report of itself.
struct RankReport {
  // Before its first routine; between routines; in one, where it waits for others, or does not.
  enum State : int32_t { Starting, Outside, Waiting, Busy };
  State state = Starting;
  int64_t progress = 0; // grows with every command, and within exchanges
  int64_t window = 0;   // see stragglers.h
  double ownSeconds = 0;
  std::string host = {}, where = {}; // "step 9, command 'x' (all_reduce)"; empty: nowhere yet
};

class Liveness {
public:
  // `seesAll`: it is told of all ranks, and not only of those that have not left.
  Liveness(int ranks, double timeoutSeconds, bool seesAll)
      : known(static_cast<size_t>(ranks)), timeout(timeoutSeconds), seesAll(seesAll) {}
  void heard(int rank, const RankReport &report);
  // It has said that it leaves, or will not be asked: nobody waits for its words any more.
  void left(int rank) { known[static_cast<size_t>(rank)].hasLeft = true; }
  bool hasLeft(int rank) const { return known[static_cast<size_t>(rank)].hasLeft; }
  void pass(double seconds);
  // Why the run cannot go on; none: it can.
  std::optional<std::string> judge() const;
  // Whether a rank that is heard of runs a routine.
  bool isRunning() const;
  // "host b, last heard of in step 9, ...".
  std::string lastOf(int rank) const;
  const std::string &hostOf(int rank) const { return known[static_cast<size_t>(rank)].report.host; }

private:
  struct Known {
    RankReport report;
    bool isHeard = false, hasLeft = false;
    double silent = 0; // seconds
  };
  std::string stuck() const;
  bool isHidden(int rank) const;
  bool isFresh(const Known &rank) const { return rank.silent < timeout / 4; }

  std::vector<Known> known;
  const double timeout;
  const bool seesAll;
  double unmoved = 0; // seconds in which no rank came further
};

} // namespace cleave::runtime
