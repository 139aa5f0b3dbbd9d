#include "compiler/codegen/memory/slot_layout.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_list.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "runtime/plan/routine.h"
#include "llvm/ADT/DenseSet.h"

namespace cleave::codegen {
using namespace mlir;

void SlotLayout::collect(Region &region) {
  llvm::DenseSet<int64_t> evicted; // numbers of what lies in the host's memory
  auto keep = [&](Value value, int64_t id, int64_t position) {
    Copy &copy = evicted.contains(id) ? region.away : region.here;
    auto [entry, fresh] = copy.kept.try_emplace(id, copy.buffers.size());
    if (fresh) copy.buffers.push_back({bytesOf(value.getType()), position, position});
    copy.buffers[entry->second].last = position;
    copy.members.emplace_back(value, entry->second);
  };
  for (auto [position, function] : llvm::enumerate(region.functions)) {
    for (BlockArgument argument : function.getArguments())
      if (auto number = place::keptAttr.of(function, argument.getArgNumber()))
        keep(argument, *number, static_cast<int64_t>(position));
    Operation *terminator = function.getBody().front().getTerminator();
    llvm::DenseSet<Value> kept;
    for (OpOperand &operand : terminator->getOpOperands())
      if (auto number = place::keptAttr.ofResult(function, operand.getOperandNumber())) {
        Value root = bufferViewOf(operand.get()).root;
        if (Operation *definition = root.getDefiningOp(); definition && isEvict(definition)) evicted.insert(*number);
        keep(root, *number, static_cast<int64_t>(position));
        kept.insert(root);
      }
    for (auto receive : function.getOps<plan::ReceiveCommandOp>()) {
      if (kept.contains(receive.getY())) continue;
      region.here.members.emplace_back(receive.getY(), region.here.buffers.size());
      region.here.buffers.push_back(
          {bytesOf(receive.getY().getType()), static_cast<int64_t>(position), static_cast<int64_t>(position)});
    }
  }
}

int64_t SlotLayout::place(const Copy &copy, int64_t begin) {
  if (copy.buffers.empty()) return 0;
  MemoryPlan plan = planMemory(copy.buffers);
  for (auto &[value, buffer] : copy.members) offsets[value] = begin + plan.offsets[buffer];
  return alignUp(plan.peak);
}

void SlotLayout::layOut(ModuleOp module, int64_t program, int64_t begin, int64_t hostBegin) {
  llvm::MapVector<StringRef, Region> regions;
  for (auto function : module.getOps<func::FuncOp>())
    if (auto name = place::regionAttr.of(function); name && programOf(function) == program)
      regions[*name].functions.push_back(function);
  struct Ends {
    int64_t here, away;
  };
  llvm::StringMap<Ends> ends; // by routine, the part of the name before the dot
  last = begin;
  hostLast = hostBegin;
  Builder builder(module.getContext());
  int64_t number = 0;
  for (auto &[name, region] : regions) {
    collect(region);
    Ends &end = ends.try_emplace(name.split('.').first, Ends{begin, hostBegin}).first->second;
    const int64_t copies = place::slotsAttr.of(region.functions.front()).value_or(1),
                  hostPlace = runtime::hostMemory + end.away;
    int64_t bytes = place(region.here, end.here), hostBytes = place(region.away, hostPlace);
    for (func::FuncOp function : region.functions)
      plan::slotRegionAttr.set(function, {end.here, bytes, copies, number, hostPlace, hostBytes});
    ++number;
    end.here += bytes * copies;
    end.away += hostBytes * copies;
    last = std::max(last, end.here);
    hostLast = std::max(hostLast, end.away);
  }
}

std::optional<int64_t> SlotLayout::offsetOf(Value root) const {
  auto found = offsets.find(root);
  return found == offsets.end() ? std::nullopt : std::optional(found->second);
}

} // namespace cleave::codegen
