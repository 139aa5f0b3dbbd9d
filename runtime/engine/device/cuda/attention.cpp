// Attention by cuDNN: the graph of products, pointwise operations and reductions that its fused engines know by its
// form (flash attention: Dao et al. 2022). The operations, their order and what is virtual are those that NVIDIA's
// cudnn-frontend makes (node/scaled_dot_product_flash_attention.h, node/softmax.h, node/diagonal_band_mask.h), which
// the engines are made for; keys and values are given transposed to the products, as there.
//
//   forward    x = cap(q k^T * scale) (+ bias);  -inf outside of the band;  m = max x;  e = exp(x - m);  l = sum e
//              stats = m + log l;  p = e / l in 16 bits;  out = p v
//   backward   D = sum of do * out;  p = exp(masked(cap(q k^T * scale) (+ bias) - stats));  dv = p^T do
//              ds = (do v^T - D) * p * cap' * scale;  dk = ds^T q;  dq = ds k, summed in fp32 unless deterministic
#include "runtime/engine/device/cuda/dnn_graph.h"
#include "runtime/plan/attention_form.h"
#include "runtime/plan/library_workspace.h"
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <variant>

namespace cleave::runtime::cuda {
namespace {

using Tensor = Result<DnnDescriptor>;

class Builder {
public:
  Builder(DnnGraph &graph, const plan::Attention &c, const AttentionForm &form, const CudaDevice &device)
      : graph(graph), c(c), form(form), device(device), low(dnnType(c.query().dtype())), b(form.batch), h(form.heads),
        g(form.keyHeads), s(form.queries), t(form.keys), d(form.features), e(form.valueFeatures) {}

  Status forward() {
    Tensor q = tensor(c.query(), {b, h, s, d}, form.query), k = turned(c.key(), {b, g, t, d}, form.key),
           v = tensor(c.value(), {b, g, t, e}, form.value), out = tensor(c.output(), {b, h, s, e}, form.output);
    Tensor x = masked(scores(q, k));
    Tensor most = reduce(dnnReduceMax, x);
    Tensor exp = pointwise(dnnExp, virtualScores(), pointwise(dnnSub, virtualScores(), x, most));
    Tensor sum = reduce(dnnReduceAdd, exp);
    (void)pointwise(dnnAdd, stats(), most, pointwise(dnnLog, virtualRows(), sum));
    Tensor p = pointwise(dnnDiv, virtualScores(low), exp, sum);
    (void)matmul(p, v, out);
    return done();
  }

  Status backward() {
    Tensor q = tensor(c.query(), {b, h, s, d}, form.query), k = turned(c.key(), {b, g, t, d}, form.key),
           v = turned(c.value(), {b, g, t, e}, form.value), out = tensor(c.output(), {b, h, s, e}, form.output),
           given = tensor(c.output_gradient(), {b, h, s, e}, form.output), kept = stats();
    Tensor products = pointwise(dnnMul, virtualDense({b, h, s, e}), given, out);
    Tensor delta = pointwise(dnnMul, scratch({b, h, s, 1}), reduce(dnnReduceAdd, products), number(1));
    Tensor x = pointwise(dnnSub, virtualScores(), scores(q, k), kept);
    Tensor p = pointwise(dnnExp, virtualScores(), masked(x));
    intoHeads(transposed(p), given, c.value_gradient(), e, form.valueGradient);
    Tensor dp = matmul(given, v, virtualScores());
    Tensor dx = pointwise(dnnMul, virtualScores(), pointwise(dnnSub, virtualScores(), dp, delta), p);
    if (c.soft_cap() != 0) {
      dx = tanhGradient(uncapped, pointwise(dnnMul, virtualScores(), dx, cap));
      dx = pointwise(dnnDiv, virtualScores(), dx, cap);
    }
    dx = pointwise(dnnMul, virtualScores(), dx, scaleNumber);
    intoHeads(transposed(dx), q, c.key_gradient(), d, form.keyGradient);
    Tensor keys = make({.type = low, .sizes = {b, g, t, d}, .strides = list(form.key), .place = DnnTensor::Virtual});
    reshape(k, keys);
    Tensor gradient = tensor(c.query_gradient(), {b, h, s, d}, form.queryGradient);
    // Sums in fp32 come in any order; without them the engine keeps dx and multiplies it in one.
    if (device.gpu().deterministic)
      (void)matmul(dx, keys, gradient);
    else
      (void)pointwise(dnnIdentity, gradient, matmul(dx, keys, scratch({b, h, s, d})));
    return done();
  }

private:
  using Sizes = std::vector<int64_t>;
  static Sizes list(const AttentionStrides &strides) { return {strides.begin(), strides.end()}; }
  static Sizes dense(const Sizes &sizes) {
    Sizes strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
    return strides;
  }

  // The first error is kept; what follows it does nothing.
  void keep(const Status &status) {
    if (error.isOk()) error = status;
  }
  Status done() {
    if (!error) return error;
    return graph.compile(operations, DnnCores::Any, attentionWorkspace(c, device.gpu().deterministic));
  }
  Tensor make(const DnnTensor &one) {
    if (!error) return error;
    Tensor made = graph.tensor(one);
    if (!made) keep(made.status());
    return made;
  }
  Tensor tensor(const plan::Buffer &buffer, Sizes sizes, const AttentionStrides &strides) {
    return make({.type = low, .sizes = std::move(sizes), .strides = list(strides), .address = device.at(buffer)});
  }
  // With positions and features in each other's place.
  Tensor turned(const plan::Buffer &buffer, Sizes sizes, AttentionStrides strides) {
    std::swap(sizes[2], sizes[3]);
    std::swap(strides[2], strides[3]);
    return tensor(buffer, std::move(sizes), strides);
  }
  Tensor stats() {
    return make(
        {.type = dnnFloat, .sizes = {b, h, s, 1}, .strides = {h * s, s, 1, 1}, .address = device.at(c.stats())});
  }
  Tensor virtualDense(const Sizes &sizes, int type = dnnFloat) {
    return make({.type = type, .sizes = sizes, .strides = dense(sizes), .place = DnnTensor::Virtual});
  }
  Tensor virtualScores(int type = dnnFloat) { return virtualDense({b, h, s, t}, type); }
  Tensor virtualRows() { return virtualDense({b, h, s, 1}); }
  Tensor scratch(const Sizes &sizes) {
    return make({.type = dnnFloat, .sizes = sizes, .strides = dense(sizes), .place = DnnTensor::Scratch});
  }
  Tensor number(std::variant<float, int32_t> value) {
    return make({.type = std::holds_alternative<float>(value) ? dnnFloat : dnnInt32,
                 .sizes = {1, 1, 1, 1},
                 .strides = {1, 1, 1, 1},
                 .place = DnnTensor::Value,
                 .value = value});
  }

  Tensor described(int type) {
    if (!error) return error;
    Tensor made = graph.descriptor(type);
    if (!made) keep(made.status());
    return made;
  }
  void put(const Tensor &to, int attribute, int type, int value) {
    if (error.isOk()) keep(graph.set(*to, attribute, type, std::vector{value}));
  }
  void put(const Tensor &to, int attribute, const Tensor &value) {
    if (error.isOk()) keep(graph.set(*to, attribute, dnnTypeDescriptor, std::vector{*value}));
  }
  void finish(const Tensor &descriptor) {
    if (error.isOk()) keep(graph.finalize(*descriptor, "refuses a part of"));
  }
  void add(const Tensor &operation) {
    finish(operation);
    if (error.isOk()) operations.push_back(*operation);
  }

  Tensor pointwise(int mode, Tensor y, const Tensor &x, const std::optional<Tensor> &other = std::nullopt,
                   const std::optional<Tensor> &condition = std::nullopt, int precision = dnnFloat, int64_t axis = -1) {
    Tensor how = described(dnnPointwise);
    put(how, dnnPointwiseMode, dnnTypePointwiseMode, mode);
    put(how, dnnPointwisePrecision, dnnTypeDataType, precision);
    if (axis >= 0 && error.isOk()) keep(graph.set(*how, dnnPointwiseAxis, dnnTypeInt64, std::vector{axis}));
    finish(how);
    Tensor operation = described(dnnPointwiseOperation);
    put(operation, dnnPointwiseOf, how);
    put(operation, dnnPointwiseX, x);
    if (other) put(operation, dnnPointwiseB, *other);
    if (condition) put(operation, dnnPointwiseT, *condition);
    put(operation, dnnPointwiseY, y);
    add(operation);
    return y;
  }
  Tensor tanhGradient(const Tensor &x, const Tensor &given) {
    Tensor y = virtualScores(), how = described(dnnPointwise);
    put(how, dnnPointwiseMode, dnnTypePointwiseMode, dnnTanhBackward);
    put(how, dnnPointwisePrecision, dnnTypeDataType, dnnFloat);
    finish(how);
    Tensor operation = described(dnnPointwiseOperation);
    put(operation, dnnPointwiseOf, how);
    put(operation, dnnPointwiseX, x);
    put(operation, dnnPointwiseDy, given);
    put(operation, dnnPointwiseDx, y);
    add(operation);
    return y;
  }
  // Over the last dimension.
  Tensor reduce(int operatorKind, const Tensor &x) {
    Tensor y = virtualRows(), how = described(dnnReduction);
    put(how, dnnReductionComputeType, dnnTypeDataType, dnnFloat);
    put(how, dnnReductionOperator, dnnTypeReductionOperator, operatorKind);
    finish(how);
    reduction(how, x, y);
    return y;
  }
  void reduction(const Tensor &how, const Tensor &x, const Tensor &y) {
    Tensor operation = described(dnnReductionOperation);
    put(operation, dnnReductionOf, how);
    put(operation, dnnReductionX, x);
    put(operation, dnnReductionY, y);
    add(operation);
  }
  Tensor matmul(const Tensor &a, const Tensor &bb, Tensor y) {
    Tensor how = described(dnnMatmul);
    put(how, dnnMatmulComputeType, dnnTypeDataType, dnnFloat);
    finish(how);
    Tensor operation = described(dnnMatmulOperation);
    put(operation, dnnMatmulA, a);
    put(operation, dnnMatmulB, bb);
    put(operation, dnnMatmulC, y);
    put(operation, dnnMatmulOf, how);
    add(operation);
    return y;
  }
  void reshape(const Tensor &x, const Tensor &y) {
    Tensor operation = described(dnnReshapeOperation);
    put(operation, dnnReshapeX, x);
    put(operation, dnnReshapeY, y);
    add(operation);
  }

  // q k^T * scale (+ bias)
  Tensor scores(const Tensor &q, const Tensor &k) {
    Tensor x = matmul(q, k, virtualScores());
    scaleNumber = number(static_cast<float>(c.scale()));
    x = pointwise(dnnMul, virtualScores(), x, scaleNumber);
    if (c.soft_cap() != 0) {
      cap = number(static_cast<float>(c.soft_cap()));
      uncapped = pointwise(dnnDiv, virtualScores(), x, cap);
      x = pointwise(dnnMul, virtualScores(), pointwise(dnnTanh, virtualScores(), uncapped), cap);
    }
    if (!c.has_bias()) return x;
    Tensor bias = make({.type = dnnType(c.bias().dtype()),
                        .sizes = {c.bias().shape().begin(), c.bias().shape().end()},
                        .strides = dense({c.bias().shape().begin(), c.bias().shape().end()}),
                        .address = device.at(c.bias())});
    return pointwise(dnnAdd, virtualScores(), x, bias);
  }
  // As the frontend writes a band (node/diagonal_band_mask.h): right bounds compare integers, left ones fp32.
  Tensor masked(Tensor x) {
    // Versions before 9.10 want the lowest number instead (utils/attn_score_modifiers.h).
    const bool infinite = device.gpu().dnn->version() >= 91000;
    const float hidden = infinite ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::lowest();
    auto index = [&](int64_t axis) {
      return pointwise(dnnGenIndex, virtualScores(dnnInt32), x, std::nullopt, std::nullopt, dnnFloat, axis);
    };
    auto shifted = [&](int mode, const Tensor &position, int64_t distance) {
      return pointwise(mode, virtualScores(dnnInt32), position, number(static_cast<int32_t>(distance)), std::nullopt,
                       dnnInt32);
    };
    auto hide = [&](int mode, const Tensor &a, const Tensor &b) {
      Tensor seen = pointwise(mode, virtualScores(dnnBoolean), a, b, std::nullopt, dnnBoolean);
      x = pointwise(dnnSelect, virtualScores(), x, number(hidden), seen);
    };
    if (const auto right = form.band.right) {
      Tensor row = index(2), column = index(3);
      if (*right == t - s && t != s) // engines know a mask that ends at the last key by both lengths
        row = shifted(dnnSub, shifted(dnnAdd, row, t), s);
      else if (*right)
        row = shifted(dnnAdd, row, *right);
      hide(dnnGreaterOrEqual, row, column);
    }
    if (const auto left = form.band.left) {
      Tensor row = index(2), column = index(3);
      hide(dnnGreater, pointwise(dnnAdd, virtualScores(), column, number(static_cast<float>(*left))), row);
    }
    return x;
  }
  // [b, h, t, s] in 16 bits, over the same elements.
  Tensor transposed(const Tensor &x) {
    Tensor y =
        make({.type = low, .sizes = {b, h, t, s}, .strides = {h * s * t, s * t, 1, t}, .place = DnnTensor::Virtual});
    reshape(x, y);
    return y;
  }
  // A gradient of keys or values, summed over the heads that share them.
  void intoHeads(const Tensor &a, const Tensor &bb, const plan::Buffer &gradient, int64_t features,
                 const AttentionStrides &strides) {
    Tensor target = tensor(gradient, {b, g, t, features}, strides);
    if (h == g) {
      (void)matmul(a, bb, target);
      return;
    }
    Tensor each = matmul(a, bb, virtualDense({b, h, t, features}, low)), how = described(dnnReduction);
    put(how, dnnReductionComputeType, dnnTypeDataType, dnnFloat);
    put(how, dnnReductionOperator, dnnTypeReductionOperator, dnnReduceAdd);
    finish(how);
    reduction(how, each, target);
  }

  DnnGraph &graph;
  const plan::Attention &c;
  const AttentionForm &form;
  const CudaDevice &device;
  int low;
  int64_t b, h, g, s, t, d, e;
  std::vector<DnnDescriptor> operations;
  Tensor scaleNumber = DnnDescriptor(), cap = DnnDescriptor(), uncapped = DnnDescriptor();
  Status error = Status::ok();
};

// Limits of the versions of cuDNN 9 (cudnn-frontend, node/scaled_dot_product_flash_attention.h and
// node/sdpa_support_surface.h).
Status checkVersion(const AttentionForm &form, size_t version) {
  auto needs = [&](const char *what) {
    return inputError(fmt::format("cuDNN {}.{}.{} {}; compile with --set attention=written, which needs none of it",
                                  version / 10000, version / 100 % 100, version % 100, what));
  };
  if (version < 90600) return needs("is older than 9.6, the first whose attention is used here");
  if (version == 91000 || version == 91001)
    return needs("computes the gradient of attention wrongly (9.10.2 is right)");
  if (form.keys % 128 && version <= 91500)
    return needs(
        fmt::format("wants {} keys padded to a multiple of 128 (later than 9.15.0 does not)", form.keys).c_str());
  return Status::ok();
}

} // namespace

Result<Prepared> prepareAttention(const plan::Attention &command, CudaDevice &device, int lane) {
  CLEAVE_ASSIGN_OR_RETURN(AttentionForm form, attentionForm(command));
  CLEAVE_RETURN_IF_ERROR(device.gpu().needDnn());
  CLEAVE_RETURN_IF_ERROR(checkVersion(form, device.gpu().dnn->version()));
  if (!command.has_stats()) return inputError("attention without a buffer for its stats");
  bool backward = command.pass() == plan::Attention::BACKWARD;
  auto graph = std::make_unique<DnnGraph>(device, lane, backward ? "the attention's gradient" : "the attention");
  Builder builder(*graph, command, form, device);
  if (Status status = backward ? builder.backward() : builder.forward(); !status)
    return runError(status.message() + "; --set attention=written compiles it as products and a softmax");
  return Prepared(std::move(graph));
}

} // namespace cleave::runtime::cuda
