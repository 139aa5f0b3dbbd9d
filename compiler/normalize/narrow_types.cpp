#include "compiler/normalize/narrow_types.h"
#include "onnx/onnx_pb.h"
#include <cmath>

using namespace mlir;
namespace cleave::normalize {
namespace {

using ::onnx::TensorProto;

// A float type by its codes: from 0 on they ascend with the numbers; a sign is the bit above.
struct Codes {
  int64_t largest;    // the code of the largest finite number
  int64_t sign;       // 0: no negative numbers
  int64_t overflow;   // what larger numbers are unless they saturate; with a sign bit if `overflowHasSign`
  int64_t notANumber; // where there is none, what ONNX's tests have instead: minus zero
  bool overflowHasSign;
  bool hasNegativeZero;
  llvm::APFloat::Semantics semantics;
  unsigned bits;
};
Codes codesOf(Type narrow) {
  using F = llvm::APFloat;
  if (isa<Float8E4M3FNType>(narrow)) return {0x7e, 0x80, 0x7f, 0x7f, true, true, F::S_Float8E4M3FN, 8};
  if (isa<Float8E4M3FNUZType>(narrow)) return {0x7f, 0x80, 0x80, 0x80, false, false, F::S_Float8E4M3FNUZ, 8};
  if (isa<Float8E5M2Type>(narrow)) return {0x7b, 0x80, 0x7c, 0x7e, true, true, F::S_Float8E5M2, 8};
  if (isa<Float8E5M2FNUZType>(narrow)) return {0x7f, 0x80, 0x80, 0x80, false, false, F::S_Float8E5M2FNUZ, 8};
  if (isa<Float8E8M0FNUType>(narrow)) return {0xfe, 0, 0xff, 0xff, false, true, F::S_Float8E8M0FNU, 8};
  return {7, 8, 7, 8, true, true, F::S_Float4E2M1FN, 4};
}
double numberOf(const Codes &codes, int64_t code) {
  llvm::APFloat value(llvm::APFloat::EnumToSemantics(codes.semantics), llvm::APInt(codes.bits, uint64_t(code)));
  bool losesInfo = false;
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return value.convertToDouble();
}

// For each code the smallest number that rounds to it or to a larger one; NaN for what is no code.
std::vector<double> thresholds(const Codes &codes, StringRef rounding, bool isDouble) {
  std::vector<double> from(codes.bits == 4 ? 8 : codes.sign ? 128 : 256, NAN);
  auto above = [&](double x) { return isDouble ? std::nextafter(x, INFINITY) : std::nextafterf(float(x), INFINITY); };
  const double last = numberOf(codes, codes.largest), beforeLast = numberOf(codes, codes.largest - 1);
  const double next = codes.sign ? 2 * last - beforeLast : 2 * last; // what the code after the largest would be
  for (int64_t code = 1; code <= codes.largest + 1 && code < int64_t(from.size()); ++code) {
    const double low = numberOf(codes, code - 1), high = code <= codes.largest ? numberOf(codes, code) : next;
    double &least = from[size_t(code)];
    if (codes.sign == 0)
      least = rounding == "down" ? high : rounding == "up" ? above(low) : 1.5 * low;
    else
      least = code % 2 == 0 ? (low + high) / 2 : above((low + high) / 2); // halfway to the even code
  }
  return from;
}

Value encodedFloat(Node &n, Value x, Type narrow, bool saturate, StringRef rounding) {
  const Codes codes = codesOf(narrow);
  if (!isFloatTensor(x) || elementOf(x).getIntOrFloatBitWidth() < 32) x = n.b.cast(x, n.b.builder.getF32Type());
  const std::vector<double> least = thresholds(codes, rounding, elementOf(x).isF64());
  const int64_t count = int64_t(least.size());
  Value table = n.b.constant(runtime::HostTensor::ofReals(dtypeOf(elementOf(x)), {count}, least));
  Value zero = n.b.scalar(x, 0), size = n.b.unary<onnx::AbsOp>(x);
  Value code = n.b.splat(typeOf(x).clone(n.b.builder.getI64Type()), 0);
  for (int64_t bit = count / 2; bit > 0; bit /= 2) { // the largest code whose threshold is reached
    Value with = n.b.add(code, double(bit));
    code = n.b.where(n.b.binary<onnx::GreaterOrEqualOp>(size, n.b.gather(table, with, 0)), with, code);
  }
  const double most = numberOf(codes, codes.largest);
  // Past the last threshold, which a type without a code behind its largest number has nowhere to put.
  const double low = numberOf(codes, codes.largest - 1);
  Value limit = n.b.scalar(x, codes.sign ? most + (most - low) / 2 : INFINITY);
  Value isBeyond = codes.largest + 1 < count
                       ? n.b.binary<onnx::GreaterOp>(code, n.b.scalar(code, double(codes.largest)))
                       : n.b.binary<onnx::GreaterOrEqualOp>(size, limit);
  Value beyond = n.b.scalar(code, double(saturate ? codes.largest : codes.overflow));
  code = n.b.where(isBeyond, beyond, code);
  if (codes.sign) {
    Value isNegative = n.b.binary<onnx::LessOp>(x, zero);
    if (codes.hasNegativeZero) { // 1 / -0 is below 0, too
      Value isZero = n.b.binary<onnx::EqualOp>(x, zero);
      Value inverse = n.b.unary<onnx::ReciprocalOp>(n.b.where(isZero, x, n.b.scalar(x, 1)));
      isNegative = n.b.binary<onnx::OrOp>(isNegative, n.b.binary<onnx::LessOp>(inverse, zero));
    } else {
      isNegative = n.b.binary<onnx::AndOp>(isNegative, n.b.binary<onnx::GreaterOp>(code, n.b.scalar(code, 0)));
    }
    if (!saturate && !codes.overflowHasSign)
      isNegative = n.b.binary<onnx::AndOp>(isNegative, n.b.unary<onnx::NotOp>(isBeyond));
    code = n.b.where(isNegative, n.b.add(code, double(codes.sign)), code);
  } else { // infinity is none of its numbers
    code = n.b.where(n.b.unary<onnx::IsInfOp>(x), n.b.scalar(code, double(codes.notANumber)), code);
  }
  code = n.b.where(n.b.unary<onnx::IsNaNOp>(x), n.b.scalar(code, double(codes.notANumber)), code);
  return n.b.cast(code, carrierOf(narrow));
}

} // namespace

bool isNarrow(Type element) {
  if (auto integer = dyn_cast<IntegerType>(element)) return integer.getWidth() == 2 || integer.getWidth() == 4;
  return isa<FloatType>(element) && element.getIntOrFloatBitWidth() <= 8;
}

Type carrierOf(Type narrow) {
  auto integer = dyn_cast<IntegerType>(narrow);
  const bool isSigned = integer && !integer.isUnsigned();
  return IntegerType::get(narrow.getContext(), 8, isSigned ? IntegerType::Signless : IntegerType::Unsigned);
}

DenseElementsAttr inCarrier(DenseElementsAttr value) {
  Type narrow = value.getElementType();
  if (!isNarrow(narrow)) return value;
  auto integer = dyn_cast<IntegerType>(narrow);
  std::string bytes(value.getRawData().data(), value.getRawData().size());
  for (char &byte : bytes)
    if (integer && !integer.isUnsigned() && uint8_t(byte) >> (integer.getWidth() - 1) & 1)
      byte = char(uint8_t(byte) | uint8_t(0xff << integer.getWidth()));
  return DenseElementsAttr::getFromRawBuffer(cast<RankedTensorType>(value.getType()).clone(carrierOf(narrow)),
                                             ArrayRef<char>(bytes.data(), bytes.size()));
}

int32_t onnxNumberOf(Type narrow) {
  if (isa<Float8E4M3FNType>(narrow)) return TensorProto::FLOAT8E4M3FN;
  if (isa<Float8E4M3FNUZType>(narrow)) return TensorProto::FLOAT8E4M3FNUZ;
  if (isa<Float8E5M2Type>(narrow)) return TensorProto::FLOAT8E5M2;
  if (isa<Float8E5M2FNUZType>(narrow)) return TensorProto::FLOAT8E5M2FNUZ;
  if (isa<Float8E8M0FNUType>(narrow)) return TensorProto::FLOAT8E8M0;
  if (isa<Float4E2M1FNType>(narrow)) return TensorProto::FLOAT4E2M1;
  auto integer = cast<IntegerType>(narrow);
  if (integer.getWidth() == 4) return integer.isUnsigned() ? TensorProto::UINT4 : TensorProto::INT4;
  return integer.isUnsigned() ? TensorProto::UINT2 : TensorProto::INT2;
}

std::pair<double, double> rangeOf(Type integer) {
  auto type = cast<IntegerType>(integer);
  const double all = std::ldexp(1, int(type.getWidth()));
  return type.isUnsigned() ? std::pair(0.0, all - 1) : std::pair(-all / 2, all / 2 - 1);
}

double largestOf(Type narrowFloat) {
  const Codes codes = codesOf(narrowFloat);
  return numberOf(codes, codes.largest);
}

Value asNarrow(Node &n, Value carrier, Type narrow) {
  n.state.narrow[carrier] = narrow;
  return carrier;
}

Value decoded(Node &n, Value carrier, Type narrow, Type to) {
  if (isa<IntegerType>(narrow)) {
    if (elementOf(carrier) != to) return n.b.cast(carrier, to);
    // The same bytes under another name: a value of its own, which no one takes for a carrier.
    if (DenseElementsAttr known = constantOf(carrier)) return n.b.constant(known);
    return onnx::ReshapeOp::create(n.b.builder, n.b.loc, carrier.getType(), carrier,
                                   n.b.builder.getDenseI64ArrayAttr(shapeOf(carrier)));
  }
  const Codes codes = codesOf(narrow);
  std::vector<double> numbers;
  for (int64_t code = 0; code < int64_t(1) << codes.bits; ++code) numbers.push_back(numberOf(codes, code));
  Type inside = isa<FloatType>(to) ? to : Type(n.b.builder.getF32Type());
  Value table = n.b.constant(runtime::HostTensor::ofReals(dtypeOf(inside), {int64_t(numbers.size())}, numbers));
  return n.b.cast(n.b.gather(table, n.b.cast(carrier, n.b.builder.getI64Type()), 0), to);
}

Value encoded(Node &n, Value x, Type narrow, bool saturate, StringRef rounding) {
  auto integer = dyn_cast<IntegerType>(narrow);
  if (!integer) return encodedFloat(n, x, narrow, saturate, rounding);
  const double all = std::ldexp(1, int(integer.getWidth()));
  Value whole = n.b.cast(x, n.b.builder.getI32Type());
  auto lowBits = [&](Value v) { return n.b.binary<onnx::AndOp>(v, n.b.scalar(v, all - 1)); };
  if (integer.isUnsigned()) return n.b.cast(lowBits(whole), carrierOf(narrow));
  return n.b.cast(n.b.sub(lowBits(n.b.add(whole, all / 2)), all / 2), carrierOf(narrow));
}

} // namespace cleave::normalize
