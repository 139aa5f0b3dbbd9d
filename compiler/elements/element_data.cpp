#include "compiler/elements/element_data.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"

namespace cleave {
using namespace mlir;

plan::DType dtypeOf(Type element) {
  if (element.isF32()) return plan::F32;
  if (element.isF64()) return plan::F64;
  if (element.isF16()) return plan::F16;
  if (element.isBF16()) return plan::BF16;
  if (isa<Float8E4M3FNType>(element)) return plan::F8E4M3;
  if (isa<Float8E5M2Type>(element)) return plan::F8E5M2;
  auto integer = dyn_cast<IntegerType>(element);
  if (!integer) return plan::DTYPE_INVALID;
  bool isUnsigned = integer.isUnsigned();
  switch (integer.getWidth()) {
  case 1:
    return plan::BOOL;
  case 8:
    return isUnsigned ? plan::U8 : plan::I8;
  case 16:
    return isUnsigned ? plan::U16 : plan::I16;
  case 32:
    return isUnsigned ? plan::U32 : plan::I32;
  case 64:
    return isUnsigned ? plan::U64 : plan::I64;
  default:
    return plan::DTYPE_INVALID;
  }
}

Type elementTypeOf(MLIRContext *context, plan::DType dtype) {
  auto unsignedType = [&](unsigned width) { return IntegerType::get(context, width, IntegerType::Unsigned); };
  switch (dtype) {
  case plan::F32:
    return Float32Type::get(context);
  case plan::F64:
    return Float64Type::get(context);
  case plan::F16:
    return Float16Type::get(context);
  case plan::BF16:
    return BFloat16Type::get(context);
  case plan::F8E4M3:
    return Float8E4M3FNType::get(context);
  case plan::F8E5M2:
    return Float8E5M2Type::get(context);
  case plan::BOOL:
    return IntegerType::get(context, 1);
  case plan::I8:
    return IntegerType::get(context, 8);
  case plan::I16:
    return IntegerType::get(context, 16);
  case plan::I32:
    return IntegerType::get(context, 32);
  case plan::I64:
    return IntegerType::get(context, 64);
  case plan::U8:
    return unsignedType(8);
  case plan::U16:
    return unsignedType(16);
  case plan::U32:
    return unsignedType(32);
  case plan::U64:
    return unsignedType(64);
  default:
    return {};
  }
}

FailureOr<std::string> elementData(ElementsAttr value) {
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    if (!blob) return failure();
    return std::string(blob->getData().data(), blob->getData().size());
  }
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense) return failure();
  if (dense.getElementType().isInteger(1)) {
    if (dense.isSplat()) return std::string(1, dense.getSplatValue<bool>() ? '\1' : '\0');
    std::string bytes;
    bytes.reserve(dense.getNumElements());
    for (bool element : dense.getValues<bool>()) bytes.push_back(element ? '\1' : '\0');
    return bytes;
  }
  return std::string(dense.getRawData().data(), dense.getRawData().size());
}

std::string oneElement(Type element, double value) {
  llvm::APInt bits;
  if (auto type = dyn_cast<FloatType>(element)) {
    llvm::APFloat number(value);
    bool losesInfo = false;
    number.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
    bits = number.bitcastToAPInt();
  } else if (auto type = dyn_cast<IntegerType>(element)) {
    unsigned width = std::max(8u, type.getWidth());
    if (type.getWidth() == 1) value = value != 0;
    bits = llvm::APInt(width, static_cast<uint64_t>(static_cast<int64_t>(value)), /*isSigned=*/true,
                       /*implicitTrunc=*/true);
  } else {
    return {};
  }
  std::string bytes(bits.getBitWidth() / 8, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bits.extractBitsAsZExtValue(8, 8 * i));
  return bytes;
}

} // namespace cleave
