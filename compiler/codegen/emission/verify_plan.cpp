#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_list.h"
#include "compiler/codegen/commands/strided_view.h"
#include "compiler/codegen/emission/emit_command.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "runtime/plan/routine.h"
#include "llvm/ADT/StringMap.h"
#include <map>

namespace cleave::codegen {
#define GEN_PASS_DEF_VERIFYPLAN
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

struct Range {
  int64_t begin, end; // bytes
};

Range rangeOf(Value value) {
  int64_t begin = addressOf(value);
  return {begin, begin + bytesOf(value.getType())};
}

// Which value each byte of the arena holds.
class Ownership {
public:
  void write(Range range, const void *owner) {
    if (range.begin == range.end) return;
    splitAt(range.begin);
    splitAt(range.end);
    owners.erase(owners.lower_bound(range.begin), owners.lower_bound(range.end));
    owners[range.begin] = {range.end, owner};
  }
  // Not found where the whole range holds the value, by `holds(owner)`; else who has some of it.
  struct Intruder {
    bool found = false;
    Range range{0, 0};
    const void *owner = nullptr;
  };
  Intruder intruder(Range range, llvm::function_ref<bool(const void *)> holds) const {
    int64_t at = range.begin;
    while (at < range.end) {
      auto next = owners.upper_bound(at);
      if (next == owners.begin()) return {true, {at, range.end}, nullptr};
      auto holder = std::prev(next);
      if (holder->second.end <= at) return {true, {at, range.end}, nullptr};
      if (!holds(holder->second.owner))
        return {true, {at, std::min(range.end, holder->second.end)}, holder->second.owner};
      at = holder->second.end;
    }
    return {};
  }

private:
  struct Held {
    int64_t end;
    const void *owner;
  };
  void splitAt(int64_t position) {
    auto next = owners.lower_bound(position);
    if (next == owners.begin()) return;
    auto holder = std::prev(next);
    if (holder->second.end <= position) return;
    owners[position] = {holder->second.end, holder->second.owner};
    holder->second.end = position;
  }
  std::map<int64_t, Held> owners; // by begin
};

class FragmentCheck {
public:
  FragmentCheck(func::FuncOp function, int64_t arenaBytes, int64_t hostBytes, int64_t programs)
      : function(function), arenaBytes(arenaBytes), hostBytes(hostBytes), programs(programs), list(function) {}

  LogicalResult run() {
    Block &block = function.getBody().front();
    for (auto param : cast<ModuleOp>(function->getParentOp()).getOps<onnx::ParamOp>())
      persistent[FlatSymbolRefAttr::get(param.getSymNameAttr())] = param;
    for (BlockArgument argument : block.getArguments())
      if (failed(write(function, argument))) return failure();
    for (Operation &op : block) // what is there before the first command
      if (isa<plan::ConstantCommandOp, onnx::ReadOp>(op) && failed(write(&op, op.getResult(0)))) return failure();
    std::multimap<int64_t, Operation *> finishing; // collectives by where compute has waited for them
    for (Operation &op : block) {
      for (auto it = finishing.begin(); it != finishing.end() && it->first <= list.position(&op);
           it = finishing.erase(it))
        if (failed(readAll(it->second, /*finished=*/true))) return failure();
      if (isa<plan::ViewOp, plan::ConstantCommandOp, onnx::ReadOp>(op)) continue;
      if (failed(readAll(&op))) return failure();
      if (auto store = dyn_cast<plan::StoreOp>(op)) {
        if (failed(checkStore(store))) return failure();
        continue;
      }
      for (Value result : op.getResults())
        if (failed(write(&op, result))) return failure();
      if (streamOf(&op) != 0) finishing.emplace(list.busyUntil(&op), &op);
      if (failed(checkSequence(&op))) return failure();
    }
    for (auto &[position, op] : finishing)
      if (failed(readAll(op, /*finished=*/true))) return failure();
    return checkPersistent();
  }

private:
  // The identity of the value that lies at a place: reads of one persistent tensor are the same value.
  const void *ownerOf(Value value) const {
    Value root = bufferViewOf(value).root;
    if (auto read = root.getDefiningOp<onnx::ReadOp>()) return read.getParamAttr().getAsOpaquePointer();
    if (auto constant = root.getDefiningOp<plan::ConstantCommandOp>()) return constant.getValue().getAsOpaquePointer();
    return root.getAsOpaquePointer();
  }
  // A part of a concatenation that lies in its result stays there: the concatenation did not change its bytes.
  bool isPartOf(Value root, const void *owner) const {
    return llvm::any_of(list.usesOf(root), [&](OpOperand *use) {
      auto concat = dyn_cast<plan::ConcatCommandOp>(use->getOwner());
      if (!concat) return false;
      int64_t place = addressOf(concat.getY());
      for (Value before : concat.getXs().take_front(use->getOperandNumber())) place += bytesOf(before.getType());
      bool leading = llvm::all_of(concat.getY().getType().getShape().take_front(concat.getAxis()),
                                  [](int64_t size) { return size == 1; });
      return leading && addressOf(use->get()) == place &&
             (concat.getY().getAsOpaquePointer() == owner || isPartOf(concat.getY(), owner));
    });
  }
  std::string describe(const void *owner) const {
    if (!owner) return "nothing";
    for (auto &[name, param] : persistent)
      if (name.getAsOpaquePointer() == owner)
        return ("the persistent tensor @" + cast<FlatSymbolRefAttr>(name).getValue()).str();
    for (Value root : list.rootsInOrder())
      if (root.getAsOpaquePointer() == owner)
        return root.getDefiningOp() ? ("a result of '" + root.getDefiningOp()->getName().getStringRef() +
                                       "' at position " + Twine(list.position(root)))
                                          .str()
                                    : std::string("an argument");
    return "a constant";
  }

  LogicalResult write(Operation *op, Value value) {
    Range range = rangeOf(value);
    bool hostward = range.begin >= runtime::hostMemory;
    if (hostward && !(isa<onnx::ReadOp, func::FuncOp>(op) || isEvict(op)))
      return op->emitOpError("writes to the host's memory, which only a copy does");
    if (hostward ? range.end - runtime::hostMemory > hostBytes : range.begin < 0 || range.end > arenaBytes)
      return op->emitOpError() << "writes bytes " << range.begin << " to " << range.end << " of an arena of "
                               << arenaBytes;
    if (pitchedRowsOf(value)) return writeRows(op, value);
    bytes.write(range, ownerOf(value));
    return success();
  }

  // The concatenation that the value lies in; none where its place in it is another.
  plan::ConcatCommandOp wholeOf(Value value, PitchedRows rows) const {
    const auto &uses = list.usesOf(value);
    auto concat = uses.size() == 1 ? dyn_cast<plan::ConcatCommandOp>(uses.front()->getOwner()) : nullptr;
    if (!concat) return {};
    auto elementsOfRow = [&](Value part) {
      int64_t count = 1;
      for (int64_t size : cast<RankedTensorType>(part.getType()).getShape().drop_front(concat.getAxis())) count *= size;
      return count;
    };
    int64_t before = 0;
    for (Value part : concat.getXs().take_front(uses.front()->getOperandNumber())) before += elementsOfRow(part);
    const int64_t place = addressOf(concat.getY()) + before * elementBytes(concat.getType().getElementType());
    return place == addressOf(value) && rows.row == elementsOfRow(uses.front()->get()) &&
                   rows.pitch == elementsOfRow(concat.getY())
               ? concat
               : plan::ConcatCommandOp();
  }
  LogicalResult writeRows(Operation *op, Value value) {
    plan::ConcatCommandOp concat = wholeOf(value, *pitchedRowsOf(value));
    if (!concat) return op->emitOpError("writes rows that are not those of a part of a concatenation");
    const Range range = rangeOf(concat.getY());
    if (range.end > arenaBytes) return op->emitOpError("writes rows past the arena");
    const void *whole = ownerOf(concat.getY());
    if (begun.insert(concat).second) {
      bytes.write(range, whole);
      return success();
    }
    auto intruder = bytes.intruder(range, [&](const void *owner) { return owner == whole; });
    if (!intruder.found) return success();
    return op->emitOpError() << "writes between rows whose bytes " << intruder.range.begin << " to "
                             << intruder.range.end << " hold " << describe(intruder.owner) << " by then";
  }

  LogicalResult readAll(Operation *op, bool finished = false) {
    for (Value operand : op->getOperands()) {
      bool stays = isa<plan::StoreOp>(op) || op->hasTrait<OpTrait::IsTerminator>(); // moves no bytes
      if (rangeOf(operand).begin >= runtime::hostMemory && !isFetch(op) && !stays)
        return op->emitOpError("reads the host's memory, which only a copy does");
      bool inPlace = finished && llvm::any_of(op->getResults(), [&](Value result) {
                       return rangeOf(result).begin == rangeOf(operand).begin;
                     });
      if (inPlace) continue;
      const bool isInRows =
          pitchedRowsOf(bufferViewOf(operand).root).has_value(); // of the concatenation, which is `op`
      auto intruder = bytes.intruder(rangeOf(isInRows ? op->getResult(0) : operand), [&](const void *owner) {
        return isInRows ? owner == ownerOf(op->getResult(0))
                        : owner == ownerOf(operand) || isPartOf(bufferViewOf(operand).root, owner);
      });
      if (!intruder.found) continue;
      return op->emitOpError() << "reads a value whose bytes " << intruder.range.begin << " to " << intruder.range.end
                               << " hold " << describe(intruder.owner) << " by then";
    }
    return success();
  }

  LogicalResult checkStore(plan::StoreOp store) {
    auto param = persistent.lookup(store.getParamAttr());
    if (!param) return store.emitOpError("stores to a persistent tensor that does not exist");
    auto held = offsetIn(param, programOf(function), programs);
    if (!held) return store.emitOpError("stores to a persistent tensor that its program does not hold");
    int64_t offset = *held;
    Range slot{offset, offset + bytesOf(store.getValue().getType())};
    if (store.getInPlace() && rangeOf(store.getValue()).begin != offset)
      return store.emitOpError("says it is in place, but its value lies elsewhere");
    const void *owner = ownerOf(store.getValue());
    if (!store.getInPlace()) bytes.write(slot, owner);
    stored[store.getParamAttr()] = {slot, owner};
    return success();
  }

  LogicalResult checkSequence(Operation *op) {
    auto collective = dyn_cast<plan::CollectiveCommandOp>(op);
    if (!collective) return success();
    int64_t &expected = sequences[groupName(collective.getAxes())];
    if (int64_t(collective.getSequence()) != expected)
      return op->emitOpError() << "is number " << expected << " of its group, but says " << collective.getSequence();
    ++expected;
    return success();
  }

  LogicalResult checkPersistent() {
    for (auto &[name, value] : stored) {
      auto intruder = bytes.intruder(value.first, [&](const void *owner) { return owner == value.second; });
      if (intruder.found)
        return function.emitOpError() << "ends with " << describe(intruder.owner) << " in " << name
                                      << ", which was to hold another value";
    }
    for (Operation &op : function.getOps()) {
      auto read = dyn_cast<onnx::ReadOp>(op);
      if (!read || stored.contains(read.getParamAttr())) continue;
      auto intruder = bytes.intruder(rangeOf(read.getValue()),
                                     [&](const void *owner) { return owner == ownerOf(read.getValue()); });
      if (intruder.found)
        return function.emitOpError() << "overwrites " << read.getParamAttr() << " with " << describe(intruder.owner);
    }
    return success();
  }

  func::FuncOp function;
  int64_t arenaBytes, hostBytes, programs;
  CommandList list;
  Ownership bytes;
  llvm::DenseMap<Attribute, onnx::ParamOp> persistent;
  llvm::DenseMap<Attribute, std::pair<Range, const void *>> stored;
  llvm::StringMap<int64_t> sequences;
  llvm::DenseSet<Operation *> begun; // concatenations of which a part in rows is written
};

struct VerifyPlan : impl::VerifyPlanBase<VerifyPlan> {
  void runOnOperation() override {
    auto arena = plan::arenaBytesAttr.of(getOperation()); // one a program
    auto host = plan::hostBytesAttr.of(getOperation());
    if (!arena) {
      getOperation().emitError("has no plan.arena_bytes: run plan-memory first");
      return signalPassFailure();
    }
    for (auto kernel : getOperation().getOps<plan::KernelOp>())
      if (size_t buffers = kernel.getTensorArguments().size() + kernel.getYield().getNumOperands();
          buffers > maxBuffers) {
        kernel.emitOpError() << "has " << buffers << " buffers; " << maxBuffers << " are the most";
        return signalPassFailure();
      }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(FragmentCheck(function, (*arena)[programOf(function)],
                                                         host ? (*host)[programOf(function)] : 0, arena->size())
                                               .run()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace cleave::codegen
