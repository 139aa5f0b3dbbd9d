#include "compiler/training/optimizers.h"
#include <cmath>

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

  Value everywhere(Value scalar) { return spread(f.cast(scalar, tensorType(param).getElementType()), param); }
  // x * scalar
  Value times(Value x, Value scalar) { return f.mul(x, everywhere(scalar)); }
  // before * (1 - weight) + now * weight, written as PyTorch's moving averages are
  Value average(Value before, Value now, double keep) { return f.add(f.scale(before, keep), f.scale(now, 1 - keep)); }
  Value spread(Value scalar, Value as) { return f.spread(scalar, tensorType(as).getShape()); }
  // The dimensions of one parameter, and a number of each of them (of rank 0, or [stacked]) in all its elements.
  SmallVector<int64_t> ownDims(Value x) {
    return llvm::to_vector(llvm::seq<int64_t>(context.isStacked() ? 1 : 0, tensorType(x).getRank()));
  }
  Value ofEach(Value number, Value as) { return f.expand(number, tensorType(as).getShape(), ownDims(as)); }
  Value norm(Value x) { return f.make<onnx::SqrtOp>(f.reduceSum(f.mul(x, x), ownDims(x))); }
  // The root of the mean square.
  Value size(Value x) {
    Value length = norm(x);
    double count = double(tensorType(x).getNumElements()) / double(tensorType(length).getNumElements());
    return f.scale(length, 1 / std::sqrt(count));
  }
  Value atLeast(Value x, double least) { return f.make<onnx::MaxOp>(x, f.like(x, least)); }
  Value reshaped(Value x, ArrayRef<int64_t> shape) {
    return tensorType(x).getShape() == shape ? x : f.make<onnx::ReshapeOp>(x, shape);
  }
  // Weight decay as part of the gradient (L2).
  Value decayedGrad() { return spec.weightDecay == 0 ? grad : f.add(grad, f.scale(param, spec.weightDecay)); }
  // Weight decay applied to the parameter itself (decoupled): x * (1 - lr * spec.weightDecay).
  Value decayed(Value x) {
    if (spec.weightDecay == 0) return x;
    Value keep = context.shared("1-lr*" + std::to_string(spec.weightDecay), [&] {
      Value lr = context.learningRate();
      return f.sub(f.like(lr, 1), f.scale(lr, spec.weightDecay));
    });
    return times(x, keep);
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
      Value buffer = f.add(f.scale(context.momentum("momentum_buffer"), spec.momentum), fresh);
      context.setState("momentum_buffer", buffer);
      g = spec.nesterov ? f.add(g, f.scale(buffer, spec.momentum)) : buffer;
    }
    return f.sub(param, times(g, context.learningRate()));
  }

  // The state's new value, which it keeps.
  Value kept(StringRef kind, Value value) {
    context.setState(kind, value);
    return value;
  }
  Value one() { return f.like(context.learningRate(), 1); }

  // The new moving averages of g and of its square.
  struct Moments {
    Value m, root; // the second's square root; of amsgrad that of the largest so far
  };
  Moments moments(Value g) {
    Value m = kept("exp_avg", average(context.momentum("exp_avg"), g, spec.beta1));
    Value v = kept("exp_avg_sq", average(context.state("exp_avg_sq", 0), f.mul(g, g), spec.beta2));
    if (spec.amsgrad) v = kept("max_exp_avg_sq", f.make<onnx::MaxOp>(context.state("max_exp_avg_sq", 0), v));
    return {m, f.make<onnx::SqrtOp>(v)};
  }

  // `scale` m / (sqrt(v) / correction + eps)
  Value direction(const Moments &of, Value scale, Value correction) {
    Value root = f.div(of.root, everywhere(correction));
    return f.div(times(of.m, scale), f.add(root, f.like(root, spec.eps)));
  }

  // 1 - base^t with the t that `bias_correction` says.
  Value correction(double base) {
    if (spec.biasCorrection == recipe::BiasCorrection::None ||
        (base == 0 && spec.biasCorrection == recipe::BiasCorrection::FromZero))
      return f.like(context.learningRate(), 1);
    Value now = context.oneMinusPower(base);
    if (spec.biasCorrection == recipe::BiasCorrection::FromOne) return now;
    // b (1 - b^(t-1)) = (1 - b^t) - (1 - b), which is 0 in the first step and b (1 - b) at least in those after it.
    Value before = f.sub(now, f.like(now, 1 - base));
    Value later = f.make<onnx::GreaterOp>(before, f.like(before, base * (1 - base) / 2));
    return f.where(later, f.scale(before, 1 / base), f.like(before, 1));
  }

  // See AdamForm; adam's weight decay is part of the gradient.
  Value adam(bool decoupled) {
    Value root2 = context.shared("adam.correction", [&] { return f.make<onnx::SqrtOp>(correction(spec.beta2)); });
    Value stepSize =
        context.shared("adam.step_size", [&] { return f.div(context.learningRate(), correction(spec.beta1)); });
    if (spec.form == recipe::AdamForm::Onnx) {
      Moments of = moments(decoupled ? grad : decayedGrad());
      Value rate = context.shared("adam.rate", [&] { return f.mul(stepSize, root2); });
      Value step = f.div(times(of.m, rate), f.add(of.root, f.like(of.root, spec.eps)));
      return decoupled ? decayed(f.sub(param, step)) : f.sub(param, step);
    }
    Value start = decoupled ? decayed(param) : param;
    return f.sub(start, direction(moments(decoupled ? grad : decayedGrad()), stepSize, root2));
  }

  // u = adam's direction + wd param; param -= lr |param| / |u| u, where a norm of 0 leaves the ratio at 1
  // (You et al.: Large Batch Optimization for Deep Learning, 2020, algorithm 2)
  Value lamb() {
    Value unbiased = context.shared("lamb.unbiased", [&] {
      Value rest = context.oneMinusPower(spec.beta1);
      return f.div(f.like(rest, 1), rest);
    });
    Value root2 =
        context.shared("adam.correction", [&] { return f.make<onnx::SqrtOp>(context.oneMinusPower(spec.beta2)); });
    Value u = direction(moments(grad), unbiased, root2);
    if (spec.weightDecay != 0) u = f.add(u, f.scale(param, spec.weightDecay));
    Value length = norm(param), step = norm(u);
    auto isThere = [&](Value x) { return f.make<onnx::GreaterOp>(x, f.like(x, 0)); };
    Value ratio = f.where(isThere(step), f.div(length, step), f.like(step, 1));
    ratio = f.where(isThere(length), ratio, f.like(step, 1));
    return f.sub(param, f.mul(u, ofEach(f.mul(ratio, spread(context.learningRate(), ratio)), u)));
  }

  // sum += g^2; param -= lr / (1 + (t-1) lr_decay) * g / (sqrt(sum) + eps)
  Value adagrad() {
    Value g = decayedGrad();
    Value sum = f.add(context.state("sum", spec.initialAccumulator), f.mul(g, g));
    context.setState("sum", sum);
    Value rate = context.learningRate();
    if (spec.lrDecay != 0)
      rate = context.shared("adagrad.rate", [&] {
        Value before = context.stepsBefore();
        return f.div(context.learningRate(), f.add(f.scale(before, spec.lrDecay), f.like(before, 1)));
      });
    Value root = f.make<onnx::SqrtOp>(sum);
    return f.sub(param, f.div(times(g, rate), f.add(root, f.like(root, spec.eps))));
  }

  // s = alpha s + (1 - alpha) g^2; u = g / (sqrt(s - a^2) + eps), where a, if centered, is the same mean of g;
  // param -= lr u, or with momentum: buf = momentum buf + u; param -= lr buf
  Value rmsprop() {
    Value g = decayedGrad();
    Value square = kept("square_avg", average(context.state("square_avg", 0), f.mul(g, g), spec.alpha));
    if (spec.centered) {
      Value mean = kept("grad_avg", average(context.state("grad_avg", 0), g, spec.alpha));
      square = f.sub(square, f.mul(mean, mean));
    }
    Value root = f.make<onnx::SqrtOp>(square), step = f.div(g, f.add(root, f.like(root, spec.eps)));
    if (spec.momentum != 0)
      step = kept("momentum_buffer", f.add(f.scale(context.momentum("momentum_buffer"), spec.momentum), step));
    return f.sub(param, times(step, context.learningRate()));
  }

  // Weight decay of the parameter or, unless decoupled, of the gradient.
  Value ofDecayed(Value &start) {
    start = spec.decoupledDecay ? decayed(param) : param;
    return spec.decoupledDecay ? grad : decayedGrad();
  }

  // mu(t) = b1 (1 - 0.96^(t momentum_decay) / 2), and its product over all steps; param -= lr ((1 - mu(t)) / (1 -
  // product) g + mu(t + 1) / (1 - product mu(t + 1)) m) / (sqrt(v / (1 - b2^t)) + eps)
  Value nadam() {
    Value start, g = ofDecayed(start);
    auto momentum = [&](double later) { // of the step that is so many after those done
      return context.shared("nadam.mu" + std::to_string(later), [&] {
        Value step = f.add(context.stepsBefore(), one());
        step = later == 0 ? step : f.add(step, one());
        Value power = f.make<onnx::PowOp>(f.like(step, 0.96), f.scale(step, spec.momentumDecay));
        return f.scale(f.sub(one(), f.scale(power, 0.5)), spec.beta1);
      });
    };
    Value now = momentum(0), next = momentum(1);
    double done = 1; // the product over the steps that a training before did
    for (int64_t step = 1; step <= context.stepsDone(); ++step)
      done *= spec.beta1 * (1 - std::pow(0.96, double(step) * spec.momentumDecay) / 2);
    Value product = context.shared("nadam.product", [&] {
      return f.mul(context.sharedState("nadam.product/" + std::to_string(spec.beta1), done,
                                       [&](Value before) { return f.mul(before, now); }),
                   now);
    });
    Value ofGradient = context.shared("nadam.of_gradient", [&] {
      return f.mul(context.learningRate(), f.div(f.sub(one(), now), f.sub(one(), product)));
    });
    Value ofMean = context.shared("nadam.of_mean", [&] {
      return f.mul(context.learningRate(), f.div(next, f.sub(one(), f.mul(product, next))));
    });
    Value root2 =
        context.shared("adam.correction", [&] { return f.make<onnx::SqrtOp>(context.oneMinusPower(spec.beta2)); });
    Moments of = moments(g);
    Value root = f.div(of.root, everywhere(root2));
    Value step = f.div(f.add(times(g, ofGradient), times(of.m, ofMean)), f.add(root, f.like(root, spec.eps)));
    return f.sub(start, step);
  }

  // With r = 2 / (1 - b2) - 1 and rho = r - 2 t b2^t / (1 - b2^t): where rho > 5, param -= lr m / (1 - b1^t)
  // sqrt(1 - b2^t) / (sqrt(v) + eps) sqrt((rho - 4) (rho - 2) r / ((r - 4) (r - 2) rho)), else lr m / (1 - b1^t)
  Value radam() {
    Value start, g = ofDecayed(start);
    const double most = 2 / (1 - spec.beta2) - 1;
    Value rest = context.oneMinusPower(spec.beta2);
    Value rho = context.shared("radam.rho", [&] {
      Value step = f.add(context.stepsBefore(), one());
      Value lost = f.div(f.mul(step, f.sub(one(), rest)), rest);
      return f.sub(f.like(rest, most), f.scale(lost, 2));
    });
    Value isRectified =
        context.shared("radam.is_rectified", [&] { return f.make<onnx::GreaterOp>(rho, f.like(rho, 5)); });
    Value rectified = context.shared("radam.rectified", [&] {
      auto less = [&](double by) { return f.sub(rho, f.like(rho, by)); };
      Value ratio = f.div(f.mul(less(4), less(2)), f.scale(rho, (most - 4) * (most - 2) / most));
      return f.make<onnx::SqrtOp>(f.mul(f.where(isRectified, ratio, one()), rest));
    });
    Value stepSize = context.shared("adam.step_size",
                                    [&] { return f.div(context.learningRate(), context.oneMinusPower(spec.beta1)); });
    Moments of = moments(g);
    Value adaptive = f.div(everywhere(rectified), f.add(of.root, f.like(of.root, spec.eps)));
    adaptive = f.where(spread(isRectified, param), adaptive, f.like(adaptive, 1));
    return f.sub(start, f.mul(times(of.m, stepSize), adaptive));
  }

  // u = max(b2 u, |g| + eps); param -= lr / (1 - b1^t) m / u
  Value adamax() {
    Value g = decayedGrad(), size = f.make<onnx::AbsOp>(g);
    Value m = kept("exp_avg", average(context.momentum("exp_avg"), g, spec.beta1));
    Value largest = kept("exp_inf", f.make<onnx::MaxOp>(f.scale(context.state("exp_inf", 0), spec.beta2),
                                                        f.add(size, f.like(size, spec.eps))));
    Value stepSize = context.shared("adam.step_size",
                                    [&] { return f.div(context.learningRate(), context.oneMinusPower(spec.beta1)); });
    return f.sub(param, f.div(times(m, stepSize), largest));
  }

  // s = rho s + (1 - rho) g^2; u = sqrt(d + eps) / sqrt(s + eps) g; d = rho d + (1 - rho) u^2; param -= lr u
  Value adadelta() {
    Value g = decayedGrad();
    auto root = [&](Value x) { return f.make<onnx::SqrtOp>(f.add(x, f.like(x, spec.eps))); };
    Value square = kept("square_avg", average(context.state("square_avg", 0), f.mul(g, g), spec.rho));
    Value before = context.state("acc_delta", 0);
    Value step = f.mul(f.div(root(before), root(square)), g);
    context.setState("acc_delta", average(before, f.mul(step, step), spec.rho));
    return f.sub(param, times(step, context.learningRate()));
  }

  // param = param (1 - lr wd) - lr sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g
  Value lion() {
    Value m = context.momentum("exp_avg");
    Value direction = f.make<onnx::SignOp>(average(m, grad, spec.beta1));
    context.setState("exp_avg", average(m, grad, spec.beta2));
    return f.sub(decayed(param), times(direction, context.learningRate()));
  }

  // The mean of the squares' rows times that of their columns over the mean of all stands for the moving average of
  // g^2, where there are rows: v. u = g / sqrt(max(v, eps^2)); with p = size(param) before the step, param -= max(eps2,
  // p) min(lr, 1/sqrt(t)) / max(1, size(u) / d) u
  Value adafactor() {
    Value step = context.shared("adafactor.step", [&] {
      Value before = context.stepsBefore();
      return f.add(before, f.like(before, 1));
    });
    Value weight =
        context.shared("adafactor.weight", [&] { return f.make<onnx::PowOp>(step, f.like(step, spec.beta2Decay)); });
    Value rate = context.shared(
        "adafactor.rate", [&] { return f.make<onnx::MinOp>(context.learningRate(), f.make<onnx::RsqrtOp>(step)); });
    // The state's new value: before + t^beta2_decay (now - before).
    auto moved = [&](StringRef kind, Value now) {
      Value before = context.state(kind, 0, tensorType(now).getShape());
      Value after = f.add(before, f.mul(spread(weight, now), f.sub(now, before)));
      context.setState(kind, after);
      return after;
    };
    SmallVector<int64_t> shape(context.exportedShape());
    Value g = reshaped(grad, shape), square = f.mul(g, g), v;
    auto rank = static_cast<int64_t>(shape.size());
    if (rank - (context.isStacked() ? 1 : 0) > 1) {
      auto mean = [&](Value x, int64_t dim) {
        return f.scale(f.reduceSum(x, {dim}), 1.0 / double(tensorType(x).getDimSize(dim)));
      };
      Value row = moved("row_var", mean(square, rank - 1)), column = moved("col_var", mean(square, rank - 2));
      Value all = atLeast(mean(row, rank - 2), spec.eps);
      row = f.div(row, f.expand(all, tensorType(row).getShape(), {rank - 2}));
      v = f.mul(f.expand(row, shape, {rank - 1}), f.expand(column, shape, {rank - 2}));
    } else {
      v = moved("variance", square);
    }
    Value u = f.mul(g, f.make<onnx::RsqrtOp>(atLeast(v, spec.eps * spec.eps)));
    Value alpha = atLeast(size(param), spec.eps2);
    alpha = f.div(f.mul(alpha, spread(rate, alpha)), atLeast(f.scale(size(u), 1 / spec.clipThreshold), 1));
    return f.sub(decayed(param), reshaped(f.mul(u, ofEach(alpha, u)), tensorType(param).getShape()));
  }

  // x is [stacked, rows, columns]. From x / |x| on, `ns_steps` times: x <- a x + (b s + c s s) x with s = x x^T, or
  // from the other side where there are fewer columns. Each singular value comes near 1. (Jordan et al. 2024,
  // coefficients theirs. PyTorch's class of that name computes in bf16, as `ns_dtype: bf16` does.)
  Value orthogonal(Value x) {
    constexpr double a = 3.4445, b = -4.7750, c = 2.0315, least = 1e-7;
    auto type = tensorType(x);
    bool rowsAreFew = type.getDimSize(1) <= type.getDimSize(2);
    using List = ArrayRef<int64_t>;
    x = f.div(
        x, f.expand(atLeast(f.make<onnx::SqrtOp>(f.reduceSum(f.mul(x, x), {1, 2})), least), type.getShape(), {1, 2}));
    if (spec.newtonSchulzType == recipe::NewtonSchulzType::Bf16) x = f.cast(x, BFloat16Type::get(x.getContext()));
    for (int64_t step = 0; step < spec.newtonSchulzSteps; ++step) {
      Value s = rowsAreFew ? f.make<onnx::ContractOp>(x, x, List{0, 1, 2}, List{0, 3, 2}, List{0, 1, 3})
                           : f.make<onnx::ContractOp>(x, x, List{0, 1, 2}, List{0, 1, 3}, List{0, 2, 3});
      Value square = f.make<onnx::ContractOp>(s, s, List{0, 1, 2}, List{0, 2, 3}, List{0, 1, 3});
      Value t = f.add(f.scale(s, b), f.scale(square, c));
      Value turned = rowsAreFew ? f.make<onnx::ContractOp>(t, x, List{0, 1, 2}, List{0, 2, 3}, List{0, 1, 3})
                                : f.make<onnx::ContractOp>(x, t, List{0, 1, 2}, List{0, 2, 3}, List{0, 1, 3});
      x = f.add(f.scale(x, a), turned);
    }
    return f.cast(x, type.getElementType());
  }

  // m = momentum m + (1 - momentum) g; param = param (1 - lr wd) - lr sqrt(max(1, out / in)) orthogonal(m, or what
  // Nesterov's momentum makes of it). Muon is for weights of products; everything else learns by AdamW.
  Value muon() {
    MatrixUse use = context.matrixUse();
    if (use == MatrixUse::None) return adam(/*decoupled=*/true);
    Value m = average(context.momentum("momentum_buffer"), grad, spec.momentum);
    context.setState("momentum_buffer", m);
    if (spec.nesterov) m = average(m, grad, spec.momentum);
    ArrayRef<int64_t> shape = context.exportedShape();
    int64_t stacked = context.isStacked() ? shape.front() : 1, rows = shape[context.isStacked() ? 1 : 0];
    int64_t columns = tensorType(m).getNumElements() / (stacked * rows);
    double ratio = use == MatrixUse::OutputsFirst ? double(rows) / double(columns) : double(columns) / double(rows);
    Value direction = reshaped(orthogonal(reshaped(m, {stacked, rows, columns})), tensorType(param).getShape());
    return f.sub(decayed(param), times(f.scale(direction, std::sqrt(std::max(1.0, ratio))), context.learningRate()));
  }
};

} // namespace

Value buildUpdate(Formula f, const recipe::Optimizer &spec, OptimizerContext &context, Value param, Value grad) {
  Rule rule{f, spec, context, param, grad};
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
  case OptimizerKind::Adafactor:
    return rule.adafactor();
  case OptimizerKind::Muon:
    return rule.muon();
  case OptimizerKind::RmsProp:
    return rule.rmsprop();
  case OptimizerKind::NAdam:
    return rule.nadam();
  case OptimizerKind::RAdam:
    return rule.radam();
  case OptimizerKind::Adamax:
    return rule.adamax();
  case OptimizerKind::Adadelta:
    return rule.adadelta();
  }
  llvm_unreachable("an optimizer without a rule");
}

} // namespace cleave::training
