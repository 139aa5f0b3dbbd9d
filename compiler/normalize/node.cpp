#include "compiler/normalize/node.h"
#include "compiler/import/types.h"
#include "compiler/normalize/narrow_types.h"
#include "compiler/normalize/selection.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
namespace cleave::normalize {

Node::Node(onnx::NodeOp op, CoreBuilder &b, FunctionState &state) : op(op), b(b), state(state) {
  for (Value input : op.getInputs()) {
    inputs.push_back(input.getDefiningOp<onnx::NoneOp>() ? Value() : input);
    selections.emplace_back();
    auto known = state.selected.find(input);
    if (known == state.selected.end()) continue;
    inputs.back() = input.getDefiningOp()->getOperand(0); // of its mark
    selections.back() = known->second;
  }
}

InFlightDiagnostic errorAt(onnx::NodeOp node) {
  InFlightDiagnostic error = emitError(node.getLoc());
  error << "node '" << node.getNodeName() << "' (" << node.getOpType() << ", opset " << node.getVersion() << "): ";
  return error;
}

void Node::fail(const Twine &message) {
  errorAt(op) << message;
  throw Failure();
}

Value Node::in(size_t i) {
  if (!has(i)) fail("needs its input " + Twine(i));
  return inputs[i];
}

void Node::writeOut(int64_t nodes) {
  constexpr int64_t mostNodes = 1 << 16;
  if (nodes < 0 || nodes > mostNodes - state.writtenOut)
    fail("is longer than is written out (" + Twine(mostNodes) + " nodes)");
  state.writtenOut += nodes;
}

Attribute Node::attribute(StringRef name) { return op.getOnnxAttributes().get(name); }

int64_t Node::integer(StringRef name, int64_t otherwise) {
  auto value = dyn_cast_or_null<IntegerAttr>(attribute(name));
  return value ? value.getValue().getSExtValue() : otherwise;
}
double Node::real(StringRef name, double otherwise) {
  auto value = dyn_cast_or_null<FloatAttr>(attribute(name));
  return value ? value.getValueAsDouble() : otherwise;
}
std::string Node::text(StringRef name, StringRef otherwise) {
  auto value = dyn_cast_or_null<StringAttr>(attribute(name));
  return (value ? value.getValue() : otherwise).str();
}
std::optional<Dims> Node::ints(StringRef name) {
  auto value = dyn_cast_or_null<DenseI64ArrayAttr>(attribute(name));
  return value ? std::optional(Dims(value.asArrayRef())) : std::nullopt;
}
Dims Node::ints(StringRef name, ArrayRef<int64_t> otherwise) {
  auto value = ints(name);
  return value ? *value : Dims(otherwise);
}

runtime::HostTensor Node::constantTensor(size_t i) {
  auto tensor = evaluateOnDemand(in(i));
  if (!tensor)
    fail("its input " + Twine(i) +
         " must be known once dimensions are bound, but it depends on data or on a parameter");
  if (!state.counts.empty()) checkCounts(*this, i);
  return *tensor;
}
Dims Node::constantInts(size_t i) {
  auto values = constantTensor(i).integers();
  return Dims(values.begin(), values.end());
}
int64_t Node::constantInt(size_t i) {
  Dims values = constantInts(i);
  if (values.size() != 1) fail("its input " + Twine(i) + " must be one number");
  return values[0];
}
double Node::constantReal(size_t i) {
  auto values = constantTensor(i).reals();
  if (values.size() != 1) fail("its input " + Twine(i) + " must be one number");
  return values[0];
}
std::optional<Dims> Node::intsOrInput(StringRef name, size_t i) {
  if (auto values = ints(name)) return values;
  if (has(i)) return constantInts(i);
  return std::nullopt;
}

Type Node::anyElementType(int64_t number) {
  Type type;
  if (number > 0 && number < INT32_MAX) type = import_::elementType(*b.builder.getContext(), int32_t(number));
  if (!type) fail("its result's element type, number " + Twine(number) + " of ONNX, is not supported");
  return type;
}

Type Node::elementType(int64_t number) {
  Type type = anyElementType(number);
  if (isNarrow(type)) fail("gives no elements of type number " + Twine(number) + " of ONNX");
  return type;
}

int64_t Node::axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) fail("axis " + Twine(axis) + " is not an axis of " + Twine(rank) + " dimensions");
  return axis < 0 ? axis + rank : axis;
}
Dims Node::axes(ArrayRef<int64_t> axes, int64_t rank) {
  Dims result;
  for (int64_t a : axes) result.push_back(axis(a, rank));
  llvm::sort(result);
  if (std::adjacent_find(result.begin(), result.end()) != result.end()) fail("names an axis twice");
  return result;
}

void Node::needsFew(int64_t count) {
  if (count < 0 || count > demandFoldLimit)
    fail("lists " + Twine(count) + " elements; at most " + Twine(demandFoldLimit) + " are supported");
}

void Node::needsShape(size_t i, ArrayRef<int64_t> shape) {
  if (!has(i) || shapeOf(inputs[i]) == shape) return;
  auto shown = [](ArrayRef<int64_t> sizes) {
    return "[" + llvm::join(llvm::map_range(sizes, [](int64_t s) { return std::to_string(s); }), ",") + "]";
  };
  fail("its input " + Twine(i) + " is of shape " + shown(shapeOf(inputs[i])) + ", it must be " + shown(shape));
}

const Rules &Rules::all() {
  static const Rules rules = [] {
    Rules rules;
    addElementwise(rules);
    addActivations(rules);
    addMovement(rules);
    addShapeOps(rules);
    addIndexing(rules);
    addReductions(rules);
    addContractions(rules);
    addEinsum(rules);
    addConvolutions(rules);
    addPools(rules);
    addResizing(rules);
    addNormalizations(rules);
    addBatchNormalization(rules);
    addRandom(rules);
    addRecurrences(rules);
    addSequences(rules);
    addSampling(rules);
    addSpectra(rules);
    addQuantization(rules);
    addOnnxruntime(rules);
    return rules;
  }();
  return rules;
}

} // namespace cleave::normalize
