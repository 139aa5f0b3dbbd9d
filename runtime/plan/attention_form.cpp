#include "runtime/plan/attention_form.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

using Sizes = std::array<int64_t, 4>;
constexpr int64_t mostRepeats = 1 << 20;

Status expect(const char *role, const plan::Buffer &buffer, const Sizes &sizes) {
  if (!std::equal(buffer.shape().begin(), buffer.shape().end(), sizes.begin(), sizes.end()))
    return inputError(
        fmt::format("{} {} is not [{}, {}, {}, {}]", role, describe(buffer), sizes[0], sizes[1], sizes[2], sizes[3]));
  return Status::ok();
}

// Elements from the first to the last one; -1: too many to count, or a stride is negative.
template <typename Field> int64_t spanOf(const plan::Buffer &buffer, const Field &strides) {
  int64_t last = 0;
  for (int dim = 0; dim < std::min(buffer.shape_size(), static_cast<int>(strides.size())); ++dim) {
    int64_t reach = 0;
    if (buffer.shape(dim) < 1 || strides[dim] < 0 ||
        __builtin_mul_overflow(buffer.shape(dim) - 1, strides[dim], &reach) ||
        __builtin_add_overflow(last, reach, &last) || last > (int64_t(1) << 60))
      return -1;
  }
  return last + 1;
}

template <typename Field>
Status take(const char *role, const plan::Buffer &buffer, const Field &given, AttentionStrides &strides) {
  if (given.size() != 4) return inputError(fmt::format("{} needs four strides, has {}", role, given.size()));
  std::copy(given.begin(), given.end(), strides.begin());
  if (spanOf(buffer, given) < 0) return inputError(fmt::format("{} has a negative or too large stride", role));
  return Status::ok();
}

// The strides of a gradient, dense where none are given. From the shortest on, each goes past all that lies within.
template <typename Field>
Status takeWritten(const char *role, const plan::Buffer &buffer, const Field &given, AttentionStrides &strides) {
  if (given.empty()) return Status::ok();
  CLEAVE_RETURN_IF_ERROR(take(role, buffer, given, strides));
  std::vector<std::pair<int64_t, int64_t>> dims; // stride, size
  for (size_t dim = 0; dim < strides.size(); ++dim)
    if (const int64_t size = buffer.shape(static_cast<int>(dim)); size > 1) dims.emplace_back(strides[dim], size);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 1;
  for (const auto &[stride, size] : dims) {
    if (stride < reach) return inputError(fmt::format("{} has elements that meet", role));
    reach += (size - 1) * stride;
  }
  return Status::ok();
}

struct WrittenGradient {
  const char *role;
  const plan::Buffer &buffer;
  const AttentionStrides &strides;

  bool goesAlong(size_t dim) const { return buffer.shape(static_cast<int>(dim)) > 1; }
  // Elements from the first to the last of the dimensions whose steps are at most so long.
  int64_t reach(int64_t step) const {
    int64_t elements = 1;
    for (size_t dim = 0; dim < strides.size(); ++dim)
      if (goesAlong(dim) && strides[dim] <= step) elements += (buffer.shape(static_cast<int>(dim)) - 1) * strides[dim];
    return elements;
  }
};

// One begins before the other. Are they apart, or do they repeat side by side, in the same longer steps?
bool lieApart(const WrittenGradient &one, const WrittenGradient &other, int64_t element) {
  const int64_t bytes = other.buffer.offset() - one.buffer.offset();
  const int64_t between = bytes / element, end = between + other.reach(between);
  if (between >= spanOf(one.buffer, one.strides)) return true;
  if (bytes % element != 0 || one.reach(between) > between) return false;
  for (size_t dim = 0; dim < one.strides.size(); ++dim)
    for (const auto &[each, beside] : {std::pair{&one, &other}, {&other, &one}}) {
      if (!each->goesAlong(dim) || each->strides[dim] <= between) continue;
      if (end > each->strides[dim] || (beside->goesAlong(dim) && beside->strides[dim] != each->strides[dim]))
        return false;
    }
  return true;
}

Status expectApart(const plan::Attention &c, const AttentionForm &form) {
  const WrittenGradient all[] = {{"query_gradient", c.query_gradient(), form.queryGradient},
                                 {"key_gradient", c.key_gradient(), form.keyGradient},
                                 {"value_gradient", c.value_gradient(), form.valueGradient}};
  for (const WrittenGradient &one : all)
    for (const WrittenGradient &other : all)
      if (&one != &other && one.buffer.in_slot() == other.buffer.in_slot() &&
          one.buffer.offset() <= other.buffer.offset() && !lieApart(one, other, byteSize(c.query().dtype())))
        return inputError(fmt::format("{} and {} overlap", one.role, other.role));
  return Status::ok();
}

AttentionStrides dense(int64_t heads, int64_t positions, int64_t features) {
  return {positions * heads * features, features, heads * features, 1};
}

} // namespace

AttentionBand bandOf(const plan::Attention &c) {
  AttentionBand band;
  if (c.has_left_bound()) band.left = c.left_bound();
  if (c.has_right_bound()) band.right = c.right_bound();
  return band;
}

Result<AttentionForm> attentionForm(const plan::Attention &c) {
  for (const plan::Buffer *buffer : {&c.query(), &c.key(), &c.value(), &c.output()})
    if (buffer->shape_size() != 4) return inputError(fmt::format("{} has not four dimensions", describe(*buffer)));
  AttentionForm form{.batch = c.query().shape(0),
                     .heads = c.query().shape(1),
                     .keyHeads = c.key().shape(1),
                     .queries = c.query().shape(2),
                     .keys = c.key().shape(2),
                     .features = c.query().shape(3),
                     .valueFeatures = c.value().shape(3),
                     .band = bandOf(c)};
  int64_t b = form.batch, h = form.heads, g = form.keyHeads, s = form.queries, t = form.keys, d = form.features,
          e = form.valueFeatures;
  if (std::min({b, h, g, s, t, d, e}) < 1 || h % g) return inputError("sizes that are no attention");
  if (!form.band.fits(s, t)) return inputError("bounds that leave a query without keys, or hide nothing");
  if (!(c.soft_cap() >= 0 && std::isfinite(c.soft_cap()))) return inputError("a soft cap that is no positive number");
  CLEAVE_RETURN_IF_ERROR(expect("key", c.key(), {b, g, t, d}));
  CLEAVE_RETURN_IF_ERROR(expect("value", c.value(), {b, g, t, e}));
  CLEAVE_RETURN_IF_ERROR(expect("output", c.output(), {b, h, s, e}));
  CLEAVE_RETURN_IF_ERROR(take("query", c.query(), c.query_strides(), form.query));
  CLEAVE_RETURN_IF_ERROR(take("key", c.key(), c.key_strides(), form.key));
  CLEAVE_RETURN_IF_ERROR(take("value", c.value(), c.value_strides(), form.value));
  CLEAVE_RETURN_IF_ERROR(take("output", c.output(), c.output_strides(), form.output));
  // Elements that are read again and again take time, and no memory bounds it.
  for (const auto &[size, stride] :
       {std::pair{t, form.key[2]}, {t, form.value[2]}, {d, form.query[3]}, {d, form.key[3]}})
    if (stride == 0 && size > mostRepeats) return inputError(fmt::format("an operand is repeated {} times", size));
  if (form.output != dense(h, s, e)) return inputError("output is not dense [batch, positions, heads, features]");
  form.queryGradient = dense(h, s, d), form.keyGradient = dense(g, t, d), form.valueGradient = dense(g, t, e);
  if (c.has_bias()) {
    if (c.bias().shape_size() != 4)
      return inputError(fmt::format("bias {} has not four dimensions", describe(c.bias())));
    bool fits = (c.bias().shape(0) == 1 || c.bias().shape(0) == b) &&
                (c.bias().shape(1) == 1 || c.bias().shape(1) == h) && c.bias().shape(2) == s && c.bias().shape(3) == t;
    if (!fits) return inputError(fmt::format("bias {} does not fit the scores", describe(c.bias())));
    CLEAVE_RETURN_IF_ERROR(take("bias", c.bias(), c.bias_strides(), form.bias));
    for (int dim : {0, 1})
      if (c.bias().shape(dim) == 1 && form.bias[static_cast<size_t>(dim)] != 0)
        return inputError("bias has a stride where it is repeated");
  }
  if (c.has_stats() && (c.stats().dtype() != plan::F32 || elementCount(c.stats().shape()) != b * h * s))
    return inputError(fmt::format("stats {} is not f32[{}, {}, {}]", describe(c.stats()), b, h, s));
  for (const plan::Buffer *buffer : {&c.key(), &c.value(), &c.output()})
    if (buffer->dtype() != c.query().dtype())
      return inputError("query, key, value and output differ in their elements");
  if (c.pass() != plan::Attention::BACKWARD) return form;
  if (!c.has_stats()) return inputError("a backward pass without stats");
  CLEAVE_RETURN_IF_ERROR(expect("output_gradient", c.output_gradient(), {b, h, s, e}));
  CLEAVE_RETURN_IF_ERROR(expect("query_gradient", c.query_gradient(), {b, h, s, d}));
  CLEAVE_RETURN_IF_ERROR(expect("key_gradient", c.key_gradient(), {b, g, t, d}));
  CLEAVE_RETURN_IF_ERROR(expect("value_gradient", c.value_gradient(), {b, g, t, e}));
  for (const plan::Buffer *buffer : {&c.output_gradient(), &c.query_gradient(), &c.key_gradient(), &c.value_gradient()})
    if (buffer->dtype() != c.query().dtype()) return inputError("gradients differ in their elements from the query");
  CLEAVE_RETURN_IF_ERROR(
      takeWritten("query_gradient", c.query_gradient(), c.query_gradient_strides(), form.queryGradient));
  CLEAVE_RETURN_IF_ERROR(takeWritten("key_gradient", c.key_gradient(), c.key_gradient_strides(), form.keyGradient));
  CLEAVE_RETURN_IF_ERROR(
      takeWritten("value_gradient", c.value_gradient(), c.value_gradient_strides(), form.valueGradient));
  CLEAVE_RETURN_IF_ERROR(expectApart(c, form));
  return form;
}

std::vector<Access> attentionAccesses(const plan::Attention &c) {
  std::vector<Access> all;
  auto strided = [&](const plan::Buffer &buffer, const auto &strides, const char *role, bool isWritten = false) {
    auto span = std::make_shared<plan::Buffer>(buffer);
    span->clear_shape();
    span->add_shape(spanOf(buffer, strides));
    all.push_back({span.get(), isWritten, role, span});
  };
  auto gradient = [&](const plan::Buffer &buffer, const auto &strides, const char *role) {
    if (strides.empty())
      all.push_back({&buffer, true, role});
    else
      strided(buffer, strides, role, true);
  };
  bool backward = c.pass() == plan::Attention::BACKWARD;
  strided(c.query(), c.query_strides(), "query");
  strided(c.key(), c.key_strides(), "key");
  strided(c.value(), c.value_strides(), "value");
  if (c.has_bias()) strided(c.bias(), c.bias_strides(), "bias");
  all.push_back({&c.output(), !backward, "output"});
  if (c.has_stats()) all.push_back({&c.stats(), !backward, "stats"});
  if (!backward) return all;
  all.push_back({&c.output_gradient(), false, "output_gradient"});
  gradient(c.query_gradient(), c.query_gradient_strides(), "query_gradient");
  gradient(c.key_gradient(), c.key_gradient_strides(), "key_gradient");
  gradient(c.value_gradient(), c.value_gradient_strides(), "value_gradient");
  return all;
}

} // namespace cleave::runtime
