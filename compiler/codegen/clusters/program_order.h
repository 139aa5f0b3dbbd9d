// An order in which every operation stands after what it reads and as near to where it stood as that allows: of the
// operations that are ready, the one comes next that stood first, or is read, directly or not, by what stood first.
//
//   a; c reads b; d reads a; b; e reads a     ->     a; b; c; d; e
//
// A topological sort in passes (MLIR's) would put e before c: what waits once waits until all that can go has gone, and
// work of the backward pass that needs forward values only comes to stand in the forward pass, its results kept since.
// So would all that recomputation does again, if what the backward pass begins with waited for its place: a kernel that
// counts the loss's weights as well as adding them up stands where they are added up, at the end.
#pragma once
#include "mlir/IR/Block.h"

namespace cleave::codegen {

// False, and the block as it was, when operations wait for each other.
bool sortInProgramOrder(mlir::Block &block);

} // namespace cleave::codegen
