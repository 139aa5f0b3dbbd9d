#include "dialects/dist/Dist.h"
#include "llvm/ADT/TypeSwitch.h"

// A keyword that `named` knows.
template <typename Kind>
static llvm::FailureOr<Kind> parseNamed(mlir::AsmParser &parser, std::optional<Kind> (*named)(std::string_view)) {
  llvm::StringRef word;
  const llvm::SMLoc at = parser.getCurrentLocation();
  if (mlir::failed(parser.parseKeyword(&word))) return mlir::failure();
  if (std::optional<Kind> kind = named(std::string_view(word))) return *kind;
  return parser.emitError(at, "unknown name '") << word << "'", mlir::failure();
}
llvm::FailureOr<cleave::dist::Collective> mlir::FieldParser<cleave::dist::Collective>::parse(mlir::AsmParser &parser) {
  return parseNamed(parser, cleave::dist::collectiveNamed);
}
llvm::FailureOr<cleave::dist::Reduction> mlir::FieldParser<cleave::dist::Reduction>::parse(mlir::AsmParser &parser) {
  return parseNamed(parser, cleave::dist::reductionNamed);
}

#include "dialects/dist/DistDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/dist/DistOps.cpp.inc"

namespace cleave::dist {

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/dist/DistAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/dist/DistOps.cpp.inc"
      >();
}

llvm::LogicalResult ShardingAttr::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                         llvm::StringRef layout) {
  Sharding parsed;
  std::string error;
  if (!Sharding::parse(layout.str(), parsed, error)) return emitError() << "bad sharding: " << error;
  return llvm::success();
}

void AllReduceOp::getEffects(
    llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>> &effects) {
  if (llvm::any_of(getAxes().getAsValueRange<mlir::StringAttr>(), isPipelineAxis))
    effects.emplace_back(mlir::MemoryEffects::Write::get());
}

Sharding ShardingAttr::getSharding() const {
  Sharding parsed;
  std::string error;
  bool valid = Sharding::parse(getLayout().str(), parsed, error);
  (void)valid; // verified when the attribute was made
  return parsed;
}

llvm::LogicalResult MeshAttr::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError, llvm::StringRef text) {
  Mesh parsed;
  std::string error;
  if (!Mesh::parse(text.str(), parsed, error)) return emitError() << "bad mesh: " << error;
  return llvm::success();
}
Mesh MeshAttr::getMesh() const {
  Mesh parsed;
  std::string error;
  bool valid = Mesh::parse(getText().str(), parsed, error);
  (void)valid; // verified when the attribute was made
  return parsed;
}
MeshAttr MeshAttr::get(mlir::MLIRContext *context, const Mesh &mesh) {
  return get(context, llvm::StringRef(mesh.str()));
}

// "[dp, tp]"
static mlir::ParseResult parseAxes(mlir::AsmParser &parser, Axes &axes) {
  return parser.parseCommaSeparatedList(mlir::AsmParser::Delimiter::Square, [&]() -> mlir::ParseResult {
    std::string axis;
    if (parser.parseKeywordOrString(&axis)) return mlir::failure();
    axes.push_back(std::move(axis));
    return mlir::success();
  });
}
static void printAxes(mlir::AsmPrinter &printer, AxesAttr axes) {
  printer << "[";
  llvm::interleaveComma(axes.getNames(), printer, [&](mlir::StringAttr name) { printer << name.getValue(); });
  printer << "]";
}

Axes AxesAttr::getAxes() const {
  Axes axes;
  for (mlir::StringAttr name : getNames()) axes.push_back(name.str());
  return axes;
}
AxesAttr AxesAttr::get(mlir::MLIRContext *context, const Axes &axes) {
  llvm::SmallVector<mlir::StringAttr> names;
  for (const std::string &axis : axes) names.push_back(mlir::StringAttr::get(context, axis));
  return get(context, names);
}
mlir::Attribute AxesAttr::parse(mlir::AsmParser &parser, mlir::Type) {
  Axes axes;
  if (parser.parseLess() || parseAxes(parser, axes) || parser.parseGreater()) return {};
  return get(parser.getContext(), axes);
}
void AxesAttr::print(mlir::AsmPrinter &printer) const {
  printer << "<";
  printAxes(printer, *this);
  printer << ">";
}

FactorSharding FactorsAttr::getFactors() const {
  FactorSharding factors;
  for (AxesAttr axes : getAxes()) factors.push_back(axes.getAxes());
  return factors;
}
FactorsAttr FactorsAttr::get(mlir::MLIRContext *context, const FactorSharding &factors, const Axes &partial) {
  llvm::SmallVector<AxesAttr> axes;
  for (const Axes &factor : factors) axes.push_back(AxesAttr::get(context, factor));
  return get(context, axes, AxesAttr::get(context, partial));
}
mlir::Attribute FactorsAttr::parse(mlir::AsmParser &parser, mlir::Type) {
  FactorSharding factors;
  Axes partial;
  auto parseFactor = [&] { return parseAxes(parser, factors.emplace_back()); };
  if (parser.parseLess()) return {};
  if (parser.parseOptionalGreater()) {
    if (parser.parseCommaSeparatedList(parseFactor)) return {};
    if (mlir::succeeded(parser.parseOptionalKeyword("partial")) && parseAxes(parser, partial)) return {};
    if (parser.parseGreater()) return {};
  }
  return get(parser.getContext(), factors, partial);
}
void FactorsAttr::print(mlir::AsmPrinter &printer) const {
  printer << "<";
  llvm::interleaveComma(getAxes(), printer, [&](AxesAttr axes) { printAxes(printer, axes); });
  if (!getPartial().getNames().empty()) {
    printer << " partial ";
    printAxes(printer, getPartial());
  }
  printer << ">";
}

llvm::LogicalResult DistDialect::verifyOperationAttribute(mlir::Operation *op, mlir::NamedAttribute attribute) {
  static const OwnedAttributeRule rules[] = {
      owned(factorsAttr, isAny, "an operation"),         owned(resultsAttr, isAny, "an operation"),
      owned(updateShardingAttr, isAny, "an onnx.param"), owned(meshAttr, isModule, "a module"),
      owned(zeroAxesAttr, isModule, "a module"),         owned(batchAxesAttr, isModule, "a module"),
      owned(gathersAgainAttr, isModule, "a module"),     owned(tensorsAttr, isAny, "a collective"),
      owned(orderAttr, isAny, "a collective"),           owned(channelAttr, isAny, "a transfer"),
      owned(crossesAttr, isAny, "a transfer"),           owned(buffersAttr, isAny, "a transfer"),
  };
  return verifyOwned(op, attribute, rules);
}
llvm::LogicalResult DistDialect::verifyRegionArgAttribute(mlir::Operation *op, unsigned, unsigned,
                                                          mlir::NamedAttribute attribute) {
  return verifyOwned(op, attribute, owned(layoutAttr, isFunction, "an argument"));
}

ShardingAttr ShardingAttr::get(mlir::MLIRContext *context, const Sharding &sharding) {
  return get(context, llvm::StringRef(sharding.str()));
}

} // namespace cleave::dist
