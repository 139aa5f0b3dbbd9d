// Quantization: exact forwards, and backwards as if nothing were rounded (a straight-through estimator, as PyTorch's
// fake_quantize has it): the slope is 1 where a number is in the type's range, 0 outside.
//
//   v = clip(x / s + StopGradient(round(x / s) - x / s) + z)    the integers, as floats that take a gradient
//   q = Cast(v)                                                 what QuantizeLinear gives
//
// FunctionState::quantized knows v of q, so that DequantizeLinear reads v, and a gradient goes through both.
#include "compiler/normalize/narrow_types.h"
#include "compiler/normalize/window.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

// Numbers of 24 bits are exact in f32; sums of products of quantized numbers may need f64.
Value quantizedNumbers(Node &n, size_t i, Type to) {
  Value x = n.in(i);
  if (Value known = n.state.quantized.lookup(x)) return n.b.cast(known, to);
  if (Type narrow = n.narrow(i)) return decoded(n, x, narrow, to);
  return n.b.cast(x, to);
}

// A scale or zero point as it applies to x: one number, one for each index along `axis`, or one for each block.
Value perBlock(Node &n, Value parameter, ArrayRef<int64_t> shape) {
  const int64_t rank = int64_t(shape.size()), block = n.integer("block_size", 0);
  if (typeOf(parameter).getNumElements() == 1) return n.b.reshape(parameter, {});
  const int64_t axis = n.axis(n.integer("axis", 1), rank);
  if (block == 0) {
    if (rankOf(parameter) != 1 || shapeOf(parameter)[0] != shape[axis])
      n.fail("needs one scale and zero point, or one for each of the " + Twine(shape[axis]) + " indices along axis " +
             Twine(axis));
    Dims ones(rank, 1);
    ones[axis] = shape[axis];
    return n.b.reshape(parameter, ones);
  }
  Dims blocks(shape);
  blocks[axis] = (shape[axis] + block - 1) / block;
  if (shapeOf(parameter) != ArrayRef(blocks)) n.fail("its scale and zero point do not have one entry for each block");
  Dims wide(shapeOf(parameter)), dims = countUp(rank), whole(shapeOf(parameter));
  wide.insert(wide.begin() + axis + 1, block);
  for (int64_t &d : dims) d += d > axis;
  whole[axis] *= block;
  n.b.checkSize(wide);
  Value repeated = n.b.create<onnx::BroadcastOp>(parameter, n.b.builder.getDenseI64ArrayAttr(wide),
                                                 n.b.builder.getDenseI64ArrayAttr(dims));
  return n.b.slice(n.b.reshape(repeated, whole), axis, 0, shape[axis]);
}

Value zeroPoint(Node &n, size_t i, ArrayRef<int64_t> shape, Type to) {
  return n.b.unary<onnx::StopGradientOp>(perBlock(n, quantizedNumbers(n, i, to), shape));
}

Value straightThrough(Node &n, Value x, Value rounded) {
  Value y = n.b.add(x, n.b.unary<onnx::StopGradientOp>(n.b.sub(rounded, x)));
  return n.b.where(n.b.unary<onnx::IsInfOp>(x), n.b.unary<onnx::StopGradientOp>(rounded), y);
}
// The slope is 1 on the ends, too.
Value inRange(Node &n, Value x, double low, double high) {
  x = n.b.where(n.b.binary<onnx::LessOp>(x, n.b.scalar(x, low)), n.b.scalar(x, low), x);
  return n.b.where(n.b.binary<onnx::GreaterOp>(x, n.b.scalar(x, high)), n.b.scalar(x, high), x);
}

// x (already divided by its scale) in the integer or narrow type, and what of it takes a gradient.
Value quantizedAs(Node &n, Value x, Value zero, Type type, bool saturate) {
  Value carrier, numbers;
  if (isa<IntegerType>(type)) {
    auto [low, high] = rangeOf(type);
    numbers = straightThrough(n, x, n.b.unary<onnx::RoundOp>(x));
    if (zero) numbers = n.b.add(numbers, zero);
    numbers = inRange(n, numbers, low, high);
    carrier = n.b.cast(numbers, isNarrow(type) ? carrierOf(type) : type);
  } else {
    if (zero) x = n.b.add(x, zero);
    carrier = encoded(n, x, type, saturate);
    const double most = largestOf(type);
    numbers = straightThrough(n, inRange(n, x, -most, most), decoded(n, carrier, type, elementOf(x)));
  }
  n.state.quantized[carrier] = numbers;
  return isNarrow(type) ? asNarrow(n, carrier, type) : carrier;
}

// The type that numbers are divided in: f32, or as the attribute says.
Type precisionOf(Node &n) {
  Type type = n.integer("precision", 0) ? n.elementType(n.integer("precision", 0)) : Type(n.b.builder.getF32Type());
  return type;
}

Value quantizeInto(Node &n, Value x, Value scale, size_t zeroAt, Type type) {
  Type f32 = n.b.builder.getF32Type();
  Value ratio = n.b.cast(n.b.div(x, scale), f32);
  Value zero = n.has(zeroAt) ? zeroPoint(n, zeroAt, shapeOf(x), f32) : Value();
  return quantizedAs(n, ratio, zero, type, n.integer("saturate", 1) != 0);
}

Type typeOfOperand(Node &n, size_t i) { return n.narrow(i) ? n.narrow(i) : elementOf(n.in(i)); }

Values quantizeLinear(Node &n) {
  Type inside = precisionOf(n), type = IntegerType::get(n.b.builder.getContext(), 8, IntegerType::Unsigned);
  const int64_t wanted = n.integer("output_dtype", 0);
  if (n.has(2))
    type = typeOfOperand(n, 2);
  else if (wanted)
    type = n.anyElementType(wanted);
  if (n.has(2) && wanted && n.anyElementType(wanted) != type) n.fail("its output_dtype is not its zero point's type");
  Value x = n.b.cast(n.in(0), inside);
  return {quantizeInto(n, x, n.b.cast(perBlock(n, n.in(1), shapeOf(x)), inside), 2, type)};
}

Values dequantizeLinear(Node &n) {
  Type f32 = n.b.builder.getF32Type();
  Value numbers = quantizedNumbers(n, 0, f32);
  if (n.has(2)) numbers = n.b.sub(numbers, zeroPoint(n, 2, shapeOf(numbers), f32));
  Value y = n.b.mul(numbers, n.b.cast(perBlock(n, n.in(1), shapeOf(numbers)), f32));
  const int64_t wanted = n.integer("output_dtype", 0);
  return {n.b.cast(y, wanted ? n.elementType(wanted) : elementOf(n.in(1)))};
}

// The scale and the zero point are those of x's range, 0 included; they take no gradient.
Values dynamicQuantizeLinear(Node &n) {
  Value x = n.in(0), known = n.b.unary<onnx::StopGradientOp>(x), zero = n.b.scalar(x, 0);
  if (typeOf(x).getNumElements() == 0) n.fail("has no elements to take a range of");
  const Dims all = countUp(rankOf(x));
  Value high = n.b.binary<onnx::MaxOp>(n.b.reduceMax(known, all, false), zero);
  Value low = n.b.binary<onnx::MinOp>(n.b.reduceMin(known, all, false), zero);
  Value range = n.b.sub(high, low);
  Value isFlat = n.b.binary<onnx::EqualOp>(range, zero);
  Value scale = n.b.div(n.b.where(isFlat, n.b.scalar(x, 1), range), 255);
  Value start = n.b.unary<onnx::NegOp>(n.b.div(low, scale));
  Value point = n.b.unary<onnx::RoundOp>(inRange(n, start, 0, 255));
  Type u8 = IntegerType::get(n.b.builder.getContext(), 8, IntegerType::Unsigned);
  Value y = quantizedAs(n, n.b.div(x, scale), point, u8, true);
  return {y, scale, n.b.cast(point, u8)};
}

// Numbers of 8 bits: a sum of so many products is a whole number of that many bits.
Type exactFor(Node &n, int64_t products) {
  constexpr int64_t mostInF32 = int64_t(1) << (24 - 16);
  return products <= mostInF32 ? Type(n.b.builder.getF32Type()) : Type(n.b.builder.getF64Type());
}

// A scale or zero point of a matrix: a vector has one number per row (`isPerRow`) or per column.
Value matrixParameter(Node &n, Value parameter, bool isPerRow) {
  if (typeOf(parameter).getNumElements() == 1) return n.b.reshape(parameter, {});
  if (isPerRow && rankOf(parameter) == 1) return n.b.reshape(parameter, {shapeOf(parameter)[0], 1});
  return parameter;
}
Value minusZeroPoint(Node &n, Value numbers, size_t zeroAt, bool isPerRow) {
  if (!n.has(zeroAt)) return numbers;
  Value zero = quantizedNumbers(n, zeroAt, elementOf(numbers));
  return n.b.sub(numbers, n.b.unary<onnx::StopGradientOp>(matrixParameter(n, zero, isPerRow)));
}
// Multiplies two quantized matrices without their zero points. f32 or f64 hold the sums exactly, so that gradients pass.
Value exactMatMul(Node &n, size_t left, size_t leftZeroPoint, size_t right, size_t rightZeroPoint) {
  Type type = exactFor(n, shapeOf(n.in(left)).empty() ? 1 : shapeOf(n.in(left)).back());
  Value a = minusZeroPoint(n, quantizedNumbers(n, left, type), leftZeroPoint, true);
  Value b = minusZeroPoint(n, quantizedNumbers(n, right, type), rightZeroPoint, false);
  return matrixProduct(n, a, b);
}

Values matMulInteger(Node &n) { return {n.b.cast(exactMatMul(n, 0, 2, 1, 3), n.b.builder.getI32Type())}; }

// Inputs: a, its scale, its zero point, b's three, the scale and the zero point of the result.
Values qLinearMatMul(Node &n) {
  Type f32 = n.b.builder.getF32Type();
  Value product = n.b.cast(exactMatMul(n, 0, 2, 3, 5), f32);
  auto scale = [&](size_t i, bool isPerRow) { return matrixParameter(n, n.b.cast(n.in(i), f32), isPerRow); };
  Value factor = n.b.div(n.b.mul(scale(1, true), scale(4, false)), scale(6, true));
  Value zero = matrixParameter(n, quantizedNumbers(n, 7, f32), true);
  return {quantizedAs(n, n.b.mul(product, factor), zero, typeOfOperand(n, 7), true)};
}

// A weight's parameter: one number, or one for each output channel, which `rank` dimensions count along the first.
Value channelParameter(Node &n, Value parameter, int64_t rank, int64_t at) {
  if (typeOf(parameter).getNumElements() == 1) return n.b.reshape(parameter, {});
  if (rankOf(parameter) != 1) n.fail("needs one scale and zero point for its weight, or one for each channel");
  Dims ones(rank, 1);
  ones[at] = shapeOf(parameter)[0];
  return n.b.reshape(parameter, ones);
}
Value integerConvolution(Node &n, size_t at, size_t zero, size_t weight, size_t weightZero) {
  Value w = n.in(weight);
  if (rankOf(n.in(at)) < 3 || rankOf(w) != rankOf(n.in(at)))
    n.fail("needs operands [N, C, spatial] and [O, C, kernel]");
  int64_t products = 1;
  for (int64_t size : shapeOf(w).drop_front()) products *= size;
  Type type = exactFor(n, products);
  Value x = minusZeroPoint(n, quantizedNumbers(n, at, type), zero, true);
  Value kernel = quantizedNumbers(n, weight, type);
  if (n.has(weightZero)) {
    Value point = channelParameter(n, quantizedNumbers(n, weightZero, type), rankOf(w), 0);
    kernel = n.b.sub(kernel, n.b.unary<onnx::StopGradientOp>(point));
  }
  const Window window = windowOf(n, shapeOf(x).drop_front(2), shapeOf(w).drop_front(2));
  return n.b.create<onnx::ConvOp>(x, kernel, window.attribute(n.b, window.strides),
                                  window.attribute(n.b, window.padsBegin), window.attribute(n.b, window.padsEnd),
                                  window.attribute(n.b, window.dilations),
                                  n.b.builder.getI64IntegerAttr(n.integer("group", 1)));
}

Values convInteger(Node &n) { return {n.b.cast(integerConvolution(n, 0, 2, 1, 3), n.b.builder.getI32Type())}; }

// Inputs: x, its scale, its zero point, w's three, the scale and the zero point of the result, a bias of i32.
Values qLinearConv(Node &n) {
  Type f32 = n.b.builder.getF32Type();
  Value y = integerConvolution(n, 0, 2, 3, 5);
  const int64_t rank = rankOf(y);
  if (n.has(8)) {
    n.needsShape(8, {shapeOf(y)[1]});
    y = n.b.add(y, channelParameter(n, n.b.cast(n.in(8), elementOf(y)), rank, 1));
  }
  Value scales = n.b.mul(n.b.reshape(n.in(1), {}), channelParameter(n, n.in(4), rank, 1));
  Value factor = n.b.div(scales, n.b.reshape(n.in(6), {}));
  Value zero = n.b.reshape(quantizedNumbers(n, 7, f32), {});
  return {quantizedAs(n, n.b.mul(n.b.cast(y, f32), factor), zero, typeOfOperand(n, 7), true)};
}

// --- element types

Value castTo(Node &n, Type to) {
  Value x = n.in(0);
  Type narrow = n.narrow(0);
  if (!isNarrow(to)) return narrow ? decoded(n, x, narrow, to) : n.b.cast(x, to);
  if (narrow == to) return x;
  if (narrow)
    x = decoded(n, x, narrow,
                isa<IntegerType>(narrow) ? Type(n.b.builder.getI32Type()) : Type(n.b.builder.getF32Type()));
  Value carrier = encoded(n, x, to, n.integer("saturate", 1) != 0,
                          isa<Float8E8M0FNUType>(to) ? n.text("round_mode", "up") : "nearest");
  if (isFloatTensor(x) && isa<FloatType>(to)) // a gradient goes through the rounding
    n.state.quantized[carrier] = straightThrough(n, x, decoded(n, carrier, to, elementOf(x)));
  return asNarrow(n, carrier, to);
}
Values cast(Node &n) {
  Type to = n.anyElementType(n.integer("to", 0));
  if (!isNarrow(to))
    if (Value numbers = n.state.quantized.lookup(n.in(0)); numbers && isa<FloatType>(to))
      return {n.b.cast(numbers, to)};
  return {castTo(n, to)};
}
Values castLike(Node &n) { return {castTo(n, typeOfOperand(n, 1))}; }

// A parameter's bytes as the narrow elements that they hold, of 4 or 2 bits packed: the importer's own node.
Values elements(Node &n) {
  auto type = cast<RankedTensorType>(cast<TypeAttr>(n.attribute("type")).getValue());
  Type narrow = type.getElementType();
  Value x = n.in(0);
  const int64_t bits = narrow.getIntOrFloatBitWidth(), each = 8 / bits, bytes = typeOf(x).getNumElements();
  if (each == 1) return {asNarrow(n, x, narrow)};
  Values parts;
  for (int64_t i = 0; i < each; ++i) {
    Value shifted = n.b.div(x, double(int64_t(1) << (i * bits)));
    Value part = n.b.binary<onnx::AndOp>(shifted, n.b.scalar(x, double((1 << bits) - 1)));
    parts.push_back(n.b.reshape(part, {bytes, 1}));
  }
  Value flat = n.b.slice(n.b.reshape(n.b.concat(parts, 1), {bytes * each}), 0, 0, type.getNumElements());
  Value carrier = n.b.reshape(n.b.cast(flat, carrierOf(narrow)), type.getShape());
  if (elementOf(carrier).isSignlessInteger()) {
    auto [low, high] = rangeOf(narrow);
    Value wraps = n.b.binary<onnx::GreaterOp>(carrier, n.b.scalar(carrier, high));
    carrier = n.b.where(wraps, n.b.sub(carrier, high - low + 1), carrier);
  }
  return {asNarrow(n, carrier, narrow)};
}

} // namespace

void addQuantization(Rules &rules) {
  rules.addPerElement("Cast", cast);
  rules.addPerElement("CastLike", castLike);
  rules.add("Elements", elements, "cleave");
  rules.add("QuantizeLinear", quantizeLinear);
  rules.add("DequantizeLinear", dequantizeLinear);
  rules.add("DynamicQuantizeLinear", dynamicQuantizeLinear);
  rules.add("MatMulInteger", matMulInteger);
  rules.add("QLinearMatMul", qLinearMatMul);
  rules.add("ConvInteger", convInteger);
  rules.add("QLinearConv", qLinearConv);
}

} // namespace cleave::normalize
