#include "compiler/training/export_reference.h"
#include "compiler/elements/element_data.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::training {
namespace {

class Exporter {
public:
  explicit Exporter(plan::Graph &graph) : graph(graph) {}

  LogicalResult exportFunction(func::FuncOp function) {
    plan::GraphFunction &out = *graph.add_functions();
    out.set_name(function.getName().str());
    for (BlockArgument argument : function.getArguments()) // what is not read needs no value
      if (!argument.use_empty() && failed(exportInput(function, argument, *out.add_inputs()))) return failure();
    if (failed(exportNodes(function.front(), out))) return failure();
    for (auto [i, value] : llvm::enumerate(function.front().getTerminator()->getOperands())) {
      plan::GraphOutput &output = *out.add_outputs();
      if (auto name = onnx::nameAttr.ofResult(function, i)) output.set_name(name->str());
      if (auto of = onnx::gradientOfAttr.ofResult(function, i)) output.set_name("gradient/" + of.getValue().str());
      output.set_value(indices.at(value));
    }
    return success();
  }

  LogicalResult exportBlock(Block &block, StringRef name, StringRef indexShift) {
    shift = indexShift;
    plan::GraphFunction &out = *graph.add_functions();
    out.set_name(name.str());
    for (BlockArgument argument : block.getArguments()) {
      if (!isa<RankedTensorType>(argument.getType())) continue;
      FailureOr<int32_t> index = define(argument, block.getParentOp());
      if (failed(index)) return failure();
      out.add_inputs()->set_value(*index);
    }
    if (failed(exportNodes(block, out))) return failure();
    for (Value value : block.getTerminator()->getOperands()) out.add_outputs()->set_value(indices.at(value));
    return success();
  }

private:
  plan::Graph &graph;
  DenseMap<Value, int32_t> indices;
  StringRef shift; // empty: none

  LogicalResult exportNodes(Block &block, plan::GraphFunction &out) {
    for (Operation &op : block.without_terminator()) {
      out.add_nodes(graph.nodes_size());
      if (failed(exportNode(op, *graph.add_nodes()))) return failure();
    }
    return success();
  }

  FailureOr<int32_t> define(Value value, Operation *where) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    plan::DType dtype = type ? dtypeOf(type.getElementType()) : plan::DTYPE_INVALID;
    if (dtype == plan::DTYPE_INVALID || !type.hasStaticShape())
      return where->emitOpError() << value.getType() << " has no place in the reference graph";
    int32_t index = graph.values_size();
    plan::GraphValue &out = *graph.add_values();
    out.set_dtype(dtype);
    for (int64_t size : type.getShape()) out.add_shape(size);
    indices[value] = index;
    return index;
  }

  LogicalResult exportInput(func::FuncOp function, BlockArgument argument, plan::GraphInput &input) {
    unsigned i = argument.getArgNumber();
    FailureOr<int32_t> index = define(argument, function);
    if (failed(index)) return failure();
    input.set_value(*index);
    if (auto name = onnx::nameAttr.of(function, i)) input.set_name(name->str());
    input.set_label(onnx::labelAttr.of(function, i));
    auto host = onnx::hostAttr.of(function, i);
    if (!host) return success();
    plan::HostScalar &scalar = *input.mutable_host_scalar();
    if (host == "learning_rate")
      scalar.set_kind(plan::HostScalar::LEARNING_RATE);
    else if (host == "one_minus_power")
      scalar.set_kind(plan::HostScalar::ONE_MINUS_POWER);
    else if (host == "step")
      scalar.set_kind(plan::HostScalar::STEP);
    else
      return function.emitOpError() << "unknown host scalar " << *host;
    if (auto base = onnx::baseAttr.of(function, i)) scalar.set_base(*base);
    if (auto since = onnx::sinceAttr.of(function, i)) scalar.set_since(*since);
    return success();
  }

  LogicalResult exportNode(Operation &op, plan::GraphNode &node) {
    node.set_op(op.getName().stripDialect().str());
    if (auto name = dyn_cast<NameLoc>(op.getLoc())) node.set_name(name.getName().str());
    for (Value operand : op.getOperands()) node.add_operands(indices.at(operand));
    for (Value result : op.getResults()) {
      FailureOr<int32_t> index = define(result, &op);
      if (failed(index)) return failure();
      node.add_results(*index);
    }
    if (auto read = dyn_cast<onnx::ReadOp>(op))
      node.set_op("Read"), node.set_symbol(read.getParam().str());
    else if (auto write = dyn_cast<onnx::WriteOp>(op))
      node.set_op("Write"), node.set_symbol(write.getParam().str());
    else
      return exportAttributes(op, node);
    return success();
  }

  // That an axis splits no dimension.
  static bool saysNothing(Attribute attribute) {
    auto list = dyn_cast<ArrayAttr>(attribute);
    return list && llvm::all_of(list, saysNothing);
  }

  // Inherent attributes only: discardable ones (place.at) mean nothing to the evaluator.
  LogicalResult exportAttributes(Operation &op, plan::GraphNode &node) {
    auto registered = op.getRegisteredInfo();
    if (!registered) return op.emitOpError() << "is no core op";
    if (auto scalar = shift.empty() ? IntegerAttr() : op.getAttrOfType<IntegerAttr>(shift))
      (*node.mutable_attributes())["scalar"].add_ints(scalar.getInt());
    for (StringAttr name : registered->getAttributeNames()) {
      Attribute attribute = op.getInherentAttr(name).value_or(Attribute());
      if (!attribute || isa<TypeAttr>(attribute) || saysNothing(attribute)) continue;
      plan::GraphAttribute out;
      if (auto ints = dyn_cast<DenseI64ArrayAttr>(attribute))
        out.mutable_ints()->Add(ints.asArrayRef().begin(), ints.asArrayRef().end());
      else if (auto flag = dyn_cast<BoolAttr>(attribute))
        out.add_ints(flag.getValue());
      else if (auto integer = dyn_cast<IntegerAttr>(attribute))
        out.add_ints(integer.getInt());
      else if (isa<UnitAttr>(attribute))
        out.add_ints(1);
      else if (auto real = dyn_cast<FloatAttr>(attribute))
        out.add_floats(real.getValueAsDouble());
      else if (auto text = dyn_cast<StringAttr>(attribute))
        out.set_text(text.str());
      else if (auto elements = dyn_cast<ElementsAttr>(attribute)) {
        FailureOr<std::string> data = elementData(elements);
        if (failed(data)) return op.emitOpError() << "its value cannot be written to the reference graph";
        out.set_tensor(std::move(*data));
      } else {
        return op.emitOpError() << "attribute " << name << " belongs to partitioned code";
      }
      (*node.mutable_attributes())[name.str()] = std::move(out);
    }
    return success();
  }
};

} // namespace

LogicalResult exportReference(ModuleOp module, plan::Graph &graph) {
  graph.Clear();
  Exporter exporter(graph);
  for (auto function : module.getOps<func::FuncOp>())
    if (failed(exporter.exportFunction(function))) return failure();
  return success();
}

LogicalResult exportBlock(Block &block, StringRef name, StringRef indexShift, plan::Graph &graph) {
  return Exporter(graph).exportBlock(block, name, indexShift);
}

} // namespace cleave::training
