// The files that a plan reads its weights from, as they were when it was compiled: a plan for one checkpoint is not run
// on another without a word.
//
//   recordWeightFiles(plan, false);                        // size, time, digest of sampled blocks into
//   plan.weight_files Status same = checkWeightFile(plan, parameter.file(), path, **file, {});
//
// Sampled are 1024 blocks of 64 KiB: all of a file up to 64 MiB.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/status.h"
#include <functional>
#include <string>

namespace cleave::runtime {

// Whether a path of a plan, relative to the model's folder, names something within it ("": the model itself).
bool staysInFolder(const std::string &path);
// The file that a source's path names; `model`: the .onnx file, or a folder of artifacts. Error: it is outside of the
// folder of the model, or of the plan's checkpoint, by its path or by a link.
Result<std::string> weightPath(const plan::Plan &plan, const std::string &model, const plan::Source &source);

// Records the files of plan.model_path and plan.checkpoint_path that are there, and returns those that are not: a plan
// can be made before its weights are. `whole`: also the digest of all of each. Error: one cannot be read.
Result<std::vector<std::string>> recordWeightFiles(plan::Plan &plan, bool whole);

struct WeightCheck {
  bool whole = false;                                 // compare all of each file
  std::function<void(const std::string &)> note = {}; // told of a file that may have changed where nobody looks
};
// `file` is what was opened at `place` for the plan's source. Error: it is not the one that the plan was compiled for,
// or `whole` is asked for and the plan lacks the digest.
Status checkWeightFile(const plan::Plan &plan, const plan::Source &source, const std::string &place,
                       const MappedFile &file, const WeightCheck &check);

} // namespace cleave::runtime
