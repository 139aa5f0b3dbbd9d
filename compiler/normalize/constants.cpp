#include "compiler/normalize/constants.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cstring>

using namespace mlir;
namespace cleave::normalize {

using runtime::HostTensor;

runtime::TensorType tensorTypeOf(Type type) {
  auto ranked = cast<RankedTensorType>(type);
  return {dtypeOf(ranked.getElementType()), ranked.getShape().vec()};
}

HostTensor toHostTensor(ElementsAttr attribute) {
  runtime::TensorType type = tensorTypeOf(attribute.getType());
  HostTensor tensor = HostTensor::zeros(type.dtype, type.shape);
  FailureOr<std::string> bytes = elementData(attribute);
  if (failed(bytes) || bytes->empty()) return tensor;
  auto *to = reinterpret_cast<char *>(tensor.data.data()); // a splat is repeated
  for (size_t at = 0; at < tensor.data.size(); at += bytes->size()) llvm::copy(*bytes, to + at);
  return tensor;
}

DenseElementsAttr toAttribute(const HostTensor &tensor, RankedTensorType type) {
  int64_t count = tensor.elements(), bytes = runtime::byteSize(tensor.dtype);
  bool splat = count > 1;
  for (int64_t at = bytes; splat && at < count * bytes; ++at) splat = tensor.data[at] == tensor.data[at - bytes];
  auto *raw = reinterpret_cast<const char *>(tensor.data.data());
  if (tensor.dtype == plan::BOOL) {
    if (splat) return DenseElementsAttr::get(type, raw[0] != 0);
    SmallVector<bool> values(raw, raw + count);
    return DenseElementsAttr::get(type, values);
  }
  return DenseElementsAttr::getFromRawBuffer(type, ArrayRef<char>(raw, splat ? bytes : count * bytes));
}

DenseElementsAttr constantOf(Value value) {
  auto constant = value ? value.getDefiningOp<onnx::ConstantOp>() : onnx::ConstantOp();
  return constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
}

static HostTensor splatElement(DenseElementsAttr attribute) {
  return toHostTensor(attribute.resizeSplat(RankedTensorType::get({}, attribute.getElementType())));
}

std::optional<double> splatOf(Value value) { return onnx::splatNumber(constantOf(value)); }

runtime::Attributes evaluatorAttributes(Operation *op) {
  runtime::Attributes result;
  for (NamedAttribute named : op->getAttrDictionary()) {
    std::string name = named.getName().str();
    llvm::TypeSwitch<Attribute>(named.getValue())
        .Case([&](DenseI64ArrayAttr a) { result[name] = runtime::Ints(a.asArrayRef()); })
        .Case([&](IntegerAttr a) {
          bool isBool = a.getType().isInteger(1);
          result[name] = runtime::Ints{isBool ? int64_t(a.getValue().getZExtValue()) : a.getValue().getSExtValue()};
        })
        .Case([&](FloatAttr a) { result[name] = a.getValueAsDouble(); })
        .Case([&](UnitAttr) { result[name] = runtime::Ints{}; })
        .Case([&](StringAttr a) { result[name] = a.str(); })
        .Case([&](ElementsAttr a) { result[name] = toHostTensor(a); });
  }
  return result;
}

static std::string evaluatorName(Operation *op) { return op->getName().stripDialect().str(); }

static Result<HostTensor> evaluateAs(Operation *op, ArrayRef<const HostTensor *> operands,
                                     const runtime::TensorType &type) {
  auto result = runtime::evaluate(evaluatorName(op), std::span(operands.data(), operands.size()),
                                  evaluatorAttributes(op), {&type, 1});
  if (!result) return result.status();
  return std::move(result->front());
}
static Result<HostTensor> evaluateAs(Operation *op, ArrayRef<HostTensor> operands, const runtime::TensorType &type) {
  SmallVector<const HostTensor *> pointers;
  for (const HostTensor &operand : operands) pointers.push_back(&operand);
  return evaluateAs(op, ArrayRef(pointers), type);
}

Result<HostTensor> evaluateOp(Operation *op, ArrayRef<HostTensor> operands) {
  return evaluateAs(op, operands, tensorTypeOf(op->getResult(0).getType()));
}

std::optional<HostTensor> repeatedConstant(Value value, int64_t limit) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getNumElements() > limit) return std::nullopt;
  if (DenseElementsAttr attribute = constantOf(value)) return toHostTensor(attribute);
  auto broadcast = value.getDefiningOp<onnx::BroadcastOp>();
  DenseElementsAttr source = broadcast ? constantOf(broadcast.getX()) : DenseElementsAttr();
  if (!source) return std::nullopt;
  HostTensor operands[] = {toHostTensor(source)};
  auto result = evaluateOp(broadcast, operands);
  return result ? std::optional(std::move(*result)) : std::nullopt;
}

SmallVector<int64_t> varyingDims(DenseElementsAttr value) {
  HostTensor tensor = toHostTensor(value);
  std::vector<int64_t> strides = runtime::rowMajorStrides(tensor.shape);
  int64_t bytes = runtime::byteSize(tensor.dtype), count = tensor.elements();
  SmallVector<int64_t> dims;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    bool varies = false;
    for (int64_t i = 0; !varies && i < count; ++i)
      if (i / strides[d] % tensor.shape[d] != 0)
        varies = std::memcmp(&tensor.data[i * bytes], &tensor.data[(i - strides[d]) * bytes], size_t(bytes)) != 0;
    if (varies) dims.push_back(int64_t(d));
  }
  return dims;
}

DenseElementsAttr foldOp(Operation *op, int64_t limit) {
  if (op->getNumResults() != 1 || op->getNumOperands() == 0 || onnx::isConstant(op)) return {};
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (dtypeOf(type.getElementType()) == plan::DTYPE_INVALID) return {};
  SmallVector<HostTensor> operands;
  if (op->hasTrait<onnx::PerElement>() && llvm::all_of(op->getOperands(), onnx::isSplat)) {
    for (Value operand : op->getOperands()) operands.push_back(splatElement(constantOf(operand)));
    auto element = evaluateAs(op, operands, {dtypeOf(type.getElementType()), {}});
    if (!element) return {};
    return toAttribute(*element, RankedTensorType::get({}, type.getElementType())).resizeSplat(type);
  }
  if (type.getNumElements() > limit || isa<onnx::BroadcastOp>(op)) return {};
  // Movement of a broadcast becomes a broadcast (dialects/onnx/canonicalize.cpp), which is smaller.
  bool moves = onnx::isView(op);
  for (Value operand : op->getOperands()) {
    if (moves && !constantOf(operand)) return {};
    auto tensor = repeatedConstant(operand, 16 * limit);
    if (!tensor) return {};
    operands.push_back(std::move(*tensor));
  }
  auto result = evaluateOp(op, operands);
  return result ? toAttribute(*result, type) : DenseElementsAttr();
}

namespace {
// Evaluates what a value is made of, everything once. Gives up beyond `limit` elements of one tensor, four times as
// many of all of them, and a depth that the stack bears.
class DemandedEvaluation {
public:
  explicit DemandedEvaluation(int64_t limit) : limit(limit), left(4 * limit) {}

  const HostTensor *evaluate(Value value, int depth = 0) {
    constexpr int deepest = 2000;
    auto [at, isNew] = known.try_emplace(value);
    if (!isNew || depth > deepest) return at->second.get();
    std::optional<HostTensor> tensor = compute(value, depth);
    return tensor ? (known[value] = std::make_unique<HostTensor>(std::move(*tensor))).get() : nullptr;
  }

private:
  std::optional<HostTensor> compute(Value value, int depth) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || !type.hasStaticShape()) return std::nullopt;
    int64_t count = type.getNumElements();
    if (count > limit || count > left) return std::nullopt;
    left -= count;
    if (DenseElementsAttr attribute = constantOf(value)) return toHostTensor(attribute);
    Operation *op = value.getDefiningOp();
    if (auto mark =
            dyn_cast_or_null<UnrealizedConversionCastOp>(op)) { // how many entries data may select (selection.h)
      const HostTensor *most = evaluate(mark.getOperand(0), depth + 1);
      return most ? std::optional(*most) : std::nullopt;
    }
    if (!op || !runtime::canEvaluate(evaluatorName(op)) || op->getName().getDialectNamespace() != "onnx" ||
        isa<onnx::RandomUniformOp>(op))
      return std::nullopt;
    SmallVector<const HostTensor *> operands;
    for (Value operand : op->getOperands()) {
      operands.push_back(evaluate(operand, depth + 1));
      if (!operands.back()) return std::nullopt;
    }
    auto result = evaluateAs(op, operands, tensorTypeOf(type));
    return result ? std::optional(std::move(*result)) : std::nullopt;
  }

  int64_t limit, left;
  llvm::DenseMap<Value, std::unique_ptr<HostTensor>> known; // null: not to be had
};
} // namespace

std::optional<HostTensor> evaluateOnDemand(Value value, int64_t limit) {
  DemandedEvaluation evaluation(limit);
  const HostTensor *tensor = evaluation.evaluate(value);
  return tensor ? std::optional(*tensor) : std::nullopt;
}

} // namespace cleave::normalize
