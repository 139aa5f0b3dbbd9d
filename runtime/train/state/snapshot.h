// Snapshots: everything a run needs to go on bit for bit. A folder of them; each is written under a temporary name and
// renamed when it is whole, so that a crash at any moment leaves the old one or the new one.
//
//     DIR/step-00000100/manifest.json          step, data position, seed, plan fingerprint, every tensor's global
//     shape,
//                                              checksums of the rank files' headers and of itself
//                      /rank-0000.safetensors  the boxes of tensors that rank 0 owns; its header has their checksums
//     DIR/.step-00000200.partial/...           left by a crash: ignored, removed by the next snapshot
//
// Every rank writes only what it holds, and of what several hold equal copies only the first writes. Loading puts the
// boxes together for any other split of the same tensors.
//
//     SnapshotWriter writer(dir, manifest);                     // all ranks, same manifest
//     writer.writeRank(rank, boxes)  on every rank
//     writer.commit(files)           on one process, when all have told theirs: renames, removes old snapshots
//
// A rank that cannot write its file leaves "rank-0003.failed" with the reason in its place.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include "runtime/plan/coordinate.h"
#include "runtime/train/data/sampler.h"
#include "runtime/train/state/folder_lock.h"
#include "runtime/plan/safetensors.h"
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave::runtime {

// The lowest score of a run's evaluations, and how many came after it.
struct BestScore {
  std::optional<double> score;
  int64_t since = 0;
  std::string monitor; // EvaluationRules::monitor, whose scores these are
};

struct SnapshotManifest {
  int64_t step = 0;     // steps done
  SamplerState sampler; // of the training data
  uint64_t seed = 0;
  std::string fingerprint; // of the plan: planFingerprint
  int64_t ranks = 0;
  struct Tensor {
    plan::DType dtype = plan::DTYPE_INVALID;
    std::vector<int64_t> shape;         // global
    std::vector<int64_t> originalShape; // in the ONNX file, for export
    std::vector<std::string> aliases;
    plan::Parameter::Role role = plan::Parameter::PARAMETER;
    int64_t since = 0; // plan::Parameter::since
    struct Piece {
      std::string name;
      std::vector<int64_t> originalShape;
    };
    std::vector<Piece> pieces; // tensors of the ONNX file that it is stacked of, one an index of the first dimension
  };
  std::map<std::string, Tensor> tensors;
  struct File {
    int64_t bytes = -1;   // -1: it lies elsewhere
    std::string checksum; // of its header
  };
  std::vector<File> files; // of every rank
  std::string run;         // random digits of a training, the same in all its attempts
  std::string checksum;    // of all else here; writeManifest sets it in the file
  std::string modelPath;
  std::string modelDigest;        // of the plan
  std::string recipe;             // of the plan, as YAML: how the model's parameters were told apart
  std::optional<double> score;    // of the evaluation after this step (EvaluationRules::score): less is better
  BestScore best;                 // up to this step
};

// The snapshots of a folder that stay when a new one is whole.
struct KeptSnapshots {
  int64_t newest = 2;
  bool best = false; // and that of the lowest score, which the link "best" leads to
};

// A part of a persistent tensor that one device holds.
struct HeldBox {
  const plan::Parameter *parameter = nullptr;
  Shard box;
  std::span<std::byte> bytes; // dense
};

// Same parameters, shapes, types, optimizer and program: a hash of the plan without its reports and paths.
std::string planFingerprint(const plan::Plan &plan);
// Steps and sampler are left for the caller.
SnapshotManifest manifestOf(const plan::Plan &plan);

// There is nothing to resume from, and nothing that a person took for it: no folder, or only what crashes left. Error:
// the folder cannot be listed.
Result<bool> isFreshSnapshotFolder(const std::string &path);
// The folder's snapshots, the newest first. Error: it cannot be listed.
Result<std::vector<std::string>> snapshotsIn(const std::string &path);

// Before a run: makes the folder, removes what crashes left, and sees that it can be written, with room for the
// snapshots that will stand beside each other, of `bytes` each. Unless `goesOn`, snapshots that are there are another
// run's: an error that names the ways out, or, with `overwrite`, removed. Errors: these, a folder that cannot be made
// or written, a disk that is too full, another run that writes there now.
struct SnapshotFolderUse {
  bool goesOn = false, overwrite = false;
  int64_t bytes = 0;
  KeptSnapshots keep = {};
};
Status prepareSnapshotFolder(const std::string &path, const SnapshotFolderUse &use, FolderLock &lock);

// Parameters that `device` writes: `snapshot` is set, and no device with a smaller number holds the same box.
bool writesBox(const plan::Parameter &parameter, const dist::Mesh &mesh, int64_t device);

std::string rankFileName(int64_t rank); // "rank-0000.safetensors"

// The parts of a snapshot's folder. `run` is the manifest's.
Status writeRankFile(const std::string &folder, int64_t rank, std::span<const HeldBox> boxes, const std::string &run);
// What a manifest says of a rank's file that is there. Error: it is missing, damaged, or another run's.
Result<SnapshotManifest::File> describeRankFile(const std::string &folder, int64_t rank, const std::string &run);
Status writeManifest(const std::string &folder, const SnapshotManifest &manifest);
// Error: there is none, it is damaged; with `checkFiles` a file that is missing or cut off, too.
Result<SnapshotManifest> readManifest(const std::string &folder, bool checkFiles = true);
// What a rank file's metadata says of a box of so many dimensions: "0,64 06b05ab6733a618578af5f94892f3950".
struct StoredBox {
  std::vector<int64_t> begin;
  std::string checksum; // of its bytes
};
std::optional<StoredBox> parseStoredBox(const std::string &text, size_t rank);

class SnapshotWriter {
public:
  SnapshotWriter(std::string folder, SnapshotManifest manifest, KeptSnapshots keep = {});
  // Errors (path and the system's reason) leave earlier snapshots as they are.
  Result<SnapshotManifest::File> writeRank(int64_t rank, std::span<const HeldBox> boxes);
  // `files`: as writeRank gave them, of all ranks. `here`: ranks whose files lie in this folder; none: those of all.
  // Error: a file is missing here, or is another; nothing of this snapshot is left then.
  Status commit(std::vector<SnapshotManifest::File> files, std::vector<int64_t> here = {});
  void discard() const; // what is there of it

private:
  std::string partial() const; // the folder it is written to until it is whole
  Status checkRankFile(int64_t rank, const SnapshotManifest::File &told) const;
  void removeOld(const std::string &own) const;

  std::string folder, name;
  SnapshotManifest manifest;
  KeptSnapshots keep;
};

class Snapshot {
public:
  // `path`: one snapshot, or a folder of them: then the newest whole one; `tell` hears why newer ones are not taken.
  // Errors: none there, a manifest or rank file that is damaged.
  static Result<std::unique_ptr<Snapshot>> open(const std::string &path,
                                                const std::function<void(const std::string &)> &tell = {});
  ~Snapshot();

  const SnapshotManifest &manifest() const { return content; }
  const std::string &path() const { return where; }
  // Writes the box of the named tensor, from whatever boxes are stored. Error: an unknown tensor, another type or
  // shape, parts that no rank stored, bytes whose checksum is another.
  Status read(const std::string &name, plan::DType dtype, std::span<const int64_t> shape, const Shard &box,
              std::span<std::byte> out) const;
  // Every byte that is stored. Error: some are not those that were written.
  Status check() const;
  void releasePages() const; // of what was read, see MappedFile

private:
  Snapshot() = default;
  static Result<std::unique_ptr<Snapshot>> load(const std::string &path, SnapshotManifest manifest);
  struct Stored {
    Shard box;
    TensorView view;
    std::string checksum;
  };
  bool isWhole(const Stored &stored) const;
  std::string where;
  SnapshotManifest content;
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, std::vector<Stored>> boxes;
  mutable std::mutex mutex;
  mutable std::set<const Stored *> checked;
};

// Steps among those of a snapshot that were skipped, because gradients overflowed.
Result<int64_t> skippedBefore(const Snapshot &saved);

// Whether the snapshot lacks the tensor because it begins there, as this plan says (plan::Parameter::since). `skipped`:
// skippedBefore() of it.
bool beginsAt(const Snapshot &snapshot, const plan::Parameter &parameter, int64_t skipped);

// Why a snapshot cannot resume this plan, or ok: other parameters, shapes or types. A different split of the same
// tensors is fine (the numbers go on, though not bit for bit).
Status checkResumes(const Snapshot &snapshot, const plan::Plan &plan);

} // namespace cleave::runtime
