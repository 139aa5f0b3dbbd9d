// Where parameters begin under the recipe's `init: {kind: safetensors}`: each one's place in a checkpoint's files,
// found by PyTorch's names and turned as the exporter turned it (state_dict.h).
//
//     checkpoint                                  parameter
//     model.h.0.attn.q_proj.weight bf16 [o, i]    val_8 f32 [i, o]      one place, transposed; "model." is a prefix
//     rnn.weight_ih_l0 f32 [4h, i]                val_111 [1, 4h, i]    four places, one a gate, in ONNX's order
//
// A parameter has them as init = {sources = [{path, offset, length, type, transposed}, ...]}.
#pragma once
#include "compiler/import/weights/parameters.h"
#include "plan/plan.pb.h"

namespace cleave::import_ {

struct StoredRun {
  std::string path;               // relative to InitialWeights::folder
  int64_t offset = 0, length = 0; // bytes
  plan::DType type = plan::DTYPE_INVALID;
  bool isTransposed = false;
};

struct InitialWeights {
  std::string folder;                              // of the checkpoint's files, absolute
  std::map<size_t, std::vector<StoredRun>> places; // by parameter; its elements are theirs, one behind the other
  std::vector<std::string> notes;                  // tensors that are not used, parameters that are kept
};

// Constants of the table that the checkpoint has other numbers for become parameters. Errors: those of SafetensorsSet;
// tensors of another shape or type; two names of a tied weight with different numbers; weights that the checkpoint
// lacks, unless the recipe keeps them or has a rule for them; square matrices that may be transposed.
Result<InitialWeights> matchCheckpoint(const FlatGraph &flat, const recipe::Init &init, ParameterTable &table);

} // namespace cleave::import_
