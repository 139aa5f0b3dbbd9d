// The checkpoint of onnxruntime-training's artifacts: parameters by name, each with where its bytes are, so that they
// stay in the file. A flatbuffer with the identifier "ODTC"; parameters of checkpoints beyond 2 GiB lie in a second
// file beside it, "checkpoint.data".
//
//     Result<Checkpoint> checkpoint = readCheckpoint("artifacts/checkpoint");
//     checkpoint->trained[0] == {"fc.weight", FLOAT, {4, 5}, "checkpoint", 1056, 80}
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave::import_ {

struct CheckpointTensor {
  std::string name;
  int32_t dataType = 0; // ::onnx::TensorProto::DataType
  std::vector<int64_t> shape;
  std::string file; // name only: it lies in the checkpoint's folder
  int64_t offset = 0, length = 0;
};

struct Checkpoint {
  std::vector<CheckpointTensor> trained, frozen;
  std::optional<float> learningRate; // of a checkpoint saved while training: that it began with
  int64_t steps = 0;                 // likewise: done before it was saved
};

// Errors begin with the path: missing, cut off or foreign file (every offset is verified before it is followed), a
// version that is not known, a checkpoint of names without values, a tensor whose bytes contradict its shape.
Result<Checkpoint> readCheckpoint(const std::string &path);

} // namespace cleave::import_
