// Slots: the copies, one a microbatch in flight, of what a stage keeps between its functions, and where in a copy each
// value lies.
//
//   region "step.0" of program 0: @forward.0 keeps 1 and 2 and receives x, @backward.0 reads 1 and receives dy
//     1 : [forward, backward]   2 : [forward, backward]   x : [forward]   dy : [backward], may lie where x lay
//
// A region's functions have `place.region`, its number of copies `place.slots`; they stand in the module in the order
// in which they run. Regions of one routine lie side by side; those of different routines share their bytes. What
// OffloadActivations has taken away lies so in the host's memory, in as many copies, at places from hostMemory on.
#pragma once
#include "compiler/codegen/memory/memory_plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace cleave::codegen {

class SlotLayout {
public:
  // Lays out the regions of a program from byte `begin` of the arena and byte `hostBegin` of the host's memory on, and
  // gives its functions `plan.slot_region`: offset and bytes of the first copy, copies, number of the region in its
  // program; place and bytes of the first copy in the host's memory.
  void layOut(mlir::ModuleOp module, int64_t program, int64_t begin, int64_t hostBegin);
  // Where the first copy of a value lies; none: not in a slot. Asked for an argument, a result of the function's return
  // operation (its value must be a whole buffer), or what a command receives.
  std::optional<int64_t> offsetOf(mlir::Value root) const;
  int64_t end() const { return last; }
  int64_t hostEnd() const { return hostLast; } // bytes

private:
  struct Copy { // of a slot, in one memory
    std::vector<BufferInterval> buffers;
    llvm::DenseMap<int64_t, size_t> kept;                      // by number: index into buffers
    llvm::SmallVector<std::pair<mlir::Value, size_t>> members; // values and their buffers
  };
  struct Region {
    llvm::SmallVector<mlir::func::FuncOp> functions;
    Copy here, away; // in the arena, in the host's memory
  };
  void collect(Region &region);
  int64_t place(const Copy &copy, int64_t begin); // returns its bytes
  llvm::DenseMap<mlir::Value, int64_t> offsets;
  int64_t last = 0, hostLast = 0;
};

} // namespace cleave::codegen
