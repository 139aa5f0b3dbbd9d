// Matrix products with what a library does at their end: bias, activation, sums of operands.
#include "runtime/check/proof/machine.h"
#include "runtime/plan/dtype.h"
#include <functional>

namespace cleave::proof {

void Machine::contract(Rank &rank, const plan::Contract &contract) {
  const bool isGradient = contract.activation() == plan::Contract::GELU_GRADIENT;
  const bool keepsPreActivation = contract.has_pre_activation() && !isGradient;
  const std::vector<int64_t> batch = listOf(contract.batch());
  if ((contract.has_lhs_sum() || contract.has_rhs_sum()) && !batch.empty())
    throw Unproved{"sums of operands of a product with a batch"};
  auto sized = [&](int64_t a, int64_t b) {
    std::vector<int64_t> sizes = batch;
    sizes.insert(sizes.end(), {a, b});
    return sizes;
  };
  auto operand = [&](const plan::Buffer &buffer, int64_t a, int64_t b, const auto &strides) {
    return tensor(rank, buffer, sized(a, b), listOf(strides));
  };
  auto rounded = [&](Term value, const plan::Buffer &buffer) {
    const plan::DType dtype = buffer.dtype();
    return dtype == plan::BF16 || dtype == plan::F16 ? store.rounded(value, runtime::name(dtype)) : value;
  };
  const std::vector<int64_t> sizes = sized(contract.m(), contract.n());
  Tensor lhs, rhs;
  Term sum = store.number(0);
  if (contract.k() > 0) {
    lhs = operand(contract.lhs(), contract.m(), contract.k(), contract.lhs_strides());
    rhs = operand(contract.rhs(), contract.k(), contract.n(), contract.rhs_strides());
    const Atom k = store.fresh({}, contract.k());
    std::vector<Index> left = operations.dimensions(sizes), right = left;
    left.back() = store.of(k);
    right[right.size() - 2] = store.of(k);
    sum = store.reduce(Reduce::Sum, {k}, store.product({operations.at(lhs, left), operations.at(rhs, right)}));
  }
  Place out = placeOf(rank, contract.out());
  const std::vector<int64_t> strides = listOf(contract.out_strides());
  if (contract.accumulate()) sum = store.sum(sum, rank.memory.read(out, store.constant(0), sizes, strides));
  if (contract.has_bias()) {
    const Tensor bias = tensor(rank, contract.bias(), {contract.n()}, {1});
    sum = store.sum(sum, operations.at(bias, {operations.dimensions(sizes).back()}));
  }
  const bool isFp8 = runtime::isFp8BitFloat(contract.lhs().dtype());
  const bool rounds = isFp8 && contract.out().dtype() == plan::BF16;
  if (contract.lhs().dtype() != contract.out().dtype() && contract.out().dtype() != plan::F32 && !rounds)
    throw Unproved{"a product of one type in another"};
  auto writeSum = [&](const plan::Buffer &to, const Tensor &of, bool isLeft) { // over what the product sums over
    const std::vector<int64_t> size = {isLeft ? contract.m() : contract.n()};
    Term value = store.number(0);
    if (contract.k() > 0) {
      const Atom atom = store.fresh({}, contract.k());
      const Index k = store.of(atom), own = operations.dimensions(size)[0];
      value = store.reduce(Reduce::Sum, {atom}, operations.at(of, isLeft ? std::vector{own, k} : std::vector{k, own}));
    }
    value = rounded(value, to);
    note(value);
    rank.memory.write(placeOf(rank, to), size, value);
  };
  if (contract.has_lhs_sum()) writeSum(contract.lhs_sum(), lhs, true);
  if (contract.has_rhs_sum()) writeSum(contract.rhs_sum(), rhs, false);
  if (contract.activation() == plan::Contract::NONE) {
    sum = rounded(sum, contract.out());
    note(sum);
    rank.memory.write(out, sizes, strides, sum);
    return;
  }
  if (keepsPreActivation) {
    const Term kept = rounded(sum, contract.pre_activation());
    note(kept);
    rank.memory.write(placeOf(rank, contract.pre_activation()), sizes, strides, kept);
  }
  rank.memory.write(out, sizes, strides, sum); // as it is, for the operations to read
  const Tensor result = activated(rank, contract);
  const Term value = rounded(result.value, contract.out());
  note(value);
  rank.memory.write(out, result.shape, value);
}

void Machine::groupedContract(Rank &rank, const plan::GroupedContract &c) {
  const std::vector<int64_t> rows = listOf(c.rows());
  const auto k = static_cast<int64_t>(rows.size()), n = k + 1, group = k + 2;
  Operations::GroupLetters letters{.lhs = {}, .rhs = {}, .rows = {}, .result = {}, .group = group, .count = c.groups()};
  for (int64_t d = 0; d < k; ++d) letters.rows.push_back(d);
  auto with = [](std::vector<int64_t> list, int64_t last) {
    list.push_back(last);
    return list;
  };
  auto rowsOf = [&](const plan::Buffer &buffer, int64_t width, const auto &strides) {
    return tensor(rank, buffer, with(rows, width), with(listOf(strides), 1));
  };
  letters.lhs = with(letters.rows, k);
  const Tensor lhs = rowsOf(c.lhs(), c.k(), c.lhs_strides());
  const Tensor groups = tensor(rank, c.group_of_row(), rows, rowMajorStrides(rows));
  const std::vector<int64_t> matrices{c.groups(), c.k(), c.n()};
  Tensor rhs;
  std::vector<int64_t> shape;
  if (c.sums_rows()) {
    letters.rhs = with(letters.rows, n), letters.result = {group, k, n};
    rhs = rowsOf(c.rhs(), c.n(), c.rhs_strides());
    shape = matrices;
  } else {
    letters.rhs = {group, k, n}, letters.result = with(letters.rows, n);
    const int64_t size = c.k() * c.n();
    rhs = tensor(rank, c.rhs(), matrices,
                 c.transposed() ? std::vector<int64_t>{size, 1, c.k()} : std::vector<int64_t>{size, c.n(), 1});
    shape = with(rows, c.n());
  }
  const TensorType type{c.out().dtype(), shape};
  const Term value =
      operations.groupedContract(letters, lhs, rhs, groups, affine(rank, c.start()), c.global_groups(), type).value;
  note(value);
  rank.memory.write(placeOf(rank, c.out()), shape, value);
}

// The result of the activation's operations on the product, which lies in `out`.
Tensor Machine::activated(Rank &rank, const plan::Contract &product) {
  const plan::Graph &graph = graphOf(product.operations(), "the product's activation");
  const plan::GraphFunction &function = graph.functions(0);
  if (function.inputs_size() != (product.activation() == plan::Contract::GELU_GRADIENT ? 2 : 1) ||
      function.outputs_size() != 1)
    throw Unproved{"the activation's operations have other operands than it"};
  auto typeOf = [&](int32_t value) {
    return TensorType{graph.values(value).dtype(), listOf(graph.values(value).shape())};
  };
  std::map<int32_t, Tensor> values;
  for (int i = 0; i < function.inputs_size(); ++i) {
    const plan::Buffer &buffer = i == 0 ? product.out() : product.pre_activation();
    const TensorType type = typeOf(function.inputs(i).value());
    if (elementCount(buffer.shape()) != elementCount(type.shape))
      throw Unproved{"the activation's operations are for another shape"};
    values[function.inputs(i).value()] = {type.dtype, type.shape, rank.memory.read(placeOf(rank, buffer), type.shape)};
  }
  return compute(graph, typeOf, std::move(values), {})[0];
}

} // namespace cleave::proof
