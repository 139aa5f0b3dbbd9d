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

// What the iterations give to one output, side by side: `values` of [count x stacked], each a step of its own.
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

} // namespace

bool isBeingWrittenOut(onnx::NodeOp node) { return node->hasAttr(counter); }

void expandControlFlow(Node &n) { n.op.getOpType() == "If" ? expandIf(n) : expandLoop(n); }

} // namespace cleave::normalize
