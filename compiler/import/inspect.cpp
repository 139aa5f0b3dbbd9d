#include "compiler/import/inspect.h"
#include "compiler/import/import.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cleave::import_ {
namespace {

std::string dtypeOf(Type element) {
  if (element.isF32()) return "float32";
  if (element.isF64()) return "float64";
  if (element.isF16()) return "float16";
  if (element.isBF16()) return "bfloat16";
  if (element.isInteger(1)) return "bool";
  if (auto integer = dyn_cast<IntegerType>(element))
    return (integer.isUnsigned() ? "uint" : "int") + std::to_string(integer.getWidth());
  return "unknown";
}

std::vector<std::string> stringsOf(Attribute attribute) {
  std::vector<std::string> result;
  if (auto array = dyn_cast_or_null<ArrayAttr>(attribute))
    for (Attribute entry : array) result.push_back(cast<StringAttr>(entry).str());
  return result;
}

std::string stringOf(Attribute attribute) {
  auto text = dyn_cast_or_null<StringAttr>(attribute);
  return text ? text.str() : "";
}

// The numbers of a type, with names where the argument attribute `dims` has them.
InspectedValue valueOf(const std::string &name, Type type, const std::vector<std::string> &dims) {
  InspectedValue value{name, "unknown", {}};
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped) return value;
  value.dtype = dtypeOf(shaped.getElementType());
  if (!shaped.hasRank()) return value;
  for (auto [i, size] : llvm::enumerate(shaped.getShape()))
    value.shape.push_back(!ShapedType::isDynamic(size)          ? std::to_string(size)
                          : i < dims.size() && !dims[i].empty() ? dims[i]
                                                                : "?");
  return value;
}

void readParam(onnx::ParamOp op, Inspection &seen) {
  auto type = cast<RankedTensorType>(op.getType());
  InspectedParameter parameter;
  parameter.name = op.getSymName().str();
  parameter.dtype = dtypeOf(type.getElementType());
  parameter.shape = type.getShape();
  parameter.elements = type.getNumElements();
  parameter.bytes = parameter.elements * std::max(1u, type.getElementTypeBitWidth() / 8);
  parameter.role = op.getRole().str();
  parameter.trainable = op.getTrainable();
  parameter.kind = onnx::kindAttr.of(op).value_or("").str();
  parameter.why = onnx::whyAttr.of(op).value_or("").str();
  parameter.nodes = onnx::nodesAttr.of(op);
  parameter.aliases = stringsOf(op->getAttr("aliases"));
  for (const std::string &alias : onnx::transposedAliasesAttr.of(op))
    parameter.aliases.push_back(alias + " (transposed)");
  parameter.foldedFrom = onnx::foldedFromAttr.of(op);
  parameter.stateKeys = onnx::stateKeysAttr.of(op);
  parameter.file = op.getPath().value_or("").str();
  (parameter.role == "running_statistic" ? seen.statisticElements
   : parameter.trainable                 ? seen.trainedElements
                                         : seen.frozenElements) += parameter.elements;
  seen.parameterBytes += parameter.bytes;
  seen.parameters.push_back(std::move(parameter));
}

using Others = llvm::StringMap<DictionaryAttr>; // tensors that are no onnx.param, by name

Others othersOf(ModuleOp module) {
  Others others;
  for (auto tensor : onnx::otherTensorsAttr.of(module).getAsRange<DictionaryAttr>())
    others.try_emplace(stringOf(tensor.get("name")), tensor);
  return others;
}

void readConstant(onnx::ConstantOp op, const Others &others, Inspection &seen) {
  auto type = cast<ShapedType>(op.getValue().getType());
  if (type.getNumElements() < 2) return;
  auto name = dyn_cast<NameLoc>(op.getLoc());
  InspectedConstant constant{name ? name.getName().str() : "",
                             dtypeOf(type.getElementType()),
                             type.getShape(),
                             type.getNumElements(),
                             "constant",
                             "a number of the graph",
                             isa<FloatType>(type.getElementType())};
  if (auto known = others.find(constant.name); known != others.end()) {
    constant.kind = stringOf(known->second.get("kind"));
    constant.why = stringOf(known->second.get("why"));
  }
  seen.constants.push_back(std::move(constant));
}

void readNode(onnx::NodeOp op, const SupportsOperator &supports, Inspection &seen) {
  std::string domain = op.getDomain().str(), name = op.getOpType().str();
  if (domain == "cleave") return;
  int64_t version = op.getVersion();
  ++seen.operators[domain.empty() ? name : domain + "." + name];
  if (supports(domain, name, version)) return;
  for (UnsupportedOperator &known : seen.unsupported)
    if (known.domain == domain && known.op == name) return known.nodes.push_back(op.getNodeName().str());
  seen.unsupported.push_back({domain, name, version, {op.getNodeName().str()}, {}});
}

// Which outputs each operator that is not supported is needed for.
void readNeeds(func::FuncOp function, Inspection &seen) {
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    llvm::DenseSet<Operation *> needed;
    std::vector<Operation *> pending{function.front().getTerminator()->getOperand(i).getDefiningOp()};
    while (!pending.empty()) {
      Operation *op = pending.back();
      pending.pop_back();
      if (!op || !needed.insert(op).second) continue;
      op->walk([&](Operation *inner) { // a body reads values from outside, too
        for (Value operand : inner->getOperands()) pending.push_back(operand.getDefiningOp());
      });
    }
    for (UnsupportedOperator &unsupported : seen.unsupported)
      if (llvm::any_of(needed, [&](Operation *op) {
            auto node = dyn_cast<onnx::NodeOp>(op);
            return node && llvm::is_contained(unsupported.nodes, node.getNodeName());
          }))
        unsupported.outputs.push_back(seen.outputs[i].name);
  }
}

void readSignature(func::FuncOp function, Inspection &seen) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    seen.inputs.push_back(valueOf(onnx::nameAttr.of(function, i).value_or("").str(), function.getArgumentTypes()[i],
                                  onnx::dimsAttr.of(function, i)));
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    seen.outputs.push_back(
        valueOf(onnx::nameAttr.ofResult(function, i).value_or("").str(), function.getResultTypes()[i], {}));
}

} // namespace

std::vector<TensorRole> tensorRoles(ModuleOp module) {
  Inspection seen;
  const Others others = othersOf(module);
  for (auto param : module.getOps<onnx::ParamOp>()) readParam(param, seen);
  module->walk([&](onnx::ConstantOp constant) { readConstant(constant, others, seen); });
  std::vector<TensorRole> rows;
  for (const InspectedParameter &one : seen.parameters)
    rows.push_back({one.stateKeys.empty() ? one.name : one.stateKeys.front(), one.shape, one.kind, one.why});
  for (const InspectedConstant &one : seen.constants) rows.push_back({one.name, one.shape, one.kind, one.why});
  return rows;
}

Inspection inspectModule(ModuleOp module, const SupportsOperator &supports) {
  Inspection seen;
  seen.path = onnx::pathAttr.of(module).value_or("").str();
  seen.producer = onnx::producerAttr.of(module).value_or("").str();
  seen.irVersion = onnx::irVersionAttr.of(module).value_or(0);
  seen.opset = onnx::opsetAttr.of(module).value_or(0);
  seen.ties = onnx::tiesAttr.of(module);
  seen.source = onnx::sourceAttr.of(module).value_or("").str();
  for (auto doubt : onnx::doubtsAttr.of(module).getAsRange<DictionaryAttr>())
    seen.doubts.push_back({stringOf(doubt.get("text")), stringsOf(doubt.get("tensors"))});
  seen.notes = onnx::notesAttr.of(module);
  for (const std::string &note : onnx::exportNotesAttr.of(module)) seen.notes.push_back(note);
  for (const std::string &note : onnx::missingFilesAttr.of(module)) seen.notes.push_back(note);
  const Others others = othersOf(module);
  module->walk([&](Operation *op) {
    if (auto param = dyn_cast<onnx::ParamOp>(op)) readParam(param, seen);
    if (auto constant = dyn_cast<onnx::ConstantOp>(op)) readConstant(constant, others, seen);
    if (auto node = dyn_cast<onnx::NodeOp>(op)) readNode(node, supports, seen);
    if (auto function = dyn_cast<func::FuncOp>(op); function && function.getName() == "model")
      readSignature(function, seen);
  });
  if (auto model = module.lookupSymbol<func::FuncOp>("model"); model && !seen.unsupported.empty())
    readNeeds(model, seen);
  return seen;
}

} // namespace cleave::import_
