// Which state all processes of a run go on from: rank 0 proposes its snapshots, the newest first, and one that a rank
// cannot read is taken by none. All processes vote, with or without a mirror alike.
//
//   ResumeVote vote(plan, control, {.limit = limits.preparation, .load = [&](const Snapshot &s) { ... }, ...});
//   Result<ResumedState> state = vote.choose(candidates, mirror);     // candidates: of rank 0, the newest last
//   if (state && state->path.empty()) ...                             // there is none
#pragma once
#include "runtime/train/mirror.h"
#include "runtime/train/run_record.h"
#include "runtime/train/state/snapshot.h"
#include <functional>
#include <string>
#include <vector>

namespace cleave::runtime {

struct ResumedState {
  std::string path, run; // of the snapshot; SnapshotManifest::run
};

struct ResumeOptions {
  TimeLimit limit;
  bool acceptChanges = false;                          // of the model, the loss and the seed
  std::string folder = {};                             // this process' own; empty: all see that of rank 0
  std::function<Status(const Snapshot &)> load;        // this process' part
  std::function<void(const std::string &)> note, warn; // on the first process; on any
};

class ResumeVote {
public:
  ResumeVote(const plan::Plan &plan, ControlPlane &control, ResumeOptions options)
      : source(plan), control(control), options(std::move(options)) {}
  // `mirror`: whose state is taken where it is newer; null: there is none. Error: a snapshot of another training, a
  // folder that is not the same on all ranks; none that all can read, although there are some.
  Result<ResumedState> choose(std::vector<std::string> candidates, Mirror *mirror);

private:
  // A snapshot that rank 0 proposes.
  struct Choice {
    std::string path, checksum, run; // "": there is none
    int64_t step = -1;
  };
  Result<Choice> nextChoice(std::vector<std::string> &candidates);
  Result<bool> take(Result<std::unique_ptr<Snapshot>> opened, const Choice *choice);
  Status explained(const Status &fault, const SnapshotManifest &manifest) const;
  Status checkChanges(const SnapshotManifest &manifest, const std::string &path);

  const plan::Plan &source;
  ControlPlane &control;
  const ResumeOptions options;
  ResumedState taken;
};

} // namespace cleave::runtime
