#include "runtime/base/sharding/samples.h"
#include <ranges>

namespace cleave::dist {

std::optional<SampleFactor> sampleFactor(const FactorRule &rule, const TensorFactors &tensor, SamplePlace at,
                                         int64_t samples) {
  int64_t stride = 1;
  for (int64_t factor : tensor[size_t(at.dim)] | std::views::reverse) {
    int64_t size = rule.factors[size_t(factor)].size;
    if (at.inner % stride == 0 && (stride * size) % (at.inner * samples) == 0)
      return SampleFactor{factor, at.inner / stride};
    stride *= size;
  }
  return std::nullopt;
}

std::optional<SamplePlace> samplePlace(const FactorRule &rule, const TensorFactors &tensor, SampleFactor at) {
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    int64_t stride = 1;
    for (int64_t factor : tensor[dim] | std::views::reverse) {
      if (factor == at.factor) return SamplePlace{int64_t(dim), stride * at.inner};
      stride *= rule.factors[size_t(factor)].size;
    }
  }
  return std::nullopt;
}

SampleStep samplesThrough(const FactorRule &rule, const std::vector<std::optional<SamplePlace>> &operands,
                          int64_t samples) {
  SampleStep step;
  step.results.resize(rule.results.size());
  std::optional<SampleFactor> at;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i]) continue;
    step.reads = true;
    std::optional<SampleFactor> here = sampleFactor(rule, rule.operands[i], *operands[i], samples);
    if (!here || (at && *here != *at)) step.meet = true;
    if (!at) at = here;
  }
  if (!at) return step;
  const Factor &factor = rule.factors[size_t(at->factor)];
  if (factor.kind == Factor::Whole) step.meet = true;
  if (factor.kind == Factor::Reduced) step.sums = true;
  for (size_t i = 0; i < rule.results.size(); ++i) step.results[i] = samplePlace(rule, rule.results[i], *at);
  return step;
}

} // namespace cleave::dist
