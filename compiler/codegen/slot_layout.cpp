#include "compiler/codegen/slot_layout.h"
#include "compiler/codegen/command_building.h"
#include "compiler/codegen/command_list.h"
#include "compiler/codegen/persistent_layout.h"

namespace cleave::codegen {
using namespace mlir;

void SlotLayout::collect(Region &region) {
  auto keep = [&](Value value, Attribute number, int64_t position) {
    int64_t id = cast<IntegerAttr>(number).getInt();
    auto [entry, fresh] = region.kept.try_emplace(id, region.buffers.size());
    if (fresh) region.buffers.push_back({tensorBytes(value.getType()), position, position});
    region.buffers[entry->second].last = position;
    region.members.emplace_back(value, entry->second);
  };
  for (auto [position, function] : llvm::enumerate(region.functions)) {
    for (BlockArgument argument : function.getArguments())
      if (Attribute number = function.getArgAttr(argument.getArgNumber(), "cleave.kept"))
        keep(argument, number, static_cast<int64_t>(position));
    Operation *terminator = function.getBody().front().getTerminator();
    llvm::DenseSet<Value> kept;
    for (OpOperand &operand : terminator->getOpOperands())
      if (Attribute number = function.getResultAttr(operand.getOperandNumber(), "cleave.kept")) {
        Value root = placeOf(operand.get()).root;
        keep(root, number, static_cast<int64_t>(position));
        kept.insert(root);
      }
    for (auto receive : function.getOps<plan::ReceiveCommandOp>()) {
      if (kept.contains(receive.getY())) continue;
      region.members.emplace_back(receive.getY(), region.buffers.size());
      region.buffers.push_back(
          {tensorBytes(receive.getY().getType()), static_cast<int64_t>(position), static_cast<int64_t>(position)});
    }
  }
}

void SlotLayout::layOut(ModuleOp module, int64_t program, int64_t begin) {
  llvm::MapVector<Attribute, Region> regions;
  for (auto function : module.getOps<func::FuncOp>())
    if (Attribute name = function->getAttr("cleave.region"); name && programOf(function) == program)
      regions[name].functions.push_back(function);
  llvm::StringMap<int64_t> ends; // by routine, the part of the name before the dot
  last = begin;
  Builder builder(module.getContext());
  int64_t number = 0;
  for (auto &[name, region] : regions) {
    collect(region);
    MemoryPlan plan = planMemory(region.buffers);
    int64_t &end = ends.try_emplace(cast<StringAttr>(name).getValue().split('.').first, begin).first->second;
    auto slots = region.functions.front()->getAttrOfType<IntegerAttr>("cleave.slots");
    int64_t copies = slots ? slots.getInt() : 1, bytes = alignUp(plan.peak);
    if (region.buffers.empty()) bytes = 0;
    for (auto &[value, buffer] : region.members) offsets[value] = end + plan.offsets[buffer];
    for (func::FuncOp function : region.functions)
      function->setAttr("plan.slot_region", builder.getDenseI64ArrayAttr({end, bytes, copies, number}));
    ++number;
    end += bytes * copies;
    last = std::max(last, end);
  }
}

std::optional<int64_t> SlotLayout::offsetOf(Value root) const {
  auto found = offsets.find(root);
  return found == offsets.end() ? std::nullopt : std::optional(found->second);
}

} // namespace cleave::codegen
