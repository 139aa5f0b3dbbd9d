// The normalize phase: any ONNX graph becomes core ops of static shape.
//
//   onnx.node "Gelu"(%x) {domain = "", version = 20} : (tensor<?x64xf32>) -> tensor<?x64xf32>
//   becomes, with dims batch=8,
//   %a = onnx.Mul %x, %half ; %b = onnx.Erf ... : (tensor<8x64xf32>) -> tensor<8x64xf32>
//
// After it a module holds func.func @model with core ops, onnx.read and onnx.write (running statistics), and onnx.param
// symbols; nothing broadcasts implicitly, no dimension is dynamic.
//
// Dropout. An active dropout becomes Mul(x, Where(RandomUniform(key) < 1 - ratio, 1/(1-ratio), 0)). `key` is a new
// argument of @model, tensor<2xi64>, with the arg attribute onnx.host = "step"; each dropout has
// its own stream. The Mul carries the unit attribute `onnx.dropout`: @evaluate replaces such an op by its first
// operand, which is the undropped value. (A mask output that the graph uses is evaluated as if nothing were dropped:
// all ones.)
//
// Batch normalization. In training mode the batch's statistics are computed and onnx.write ops at the end of @model
// store the new running statistics; @evaluate needs the running ones instead: every op that reads a batch statistic
// does so through an op that carries `onnx.batch_statistic` = @param: @evaluate replaces that op's result by the
// parameter's value (onnx.read @param). Both statistics are of shape [C].
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace cleave::normalize {

enum class BatchNormMode { AsExported, Training, Frozen };

// Of a model whose inputs have no symbolic batch: the samples that it was exported for, and those that it is wanted
// for.
struct FixedBatch {
  int64_t exported = 1, samples = 1;
};

struct NormalizeOptions {
  std::map<std::string, int64_t> dims; // symbolic dimension -> size (batch: the microbatch over all devices)
  FixedBatch fixedBatch = {};
  BatchNormMode batchNorm = BatchNormMode::AsExported;
  std::optional<double> dropout; // overrides the ratio of every dropout; 0 turns dropout off; none: as exported
};

// What an ONNX operator's support rests on.
enum class Support { None, Rule, FunctionBody };
// Of an operator at an opset version: from the table of rules that NormalizeNodes uses and ONNX's function bodies.
Support supportOf(const std::string &domain, const std::string &op, int64_t version);
inline bool isSupported(const std::string &domain, const std::string &op, int64_t version) {
  return supportOf(domain, op, version) != Support::None;
}

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/normalize/Passes.h.inc"

} // namespace cleave::normalize
