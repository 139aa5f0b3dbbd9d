// Cutting @accumulate and @evaluate of a pipelined step into a function for each stage and part. Values that a function
// needs from another one get there by one of two ways:
//
//   kept         to a later function of the same stage: a result and an argument that lie in the stage's slot
//   transferred  to another stage: dist.send in the one that has it, dist.receive in the other. An activation that only
//                a later stage's backward pass reads is received by its forward pass and kept there
//
//   @accumulate {forward 0, forward 1, backward 1, backward 0}, x: 0 -> 1, dx: 1 -> 0, h kept by stage 0
//   @forward.0 {send x tag 0} -> h    @forward.1 {receive x} -> ...    @backward.1 {send dx tag 1}    @backward.0(h)
#pragma once
#include "compiler/partition/floating_values.h"
#include "dialects/place/Place.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <map>
#include <set>

namespace cleave::partition {

// The parts of a stage in the order in which a microbatch runs them.
enum class Part : uint8_t { Forward, Backward, BackwardWeight };

class StepSplit {
public:
  // `halved`: the stages whose backward pass is two functions; empty: none.
  StepSplit(mlir::func::FuncOp function, std::vector<int> rankOfStage, std::vector<bool> halved)
      : function(function), rankOfStage(std::move(rankOfStage)), halved(std::move(halved)), floating(function) {
    this->halved.resize(this->rankOfStage.size());
  }

  // Where every op runs, and what crosses. Error at an op that would need a value from the future.
  mlir::LogicalResult analyze();
  // Makes a value available in a function, as an operand of an op there would.
  mlir::LogicalResult provide(mlir::Value value, int64_t stage, Part part, mlir::Operation *user);
  // The functions, in the order in which a microbatch runs through a stage. `names`: of the parts ("forward", ...), or
  // one name for the forward part of a function without backward pass. `routine`: the first part of the slot region's
  // name. `firstTag`: of the transfers; returns the next free one. `suffix`: of the functions' and the regions' names.
  int64_t build(llvm::ArrayRef<llvm::StringRef> names, llvm::StringRef routine, int64_t firstTag,
                llvm::StringRef suffix = "");

  mlir::func::FuncOp functionOf(int64_t stage, Part part) const;
  // The value in a built function; floating ones are computed there.
  mlir::Value valueIn(int64_t stage, Part part, mlir::Value value);
  int64_t stageOfValue(mlir::Value value) const { return homes.lookup(value.getDefiningOp()).stage; }
  bool isFloating(mlir::Value value) const { return floating.contains(value); }

private:
  struct Place {
    int64_t stage = 0;
    Part part = Part::Forward;
    bool operator<(const Place &other) const { return std::tie(stage, part) < std::tie(other.stage, other.part); }
    bool operator==(const Place &other) const { return stage == other.stage && part == other.part; }
  };
  struct Transfer {
    int64_t order = 0; // of the value in the function
    mlir::Value value;
    Place from, to;
    int64_t tag = 0, channel = 0;
  };
  struct Built {
    mlir::func::FuncOp function;
    mlir::IRMapping values;
    llvm::MapVector<mlir::Value, int64_t> in, out; // kept, with their numbers
  };

  bool isLate(mlir::Operation *op) const;
  void placeGathers();
  void placeLate();
  void halve();
  void makeHeldValues();
  mlir::Operation *cloneInto(Built &target, mlir::Operation *op);
  mlir::Value materialize(Built &target, mlir::Value value);
  void numberTransfers(int64_t &tag);
  void mark(mlir::Operation *op, const Transfer &transfer) const;
  void send(Built &target, const Transfer &transfer);

  mlir::func::FuncOp function;
  std::vector<int> rankOfStage;
  std::vector<bool> halved;
  FloatingValues floating;
  llvm::DenseMap<mlir::Operation *, Place> homes;
  llvm::SmallSetVector<mlir::Operation *, 16> late; // in order
  llvm::DenseMap<mlir::Value, int64_t> order;
  std::set<std::pair<void *, Place>> available;
  std::vector<Transfer> transfers;
  std::map<Place, Built> built;
  int64_t keptNumbers = 0;
  std::map<std::pair<void *, int64_t>, int64_t> keptNumber; // of a value in a stage
};

} // namespace cleave::partition
