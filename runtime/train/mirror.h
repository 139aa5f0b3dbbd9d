// The state of a training in the memory of two processes, so that a run goes on without a disk when one is lost.
//
//   Mirror mirror(plan, executor, Mirror::folderOf(launch), 600);
//   Status s = mirror.save(step, sampler, best);     // every process, after the same step: copies, and passes them on
//   Result<std::string> found = mirror.recover();    // in a later attempt, perhaps on fewer processes
//   Snapshot::open(*found);                          // empty: nothing whole is left
//
// Each process writes the boxes that a snapshot has of it as a snapshot's file into its folder of /dev/shm, which
// outlives it. Its neighbour, on another host if there is one, has the same file: from its own memory where it holds
// equal copies, else by message. The two newest steps stay, since a process may be lost while others keep one.
#pragma once
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/train/state/snapshot.h"
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cleave::runtime {

class Mirror {
public:
  // `folder`: this process'. `limit`: after which a silent process is given up.
  Mirror(const plan::Plan &plan, Executor &executor, std::string folder, TimeLimit limit);

  // This process' folder of a run, the same in all its attempts: of the place where the ranks meet, and the number that
  // the launcher gave this one.
  static std::string folderOf(const Launch &launch);
  // Makes it, for nobody else. Error: another user made the folder of the run, or could write in it.
  static Status claim(const std::string &folder);
  static void remove(const std::string &folder);
  // Removes the folders of all its processes on this host, those that were lost, too.
  static void removeRun(const std::string &folder);
  // Where the processes are, for the next attempt; of the first attempt, whose ranks are the launcher's.
  static Status noteHosts(const std::string &folder, const std::vector<std::string> &hosts);
  static std::vector<std::string> notedHosts(const std::string &folder);

  // Of which training states are kept, and collected: SnapshotManifest::run. Empty: of any.
  void setRun(const std::string &of) { run = of; }
  // Why this process cannot keep its part, such as no room: then none keeps the step. Error: a process does not answer.
  Result<std::string> save(int64_t step, const SamplerState &sampler, const BestScore &best);
  // Brings the files of the newest step that the processes have together into this one's folder, those that it needs
  // and lacks, and gives it: a snapshot. Empty: there is none. Error: a process does not answer, no room.
  Result<std::string> recover();

private:
  std::string stepFolder(int64_t step, bool isPartial) const;
  std::vector<int64_t> stepsHere() const; // the oldest first
  bool holdsAllOf(int64_t holder, int64_t owner) const;
  Status writeFile(const std::string &into, int64_t owner) const;
  Status writeOwn(const std::string &partial) const;
  Status replicate(const std::string &partial, Status &kept) const;
  nlohmann::json inventory() const;
  Result<std::vector<nlohmann::json>> inventories() const;
  bool needs(const nlohmann::json &boxes) const;
  Status fetch(const std::string &where, const std::map<int, nlohmann::json> &requests);

  const plan::Plan &source;
  Executor &engine;
  const SnapshotManifest ofPlan; // all that is the same at every step: its fingerprint is a hash of the whole plan
  const std::string folder;
  std::string run;
  const TimeLimit limit;
  const int self, processes;
  int distance = 1; // to the neighbour that keeps this process' file
};

} // namespace cleave::runtime
