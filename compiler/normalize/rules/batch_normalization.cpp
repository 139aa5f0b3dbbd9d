// BatchNormalization with the batch's statistics (training) or the running ones.
//
// ONNX: running = momentum * running + (1 - momentum) * batch, with the biased variance. PyTorch, whose numbers
// training must give, moves the running variance by the unbiased one: that is what onnx.write stores; the node's own
// outputs are ONNX's.
#include "compiler/normalize/node.h"
#include "dialects/onnx/keeps_type.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

Value alongChannels(Node &n, Value v, Value x) {
  Value repeated = n.b.create<onnx::BroadcastOp>(v, n.b.builder.getDenseI64ArrayAttr(shapeOf(x)),
                                                 n.b.builder.getDenseI64ArrayAttr({1}));
  // It is none where each channel has one number, as of one sample.
  if (auto broadcast = repeated.getDefiningOp<onnx::BroadcastOp>(); broadcast && repeated != v)
    onnx::keepsTypeAttr.set(broadcast);
  return repeated;
}

bool trains(Node &n) {
  switch (n.state.batchNorm) {
  case BatchNormMode::Training:
    return true;
  case BatchNormMode::Frozen:
    return false;
  case BatchNormMode::AsExported:
    break;
  }
  return n.version() >= 14 ? n.integer("training_mode", 0) != 0 : n.outputs() > 1;
}

// @evaluate takes the running statistic where training takes the batch's (normalize.h).
void markStatistic(Value batch, Value running) {
  if (auto read = running.getDefiningOp<onnx::ReadOp>())
    if (Operation *op = batch.getDefiningOp()) onnx::batchStatisticAttr.set(op, read.getParamAttr());
}

Values batchNormalization(Node &n) {
  Value x = n.in(0), scale = n.in(1), bias = n.in(2), runningMean = n.in(3), runningVariance = n.in(4);
  if (rankOf(x) < 2) n.fail("needs an operand of at least two dimensions");
  double epsilon = n.real("epsilon", 1e-5), momentum = n.real("momentum", 0.9);
  auto normalized = [&](Value mean, Value variance) {
    Type statistics = elementOf(mean);
    Value inverse = n.b.unary<onnx::RsqrtOp>(n.b.add(variance, epsilon));
    Value y = n.b.mul(n.b.sub(n.b.cast(x, statistics), alongChannels(n, mean, x)), alongChannels(n, inverse, x));
    y = n.b.mul(y, alongChannels(n, n.b.cast(scale, statistics), x));
    return n.b.cast(n.b.add(y, alongChannels(n, n.b.cast(bias, statistics), x)), elementOf(x));
  };
  if (!trains(n)) {
    Values results{normalized(runningMean, runningVariance)};
    results.resize(n.outputs());
    return results;
  }
  Dims axes{0};
  double count = double(shapeOf(x)[0]);
  for (int64_t d = 2; d < rankOf(x); ++d) {
    axes.push_back(d);
    count *= double(shapeOf(x)[d]);
  }
  Value work = n.b.cast(x, elementOf(runningMean));
  Value mean = n.b.mean(work, axes, false);
  Value centred = n.b.sub(work, alongChannels(n, mean, work));
  Value variance = n.b.mean(n.b.mul(centred, centred), axes, false);
  auto blend = [&](Value running, Value batch) {
    return n.b.add(n.b.mul(running, momentum), n.b.mul(n.b.unary<onnx::StopGradientOp>(batch), 1 - momentum));
  };
  // One that runs several times in a step moves its statistics each time.
  auto moved = [&](Value running, Value batch) {
    auto read = running.getDefiningOp<onnx::ReadOp>();
    if (!read) return;
    Value before = n.state.writes.lookup(read.getParamAttr());
    n.state.writes[read.getParamAttr()] = blend(before ? before : running, batch);
  };
  moved(runningMean, mean);
  moved(runningVariance, count > 1 ? n.b.mul(variance, count / (count - 1)) : variance);
  Value newMean = blend(runningMean, mean), newVariance = blend(runningVariance, variance);
  Values results{normalized(mean, variance), newMean, newVariance, mean, variance};
  markStatistic(mean, runningMean);
  markStatistic(variance, runningVariance);
  results.resize(n.outputs());
  return results;
}

} // namespace

void addBatchNormalization(Rules &rules) { rules.add("BatchNormalization", batchNormalization); }

} // namespace cleave::normalize
