#include "dialects/plan/Plan.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialects/plan/PlanDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

namespace cleave::plan {
using namespace mlir;

LogicalResult PlanDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  static const OwnedAttributeRule rules[] = {
      owned(streamAttr, isAny, "a command"),
      owned(recordAttr, isAny, "a command"),
      owned(waitAttr, isAny, "a command"),
      owned(offsetsAttr, isAny, "a command"),
      owned(rowsAttr, isAny, "a command"),
      owned(linkAttr, isAny, "a copy"),
      owned(programOffsetsAttr, isAny, "an onnx.param"),
      owned(onHostAttr, isAny, "an onnx.param"),
      owned(slotRegionAttr, isFunction, "a function"),
      owned(arenaBytesAttr, isModule, "a module"),
      owned(hostBytesAttr, isModule, "a module"),
      owned(persistentBytesAttr, isModule, "a module"),
      owned(memoryAttr, isModule, "a module"),
      owned(offloadAttr, isModule, "a module"),
      owned(domainAttr, isAny, "a kernel"),
      owned(reducedAttr, isAny, "a kernel"),
      owned(loopsAttr, isAny, "an operation of a kernel"),
      owned(scalarAttr, isAny, "an operation of a kernel"),
      owned(operationsAttr, isAny, "a kernel"),
      owned(blocksAttr, isFunction, "a function"),
  };
  return verifyOwned(op, attribute, rules);
}
LogicalResult PlanDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return verifyOwned(op, attribute, owned(offsetAttr, isFunction, "an argument"));
}

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/plan/PlanAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/plan/PlanOps.cpp.inc"
      >();
}

LogicalResult AffineOfCoordinateAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t base, ArrayAttr axes,
                                             DenseI64ArrayAttr strides) {
  if (!axes || !strides || static_cast<int64_t>(axes.size()) != strides.size())
    return emitError() << "needs as many strides as groups of axes";
  for (Attribute group : axes) {
    auto names = dyn_cast<ArrayAttr>(group);
    if (!names || !llvm::all_of(names, llvm::IsaPred<StringAttr>))
      return emitError() << "axes must be arrays of mesh axis names, but one is " << group;
  }
  return success();
}

//===--- plan.kernel
//------------------------------------------------------------------------------------------------===//

static size_t countTensors(Block &block) {
  size_t count = 0;
  while (count < block.getNumArguments() && isa<RankedTensorType>(block.getArgument(count).getType())) ++count;
  return count;
}
Block::BlockArgListType KernelOp::getTensorArguments() {
  return getBlock().getArguments().take_front(countTensors(getBlock()));
}
Block::BlockArgListType KernelOp::getScalarArguments() {
  return getBlock().getArguments().drop_front(countTensors(getBlock()));
}
YieldOp KernelOp::getYield() { return cast<YieldOp>(getBlock().getTerminator()); }

LogicalResult KernelOp::verify() {
  for (BlockArgument scalar : getScalarArguments())
    if (!scalar.getType().isInteger(64))
      return emitOpError() << "takes tensors and then i64 scalars, but argument " << scalar.getArgNumber() << " is "
                           << scalar.getType();
  if (getBlock().empty() || !isa<YieldOp>(getBlock().back())) return emitOpError("must end with plan.yield");
  return success();
}

// plan.kernel @name(%x: tensor<..>, %start: i64) attributes {...} { ... }
ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(), result.attributes) ||
      parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren, /*allowType=*/true) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  return parser.parseRegion(*result.addRegion(), arguments);
}
void KernelOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << '(';
  llvm::interleaveComma(getBlock().getArguments(), printer,
                        [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {SymbolTable::getSymbolAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

//===--- plan.launch
//------------------------------------------------------------------------------------------------===//

LogicalResult LaunchOp::verify() {
  if (getExtent() < 1 || getGrain() < 1) return emitOpError("needs a positive extent and grain");
  ArrayRef<int64_t> pairs = getInplace();
  if (pairs.size() % 2 != 0) return emitOpError("inplace must be pairs (input, result)");
  for (size_t i = 0; i < pairs.size(); i += 2)
    if (pairs[i] < 0 || pairs[i] >= static_cast<int64_t>(getInputs().size()) || pairs[i + 1] < 0 ||
        pairs[i + 1] >= static_cast<int64_t>(getResults().size()))
      return emitOpError() << "inplace pair (" << pairs[i] << ", " << pairs[i + 1] << ") is out of range";
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel) return emitOpError() << "no plan.kernel is called " << getKernelAttr();
  auto matches = [&](Type mine, Type its) {
    return kernel.getFlat() ? getElementTypeOrSelf(mine) == getElementTypeOrSelf(its) : mine == its;
  };
  auto arguments = kernel.getTensorArguments();
  if (arguments.size() != getInputs().size() || kernel.getScalarArguments().size() != getScalars().size())
    return emitOpError() << "gives " << getInputs().size() << " inputs and " << getScalars().size() << " scalars to "
                         << getKernelAttr() << ", which takes " << arguments.size() << " and "
                         << kernel.getScalarArguments().size();
  for (auto [input, argument] : llvm::zip(getInputs(), arguments))
    if (!matches(input.getType(), argument.getType()))
      return emitOpError() << "input of type " << input.getType() << " does not match " << argument.getType();
  auto values = kernel.getYield().getValues();
  if (values.size() != getResults().size())
    return emitOpError() << "number of results differs from " << getKernelAttr();
  for (auto [result, value] : llvm::zip(getResults(), values))
    if (!matches(result.getType(), value.getType()))
      return emitOpError() << "result of type " << result.getType() << " does not match " << value.getType();
  return success();
}

} // namespace cleave::plan
