// Watches the ranks of a run from a thread of its own. Each process tells how it is several times a timeout, along the
// control plane's tree up to rank 0. Who sees why the run ends tells all: a rank is gone, does not answer (stopped, its
// host is off), makes no progress while others wait for it, or has failed. Where all ranks are in one process, it sees
// one that makes no progress.
//
//   Watch watch(fabric.healthLink(), {.timeoutSeconds = 600, ...});
//   watch.announce("rank 2, step 5, ...");             // this process ends the run, and says why
//   std::string why = watch.awaitCause();              // why another one did
#pragma once
#include "runtime/base/threads/wait.h"
#include "runtime/engine/comm/health_link.h"
#include "runtime/engine/health/liveness.h"
#include "runtime/engine/health/stragglers.h"
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cleave::runtime {

struct WatchOptions {
  double timeoutSeconds = 600;
  std::vector<int> groups = {}; // by rank of the run: which have the same program
  const AbortFlag *aborted = nullptr;
  // The reports of this process' ranks as they are now, in the order of `local`.
  std::function<std::vector<RankReport>()> reports = {};
  std::vector<int> local = {};
  // The run ends while a rank of this process is in a routine, and why. On the watch's thread.
  std::function<void(const std::string &)> onEnd = {};
  // The same, ten seconds after it if a rank's thread has not come back. Null: nobody.
  std::function<void(const std::string &)> onStuck = {};
  std::function<void(const std::string &)> tell = {}; // of stragglers, on rank 0; null: nobody
};

class Watch {
public:
  // `line`: to the other processes; null: there are none.
  Watch(HealthLink *line, WatchOptions options);
  // Leaves the others; rank 0 when none of them runs a routine any more.
  ~Watch();
  void announce(const std::string &why);
  // Why the run ends, as another process tells within five seconds; empty: none does.
  std::string awaitCause();

private:
  using Clock = std::chrono::steady_clock;
  void run();
  void turn(std::unique_lock<std::mutex> &guard, double awake);
  void tellOwn();
  void receiveAll();
  void take(int peer, const HealthMessage &word);
  void checkEnds();
  void learn(const std::string &why, int from);
  void post(int peer, const HealthMessage &word);
  void flush();
  void sendAll(const HealthMessage &word, int but = -1);
  void takeLeave(int peer, int rank);
  bool haveChildrenLeft() const;
  void tellStragglers();
  bool mayLeave();
  void tellIfStuck(double awake);

  HealthLink *const line;
  const std::vector<int> neighbours;             // on the tree
  std::vector<std::deque<HealthMessage>> queues; // of words that a neighbour has not taken yet; by neighbour
  const WatchOptions options;
  const std::chrono::milliseconds period;
  std::mutex lock; // over all below
  Liveness liveness;
  Stragglers stragglers;
  std::vector<RankReport> own;
  std::vector<double> toldAgo; // seconds since a straggler was told, by rank
  std::string why;
  std::condition_variable known, stop;
  bool stopping = false;
  double endingFor = 0; // seconds since the run was ended, with a rank of this process still busy
  std::thread thread;
};

} // namespace cleave::runtime
