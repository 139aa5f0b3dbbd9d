#include "compiler/codegen/persistent_layout.h"
#include "compiler/codegen/command_building.h"
#include "compiler/codegen/memory_plan.h"
#include "dialects/dist/Dist.h"

namespace cleave::codegen {
using namespace mlir;

Attribute hostScalarKey(func::FuncOp function, unsigned argument) {
  auto kind = function.getArgAttr(argument, "cleave.host");
  if (!kind) return {};
  auto type = TypeAttr::get(function.getArgument(argument).getType());
  SmallVector<Attribute> key{kind, type};
  if (Attribute base = function.getArgAttr(argument, "cleave.base")) key.push_back(base);
  return ArrayAttr::get(function.getContext(), key);
}

FailureOr<dist::Mesh> meshOfModule(ModuleOp module) {
  dist::Mesh mesh;
  auto text = module->getAttrOfType<StringAttr>("cleave.mesh");
  if (!text || text.getValue().empty()) return mesh;
  std::string error;
  if (!dist::Mesh::parse(text.str(), mesh, error)) return module.emitError("cleave.mesh: ") << error;
  return mesh;
}

dist::Sharding homeLayout(onnx::ParamOp param) {
  if (auto layout = dyn_cast_or_null<dist::ShardingAttr>(param.getSharding().value_or(Attribute())))
    return layout.getSharding();
  return dist::Sharding::replicated(cast<RankedTensorType>(param.getType()).getRank());
}

int64_t PersistentLayout::take(int64_t bytes) {
  int64_t offset = end;
  end += alignUp(std::max<int64_t>(bytes, 1));
  return offset;
}

LogicalResult PersistentLayout::layOut(ModuleOp module) {
  FailureOr<dist::Mesh> mesh = meshOfModule(module);
  if (failed(mesh)) return failure();
  Builder builder(module.getContext());
  std::pair<StringRef, int64_t MemoryReport::*> roles[] = {{"parameter", &MemoryReport::parameters},
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
      if (!dist::localShape(*mesh, homeLayout(param), type.getShape().vec(), local, error))
        return param.emitOpError("cannot be split over the mesh: ") << error;
      Slot slot{0, elementBytes(type.getElementType())};
      for (int64_t size : local) slot.bytes *= size;
      slot.offset = take(slot.bytes);
      params[FlatSymbolRefAttr::get(param.getSymNameAttr())] = slot;
      param->setAttr("plan.offset", builder.getI64IntegerAttr(slot.offset));
      ++placed;
    }
    memory.*share += end - begin;
  }
  if (placed != total)
    for (auto param : module.getOps<onnx::ParamOp>())
      if (!params.contains(FlatSymbolRefAttr::get(param.getSymNameAttr())))
        return param.emitOpError() << "has the role '" << param.getRole() << "', which is none of parameter, "
                                   << "running_statistic, accumulator, optimizer_state";
  int64_t begin = end;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal()) continue;
    for (BlockArgument argument : function.getArguments()) {
      Attribute key = hostScalarKey(function, argument.getArgNumber());
      if (key && !hosts.contains(key)) hosts[key] = take(tensorBytes(argument.getType()));
    }
    for (auto constant : function.getOps<plan::ConstantCommandOp>())
      if (!constants.contains(constant.getValue()))
        constants[constant.getValue()] = take(tensorBytes(constant.getType()));
  }
  memory.parameters += end - begin;
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
