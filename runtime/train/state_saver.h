// Snapshots while a training goes on: the state is copied where a step ends, and a thread writes the copy beside the
// next steps. Where the host's memory has no room for a copy, the step waits until it is written.
//
//   StateSaver saver(plan, executor, {.folder = "snapshots", .limit = limits.step});
//   Status s = saver.prepare(false, false);              // the first process, before the first step
//   s = saver.begin("5f0c...");                          // every process
//   s = saver.save({.step = 100, .sampler = state});     // every process, after the same step
//   s = saver.finish();                                  // the last snapshot is whole, or why it is not
#pragma once
#include "runtime/engine/device/cpu/arena.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/train/state/folder_lock.h"
#include "runtime/train/state/snapshot.h"
#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <string>

namespace cleave::runtime {

struct SaveOptions {
  std::string folder;
  bool isOwn = false; // each process has a folder of its own, and writes its part there
  KeptSnapshots keep;
  TimeLimit limit = TimeLimits().step;                     // a rank that does not come to where all meet is given up
  std::function<void(const std::string &)> onWarning = {}; // on any process, also on the thread that writes
};

class StateSaver {
public:
  StateSaver(const plan::Plan &plan, Executor &executor, SaveOptions options);
  ~StateSaver(); // waits for the thread

  // Whether this process looks after the folder: the first one does, or each after its own.
  bool keepsFolder() const { return options.isOwn || isFirst(); }
  // Called where the folder is looked after: locks it, and sees that it can take the run's snapshots
  // (prepareSnapshotFolder).
  Status prepare(bool goesOn, bool overwrite);
  // All processes: opens the control plane of the thread that writes. `run`: SnapshotManifest::run.
  Status begin(const std::string &run);
  struct State {
    int64_t step = 0; // steps done
    SamplerState sampler;
    std::optional<double> score; // of the evaluation after this step
    BestScore best;
  };
  // Waits for the snapshot before, and returns when the state is copied. A snapshot that cannot be written is told by
  // onWarning, and the run goes on. Error: a process that does not come, bytes that cannot be read.
  Status save(const State &state);
  // Waits for the last snapshot. Error: it was not written.
  Status finish();

private:
  Status meet(TimeLimit limit);
  using Boxes = std::vector<std::vector<HeldBox>>; // of every device of this process
  bool hasRoomForCopy();
  Result<Boxes> boxes(std::deque<ShardBytes> *held);
  Status writeAll(SnapshotWriter &writer, const Boxes &boxes);
  Status commit(SnapshotWriter &writer, const std::string &own, TimeLimit limit);
  double writingSeconds() const;
  bool isFirst() const { return engine.devices().front() == 0; }

  const plan::Plan &source;
  Executor &engine;
  FolderLock lock;
  SnapshotManifest ofPlan; // all that is the same in every snapshot: its fingerprint is a hash of the whole plan
  const SaveOptions options;
  int64_t bytes = 0, ownBytes = 0; // of a snapshot; of this process' part
  Arena copy;                      // of the own part; kept, since fresh memory costs more than copying
  std::future<Status> writing;
  int64_t begunStep = -1;
  ControlPlane *control = nullptr; // of the thread that writes
};

} // namespace cleave::runtime
