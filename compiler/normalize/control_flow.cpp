#include "compiler/normalize/control_flow.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

constexpr StringRef counter = "iteration", joined = "joined"; // what a Loop knows of itself meanwhile

onnx::NodeOp yieldOf(Node &n, Block &block) {
  auto end = dyn_cast_or_null<onnx::NodeOp>(block.empty() ? nullptr : &block.back());
  if (!end || end.getOpType() != "yield") n.fail("has a graph that does not give its outputs");
  return end;
}

Block &graphOf(Node &n, StringRef attribute) {
  int64_t which = n.integer(attribute, -1);
  if (which < 0 || which >= int64_t(n.op->getNumRegions())) n.fail("has no '" + attribute + "'");
  return n.op->getRegion(unsigned(which)).front();
}

void replace(Node &n, ArrayRef<Value> results) {
  if (results.size() != n.op->getNumResults()) n.fail("has a graph that does not give its outputs");
  n.op->replaceAllUsesWith(ValueRange(results));
  n.op.erase();
}

void expandIf(Node &n) {
  Block &branch = graphOf(n, n.constantReal(0) != 0 ? "then_branch" : "else_branch");
  if (branch.getNumArguments()) n.fail("has a branch with inputs");
  onnx::NodeOp end = yieldOf(n, branch);
  SmallVector<Value> results(end.getInputs());
  end.erase();
  n.op->getBlock()->getOperations().splice(n.op->getIterator(), branch.getOperations());
  replace(n, results);
}

// The iterations' values for one output, side by side: `values` of [count x stacked], each a step of its own.
Value stack(Node &n, ArrayRef<Value> values, int64_t output, int64_t stacked) {
  Values parts;
  for (size_t i = size_t(output); i < values.size(); i += size_t(stacked))
    parts.push_back(n.b.insertOnes(values[i], {0}));
  return n.b.concat(parts, 0);
}

// The operands of a Loop: trip count, condition, carried values; then, as iterations are written out, what they give to
// the outputs that are stacked: "joined" times what so many iterations gave, stacked, and the rest one by one. All
// operands are looked at again for each iteration. "iteration" counts them.
void expandLoop(Node &n) {
  constexpr int64_t together = 256;
  Block &body = graphOf(n, "body");
  onnx::NodeOp end = yieldOf(n, body);
  SmallVector<Value> operands(n.op.getInputs());
  const int64_t carried = int64_t(body.getNumArguments()) - 2, stacked = int64_t(end.getInputs().size()) - 1 - carried;
  if (carried < 0 || stacked < 0 || int64_t(operands.size()) < 2 + carried) n.fail("has a body of other operands");
  auto known = n.op->getAttrOfType<IntegerAttr>(counter);
  const int64_t done = known ? known.getInt() : 0;
  auto knownJoined = n.op->getAttrOfType<IntegerAttr>(joined);
  const int64_t blocks = knownJoined ? knownJoined.getInt() : 0;
  const size_t begin = size_t(2 + carried), pending = begin + size_t(blocks * stacked);
  const bool isBounded = n.has(0), asks = n.has(1);
  if (!isBounded && !asks) n.fail("has no end");
  const Dims trips = isBounded ? n.constantInts(0) : Dims(1, done + 1);
  if (trips.size() != 1) n.fail("its input 0 must be one number");
  if (done < trips.front() && (!asks || n.constantReal(1) != 0)) {
    int64_t nodes = 0; // with those of graphs in it
    body.walk([&](Operation *) { ++nodes; });
    n.writeOut(nodes);
    IRMapping values;
    values.map(body.getArgument(0), n.b.constant(runtime::HostTensor::ofIntegers(plan::I64, {}, {done})));
    values.map(body.getArgument(1), n.b.constant(runtime::HostTensor::ofIntegers(plan::BOOL, {}, {1})));
    for (int64_t i = 0; i < carried; ++i) values.map(body.getArgument(unsigned(2 + i)), operands[size_t(2 + i)]);
    for (Operation &node : body)
      if (&node != end.getOperation()) n.b.builder.clone(node, values);
    SmallVector<Value> given;
    for (Value value : end.getInputs()) given.push_back(values.lookupOrDefault(value));
    if (asks) operands[1] = given[0];
    if (stacked > 0 && int64_t(operands.size() - pending) == together * stacked) {
      SmallVector<Value> block;
      for (int64_t output = 0; output < stacked; ++output)
        block.push_back(stack(n, ArrayRef(operands).drop_front(pending), output, stacked));
      operands.truncate(pending);
      operands.append(block);
      n.op->setAttr(joined, n.b.builder.getI64IntegerAttr(blocks + 1));
    }
    std::copy(given.begin() + 1, given.begin() + 1 + carried, operands.begin() + 2);
    operands.append(given.begin() + 1 + carried, given.end());
    n.op->setOperands(operands);
    n.op->setAttr(counter, n.b.builder.getI64IntegerAttr(done + 1));
    return;
  }
  SmallVector<Value> results(operands.begin() + 2, operands.begin() + 2 + carried);
  if (stacked > 0 && done == 0) n.fail("does not run, so that its outputs have no elements");
  for (int64_t output = 0; output < stacked; ++output) {
    Values parts;
    for (size_t i = begin + size_t(output); i < pending; i += size_t(stacked)) parts.push_back(operands[i]);
    if (pending < operands.size()) parts.push_back(stack(n, ArrayRef(operands).drop_front(pending), output, stacked));
    results.push_back(n.b.concat(parts, 0));
  }
  replace(n, results);
}

// A node of the standard's, to be rewritten after what its operands come from.
Value nodeOf(Node &n, StringRef type, ValueRange operands, ArrayRef<NamedAttribute> attributes) {
  constexpr int64_t version = 13;
  return onnx::NodeOp::create(
             n.b.builder, n.op.getLoc(), TypeRange{UnrankedTensorType::get(n.b.builder.getIndexType())}, operands, type,
             "", version, (n.op.getNodeName() + "/" + type).str(), n.b.builder.getDictionaryAttr(attributes), 0)
      .getOutputs()[0];
}
// Values side by side along a new dimension.
Value stackedLater(Node &n, ArrayRef<Value> values, int64_t axis) {
  Value axes = n.b.integers({axis});
  SmallVector<Value> parts;
  for (Value value : values) parts.push_back(nodeOf(n, "Unsqueeze", {value, axes}, {}));
  return nodeOf(n, "Concat", parts, n.b.builder.getNamedAttr("axis", n.b.builder.getI64IntegerAttr(axis)));
}
// Entry `index` along `axis`, which disappears.
Value entry(Node &n, Value x, int64_t axis, int64_t index) {
  Dims shape(shapeOf(x));
  shape.erase(shape.begin() + axis);
  return n.b.reshape(n.b.slice(x, axis, index, 1), shape);
}

// The steps of a Scan over these states and sequences; what it gives to its outputs.
SmallVector<Value> scanned(Node &n, Block &body, onnx::NodeOp end, SmallVector<Value> states, ArrayRef<Value> sequences,
                           ArrayRef<int64_t> axes, int64_t steps) {
  const size_t stacked = end.getInputs().size() - states.size();
  auto list = [&](StringRef name, size_t count) {
    Dims values = n.ints(name, Dims(count, 0));
    if (values.size() != count) n.fail(("its attribute '" + name + "' has not one number for each").str());
    return values;
  };
  const Dims ways = list(n.version() < 9 ? "directions" : "scan_input_directions", sequences.size());
  const Dims outputWays = list("scan_output_directions", stacked), outputAxes = list("scan_output_axes", stacked);
  SmallVector<SmallVector<Value>> outputs(stacked);
  for (int64_t step = 0; step < steps; ++step) {
    IRMapping values;
    for (auto [i, state] : llvm::enumerate(states)) values.map(body.getArgument(unsigned(i)), state);
    for (auto [i, sequence] : llvm::enumerate(sequences))
      values.map(body.getArgument(unsigned(states.size() + i)),
                 entry(n, sequence, axes[i], ways[i] ? steps - 1 - step : step));
    for (Operation &node : body)
      if (&node != end.getOperation()) n.b.builder.clone(node, values);
    for (auto [i, value] : llvm::enumerate(end.getInputs())) {
      Value given = values.lookupOrDefault(value);
      if (i < states.size())
        states[i] = given;
      else if (auto &output = outputs[i - states.size()]; outputWays[i - states.size()])
        output.insert(output.begin(), given);
      else
        output.push_back(given);
    }
  }
  SmallVector<Value> results(states);
  for (auto [output, axis] : llvm::zip(outputs, outputAxes)) results.push_back(stackedLater(n, output, axis));
  return results;
}

// All steps of a Scan at once. Before opset 9 each entry of a batch is a Scan of its own.
void expandScan(Node &n) {
  Block &body = graphOf(n, "body");
  onnx::NodeOp end = yieldOf(n, body);
  const bool isBatched = n.version() < 9;
  if (isBatched && n.has(0)) n.fail("its input 0 ('sequence_lens') is not supported");
  const int64_t count = n.integer("num_scan_inputs", 0), all = int64_t(body.getNumArguments()), carried = all - count;
  if (count < 1 || carried < 0 || int64_t(n.inputs.size()) != all + isBatched ||
      int64_t(end.getInputs().size()) < carried)
    n.fail("has a body of other operands");
  SmallVector<Value> states, sequences;
  for (int64_t i = 0; i < all; ++i) (i < carried ? states : sequences).push_back(n.in(size_t(i + isBatched)));
  Dims axes = isBatched ? Dims(count, 1) : n.ints("scan_input_axes", Dims(count, 0));
  if (int64_t(axes.size()) != count) n.fail("its attribute 'scan_input_axes' has not one number for each");
  for (auto [axis, sequence] : llvm::zip(axes, sequences)) axis = n.axis(axis, rankOf(sequence));
  const int64_t steps = shapeOf(sequences[0])[axes[0]], batch = isBatched ? shapeOf(sequences[0])[0] : 1;
  for (auto [axis, sequence] : llvm::zip(axes, sequences))
    if (shapeOf(sequence)[axis] != steps || (isBatched && shapeOf(sequence)[0] != batch))
      n.fail("its sequences differ in length");
  if (steps < 1 || batch < 1) n.fail("does not run, so that its outputs have no elements");
  int64_t nodes = 0;
  body.walk([&](Operation *) { ++nodes; });
  n.needsFew(nodes * steps);
  n.writeOut(nodes * steps * batch);
  if (!isBatched) return replace(n, scanned(n, body, end, states, sequences, axes, steps));
  SmallVector<SmallVector<Value>> results(end.getInputs().size());
  for (int64_t b = 0; b < batch; ++b) {
    auto own = [&](ArrayRef<Value> values) {
      SmallVector<Value> entries;
      for (Value value : values) {
        if (rankOf(value) == 0 || shapeOf(value)[0] != batch) n.fail("its states and sequences differ in batch");
        entries.push_back(entry(n, value, 0, b));
      }
      return entries;
    };
    SmallVector<Value> given = scanned(n, body, end, own(states), own(sequences), Dims(count, 0), steps);
    for (auto [result, value] : llvm::zip(results, given)) result.push_back(value);
  }
  SmallVector<Value> whole;
  for (ArrayRef<Value> result : results) whole.push_back(stackedLater(n, result, 0));
  replace(n, whole);
}

} // namespace

bool isBeingWrittenOut(onnx::NodeOp node) { return node->hasAttr(counter); }

void expandControlFlow(Node &n) {
  if (n.op.getOpType() == "If") return expandIf(n);
  n.op.getOpType() == "Loop" ? expandLoop(n) : expandScan(n);
}

} // namespace cleave::normalize
