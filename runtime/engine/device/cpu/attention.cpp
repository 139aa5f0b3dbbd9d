// Attention of a GPU's plan in plain loops: the form that an emulated plan is checked with. As on the GPU, products are
// of 16-bit elements: the probabilities and the scores' gradients are rounded before they are multiplied.
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/commands.h"
#include "runtime/plan/attention_form.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::runtime {
namespace {

struct Tensor {
  plan::DType dtype;
  std::byte *base;
  AttentionStrides strides;
  Tensor(const plan::Buffer &buffer, const AttentionStrides &strides, const CpuContext &context)
      : dtype(buffer.dtype()), base(context.at(buffer)), strides(strides) {}
  std::byte *at(int64_t b, int64_t h, int64_t s, int64_t d) const {
    return base + (b * strides[0] + h * strides[1] + s * strides[2] + d * strides[3]) * byteSize(dtype);
  }
  double get(int64_t b, int64_t h, int64_t s, int64_t d) const { return loadFloat(dtype, at(b, h, s, d)); }
  void set(int64_t b, int64_t h, int64_t s, int64_t d, double value) const { storeFloat(dtype, value, at(b, h, s, d)); }
};

class Attend final : public PreparedCommand {
public:
  Attend(const plan::Attention &c, const AttentionForm &form, const CpuContext &context)
      : command(c), form(form), context(context) {}

  Status run() override {
    bool backward = command.pass() == plan::Attention::BACKWARD;
    // Heads that share keys and values are done by one thread, which sums their gradients.
    parallelFor(form.batch * form.keyHeads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        backward ? backwardOf(i / form.keyHeads, i % form.keyHeads) : forwardOf(i / form.keyHeads, i % form.keyHeads);
    });
    return Status::ok();
  }

private:
  using Rows = std::vector<double>; // of one head: [queries or keys, features]

  double rounded(double value) const {
    std::byte bytes[8];
    storeFloat(command.query().dtype(), value, bytes);
    return loadFloat(command.query().dtype(), bytes);
  }
  Rows read(const plan::Buffer &buffer, const AttentionStrides &strides, int64_t b, int64_t h, int64_t positions,
            int64_t features) const {
    Tensor tensor(buffer, strides, context);
    Rows rows(static_cast<size_t>(positions * features));
    for (int64_t s = 0; s < positions; ++s)
      for (int64_t d = 0; d < features; ++d) rows[static_cast<size_t>(s * features + d)] = tensor.get(b, h, s, d);
    return rows;
  }
  void write(const Rows &rows, const plan::Buffer &buffer, const AttentionStrides &strides, int64_t b, int64_t h,
             int64_t positions, int64_t features) const {
    Tensor tensor(buffer, strides, context);
    for (int64_t s = 0; s < positions; ++s)
      for (int64_t d = 0; d < features; ++d) tensor.set(b, h, s, d, rows[static_cast<size_t>(s * features + d)]);
  }
  static double dot(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
  }
  static void addScaled(double *to, const double *from, double factor, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
  }

  // The scores of one query; `slopes`: their derivatives by what they are without a soft cap.
  Rows scores(int64_t b, int64_t h, int64_t s, const Rows &query, const Rows &key, Rows *slopes = nullptr) const {
    Rows row(static_cast<size_t>(form.keys));
    if (slopes) slopes->assign(row.size(), 1);
    for (int64_t t = 0; t < form.keys; ++t) {
      double &x = row[static_cast<size_t>(t)];
      x = command.scale() * dot(&query[static_cast<size_t>(s * form.features)],
                                &key[static_cast<size_t>(t * form.features)], form.features);
      if (const double cap = command.soft_cap()) {
        const double part = std::tanh(x / cap);
        x = cap * part;
        if (slopes) (*slopes)[static_cast<size_t>(t)] = 1 - part * part;
      }
      if (command.has_bias()) x += Tensor(command.bias(), form.bias, context).get(b, h, s, t);
      if (!form.band.sees(s, t)) x = -std::numeric_limits<double>::infinity();
    }
    return row;
  }
  float *statsOf(int64_t b, int64_t h, int64_t s) const {
    return reinterpret_cast<float *>(context.at(command.stats())) + (b * form.heads + h) * form.queries + s;
  }

  void forwardOf(int64_t b, int64_t g) const {
    Rows key = read(command.key(), form.key, b, g, form.keys, form.features);
    Rows value = read(command.value(), form.value, b, g, form.keys, form.valueFeatures);
    int64_t repeats = form.heads / form.keyHeads;
    for (int64_t h = g * repeats; h < (g + 1) * repeats; ++h) {
      Rows query = read(command.query(), form.query, b, h, form.queries, form.features);
      Rows out(static_cast<size_t>(form.queries * form.valueFeatures));
      for (int64_t s = 0; s < form.queries; ++s) {
        Rows row = scores(b, h, s, query, key);
        double most = *std::max_element(row.begin(), row.end()), sum = 0;
        for (double x : row) sum += std::exp(x - most);
        for (int64_t t = 0; t < form.keys; ++t)
          addScaled(&out[static_cast<size_t>(s * form.valueFeatures)],
                    &value[static_cast<size_t>(t * form.valueFeatures)],
                    rounded(std::exp(row[static_cast<size_t>(t)] - most) / sum), form.valueFeatures);
        if (command.has_stats()) *statsOf(b, h, s) = static_cast<float>(most + std::log(sum));
      }
      write(out, command.output(), form.output, b, h, form.queries, form.valueFeatures);
    }
  }

  void backwardOf(int64_t b, int64_t g) const {
    int64_t d = form.features, e = form.valueFeatures, repeats = form.heads / form.keyHeads;
    Rows key = read(command.key(), form.key, b, g, form.keys, d),
         value = read(command.value(), form.value, b, g, form.keys, e);
    Rows keyGradient(key.size()), valueGradient(value.size());
    for (int64_t h = g * repeats; h < (g + 1) * repeats; ++h) {
      Rows query = read(command.query(), form.query, b, h, form.queries, d);
      Rows out = read(command.output(), form.output, b, h, form.queries, e);
      Rows given = read(command.output_gradient(), form.output, b, h, form.queries, e);
      Rows queryGradient(query.size());
      for (int64_t s = 0; s < form.queries; ++s) {
        Rows slopes, row = scores(b, h, s, query, key, &slopes);
        const double *gradient = &given[static_cast<size_t>(s * e)];
        double delta = dot(gradient, &out[static_cast<size_t>(s * e)], e), stats = *statsOf(b, h, s);
        for (int64_t t = 0; t < form.keys; ++t) {
          double p = std::exp(row[static_cast<size_t>(t)] - stats);
          if (p == 0) continue;
          double dx = rounded(command.scale() * slopes[static_cast<size_t>(t)] * p *
                              (dot(gradient, &value[static_cast<size_t>(t * e)], e) - delta));
          addScaled(&valueGradient[static_cast<size_t>(t * e)], gradient, rounded(p), e);
          addScaled(&keyGradient[static_cast<size_t>(t * d)], &query[static_cast<size_t>(s * d)], dx, d);
          addScaled(&queryGradient[static_cast<size_t>(s * d)], &key[static_cast<size_t>(t * d)], dx, d);
        }
      }
      write(queryGradient, command.query_gradient(), form.queryGradient, b, h, form.queries, d);
    }
    write(keyGradient, command.key_gradient(), form.keyGradient, b, g, form.keys, d);
    write(valueGradient, command.value_gradient(), form.valueGradient, b, g, form.keys, e);
  }

  plan::Attention command;
  AttentionForm form;
  CpuContext context;
};

} // namespace

Result<Prepared> prepareAttention(const plan::Attention &command, const CpuContext &context) {
  CLEAVE_ASSIGN_OR_RETURN(AttentionForm form, attentionForm(command));
  return Prepared(std::make_unique<Attend>(command, form, context));
}

} // namespace cleave::runtime
