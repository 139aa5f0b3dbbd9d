// The end of a matrix product in plans for GPUs, in plain loops: an emulated plan is checked with it.
#include "runtime/base/gelu.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/commands.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"

namespace cleave::runtime {
namespace {

// Elements of a buffer as numbers.
struct Elements {
  plan::DType dtype;
  std::byte *base;
  Elements(const plan::Buffer &buffer, const CpuContext &context) : dtype(buffer.dtype()), base(context.at(buffer)) {}
  double get(int64_t i) const { return loadFloat(dtype, base + i * byteSize(dtype)); }
  void set(int64_t i, double value) const { storeFloat(dtype, value, base + i * byteSize(dtype)); }
};

// Finishes every element of the result, in rows.
void finishRows(const plan::Contract &c, const CpuContext &context) {
  int batch = c.batch_size();
  int64_t rows = c.m();
  for (int64_t size : c.batch()) rows *= size;
  Elements out(c.out(), context);
  parallelFor(rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t place = row % c.m() * c.out_strides(batch), rest = row / c.m();
      for (int d = batch; d-- > 0; rest /= c.batch(d)) place += rest % c.batch(d) * c.out_strides(d);
      for (int64_t n = 0; n < c.n(); ++n) {
        int64_t at = place + n * c.out_strides(batch + 1);
        double x = out.get(at);
        if (c.has_bias()) x += Elements(c.bias(), context).get(n);
        if (c.activation() == plan::Contract::GELU) {
          if (c.has_pre_activation()) Elements(c.pre_activation(), context).set(at, x);
          x = gelu(x);
        } else if (c.activation() == plan::Contract::GELU_GRADIENT) {
          x *= geluDerivative(Elements(c.pre_activation(), context).get(at));
        }
        out.set(at, x);
      }
    }
  });
}

void sumOver(const plan::Buffer &operand, const plan::Buffer &sum, int64_t count, int64_t stride, int64_t depth,
             int64_t depthStride, const CpuContext &context) {
  Elements from(operand, context), to(sum, context);
  for (int64_t i = 0; i < count; ++i) {
    double total = 0;
    for (int64_t k = 0; k < depth; ++k) total += from.get(i * stride + k * depthStride);
    to.set(i, total);
  }
}

class Finished final : public ScratchCommand {
public:
  Finished(const plan::Contract &c, const CpuContext &context, Prepared product)
      : command(c), context(context), product(std::move(product)) {}
  void place(const Scratch &scratch) override {
    if (auto *user = dynamic_cast<ScratchCommand *>(product.get())) user->place(scratch);
  }
  Status run() override {
    const plan::Contract &c = command;
    if (c.has_lhs_sum()) sumOver(c.lhs(), c.lhs_sum(), c.m(), c.lhs_strides(0), c.k(), c.lhs_strides(1), context);
    if (c.has_rhs_sum()) sumOver(c.rhs(), c.rhs_sum(), c.n(), c.rhs_strides(1), c.k(), c.rhs_strides(0), context);
    CLEAVE_RETURN_IF_ERROR(product->run());
    if (c.has_bias() || c.activation() != plan::Contract::NONE) finishRows(c, context);
    return Status::ok();
  }

private:
  plan::Contract command;
  CpuContext context;
  Prepared product;
};

} // namespace

// A bias in fp32 by itself is oneDNN's own.
bool hasEpilogue(const plan::Contract &c) {
  return c.activation() != plan::Contract::NONE || c.has_lhs_sum() || c.has_rhs_sum() ||
         (c.has_bias() && byteSize(c.out().dtype()) == 2);
}

Prepared withEpilogue(const plan::Contract &c, const CpuContext &context, Prepared product) {
  return std::make_unique<Finished>(c, context, std::move(product));
}

} // namespace cleave::runtime
