#include "compiler/planner/problem/problem.h"
#include "runtime/base/sharding/samples.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unordered_set>

namespace cleave::planner {

bool Node::reduces() const {
  return std::ranges::any_of(rule.factors,
                             [](const dist::Factor &factor) { return factor.kind == dist::Factor::Reduced; });
}

int64_t majorFactor(const dist::FactorRule &rule, const std::vector<int64_t> &factors) {
  for (int64_t factor : factors)
    if (rule.factors[size_t(factor)].size > 1) return factor;
  return -1;
}

int64_t dimOf(const dist::FactorRule &rule, const dist::TensorFactors &dims, int64_t factor) {
  for (size_t dim = 0; factor >= 0 && dim < dims.size(); ++dim)
    if (majorFactor(rule, dims[dim]) == factor) return int64_t(dim);
  return -1;
}
int64_t groupFactor(const dist::FactorRule &rule) {
  auto indexes = [](const dist::TensorFactors &dims, int64_t factor) {
    return std::ranges::any_of(dims, [&](const auto &factors) { return std::ranges::count(factors, factor) > 0; });
  };
  if (rule.operands.size() != 3 || rule.results.size() != 1) return -1;
  for (int64_t factor = 0; factor < int64_t(rule.factors.size()); ++factor)
    if (rule.factors[size_t(factor)].kind == dist::Factor::Reduced && indexes(rule.operands[1], factor) &&
        !indexes(rule.operands[0], factor) && !indexes(rule.operands[2], factor))
      return factor;
  return -1;
}

namespace {

// The dimensions of what a node makes that splitting the factor splits.
void splitResults(const Node &node, int64_t factor, std::vector<int64_t> &dims) {
  for (size_t r = 0; r < node.results.size(); ++r)
    if (int64_t dim = dimOf(node.rule, node.rule.results[r], factor); dim >= 0) dims[size_t(node.results[r])] = dim;
}

// A tensor made without samples but read along them (a bias broadcast to the batch) is split as its readers want it, if
// they all agree and the operation that makes it can be split there.
void flowBack(const Problem &problem, std::vector<int64_t> &dims) {
  constexpr int64_t unread = -2, disputed = -1;
  std::vector<int64_t> wanted(problem.tensors.size(), unread);
  auto want = [&](int tensor, int64_t dim) {
    int64_t &now = wanted[size_t(tensor)];
    now = now == unread || now == dim ? dim : disputed;
  };
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    if (Problem::batchFactor(node, dims) < 0)
      for (size_t r = 0; r < node.results.size(); ++r) {
        int64_t dim = wanted[size_t(node.results[r])];
        int64_t factor = dim < 0 ? -1 : majorFactor(node.rule, node.rule.results[r][size_t(dim)]);
        if (factor < 0 || !dist::canSplit({{{"dp", 1}}}, node.rule, factor, {"dp"})) continue;
        bool ofParameter = false;
        for (size_t o = 0; o < node.operands.size(); ++o)
          if (problem.tensors[size_t(node.operands[o])].kind == TensorKind::Parameter)
            for (const auto &factors : node.rule.operands[o])
              ofParameter = ofParameter || std::ranges::find(factors, factor) != factors.end();
        if (ofParameter) continue;
        splitResults(node, factor, dims);
        break;
      }
    int64_t factor = Problem::batchFactor(node, dims);
    for (size_t o = 0; o < node.operands.size(); ++o) {
      int64_t dim = dimOf(node.rule, node.rule.operands[o], factor);
      want(node.operands[o], dim < 0 ? disputed : dim);
    }
  }
}

Status checkTensorFactors(const Node &node, const dist::TensorFactors &factors, const Tensor &tensor, const char *what,
                          size_t index) {
  auto wrong = [&](const std::string &why) {
    return inputError(fmt::format("node '{}' ({}), {} {} '{}': {}", node.name, node.op, what, index, tensor.name, why));
  };
  if (factors.size() != tensor.dims.size())
    return wrong(fmt::format("its rule has {} dimensions, the tensor {}", factors.size(), tensor.dims.size()));
  for (size_t dim = 0; dim < factors.size(); ++dim) {
    int64_t product = 1;
    for (int64_t factor : factors[dim]) {
      if (factor < 0 || factor >= int64_t(node.rule.factors.size()))
        return wrong(fmt::format("dimension {} names factor {} of {}", dim, factor, node.rule.factors.size()));
      product *= node.rule.factors[size_t(factor)].size;
    }
    if (product != tensor.dims[dim])
      return wrong(fmt::format("dimension {} is {}, its factors make {}", dim, tensor.dims[dim], product));
  }
  return Status::ok();
}

// With some elements more their bytes are no 64-bit number.
constexpr double mostElements = 1LL << 60;

double countOf(const std::vector<int64_t> &dims) {
  double count = 1;
  for (int64_t dim : dims) count *= double(dim);
  return count;
}

} // namespace

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

Status Problem::check() const {
  if (batch < 1 || samples < 1 || batch % samples != 0)
    return inputError(
        fmt::format("batch {} must be a multiple of the samples the tensors are built with ({})", batch, samples));
  std::unordered_set<std::string> names;
  for (const Tensor &tensor : tensors) {
    if (!names.insert(tensor.name).second) return inputError(fmt::format("two tensors are called '{}'", tensor.name));
    for (int64_t dim : tensor.dims)
      if (dim < 0) return inputError(fmt::format("tensor '{}' has a dimension of {}", tensor.name, dim));
    if (double count = countOf(tensor.dims); count > mostElements)
      return inputError(fmt::format("tensor '{}' of [{}] has {:.3g} elements; more than {:.3g} are not planned for",
                                    tensor.name, fmt::join(tensor.dims, ", "), count, mostElements));
    if (tensor.elementBytes < 1)
      return inputError(fmt::format("tensor '{}' has elements of {} bytes", tensor.name, tensor.elementBytes));
    if (tensor.batchDim >= int64_t(tensor.dims.size()))
      return inputError(fmt::format("tensor '{}' has no dimension {}", tensor.name, tensor.batchDim));
    if (const UpdateWork &update = tensor.update; !update.splits.empty() && update.splits.size() != tensor.dims.size())
      return inputError(fmt::format("tensor '{}' of {} dimensions has an update that tells of {}", tensor.name,
                                    tensor.dims.size(), update.splits.size()));
    if (tensor.update.flops > 0 && tensor.update.products < 1)
      return inputError(fmt::format("the update of tensor '{}' has FLOP and no products", tensor.name));
  }
  names.clear();
  std::vector<bool> made(tensors.size(), false);
  for (size_t i = 0; i < tensors.size(); ++i) made[i] = tensors[i].kind != TensorKind::Activation;
  for (const Node &node : nodes) {
    if (!names.insert(node.name).second) return inputError(fmt::format("two nodes are called '{}'", node.name));
    if (node.rule.operands.size() != node.operands.size() || node.rule.results.size() != node.results.size())
      return inputError(fmt::format("node '{}': its rule has {} operands and {} results, the node {} and {}", node.name,
                                    node.rule.operands.size(), node.rule.results.size(), node.operands.size(),
                                    node.results.size()));
    for (size_t i = 0; i < node.operands.size() + node.results.size(); ++i) {
      const bool makes = i >= node.operands.size();
      const size_t at = makes ? i - node.operands.size() : i;
      const int index = (makes ? node.results : node.operands)[at];
      const char *does = makes ? "makes" : "reads";
      if (index < 0 || size_t(index) >= tensors.size())
        return inputError(fmt::format("node '{}' {} tensor {} of {}", node.name, does, index, tensors.size()));
      const Tensor &tensor = tensors[size_t(index)];
      if (made[size_t(index)] == makes)
        return inputError(fmt::format("node '{}' {} '{}'{}", node.name, does, tensor.name,
                                      makes ? ", which exists already" : " before any node makes it"));
      made[size_t(index)] = true;
      CLEAVE_RETURN_IF_ERROR(checkTensorFactors(node, (makes ? node.rule.results : node.rule.operands)[at], tensor,
                                                makes ? "result" : "operand", at));
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!made[i]) return inputError(fmt::format("no node makes tensor '{}'", tensors[i].name));
  return Status::ok();
}

std::vector<int> Problem::producers() const {
  std::vector<int> result(tensors.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (int tensor : nodes[i].results) result[size_t(tensor)] = int(i);
  return result;
}

std::vector<bool> Problem::areWeights(bool trained) const {
  std::vector<bool> isWeight(tensors.size(), false), isFixed(tensors.size(), false); // fixed: made of no input
  for (size_t t = 0; t < tensors.size(); ++t) {
    isWeight[t] = tensors[t].kind == TensorKind::Parameter && (tensors[t].trainable || !trained);
    isFixed[t] = tensors[t].kind == TensorKind::Constant || tensors[t].kind == TensorKind::Parameter;
  }
  for (const Node &node : nodes) {
    bool any = false, all = node.cheap;
    for (int tensor : node.operands) {
      any = any || isWeight[size_t(tensor)];
      all = all && (isWeight[size_t(tensor)] || isFixed[size_t(tensor)]);
    }
    for (int tensor : node.results) {
      isWeight[size_t(tensor)] = any && all;
      isFixed[size_t(tensor)] = all;
    }
  }
  return isWeight;
}

std::vector<bool> Problem::needsGradient() const {
  std::vector<bool> needs(tensors.size(), false);
  for (size_t i = 0; i < tensors.size(); ++i)
    needs[i] = tensors[i].kind == TensorKind::Parameter && tensors[i].trainable;
  for (const Node &node : nodes) {
    if (node.stopsGradient) continue;
    bool any = false;
    for (int tensor : node.operands) any = any || needs[size_t(tensor)];
    for (int tensor : node.results) needs[size_t(tensor)] = any;
  }
  return needs;
}

std::vector<int64_t> Problem::batchDims() const {
  std::vector<int64_t> dims(tensors.size(), -1);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].kind == TensorKind::Input || tensors[i].kind == TensorKind::Label) dims[i] = tensors[i].batchDim;
  for (const Node &node : nodes) {
    splitResults(node, batchFactor(node, dims), dims);
  }
  flowBack(*this, dims);
  return dims;
}

std::string Problem::samplesMeetAt() const {
  if (samples == 1) return "";
  std::vector<std::optional<dist::SamplePlace>> places(tensors.size());
  std::vector<bool> isOfAll(tensors.size()); // made of a sum over the samples
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].batchDim >= 0) places[t] = dist::SamplePlace{tensors[t].batchDim, 1};
  for (const Node &node : nodes) {
    std::vector<std::optional<dist::SamplePlace>> operands;
    bool readsOfAll = false;
    for (int tensor : node.operands) {
      operands.push_back(places[size_t(tensor)]);
      readsOfAll = readsOfAll || isOfAll[size_t(tensor)];
    }
    const dist::SampleStep step = dist::samplesThrough(node.rule, operands, samples);
    if (step.meet || (readsOfAll && step.reads && !step.sums)) return node.name;
    for (size_t r = 0; r < node.results.size(); ++r) {
      places[size_t(node.results[r])] = step.results[r];
      isOfAll[size_t(node.results[r])] = readsOfAll || step.sums;
    }
  }
  return lossMeetsAt;
}

int64_t Problem::batchFactor(const Node &node, const std::vector<int64_t> &batchDims) {
  auto factorAt = [&](int tensor, const dist::TensorFactors &factors) -> int64_t {
    int64_t dim = batchDims[size_t(tensor)];
    int64_t factor = dim < 0 ? -1 : majorFactor(node.rule, factors[size_t(dim)]);
    // A mesh axis of size 1 divides everything: asks only whether the rule allows the split.
    return factor >= 0 && dist::canSplit({{{"dp", 1}}}, node.rule, factor, {"dp"}) ? factor : -1;
  };
  for (size_t o = 0; o < node.operands.size(); ++o)
    if (int64_t factor = factorAt(node.operands[o], node.rule.operands[o]); factor >= 0) return factor;
  for (size_t r = 0; r < node.results.size(); ++r)
    if (int64_t factor = factorAt(node.results[r], node.rule.results[r]); factor >= 0) return factor;
  return -1;
}

} // namespace cleave::planner
