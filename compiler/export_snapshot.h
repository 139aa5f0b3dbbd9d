// Trained weights back into the ecosystem.
//
//   exportSnapshot("snapshots", "trained.safetensors", "")    every parameter and running statistic, whole, by name
//   exportSnapshot("snapshots", "trained.onnx", "")           the model it came from, with the trained initializers
#pragma once
#include "runtime/status.h"
#include <string>

namespace cleave {

// `snapshot`: one snapshot, or a folder of them (then the newest whole one). `model`: the .onnx file it was trained from,
// if it moved. The format follows the output's extension. Errors: no whole snapshot there, another extension, a model
// that does not have the snapshot's parameters, a full disk (an existing output file is left as it was).
Status exportSnapshot(const std::string &snapshot, const std::string &output, const std::string &model);

} // namespace cleave
