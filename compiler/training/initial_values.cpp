#include "compiler/training/initial_values.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace cleave::training {
namespace {

void forgetSource(onnx::ParamOp param) {
  param.removePathAttr();
  param.removeOffsetAttr();
  param.removeLengthAttr();
  param.removeFileTypeAttr();
  param.removeInitAttr();
}

void draw(onnx::ParamOp param, StringRef kind, double mean, double deviation, double low, double high) {
  forgetSource(param);
  Builder b(param.getContext());
  // Depends on the name alone, so that another parameter more does not change this one.
  auto stream = static_cast<int64_t>(llvm::xxh3_64bits(param.getSymName()) >> 1);
  param.setInitAttr(b.getDictionaryAttr(
      {b.getNamedAttr("kind", b.getStringAttr(kind)), b.getNamedAttr("mean", b.getF64FloatAttr(mean)),
       b.getNamedAttr("std", b.getF64FloatAttr(deviation)), b.getNamedAttr("low", b.getF64FloatAttr(low)),
       b.getNamedAttr("high", b.getF64FloatAttr(high)), b.getNamedAttr("stream", b.getI64IntegerAttr(stream))}));
}

} // namespace

void fill(onnx::ParamOp param, double value) {
  forgetSource(param);
  param.setFillAttr(Builder(param.getContext()).getF64FloatAttr(value));
}

void drawNormal(onnx::ParamOp param, double mean, double deviation) { draw(param, "normal", mean, deviation, 0, 0); }

void drawUniform(onnx::ParamOp param, double low, double high) { draw(param, "uniform", 0, 0, low, high); }

} // namespace cleave::training
