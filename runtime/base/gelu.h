// GELU as cuBLASLt computes it at the end of a product (plan.proto, Contract.activation), and its derivative: by tanh.
// Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415, section 2.
//
//   gelu(1.0) == 0.84119...       geluDerivative(0.0) == 0.5
#pragma once
#include <cmath>
#include <numbers>

namespace cleave::runtime {

inline constexpr double geluCubic = 0.044715;
inline const double geluScale = std::sqrt(2 / std::numbers::pi);

inline double geluTanh(double x) { return std::tanh(geluScale * (x + geluCubic * x * x * x)); }
inline double gelu(double x) { return x / 2 * (1 + geluTanh(x)); }
inline double geluDerivative(double x) {
  double t = geluTanh(x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * geluScale * (1 + 3 * geluCubic * x * x);
}

} // namespace cleave::runtime
