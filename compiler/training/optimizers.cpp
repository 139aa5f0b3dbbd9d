#include "compiler/training/optimizers.h"

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;
using cleave::recipe::OptimizerKind;

namespace cleave::training {
namespace {

struct Rule {
  Formula f;
  const recipe::Optimizer &spec;
  OptimizerContext &context;
  Value param, grad;
  double weightDecay;

  Value everywhere(Value scalar) {
    auto type = tensorType(param);
    return f.spread(f.cast(scalar, type.getElementType()), type.getShape());
  }
  // x * scalar
  Value times(Value x, Value scalar) { return f.mul(x, everywhere(scalar)); }
  // before * (1 - weight) + now * weight, written as PyTorch's moving averages are
  Value average(Value before, Value now, double keep) { return f.add(f.scale(before, keep), f.scale(now, 1 - keep)); }
  // Weight decay as part of the gradient (L2).
  Value decayedGrad() { return weightDecay == 0 ? grad : f.add(grad, f.scale(param, weightDecay)); }
  // Weight decay applied to the parameter itself (decoupled): param * (1 - lr * weightDecay).
  Value decayedParam() {
    if (weightDecay == 0) return param;
    Value keep = context.shared("1-lr*" + std::to_string(weightDecay), [&] {
      Value lr = context.learningRate();
      return f.sub(f.like(lr, 1), f.scale(lr, weightDecay));
    });
    return times(param, keep);
  }

  // buf = momentum buf + (1 - dampening) g, where the first step takes g undamped.
  Value sgd() {
    Value g = decayedGrad();
    if (spec.momentum != 0) {
      Value fresh = g;
      if (spec.dampening != 0) {
        Value undamped = context.shared("undamped", [&] {
          Value before = context.stepsBefore();
          Value later = f.make<onnx::GreaterOp>(before, f.like(before, 0));
          return f.where(later, f.like(before, 1 - spec.dampening), f.like(before, 1));
        });
        fresh = times(g, undamped);
      }
      Value buffer = f.add(f.scale(context.state("sgd.momentum", 0), spec.momentum), fresh);
      context.setState("sgd.momentum", buffer);
      g = spec.nesterov ? f.add(g, f.scale(buffer, spec.momentum)) : buffer;
    }
    return f.sub(param, times(g, context.learningRate()));
  }

  // `scale` m / (sqrt(v) / sqrt(1 - b2^t) + eps), where m and v are the moving averages of g and its square
  Value moments(Value g, Value scale) {
    Value m = average(context.state("adam.m", 0), g, spec.beta1);
    Value v = average(context.state("adam.v", 0), f.mul(g, g), spec.beta2);
    context.setState("adam.m", m);
    context.setState("adam.v", v);
    Value correction =
        context.shared("adam.correction", [&] { return f.make<onnx::SqrtOp>(context.oneMinusPower(spec.beta2)); });
    Value root = f.div(f.make<onnx::SqrtOp>(v), everywhere(correction));
    return f.div(times(m, scale), f.add(root, f.like(root, spec.eps)));
  }

  // param -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
  Value adam(bool decoupled) {
    Value start = decoupled ? decayedParam() : param, g = decoupled ? grad : decayedGrad();
    Value stepSize = context.shared("adam.step_size",
                                    [&] { return f.div(context.learningRate(), context.oneMinusPower(spec.beta1)); });
    return f.sub(start, moments(g, stepSize));
  }

  // u = adam's direction + wd param; param -= lr |param| / |u| u, where a norm of 0 leaves the ratio at 1
  // (You et al.: Large Batch Optimization for Deep Learning, 2020, algorithm 2)
  Value lamb() {
    Value unbiased = context.shared("lamb.unbiased", [&] {
      Value rest = context.oneMinusPower(spec.beta1);
      return f.div(f.like(rest, 1), rest);
    });
    Value u = moments(grad, unbiased);
    if (weightDecay != 0) u = f.add(u, f.scale(param, weightDecay));
    auto norm = [&](Value x) { return f.make<onnx::SqrtOp>(f.total(f.mul(x, x))); };
    Value length = norm(param), step = norm(u);
    auto isThere = [&](Value x) { return f.make<onnx::GreaterOp>(x, f.like(x, 0)); };
    Value ratio = f.where(isThere(step), f.div(length, step), f.like(step, 1));
    ratio = f.where(isThere(length), ratio, f.like(step, 1));
    return f.sub(param, times(u, f.mul(context.learningRate(), ratio)));
  }

  // sum += g^2; param -= lr / (1 + (t-1) lr_decay) * g / (sqrt(sum) + eps)
  Value adagrad() {
    Value g = decayedGrad();
    Value sum = f.add(context.state("adagrad.sum", spec.initialAccumulator), f.mul(g, g));
    context.setState("adagrad.sum", sum);
    Value rate = context.learningRate();
    if (spec.lrDecay != 0)
      rate = context.shared("adagrad.rate", [&] {
        Value before = context.stepsBefore();
        return f.div(context.learningRate(), f.add(f.scale(before, spec.lrDecay), f.like(before, 1)));
      });
    Value root = f.make<onnx::SqrtOp>(sum);
    return f.sub(param, f.div(times(g, rate), f.add(root, f.like(root, spec.eps))));
  }

  // param = param (1 - lr wd) - lr sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g
  Value lion() {
    Value m = context.state("lion.m", 0);
    Value direction = f.make<onnx::SignOp>(average(m, grad, spec.beta1));
    context.setState("lion.m", average(m, grad, spec.beta2));
    return f.sub(decayedParam(), times(direction, context.learningRate()));
  }
};

} // namespace

bool hasUpdateRule(OptimizerKind kind) {
  switch (kind) {
  case OptimizerKind::Sgd:
  case OptimizerKind::Adam:
  case OptimizerKind::AdamW:
  case OptimizerKind::Adagrad:
  case OptimizerKind::Lion:
  case OptimizerKind::Lamb:
    return true;
  case OptimizerKind::Adafactor:
  case OptimizerKind::Muon:
    return false;
  }
  return false;
}

Value buildUpdate(Formula f, const recipe::Optimizer &spec, OptimizerContext &context, Value param, Value grad,
                  double weightDecay) {
  Rule rule{f, spec, context, param, grad, weightDecay};
  switch (spec.kind) {
  case OptimizerKind::Sgd:
    return rule.sgd();
  case OptimizerKind::Adam:
    return rule.adam(/*decoupled=*/false);
  case OptimizerKind::AdamW:
    return rule.adam(/*decoupled=*/true);
  case OptimizerKind::Adagrad:
    return rule.adagrad();
  case OptimizerKind::Lion:
    return rule.lion();
  case OptimizerKind::Lamb:
    return rule.lamb();
  default:
    return {};
  }
}

} // namespace cleave::training
