#include "compiler/normalize/control_flow.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

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

// The operands of a Loop: trip count, condition, carried values; then, as iterations are written out, what each of them
// gives to the outputs that are stacked. "iteration" counts them.
void expandLoop(Node &n) {
  constexpr StringRef counter = "iteration";
  Block &body = graphOf(n, "body");
  onnx::NodeOp end = yieldOf(n, body);
  SmallVector<Value> operands(n.op.getInputs());
  const int64_t carried = int64_t(body.getNumArguments()) - 2, stacked = int64_t(end.getInputs().size()) - 1 - carried;
  if (carried < 0 || stacked < 0 || int64_t(operands.size()) < 2 + carried) n.fail("has a body of other operands");
  auto known = n.op->getAttrOfType<IntegerAttr>(counter);
  const int64_t done = known ? known.getInt() : 0;
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
    for (int64_t i = 0; i < done; ++i)
      parts.push_back(n.b.insertOnes(operands[size_t(2 + carried + i * stacked + output)], {0}));
    results.push_back(n.b.concat(parts, 0));
  }
  replace(n, results);
}

} // namespace

void expandControlFlow(Node &n) { n.op.getOpType() == "If" ? expandIf(n) : expandLoop(n); }

} // namespace cleave::normalize
