#include "compiler/codegen/memory/persistent_layout.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/memory/memory_plan.h"
#include "dialects/dist/Dist.h"
#include "runtime/plan/routine.h"

namespace cleave::codegen {
using namespace mlir;

Attribute hostScalarKey(func::FuncOp function, unsigned argument) {
  if (!onnx::hostAttr.of(function, argument)) return {};
  SmallVector<Attribute> key{TypeAttr::get(function.getArgument(argument).getType())};
  for (StringRef name : {onnx::hostAttr.name(), onnx::baseAttr.name(), onnx::sinceAttr.name()})
    if (Attribute value = function.getArgAttr(argument, name)) key.push_back(value);
  return ArrayAttr::get(function.getContext(), key);
}

dist::Mesh meshOfModule(ModuleOp module) {
  dist::MeshAttr mesh = dist::meshAttr.of(module);
  return mesh ? mesh.getMesh() : dist::Mesh();
}

dist::Sharding homeLayout(onnx::ParamOp param) {
  if (auto layout = dyn_cast_or_null<dist::ShardingAttr>(param.getSharding().value_or(Attribute())))
    return layout.getSharding();
  return dist::Sharding::replicated(cast<RankedTensorType>(param.getType()).getRank());
}

int64_t programOf(func::FuncOp function) { return place::programAttr.of(function).value_or(0); }

int64_t programCount(ModuleOp module) {
  int64_t count = 1;
  for (auto function : module.getOps<func::FuncOp>()) count = std::max(count, programOf(function) + 1);
  return count;
}

SmallVector<int64_t> holdersOf(onnx::ParamOp param, int64_t programs) {
  if (auto holders = place::programsAttr.of(param)) return SmallVector<int64_t>(*holders);
  return llvm::to_vector(llvm::seq<int64_t>(0, programs));
}

std::optional<int64_t> offsetIn(onnx::ParamOp param, int64_t program, int64_t programs) {
  auto offsets = plan::programOffsetsAttr.of(param);
  SmallVector<int64_t> holders = holdersOf(param, programs);
  auto holder = llvm::find(holders, program);
  if (!offsets || holder == holders.end()) return std::nullopt;
  return (*offsets)[static_cast<size_t>(holder - holders.begin())];
}

bool isOnHost(onnx::ParamOp param) { return plan::onHostAttr.isOn(param); }

int64_t PersistentLayout::take(int64_t bytes, int64_t &end) {
  int64_t offset = end;
  end += alignUp(std::max<int64_t>(bytes, 1));
  return offset;
}

LogicalResult PersistentLayout::layOut(ModuleOp module, int64_t program) {
  const dist::Mesh mesh = meshOfModule(module);
  Builder builder(module.getContext());
  int64_t programs = programCount(module);
  std::pair<StringRef, int64_t MemoryReport::*> roles[] = {{"parameter", &MemoryReport::parameters},
                                                           {"previous_parameter", &MemoryReport::parameters},
                                                           {"running_statistic", &MemoryReport::parameters},
                                                           {"accumulator", &MemoryReport::gradients},
                                                           {"optimizer_state", &MemoryReport::optimizer}};
  size_t placed = 0, total = 0;
  for (auto [role, share] : roles) {
    int64_t begin = end;
    total = 0;
    for (auto param : module.getOps<onnx::ParamOp>()) {
      ++total;
      if (param.getRole() != role) continue;
      auto type = cast<RankedTensorType>(param.getType());
      std::vector<int64_t> local;
      std::string error;
      if (!dist::localShape(mesh, homeLayout(param), type.getShape().vec(), local, error))
        return param.emitOpError("cannot be split over the mesh: ") << error;
      Slot slot{0, elementBytes(type.getElementType())};
      for (int64_t size : local) slot.bytes *= size;
      ++placed;
      SmallVector<int64_t> holders = holdersOf(param, programs), offsets;
      if (!llvm::is_contained(holders, program)) continue;
      slot.offset = isOnHost(param) ? runtime::hostMemory + take(slot.bytes, hostEnd) : take(slot.bytes, end);
      params[FlatSymbolRefAttr::get(param.getSymNameAttr())] = slot;
      if (auto before = plan::programOffsetsAttr.of(param); before && program != holders.front())
        offsets.assign(before->begin(), before->end());
      offsets.push_back(slot.offset);
      plan::programOffsetsAttr.set(param, offsets);
    }
    memory.*share += end - begin;
  }
  if (placed != total)
    for (auto param : module.getOps<onnx::ParamOp>())
      if (llvm::none_of(roles, [&](const auto &role) { return param.getRole() == role.first; }))
        return param.emitOpError() << "has the role '" << param.getRole() << "', which is none of parameter, "
                                   << "previous_parameter, running_statistic, accumulator, optimizer_state";
  int64_t begin = end;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal() || programOf(function) != program) continue;
    for (BlockArgument argument : function.getArguments()) {
      Attribute key = hostScalarKey(function, argument.getArgNumber());
      if (key && !hosts.contains(key)) hosts[key] = take(bytesOf(argument.getType()), end);
    }
    for (auto constant : function.getOps<plan::ConstantCommandOp>())
      if (!constants.contains(constant.getValue()))
        constants[constant.getValue()] = take(bytesOf(constant.getType()), end);
  }
  memory.parameters += end - begin;
  memory.host = hostEnd;
  return success();
}

std::optional<Slot> PersistentLayout::ofParam(FlatSymbolRefAttr name) const {
  auto it = params.find(name);
  return it == params.end() ? std::nullopt : std::optional(it->second);
}

int64_t PersistentLayout::ofConstant(plan::ConstantCommandOp constant) const {
  return constants.at(constant.getValue());
}

std::optional<int64_t> PersistentLayout::ofHostScalar(func::FuncOp function, unsigned argument) const {
  Attribute key = hostScalarKey(function, argument);
  if (!key) return std::nullopt;
  return hosts.at(key);
}

} // namespace cleave::codegen
