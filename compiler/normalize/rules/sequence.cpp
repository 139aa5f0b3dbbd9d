// Sequences of tensors, whose length must be known, and optionals, of which must be known whether they are empty: none
// of them is left in the graph, their elements are.
//
//   %s = onnx.node "SplitToSequence"(%x, %sizes) ; %y = onnx.node "SequenceAt"(%s, %one)
//   ->   %a = onnx.Slice %x ... ; %y = onnx.Slice %x ...
//
// While nodes are rewritten an onnx.none stands for each sequence; FunctionState knows the elements.
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

Values held(Node &n, Values elements) {
  Value sequence = onnx::NoneOp::create(n.b.builder, n.op.getLoc(), n.b.builder.getNoneType());
  n.state.sequences[sequence] = std::move(elements);
  return {sequence};
}

Values elementsOf(Node &n, size_t input) {
  if (input < n.op.getInputs().size())
    if (auto found = n.state.sequences.find(n.op.getInputs()[input]); found != n.state.sequences.end())
      return found->second;
  n.fail("its input " + Twine(input) + " is no sequence of known length");
}

// The position that input `i` gives, or `otherwise`; negative counts from the end.
size_t position(Node &n, size_t i, int64_t otherwise, size_t count) {
  const Dims given = n.has(i) ? n.constantInts(i) : Dims(1, otherwise);
  if (given.size() != 1) n.fail("its input " + Twine(i) + " must be one number");
  int64_t at = given.front();
  if (at < 0) at += int64_t(count);
  if (at < 0 || at >= int64_t(count)) n.fail("position " + Twine(at) + " of " + Twine(count) + " elements");
  return size_t(at);
}

Values sequenceConstruct(Node &n) {
  Values elements;
  for (size_t i = 0; i < n.inputs.size(); ++i) elements.push_back(n.in(i));
  return held(n, std::move(elements));
}

Values sequenceInsert(Node &n) {
  Values elements = elementsOf(n, 0);
  size_t at = position(n, 2, int64_t(elements.size()), elements.size() + 1);
  elements.insert(elements.begin() + at, n.in(1));
  return held(n, std::move(elements));
}

Values sequenceErase(Node &n) {
  Values elements = elementsOf(n, 0);
  elements.erase(elements.begin() + position(n, 1, -1, elements.size()));
  return held(n, std::move(elements));
}

Values sequenceAt(Node &n) {
  Values elements = elementsOf(n, 0);
  return {elements[position(n, 1, 0, elements.size())]};
}

Values sequenceLength(Node &n) {
  return {n.b.constant(runtime::HostTensor::ofIntegers(plan::I64, {}, {int64_t(elementsOf(n, 0).size())}))};
}

// Without sizes: one position each, whose dimension goes unless `keepdims`.
Values splitToSequence(Node &n) {
  Value x = n.in(0);
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(x)), whole = shapeOf(x)[axis];
  Dims sizes = n.has(1) ? n.constantInts(1) : Dims(1, 1);
  if (!n.has(1) || shapeOf(n.in(1)).empty()) { // the last part may be smaller
    const int64_t part = sizes.front();
    if (part < 1) n.fail("needs parts of one position or more");
    n.writeOut(whole / part);
    sizes = Dims(whole / part, part);
    if (whole % part) sizes.push_back(whole % part);
  } else {
    n.writeOut(int64_t(sizes.size()));
  }
  Values elements = splitAlong(n, x, axis, sizes);
  if (!n.has(1) && !n.integer("keepdims", 1))
    for (Value &element : elements) {
      Dims shape(shapeOf(element));
      shape.erase(shape.begin() + axis);
      element = n.b.reshape(element, shape);
    }
  return held(n, std::move(elements));
}

Values concatFromSequence(Node &n) {
  Values elements = elementsOf(n, 0);
  if (elements.empty()) n.fail("needs an element");
  for (Value element : elements)
    if (rankOf(element) != rankOf(elements.front())) n.fail("joins tensors of different numbers of dimensions");
  const bool isNew = n.integer("new_axis", 0) != 0;
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(elements.front()) + isNew);
  if (isNew)
    for (Value &element : elements) element = n.b.insertOnes(element, {axis});
  return {n.b.concat(elements, axis)};
}

// --- optionals: one that holds something is what it holds, an empty one is absent

bool holdsSomething(Node &n) {
  return n.has(0) || (!n.op.getInputs().empty() && n.state.sequences.contains(n.op.getInputs()[0]));
}
Values optional(Node &n) {
  if (holdsSomething(n)) return {n.op.getInputs()[0]};
  return {onnx::NoneOp::create(n.b.builder, n.op.getLoc(), n.b.builder.getNoneType())};
}
Values optionalHasElement(Node &n) {
  return {n.b.constant(runtime::HostTensor::ofIntegers(plan::BOOL, {}, {holdsSomething(n)}))};
}
Values optionalGetElement(Node &n) {
  if (!holdsSomething(n)) n.fail("takes what an optional holds that is empty");
  return {n.op.getInputs()[0]};
}

} // namespace

void addSequences(Rules &rules) {
  rules.add("SequenceEmpty", sequenceConstruct);
  rules.add("SequenceConstruct", sequenceConstruct);
  rules.add("SequenceInsert", sequenceInsert);
  rules.add("SequenceErase", sequenceErase);
  rules.add("SequenceAt", sequenceAt);
  rules.add("SequenceLength", sequenceLength);
  rules.add("SplitToSequence", splitToSequence);
  rules.add("ConcatFromSequence", concatFromSequence);
  rules.add("Optional", optional);
  rules.add("OptionalHasElement", optionalHasElement);
  rules.add("OptionalGetElement", optionalGetElement);
}

} // namespace cleave::normalize
