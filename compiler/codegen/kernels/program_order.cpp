#include "compiler/codegen/kernels/program_order.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include <queue>

using namespace mlir;
namespace cleave::codegen {

bool sortInProgramOrder(Block &block) {
  if (block.empty()) return true;
  Operation *terminator = block.mightHaveTerminator() ? block.getTerminator() : nullptr;
  SmallVector<Operation *> program;
  llvm::DenseMap<Operation *, size_t> place;
  for (Operation &op : block) {
    if (&op == terminator) continue;
    place[&op] = program.size();
    program.push_back(&op);
  }
  SmallVector<size_t> waitsFor(program.size(), 0);
  SmallVector<SmallVector<size_t, 2>> readers(program.size());
  for (auto [index, op] : llvm::enumerate(program))
    op->walk([&, index = index](Operation *inner) { // values may be read inside a region
      for (Value operand : inner->getOperands()) {
        auto producer = place.find(operand.getDefiningOp());
        if (producer == place.end() || producer->second == index) continue;
        ++waitsFor[index];
        readers[producer->second].push_back(index);
      }
    });
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t index = 0; index < program.size(); ++index)
    if (waitsFor[index] == 0) ready.push(index);
  SmallVector<size_t> order;
  while (!ready.empty()) {
    size_t next = ready.top();
    ready.pop();
    order.push_back(next);
    for (size_t reader : readers[next])
      if (--waitsFor[reader] == 0) ready.push(reader);
  }
  if (order.size() != program.size()) return false;
  for (size_t index : order) program[index]->moveBefore(&block, terminator ? Block::iterator(terminator) : block.end());
  return true;
}

} // namespace cleave::codegen
