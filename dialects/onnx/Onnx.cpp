#include "dialects/onnx/Onnx.h"

#include "dialects/onnx/OnnxDialect.cpp.inc"
#include "dialects/onnx/OnnxInterfaces.cpp.inc"

namespace cleave::onnx {
void OnnxDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/onnx/OnnxOps.cpp.inc"
      >();
}
} // namespace cleave::onnx

#define GET_OP_CLASSES
#include "dialects/onnx/OnnxOps.cpp.inc"
