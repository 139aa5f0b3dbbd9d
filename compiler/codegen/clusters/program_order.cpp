#include "compiler/codegen/clusters/program_order.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include <queue>

using namespace mlir;
namespace cleave::codegen {

namespace {

using Readers = SmallVector<SmallVector<size_t, 2>>;

// The one that is due first comes next, among those that wait for nothing. Fewer than `count`: some wait for each
// other.
SmallVector<size_t> ordered(size_t count, SmallVector<size_t> waitsFor, const Readers &readers,
                            llvm::function_ref<size_t(size_t)> due) {
  using Entry = std::pair<size_t, size_t>; // when it is due, its place
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (size_t index = 0; index < count; ++index)
    if (waitsFor[index] == 0) ready.push({due(index), index});
  SmallVector<size_t> order;
  while (!ready.empty()) {
    size_t next = ready.top().second;
    ready.pop();
    order.push_back(next);
    for (size_t reader : readers[next])
      if (--waitsFor[reader] == 0) ready.push({due(reader), reader});
  }
  return order;
}

} // namespace

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
  Readers readers(program.size());
  for (auto [index, op] : llvm::enumerate(program))
    op->walk([&, index = index](Operation *inner) { // values may be read inside a region
      for (Value operand : inner->getOperands()) {
        auto producer = place.find(operand.getDefiningOp());
        if (producer == place.end() || producer->second == index) continue;
        ++waitsFor[index];
        readers[producer->second].push_back(index);
      }
    });
  SmallVector<size_t> order = ordered(program.size(), waitsFor, readers, [](size_t index) { return index; });
  if (order.size() != program.size()) return false;
  // A value that is read early is due early, wherever it stood.
  SmallVector<size_t> due(program.size());
  for (size_t index : llvm::reverse(order)) {
    due[index] = index;
    for (size_t reader : readers[index]) due[index] = std::min(due[index], due[reader]);
  }
  order = ordered(program.size(), waitsFor, readers, [&](size_t index) { return due[index]; });
  for (size_t index : order) program[index]->moveBefore(&block, terminator ? Block::iterator(terminator) : block.end());
  return true;
}

} // namespace cleave::codegen
