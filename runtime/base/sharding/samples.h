// Where the samples of a batch lie in the tensors of a graph, op by op, from the factor rules alone.
//
//   x [8,32,64], samples along dimension 0:  {dim 0, inner 1};  reshaped to [256,64]: {dim 0, inner 32}
//   x [6,8,5], samples along dimension 1, reshaped to [48,5]:  {dim 0, inner 1}, six times all samples
//
//   SampleStep step = samplesThrough(rule, {place of each operand}, 8);
//   step.meet                  one result would be made of several samples other than by a sum over them
//   step.results[0]            where the samples lie in the first result
#pragma once
#include "runtime/base/sharding/factor_rule.h"
#include <optional>

namespace cleave::dist {

// The samples lie along dimension `dim`, each in blocks of `inner` consecutive entries.
struct SamplePlace {
  int64_t dim = 0, inner = 1;
  bool operator==(const SamplePlace &) const = default;
};

// The factor of an op that counts samples, each in blocks of `inner` of the factor's values.
struct SampleFactor {
  int64_t factor = 0, inner = 1;
  bool operator==(const SampleFactor &) const = default;
};

// The factor of a tensor's dimension in which its samples lie; none when they are cut between factors.
std::optional<SampleFactor> sampleFactor(const FactorRule &rule, const TensorFactors &tensor, SamplePlace at,
                                         int64_t samples);
// Where that factor lies in a tensor; none when it does not index it.
std::optional<SamplePlace> samplePlace(const FactorRule &rule, const TensorFactors &tensor, SampleFactor at);

struct SampleStep {
  bool reads = false; // an operand has samples
  bool meet = false;  // they meet in this op: it indexes, orders or multiplies over them
  bool sums = false;  // it sums over them, or takes their maximum: its results are of all samples
  std::vector<std::optional<SamplePlace>> results;
};
// `operands`: where the samples lie in each; none where it has no samples.
SampleStep samplesThrough(const FactorRule &rule, const std::vector<std::optional<SamplePlace>> &operands,
                          int64_t samples);

} // namespace cleave::dist
