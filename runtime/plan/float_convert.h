// One float of any width, through double: f32, f64, f16, bf16, f8e4m3, f8e5m2. Narrowing rounds to nearest, ties to
// even; to 8 bits it saturates (narrow_floats.h).
//
//     double x = loadFloat(plan::BF16, bytes);  storeFloat(plan::F16, x, out);
#pragma once
#include "plan/plan.pb.h"
#include <cstddef>

namespace cleave::runtime {

double loadFloat(plan::DType dtype, const std::byte *from);
void storeFloat(plan::DType dtype, double value, std::byte *to);

} // namespace cleave::runtime
