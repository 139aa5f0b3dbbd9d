// Operators that make values from nothing or from shapes: constants once dimensions are bound.
#include "compiler/normalize/narrow_types.h"
#include "compiler/normalize/selection.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
namespace cleave::normalize {
namespace {

Value constantIn(Node &n, DenseElementsAttr value) {
  Value constant = n.b.constant(inCarrier(value));
  return isNarrow(value.getElementType()) ? asNarrow(n, constant, value.getElementType()) : constant;
}

Values constant(Node &n) {
  if (auto value = dyn_cast_or_null<DenseElementsAttr>(n.attribute("value"))) return {constantIn(n, value)};
  MLIRContext *context = n.b.builder.getContext();
  auto make = [&](plan::DType dtype, Dims shape, std::vector<double> values) -> Values {
    auto tensor = runtime::HostTensor::ofReals(dtype, {shape.begin(), shape.end()}, values);
    return {n.b.constant(toAttribute(tensor, RankedTensorType::get(shape, elementTypeOf(context, dtype))))};
  };
  if (n.attribute("value_float")) return make(plan::F32, {}, {n.real("value_float", 0)});
  if (auto floats = dyn_cast_or_null<DenseF32ArrayAttr>(n.attribute("value_floats"))) {
    std::vector<double> values(floats.asArrayRef().begin(), floats.asArrayRef().end());
    return make(plan::F32, {floats.size()}, values);
  }
  if (auto values = n.ints("value_ints")) return {n.b.integers(*values)};
  if (n.attribute("value_int")) return {n.b.reshape(n.b.integers({n.integer("value_int", 0)}), {})};
  n.fail("holds no tensor, float or integer (strings and sparse tensors are not supported)");
}

Values shape(Node &n) {
  int64_t rank = rankOf(n.in(0));
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t start = clamp(n.integer("start", 0)), end = clamp(n.integer("end", rank));
  return {n.b.integers(shapeOf(n.in(0)).slice(start, std::max<int64_t>(end - start, 0)))};
}
Values size(Node &n) { return {n.b.reshape(n.b.integers({typeOf(n.in(0)).getNumElements()}), {})}; }

Values constantOfShape(Node &n) {
  Dims shape = n.constantInts(0);
  n.b.checkSize(shape);
  auto value = dyn_cast_or_null<DenseElementsAttr>(n.attribute("value"));
  if (!value) return {n.b.splat(RankedTensorType::get(shape, n.b.builder.getF32Type()), 0)};
  if (value.getNumElements() != 1) n.fail("its value must be one element");
  auto element = value.reshape(RankedTensorType::get({}, value.getElementType()));
  return {constantIn(n, element.resizeSplat(RankedTensorType::get(shape, value.getElementType())))};
}

Values range(Node &n) {
  runtime::HostTensor start = n.constantTensor(0);
  bool real = runtime::isFloat(start.dtype);
  if (real) {
    double from = n.constantReal(0), to = n.constantReal(1), step = n.constantReal(2);
    if (step == 0) n.fail("its step is 0");
    double count = std::ceil((to - from) / step);
    if (!(count <= double(demandFoldLimit)))
      n.fail("lists " + llvm::formatv("{0}", count).str() + " elements; at most " + Twine(demandFoldLimit) +
             " are supported");
    std::vector<double> values(count > 0 ? size_t(count) : 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = from + double(i) * step;
    return {n.b.constant(runtime::HostTensor::ofReals(start.dtype, {int64_t(values.size())}, values))};
  }
  int64_t from = n.constantInt(0), to = n.constantInt(1), step = n.constantInt(2);
  if (step == 0) n.fail("its step is 0");
  __int128 distance = __int128(to) - from, size = step < 0 ? -__int128(step) : __int128(step);
  if (step < 0) distance = -distance;
  __int128 count = distance > 0 ? (distance - 1) / size + 1 : 0;
  n.needsFew(int64_t(std::min<__int128>(count, INT64_MAX)));
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = from + int64_t(i) * step;
  return {n.b.constant(runtime::HostTensor::ofIntegers(start.dtype, {int64_t(values.size())}, values))};
}

Values eyeLike(Node &n) {
  ArrayRef<int64_t> shape = shapeOf(n.in(0));
  if (shape.size() != 2) n.fail("needs a matrix");
  Value row = n.b.add(n.b.indexAlong(shape, 0), double(n.integer("k", 0)));
  Type to = n.attribute("dtype") ? n.elementType(n.integer("dtype", 0)) : elementOf(n.in(0));
  return {n.b.cast(n.b.binary<onnx::EqualOp>(row, n.b.indexAlong(shape, 1)), to)};
}

Values trilu(Node &n) {
  Value x = n.in(0);
  int64_t rank = rankOf(x), k = n.has(1) ? n.constantInt(1) : 0;
  if (rank < 2) n.fail("needs at least two dimensions");
  ArrayRef<int64_t> plane = shapeOf(x).take_back(2);
  Value row = n.b.add(n.b.indexAlong(plane, 0), double(k)), column = n.b.indexAlong(plane, 1);
  Value kept = n.integer("upper", 1) ? n.b.binary<onnx::LessOrEqualOp>(row, column)
                                     : n.b.binary<onnx::GreaterOrEqualOp>(row, column);
  return {n.b.where(kept, x, n.b.scalar(x, 0))};
}

Values oneHot(Node &n) {
  Value indices = n.in(0), offOn = n.in(2);
  int64_t depth = n.constantInt(1), rank = rankOf(indices) + 1, axis = n.axis(n.integer("axis", -1), rank);
  Dims shape(shapeOf(indices));
  shape.insert(shape.begin() + axis, depth);
  Value index = n.b.cast(indices, n.b.builder.getI64Type());
  Value wrapped =
      n.b.where(n.b.binary<onnx::LessOp>(index, n.b.scalar(index, 0)), n.b.add(index, double(depth)), index);
  Value hot = n.b.binary<onnx::EqualOp>(n.b.insertOnes(wrapped, {axis}), n.b.indexAlong(shape, axis));
  Value off = n.b.reshape(n.b.slice(offOn, 0, 0, 1), {}), on = n.b.reshape(n.b.slice(offOn, 0, 1, 1), {});
  return {n.b.where(hot, on, off)};
}

Values nonZero(Node &n) {
  if (!evaluateOnDemand(n.in(0))) return {selectPositions(n, n.in(0))};
  runtime::HostTensor x = n.constantTensor(0);
  std::vector<double> values = x.reals();
  std::vector<int64_t> strides = runtime::rowMajorStrides(x.shape), found;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != 0) found.push_back(int64_t(i));
  std::vector<int64_t> result;
  for (size_t d = 0; d < x.shape.size(); ++d)
    for (int64_t i : found) result.push_back(i / strides[d] % x.shape[d]);
  return {n.b.constant(
      runtime::HostTensor::ofIntegers(plan::I64, {int64_t(x.shape.size()), int64_t(found.size())}, result))};
}

} // namespace

void addShapeOps(Rules &rules) {
  rules.add("Constant", constant);
  rules.add("Shape", shape);
  rules.add("Size", size);
  rules.add("ConstantOfShape", constantOfShape);
  rules.add("Range", range);
  rules.add("EyeLike", eyeLike);
  rules.add("Trilu", trilu);
  rules.add("OneHot", oneHot);
  rules.add("NonZero", nonZero);
}

} // namespace cleave::normalize
