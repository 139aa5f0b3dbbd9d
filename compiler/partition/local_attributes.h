// Attributes of core ops that speak of shapes, changed from the global to the local shapes of one device.
//
//   Reshape [8,64] -> [8,4,16], factors b=dp      shape = [8,4,16] becomes [4,4,16] on dp=2
//   Gather from 1000 rows split over tp           shard_axes = ["tp"], global_rows = 1000
#pragma once
#include "compiler/partition/layouts.h"

namespace cleave::partition {

// To be called while the operation's types are still global. `local`: local shape of its first result.
void localizeAttributes(mlir::Operation *op, const dist::Mesh &mesh, const dist::FactorRule &rule,
                        const dist::FactorSharding &split, llvm::ArrayRef<int64_t> local);

} // namespace cleave::partition
