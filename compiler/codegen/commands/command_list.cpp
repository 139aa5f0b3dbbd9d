#include "compiler/codegen/commands/command_list.h"
#include "compiler/codegen/commands/command_building.h"

namespace cleave::codegen {
using namespace mlir;

BufferView bufferViewOf(Value value) {
  BufferView place{value, 0};
  while (auto view = place.root.getDefiningOp<plan::ViewOp>()) {
    auto element = cast<RankedTensorType>(view.getType()).getElementType();
    place.offset += int64_t(view.getOffset()) * elementBytes(element);
    place.root = view.getX();
  }
  return place;
}

bool isProduct(Operation *op) {
  return isa<plan::ContractCommandOp, plan::GroupedContractCommandOp, plan::ConvolutionCommandOp,
             plan::AttentionCommandOp>(op);
}

int64_t streamOf(Operation *op) {
  auto stream = plan::streamAttr.of(op);
  return stream ? *stream : 0;
}

CommandList::CommandList(func::FuncOp function) {
  Block &block = function.getBody().front();
  for (Value argument : block.getArguments()) roots.push_back(argument);
  for (Operation &op : block) {
    positions[&op] = ++last;
    if (isa<plan::ViewOp>(op)) continue;
    for (Value result : op.getResults()) roots.push_back(result);
    for (OpOperand &operand : op.getOpOperands()) uses[bufferViewOf(operand.get()).root].push_back(&operand);
  }

  // Streams other than compute keep their own order: whoever waits for one command has waited for those before it.
  llvm::DenseMap<int64_t, SmallVector<Operation *>> running; // by stream, in order
  llvm::DenseMap<int64_t, Operation *> recorder;             // of an event
  for (Operation &op : block) {
    auto finish = [&](Operation *waiting, auto &&self) -> void {
      auto waits = plan::waitAttr.of(waiting);
      if (!waits) return;
      for (int64_t event : *waits) {
        Operation *awaited = recorder.lookup(event);
        if (!awaited || streamOf(awaited) == 0) continue;
        auto &queue = running[streamOf(awaited)];
        auto found = llvm::find(queue, awaited);
        if (found == queue.end()) continue;
        SmallVector<Operation *> done(queue.begin(), found + 1);
        queue.erase(queue.begin(), found + 1);
        for (Operation *other : done) asyncEnds[other] = positions[&op];
        for (Operation *other : done) self(other, self);
      }
    };
    if (streamOf(&op) == 0) finish(&op, finish);
    if (auto record = plan::recordAttr.of(&op)) recorder[*record] = &op;
    if (streamOf(&op) != 0) running[streamOf(&op)].push_back(&op);
  }
  for (auto &[stream, queue] : running)
    for (Operation *op : queue) asyncEnds[op] = end();

  for (Value root : roots) {
    Operation *definition = root.getDefiningOp();
    int64_t until = definition ? busyUntil(definition) : 0;
    for (OpOperand *use : usesOf(root)) until = std::max(until, busyUntil(use->getOwner()));
    lastUses[root] = until;
  }
}

int64_t CommandList::position(Value root) const {
  Operation *definition = root.getDefiningOp();
  return definition ? position(definition) : 0;
}

int64_t CommandList::busyUntil(Operation *op) const {
  auto async = asyncEnds.find(op);
  if (async != asyncEnds.end()) return async->second;
  return op->hasTrait<OpTrait::IsTerminator>() ? end() : position(op);
}

const SmallVector<OpOperand *, 4> &CommandList::usesOf(Value root) const {
  static const SmallVector<OpOperand *, 4> none;
  auto it = uses.find(root);
  return it == uses.end() ? none : it->second;
}

} // namespace cleave::codegen
