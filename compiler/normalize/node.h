// One onnx.node as the rule that rewrites it sees it, and the table of those rules.
//
//   Values gemm(Node &n) {                        // a rule: core values for the node's outputs
//     Value a = n.in(0), b = n.in(1);
//     if (n.integer("transA", 0)) a = n.b.transpose(a, {1, 0});
//     ...
//     return {y};
//   }
//   void addContractions(Rules &rules) { rules.add("Gemm", gemm); }
//
// The operands are core values of static shape already: nodes are rewritten in order. Whatever a rule cannot do it
// reports with n.fail("..."), which names the node and its operator.
#pragma once
#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace cleave::normalize {

// What data select of a value (selection.h): the positions where `mask` holds.
struct Selection {
  mlir::Value mask; // i1, of the selected tensor's shape
  int64_t dim = 0;  // of the value: the positions, in row-major order
  int64_t each = 1; // consecutive elements along it for each position
  Values indices{}; // of a matrix of the positions' indices: those along each dimension of the mask
};

// State that rules share over one function: options, and additions to the function when all nodes are done.
struct FunctionState {
  BatchNormMode batchNorm;
  double dropout;                                         // the ratio of every dropout; negative: as exported
  mlir::Value drawKey;                                    // made by the first node that draws
  int64_t draws = 0;                                      // streams given out
  llvm::MapVector<mlir::Attribute, mlir::Value> writes{}; // by parameter: onnx.write at the function's end
  llvm::DenseMap<mlir::Value, Values> sequences{};        // what stands for a sequence -> its elements
  llvm::DenseMap<mlir::Value, mlir::Type> narrow{};       // a carrier -> the narrow element type (narrow_types.h)
  llvm::DenseMap<mlir::Value, mlir::Value> quantized{};   // integers or codes -> the same numbers, with a gradient
  llvm::MapVector<mlir::Value, Selection> selected{};     // marks of what data select
  llvm::MapVector<mlir::Value, Selection> counts{};       // marks of how many that is
  llvm::DenseMap<mlir::Value, int64_t> distinct{};        // integers -> the dimension along which no two are equal
  ConstantBudget constants{};
  int64_t writtenOut = 0; // nodes that Loops and sequences became
};

// An error at the node, with its name, operator and opset in front.
mlir::InFlightDiagnostic errorAt(onnx::NodeOp node);

class Node {
public:
  Node(onnx::NodeOp op, CoreBuilder &b, FunctionState &state);
  onnx::NodeOp op;
  CoreBuilder &b;
  FunctionState &state;
  Values inputs;                                          // null: absent
  llvm::SmallVector<std::optional<Selection>> selections; // of each input

  [[noreturn]] void fail(const llvm::Twine &message);
  std::string type() { return op.getOpType().str(); }
  int64_t version() { return op.getVersion(); } // of the opset
  size_t outputs() { return op.getNumResults(); }
  // How the operands' ranks and dimensions must be is checked before a rule is called (operator_demands.h).
  bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
  mlir::Value in(size_t i);     // fails when absent
  void writeOut(int64_t nodes); // fails when what the function's nodes are written out as becomes too much in all

  // Attributes; an absent one without a default is none.
  mlir::Attribute attribute(llvm::StringRef name);
  int64_t integer(llvm::StringRef name, int64_t otherwise);
  double real(llvm::StringRef name, double otherwise);
  std::string text(llvm::StringRef name, llvm::StringRef otherwise);
  std::optional<Dims> ints(llvm::StringRef name);
  Dims ints(llvm::StringRef name, llvm::ArrayRef<int64_t> otherwise);

  // Values of an operand that must be known once the dimensions are bound; fails if it depends on data.
  Dims constantInts(size_t i);
  int64_t constantInt(size_t i); // one number
  double constantReal(size_t i);
  runtime::HostTensor constantTensor(size_t i);
  // `name` as an attribute (older opsets) or input `i` (newer ones); none when neither is there.
  std::optional<Dims> intsOrInput(llvm::StringRef name, size_t i);

  // The element type with this number in ONNX (TensorProto.DataType); fails unless it is supported.
  mlir::Type elementType(int64_t number);
  mlir::Type anyElementType(int64_t number); // or a narrow one (narrow_types.h)
  // The narrow element type that operand `i` has (narrow_types.h); null: none.
  mlir::Type narrow(size_t i) { return has(i) ? state.narrow.lookup(inputs[i]) : mlir::Type(); }

  int64_t axis(int64_t axis, int64_t rank);              // negative counts from the end; checked
  Dims axes(llvm::ArrayRef<int64_t> axes, int64_t rank); // each as axis(), sorted; fails if one is named twice

  // Fails unless so many elements can be listed one by one (demandFoldLimit).
  void needsFew(int64_t count);
  // Fails unless input `i`, if it is there, has this shape.
  void needsShape(size_t i, llvm::ArrayRef<int64_t> shape);
};

using Rule = Values (*)(Node &);

class Rules {
public:
  static const Rules &all();
  void add(llvm::StringRef op, Rule rule, llvm::StringRef domain = "") {
    table[(domain + "::" + op).str()].rule = rule;
  }
  // Of an operator whose results depend, at each place, on the operands at this place alone: what data select passes
  // through it (selection.h).
  void addPerElement(llvm::StringRef op, Rule rule, llvm::StringRef domain = "") {
    table[(domain + "::" + op).str()] = {rule, true};
  }
  Rule find(llvm::StringRef domain, llvm::StringRef op) const { return entry(domain, op).rule; }
  bool isPerElement(llvm::StringRef domain, llvm::StringRef op) const { return entry(domain, op).isPerElement; }

private:
  struct Entry {
    Rule rule = nullptr;
    bool isPerElement = false;
  };
  Entry entry(llvm::StringRef domain, llvm::StringRef op) const { return table.lookup((domain + "::" + op).str()); }
  llvm::StringMap<Entry> table;
};

void addElementwise(Rules &rules);
void addActivations(Rules &rules);
void addMovement(Rules &rules);
void addShapeOps(Rules &rules);
void addIndexing(Rules &rules);
void addReductions(Rules &rules);
void addContractions(Rules &rules);
void addEinsum(Rules &rules);
void addConvolutions(Rules &rules);
void addPools(Rules &rules);
void addResizing(Rules &rules);
void addNormalizations(Rules &rules);
void addBatchNormalization(Rules &rules);
void addRandom(Rules &rules);
void addRecurrences(Rules &rules);
void addSequences(Rules &rules);
void addSampling(Rules &rules);
void addSpectra(Rules &rules);
void addQuantization(Rules &rules);
void addOnnxruntime(Rules &rules);

// The product of two matrices, or of as many as batch dimensions count.
mlir::Value matrixProduct(Node &n, mlir::Value lhs, mlir::Value rhs);
// The product along an axis, which is left with size 1.
mlir::Value productAlong(Node &n, mlir::Value x, int64_t axis);
// The k largest (or smallest) along an axis, and where they are; of equal ones the first.
Values topAlong(Node &n, mlir::Value x, int64_t axis, int64_t k, bool largest = true);
// The parts of these sizes along an axis, which they must add up to.
Values splitAlong(Node &n, mlir::Value x, int64_t axis, llvm::ArrayRef<int64_t> sizes);

} // namespace cleave::normalize
