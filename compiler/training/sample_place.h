// Where the samples of a step lie in the values of the forward graph.
//
//   SamplePlaces places = samplePlaces(model);
//   places.lookup(logits)      // logits [8 * 64, 100] of 8 samples: {dim 0, inner 64}
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/base/sharding/samples.h"
#include <llvm/ADT/DenseMap.h>

namespace cleave::training {

// As the module is built: of one microbatch. 0: no argument has samples.
int64_t samplesOf(mlir::func::FuncOp model);

// None: nowhere, or they lie in no dimension of their own.
using SamplePlaces = llvm::DenseMap<mlir::Value, std::optional<dist::SamplePlace>>;
SamplePlaces samplePlaces(mlir::func::FuncOp model);

} // namespace cleave::training
