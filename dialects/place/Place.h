// The place dialect: where an operation stands in the training step, and how a pipeline's step is cut into functions.
//
//   %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward, stage = 1>}
//
//   place::Place place = place::of(op);     // a value; all of its members may be absent
//   place.stage = 2;
//   place.set(op);
//
// A pipeline's step between the passes of compiler/partition and codegen:
//
//   func @forward.1(%x {place.kept = 4}) -> (tensor {place.kept = 5})
//       attributes {place.program = 1, place.region = "step.1", place.slots = 2}
//   func @forward.1.last             of the last microbatch, where it alone is not recomputed
//   func @forward.0.ahead            of the next step's microbatches, while this one runs: it reads the newest weights,
//                                    which will be the next step's
//
// A value kept as n leaves a function as a result and enters later ones of its region as an argument.
#pragma once
#include "dialects/owned_attribute.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"

#include "dialects/place/PlaceDialect.h.inc"
#include "dialects/place/PlaceEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/place/PlaceAttrs.h.inc"

namespace cleave::place {

// As #place.at has it (PlaceDialect.td).
struct Place {
  std::optional<Phase> phase;
  std::optional<int64_t> stage, origin, segment;
  bool recompute = false;
  std::optional<int64_t> recomputed, chunk;

  bool operator==(const Place &) const = default;
  void set(mlir::Operation *op) const;
};
Place of(mlir::Operation *op);

// Forward where the operation does not say.
Phase phaseOf(mlir::Operation *op);
bool hasPhase(mlir::Operation *op, Phase phase); // false: it has another one, or none
std::optional<int64_t> stageOf(mlir::Operation *op);
bool isRecomputed(mlir::Operation *op);
void setPhase(mlir::Operation *op, Phase phase);
void setStage(mlir::Operation *op, std::optional<int64_t> stage);
// What is added for `from` stands where it stands. The number of a forward op (origin) stays its own.
void copy(mlir::Operation *from, mlir::Operation *to);

// Gives what a builder inserts its phase: every operation, none of which keeps the name that a decision knows, or those
// that have no phase.
//
//   place::Stamp stamp(place::phaseOf(op));
//   OpBuilder builder(op, &stamp);
class Stamp : public mlir::OpBuilder::Listener {
public:
  enum Onto { All, Unplaced };
  explicit Stamp(Phase phase, Onto onto = All) : phase(phase), onto(onto) {}
  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint previous) override;

private:
  Phase phase;
  Onto onto;
};

// Gives what a builder inserts the place of an operation that it is made from, and lists it.
class PlaceLike : public mlir::OpBuilder::Listener {
public:
  explicit PlaceLike(mlir::Operation *from) : from(from) {}
  llvm::SmallVector<mlir::Operation *> inserted;
  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override {
    copy(from, op);
    inserted.push_back(op);
  }

private:
  mlir::Operation *from;
};

// Discardable attributes of the dialect, by what they stand on.
// --- operations
inline constexpr OwnedAttribute<AtAttr> atAttr{"place.at"};
// A product and those of its gradient have one number.
inline constexpr OwnedAttribute<int64_t> productAttr{"place.product"};
// On the operations of an optimizer's rule that sums over its parameter: the parameter's name. Stages of a pipeline
// that hold copies of one compute it alike, to the last bit, so that the order of its sums must not depend on what else
// a stage does.
inline constexpr OwnedAttribute<llvm::StringRef> ruleAttr{"place.rule"};
// The name by which a decision knows the operation (training/node_names.h); and where the decision is that of the
// operation it stands for: for each of its own factors the decided one, -1 for none.
inline constexpr OwnedAttribute<llvm::StringRef> nodeAttr{"place.node"};
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> decidedFactorsAttr{"place.decided_factors"};
// --- functions of a pipeline's step
inline constexpr OwnedAttribute<int64_t> programAttr{"place.program"};           // the pipeline rank that runs it
inline constexpr OwnedAttribute<llvm::StringRef> regionAttr{"place.region"};     // "step.1": functions that share slots
inline constexpr OwnedAttribute<int64_t> slotsAttr{"place.slots"};               // copies of the region
inline constexpr OwnedAttribute<llvm::StringRef> fragmentAttr{"place.fragment"}; // its name in the plan
inline constexpr OwnedAttribute<Mark> aheadAttr{"place.ahead"};                  // runs for the next step
inline constexpr OwnedAttribute<int64_t> keptAttr{"place.kept"}; // an argument or result: its number in the slot
// --- the module: all names of operations, also of those that later passes made part of another
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> nodesAttr{"place.nodes"};
// --- onnx.param: the ranks that hold it; the module: build_routines.cpp
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> programsAttr{"place.programs"};
inline constexpr OwnedAttribute<mlir::ArrayAttr> routinesAttr{"place.routines"};

} // namespace cleave::place
