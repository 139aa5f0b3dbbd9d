// The inputs of a step at the whole batch and at one microbatch, and whether they number samples.
//
//   perm: i64[8], 0 to 7, the samples that are mixed     of a microbatch of 4 it would be 0 to 3: refused
//   labels: i64[8], one of 8 classes, each a sample      likewise: a contrastive loss
//   mask: f32[8,8]                                       its second dimension counts samples, too: refused
#pragma once
#include "compiler/specialize/input_bounds.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/base/status.h"
#include <map>
#include <string>
#include <vector>

namespace cleave {

struct StepInput {
  std::vector<int64_t> shape;
  int64_t sampleDim = -1;
  bool isLabel = false;
  IndexRange range; // of integers; of floats `ignored` alone
};

// By name, of @final; the module must still be unpartitioned.
std::map<std::string, StepInput> stepInputs(mlir::ModuleOp module);

// An error where an input numbers the samples of the batch, so that no microbatch can read a part of it.
Status checkMicrobatchInputs(const std::map<std::string, StepInput> &ofBatch,
                             const std::map<std::string, StepInput> &ofMicrobatch, int64_t microbatches);

} // namespace cleave
