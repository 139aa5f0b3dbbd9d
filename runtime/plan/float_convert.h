// One number of any element type. Floats (f32, f64, f16, bf16, f8e4m3, f8e5m2) go through double: narrowing rounds
// once, to nearest, ties to even; to 8 bits it saturates (base/elements.h). Integers keep their bits.
//
//     double x = loadFloat(plan::BF16, bytes);  storeFloat(plan::F16, x, out);
#pragma once
#include "plan/plan.pb.h"
#include <cstddef>
#include <cstdint>

namespace cleave::runtime {

double loadFloat(plan::DType dtype, const std::byte *from); // NaN where it is no float
void storeFloat(plan::DType dtype, double value, std::byte *to);
// Of any type.
double loadNumber(plan::DType dtype, const std::byte *from);
void storeNumber(plan::DType dtype, double value, std::byte *to);
int64_t loadInteger(plan::DType dtype, const std::byte *from); // of an integer type

// Calls visit(zero) with a zero of the C++ type that elements have, BOOL's are bytes; false: C++ has none.
template <typename Visit> bool visitElementType(plan::DType dtype, Visit &&visit) {
  switch (dtype) {
  case plan::F32:
    return visit(float{}), true;
  case plan::F64:
    return visit(double{}), true;
  case plan::I8:
    return visit(int8_t{}), true;
  case plan::I16:
    return visit(int16_t{}), true;
  case plan::I32:
    return visit(int32_t{}), true;
  case plan::I64:
    return visit(int64_t{}), true;
  case plan::U8:
  case plan::BOOL:
    return visit(uint8_t{}), true;
  case plan::U16:
    return visit(uint16_t{}), true;
  case plan::U32:
    return visit(uint32_t{}), true;
  case plan::U64:
    return visit(uint64_t{}), true;
  default:
    return false;
  }
}

} // namespace cleave::runtime
