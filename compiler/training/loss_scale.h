// The state of a dynamic loss scale (ScaleLoss makes it, UnscaleGradients reads it, SkipSteps changes it):
// persistent scalars in f32, equal on all devices and part of every snapshot.
#pragma once
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/Builders.h"
#include "runtime/plan/loss_scale_names.h"

namespace cleave::training {

using runtime::goodStepsName, runtime::scaleName, runtime::skippedName;

mlir::Value readScalar(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef name);

} // namespace cleave::training
