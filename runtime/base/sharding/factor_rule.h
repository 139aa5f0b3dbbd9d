// An op's factor rule: its iteration dimensions (factors), and which dimensions of operands and results each indexes.
//
//   matmul   ([b,s,k],[k,n]) -> [b,s,n]        factors b=8 s=16 k=64 n=256; k is reduced (sum)
//   reshape  ([b,s,(h d)]) -> [b,s,h,d]        one dimension may be several factors, major first
//   slice    ([b,k]) -> [b,_]                  "_": a factor of its own that must stay whole
//
// Splitting a factor over mesh axes (a FactorSharding) says everything: how each operand must lie, how each result
// comes out, and that results are partial over the axes of a reduced factor.
#pragma once
#include "runtime/base/sharding/sharding.h"

namespace cleave::dist {

struct Factor {
  enum Kind : uint8_t {
    Parallel, // indexes every result
    Reduced,  // does not index the results: they come out partial
    Whole     // may not be split: the op needs all of it on every device
  } kind = Parallel;
  int64_t size = 1;
  Reduction reduction = Reduction::Sum; // of a Reduced factor
};

// Factors of one tensor's dimensions: dims[d] lists factor indices, major first. A size-1 dimension may have none.
using TensorFactors = std::vector<std::vector<int64_t>>;

struct FactorRule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> operands;
  std::vector<TensorFactors> results;
  // Operands in which the op is linear taken together (an add: all; a matmul: each alone; exp: none): a partial sum
  // may pass through the op. jointly: all operands must be partial over the same axes; otherwise exactly one may be.
  enum Linearity : uint8_t { NotLinear, LinearJointly, LinearInOne } linearity = NotLinear;
  std::vector<bool> linearOperands; // which operands may be partial

  // Adds a factor and returns its index.
  int64_t add(int64_t size, Factor::Kind kind = Factor::Parallel, Reduction reduction = Reduction::Sum);
  // "([b,s,k],[k,n]) -> [b,s,n] reduced k=64" with generated letters.
  std::string str() const;
};

// The mesh axes that split each factor, major first.
using FactorSharding = std::vector<Axes>;

// How operand (result) `index` must lie (comes out) when the op runs with `split`. A factor that is not the major one
// of a compound dimension can only be split when the factors before it have size 1; such a split is dropped.
Sharding operandSharding(const FactorRule &rule, const FactorSharding &split, size_t index);
Sharding resultSharding(const FactorRule &rule, const FactorSharding &split, size_t index);

// The factor split that the given layouts ask for, taking operands in the order of `priority` (first wins where they
// disagree); axes that a factor cannot take (Whole, uneven, already used by another factor) are dropped. Entries of
// `operands`/`results` may be null: unknown.
FactorSharding inferFactorSharding(const Mesh &mesh, const FactorRule &rule,
                                   const std::vector<const Sharding *> &operands,
                                   const std::vector<const Sharding *> &results, const std::vector<size_t> &priority);

// Does splitting `factor` by `axes` divide it evenly, and is it allowed at all?
bool canSplit(const Mesh &mesh, const FactorRule &rule, int64_t factor, const Axes &axes);

} // namespace cleave::dist
