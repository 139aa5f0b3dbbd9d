// Under torch.amp a value made of one in 16 bits and one in fp32 is fp32 (PyTorch's type promotion). BatchNormalization
// gives the type of its operand although its statistics, scale and bias are fp32: their Broadcasts are marked.
//
//   %b = onnx.Broadcast %scale {shape = [8, 64, 7, 7], dims = [1], onnx.keeps_type};  %y = onnx.Mul %x, %b     has %x's type
#pragma once
#include "dialects/owned_attribute.h"

namespace cleave::onnx {

inline constexpr OwnedAttribute<Mark> keepsTypeAttr{"onnx.keeps_type"};

} // namespace cleave::onnx
