#include "runtime/base/sharding/factor_rule.h"
#include <algorithm>

namespace cleave::dist {
namespace {

// a .. z, then f26, f27 ...
std::string factorName(int64_t factor) {
  return factor < 26 ? std::string(1, static_cast<char>('a' + factor)) : "f" + std::to_string(factor);
}

std::string tensorText(const TensorFactors &tensor) {
  std::string text = "[";
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    if (dim) text += ",";
    if (tensor[dim].empty()) text += "1";
    if (tensor[dim].size() > 1) text += "(";
    for (size_t i = 0; i < tensor[dim].size(); ++i) text += (i ? " " : "") + factorName(tensor[dim][i]);
    if (tensor[dim].size() > 1) text += ")";
  }
  return text + "]";
}

// The factor of a dimension that axes can split: the first one of size above 1. -1: none.
int64_t majorFactor(const FactorRule &rule, const std::vector<int64_t> &factors) {
  for (int64_t factor : factors)
    if (rule.factors[factor].size > 1) return factor;
  return -1;
}

bool isMajorEverywhere(const FactorRule &rule, int64_t factor) {
  auto check = [&](const TensorFactors &tensor) {
    return std::all_of(tensor.begin(), tensor.end(), [&](const std::vector<int64_t> &factors) {
      bool present = std::find(factors.begin(), factors.end(), factor) != factors.end();
      return !present || majorFactor(rule, factors) == factor;
    });
  };
  return std::all_of(rule.operands.begin(), rule.operands.end(), check) &&
         std::all_of(rule.results.begin(), rule.results.end(), check);
}

Sharding tensorSharding(const FactorRule &rule, const FactorSharding &split, const TensorFactors &tensor) {
  Sharding sharding = Sharding::replicated(tensor.size());
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    int64_t factor = majorFactor(rule, tensor[dim]);
    if (factor >= 0 && factor < static_cast<int64_t>(split.size())) sharding.dims[dim] = split[factor];
  }
  return sharding;
}

} // namespace

int64_t FactorRule::add(int64_t size, Factor::Kind kind, Reduction reduction) {
  factors.push_back({kind, size, reduction});
  return static_cast<int64_t>(factors.size()) - 1;
}

std::string FactorRule::str() const {
  std::string text = "(";
  for (size_t i = 0; i < operands.size(); ++i) text += (i ? "," : "") + tensorText(operands[i]);
  text += ") -> ";
  for (size_t i = 0; i < results.size(); ++i) text += (i ? "," : "") + tensorText(results[i]);
  for (size_t i = 0; i < factors.size(); ++i) {
    const Factor &factor = factors[i];
    if (factor.kind == Factor::Reduced)
      text += factor.reduction == Reduction::Sum ? " reduced" : factor.reduction == Reduction::Max ? " max" : " min";
    if (factor.kind == Factor::Whole) text += " whole";
    text += " " + factorName(static_cast<int64_t>(i)) + "=" + std::to_string(factor.size);
  }
  return text;
}

Sharding operandSharding(const FactorRule &rule, const FactorSharding &split, size_t index) {
  return tensorSharding(rule, split, rule.operands[index]);
}

Sharding resultSharding(const FactorRule &rule, const FactorSharding &split, size_t index) {
  Sharding sharding = tensorSharding(rule, split, rule.results[index]);
  for (size_t factor = 0; factor < rule.factors.size() && factor < split.size(); ++factor) {
    if (rule.factors[factor].kind != Factor::Reduced || split[factor].empty()) continue;
    sharding.partial.insert(sharding.partial.end(), split[factor].begin(), split[factor].end());
    sharding.reduction = rule.factors[factor].reduction;
  }
  return sharding;
}

bool canSplit(const Mesh &mesh, const FactorRule &rule, int64_t factor, const Axes &axes) {
  if (axes.empty()) return true;
  const Factor &f = rule.factors[factor];
  return f.kind != Factor::Whole && f.size % mesh.groupSize(axes) == 0 && isMajorEverywhere(rule, factor);
}

FactorSharding inferFactorSharding(const Mesh &mesh, const FactorRule &rule,
                                   const std::vector<const Sharding *> &operands,
                                   const std::vector<const Sharding *> &results, const std::vector<size_t> &priority) {
  FactorSharding split(rule.factors.size());
  std::vector<std::string> used;
  auto adopt = [&](const Sharding *sharding, const TensorFactors &tensor) {
    if (!sharding || sharding->dims.size() != tensor.size()) return;
    for (size_t dim = 0; dim < tensor.size(); ++dim) {
      int64_t factor = majorFactor(rule, tensor[dim]);
      if (factor < 0) continue;
      const Axes &wanted = sharding->dims[dim];
      Axes &axes = split[factor];
      if (axes.size() > wanted.size() || !std::equal(axes.begin(), axes.end(), wanted.begin())) continue;
      for (size_t i = axes.size(); i < wanted.size(); ++i) {
        if (std::find(used.begin(), used.end(), wanted[i]) != used.end()) break;
        Axes longer = axes;
        longer.push_back(wanted[i]);
        if (!canSplit(mesh, rule, factor, longer)) break;
        axes = std::move(longer);
        used.push_back(wanted[i]);
      }
    }
  };
  std::vector<bool> done(operands.size());
  for (size_t index : priority) {
    if (index >= operands.size() || done[index]) continue;
    done[index] = true;
    adopt(operands[index], rule.operands[index]);
  }
  for (size_t index = 0; index < operands.size(); ++index)
    if (!done[index]) adopt(operands[index], rule.operands[index]);
  for (size_t index = 0; index < results.size(); ++index) adopt(results[index], rule.results[index]);
  return split;
}

} // namespace cleave::dist
