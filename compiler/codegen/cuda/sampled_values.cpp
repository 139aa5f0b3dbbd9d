#include "compiler/codegen/cuda/sampled_values.h"
#include "dialects/onnx/kinds.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

namespace cleave::codegen {
using namespace mlir;

const Samples *SampledValues::of(Value value) const {
  auto found = known.find(value);
  return found == known.end() ? nullptr : &found->second;
}

bool SampledValues::evaluate(Operation &op, Samples &result) const {
  size_t count = known.begin()->second.size();
  SmallVector<Samples, 4> operands;
  bool depends = false;
  for (Value operand : op.getOperands()) {
    if (const Samples *samples = of(operand)) {
      operands.push_back(*samples);
      depends = true;
    } else if (std::optional<double> value = onnx::repeatedNumber(operand, true)) {
      operands.push_back(Samples(count, *value));
    } else {
      return false;
    }
  }
  if (!depends) return false;
  result.resize(count);
  auto unary = [&](auto function) {
    for (size_t i = 0; i < count; ++i) result[i] = function(operands[0][i]);
    return true;
  };
  auto binary = [&](auto function) {
    for (size_t i = 0; i < count; ++i) result[i] = function(operands[0][i], operands[1][i]);
    return true;
  };
  return llvm::TypeSwitch<Operation *, bool>(&op)
      .Case<onnx::CastOp, onnx::ReshapeOp, onnx::StopGradientOp>([&](Operation *same) {
        auto type = cast<RankedTensorType>(same->getResult(0).getType());
        return isa<FloatType>(type.getElementType()) && unary([](double x) { return x; });
      })
      .Case([&](onnx::NegOp) { return unary([](double x) { return -x; }); })
      .Case([&](onnx::ExpOp) { return unary([](double x) { return std::exp(x); }); })
      .Case([&](onnx::TanhOp) { return unary([](double x) { return std::tanh(x); }); })
      .Case([&](onnx::SigmoidOp) { return unary([](double x) { return 1 / (1 + std::exp(-x)); }); })
      .Case([&](onnx::ReciprocalOp) { return unary([](double x) { return 1 / x; }); })
      .Case([&](onnx::AddOp) { return binary([](double a, double b) { return a + b; }); })
      .Case([&](onnx::SubOp) { return binary([](double a, double b) { return a - b; }); })
      .Case([&](onnx::MulOp) { return binary([](double a, double b) { return a * b; }); })
      .Case([&](onnx::DivOp) { return binary([](double a, double b) { return a / b; }); })
      .Case([&](onnx::PowOp) { return binary([](double a, double b) { return std::pow(a, b); }); })
      .Case([&](onnx::SumOp) {
        for (size_t i = 0; i < count; ++i) {
          result[i] = 0;
          for (const Samples &operand : operands) result[i] += operand[i];
        }
        return true;
      })
      .Default([](Operation *) { return false; });
}

void SampledValues::follow(Block &block) {
  SmallVector<Value> work = llvm::to_vector(llvm::make_first_range(known));
  while (!work.empty())
    for (Operation *op : work.pop_back_val().getUsers()) { // tried again when another operand is known
      if (op->getBlock() != &block || op->getNumResults() != 1 || known.contains(op->getResult(0))) continue;
      Samples samples;
      if (!evaluate(*op, samples)) continue;
      known[op->getResult(0)] = std::move(samples);
      found.push_back(op->getResult(0));
      work.push_back(op->getResult(0));
    }
}

} // namespace cleave::codegen
