// Elementwise operators, values from nothing, reductions and products.
#include "runtime/check/proof/operations.h"
#include "runtime/check/reference/evaluator.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>

namespace cleave::proof {
namespace {

std::vector<int64_t> intsOf(const plan::GraphNode &node, const std::string &name) {
  auto found = node.attributes().find(name);
  if (found == node.attributes().end()) throw Unproved{fmt::format("it has no attribute '{}'", name)};
  return {found->second.ints().begin(), found->second.ints().end()};
}
int64_t intOf(const plan::GraphNode &node, const std::string &name) {
  const std::vector<int64_t> values = intsOf(node, name);
  if (values.size() != 1) throw Unproved{fmt::format("its attribute '{}' is not one integer", name)};
  return values[0];
}
bool flagOf(const plan::GraphNode &node, const std::string &name) {
  auto found = node.attributes().find(name);
  return found != node.attributes().end() && (found->second.ints().empty() || found->second.ints(0) != 0);
}

bool isWider(plan::DType from, plan::DType to) {
  using runtime::isFloat;
  if (from == plan::BOOL) return true;
  if (isFloat(from)) {
    const bool isFp8 = runtime::isFp8BitFloat(from), isExact = to == plan::BF16 || (to == plan::F16 && isFp8);
    return to == plan::F64 || (to == plan::F32 && from != plan::F64) || (isFp8 && isExact);
  }
  if (isFloat(to)) return to == plan::F32 || to == plan::F64;
  return runtime::byteSize(to) >= runtime::byteSize(from);
}

} // namespace

std::vector<Index> Operations::dimensions(const std::vector<int64_t> &shape) {
  std::vector<Index> index;
  for (size_t d = 0; d < shape.size(); ++d) index.push_back(store.dimension(static_cast<int64_t>(d), shape[d]));
  return index;
}
Index Operations::linear(const std::vector<Index> &index, const std::vector<int64_t> &strides) {
  Index sum = store.constant(0);
  for (size_t d = 0; d < index.size(); ++d) sum = store.add(sum, store.scale(index[d], strides[d]));
  return sum;
}
std::vector<Index> Operations::places(Index linear, const std::vector<int64_t> &shape) {
  std::vector<Index> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = d == 0 ? linear : store.remainder(linear, shape[d]);
    if (d > 0) linear = store.quotient(linear, shape[d]);
  }
  return index;
}
Term Operations::at(const Tensor &tensor, const std::vector<Index> &index) {
  if (index.size() != tensor.shape.size()) throw Unproved{"a tensor is read with another number of dimensions"};
  Replacement by;
  for (size_t d = 0; d < index.size(); ++d)
    if (tensor.shape[d] != 1)
      by.add(store.variable(Variable::Dimension, static_cast<int64_t>(d), tensor.shape[d]), index[d]);
  return store.replace(tensor.value, by);
}
Term Operations::atLinear(const Tensor &tensor, Index linear) { return at(tensor, places(linear, tensor.shape)); }

Term Operations::number(const char *bytes, plan::DType dtype) {
  const auto *from = reinterpret_cast<const std::byte *>(bytes);
  if (dtype == plan::U64 || runtime::byteSize(dtype) == 0) throw Unproved{"a constant of an unknown type"};
  if (dtype == plan::I64)
    if (const int64_t value = runtime::loadInteger(dtype, from); std::abs(value) >= (int64_t(1) << 53))
      return store.leaf(fmt::format("integer {}", value), {});
  return store.number(runtime::loadNumber(dtype, from));
}

Tensor Operations::constant(const std::string &bytes, const TensorType &type) {
  const auto element = static_cast<size_t>(runtime::byteSize(type.dtype));
  const auto count = static_cast<size_t>(elementCount(type.shape));
  if (element == 0 || (bytes.size() != element && bytes.size() != element * count))
    throw Unproved{"a constant's data does not fit its type"};
  bool isOne = true;
  for (size_t at = element; at < bytes.size() && isOne; at += element)
    isOne = std::memcmp(bytes.data(), bytes.data() + at, element) == 0;
  if (count == 0) return {type.dtype, type.shape, store.number(0)};
  if (isOne) return {type.dtype, type.shape, number(bytes.data(), type.dtype)};
  const Index place = linear(dimensions(type.shape), rowMajorStrides(type.shape));
  if (type.dtype == plan::I64) {
    std::vector<int64_t> numbers(count);
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return {type.dtype, type.shape, store.table(numbers, place)};
  }
  std::string name = fmt::format("constant {}:", runtime::name(type.dtype));
  name += bytes;
  return {type.dtype, type.shape, store.leaf(name, {place})};
}

// Between types that hold all values of the first, and of integers as reals, nothing changes. Else a named function.
Term Operations::cast(Term x, plan::DType from, plan::DType to) {
  if (from == to || isWider(from, to)) return x;
  if (runtime::isFloat(from) && runtime::isFloat(to)) return store.rounded(x, runtime::name(to));
  return store.function(fmt::format("Cast to {}", runtime::name(to)), {x});
}

// A function that has no algebra is a name.
Term Operations::unary(const std::string &op, Term x, plan::DType dtype) {
  if (op == "Neg") return store.times(-1, x);
  if (op == "StopGradient") return x;
  if (op == "Not" && dtype == plan::BOOL) return store.sum({{1.0, store.number(1)}, {-1.0, x}});
  return store.function(op, {x});
}

Term Operations::binary(const std::string &op, Term a, Term b, plan::DType dtype) {
  if (op == "Add") return store.sum(a, b);
  if (op == "Sub") return store.sum({{1.0, a}, {-1.0, b}});
  if (op == "Mul") return store.product({a, b});
  if (op == "Div" && runtime::isFloat(dtype)) return store.product({a, store.function("Reciprocal", {b})});
  if (op == "Div") return store.function("Quotient", {a, b});
  return store.function(op, {a, b});
}

Tensor Operations::reduction(Reduce kind, const Tensor &x, const std::vector<int64_t> &axes, const TensorType &type) {
  std::vector<Index> index;
  std::vector<Atom> over;
  for (size_t d = 0, kept = 0; d < x.shape.size(); ++d) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end()) {
      index.push_back(store.dimension(static_cast<int64_t>(kept++), x.shape[d]));
    } else if (x.shape[d] == 0) {
      if (kind != Reduce::Sum) throw Unproved{"a maximum of no elements"};
      return {type.dtype, type.shape, store.number(0)};
    } else {
      over.push_back(store.fresh(over, x.shape[d]));
      index.push_back(store.of(over.back()));
    }
  }
  return {type.dtype, type.shape, store.reduce(kind, over, at(x, index))};
}

namespace {

// The index of each letter of a product: a place in its result, or else one that is summed over.
class Letters {
public:
  Letters(Store &store, const std::vector<int64_t> &result, const std::vector<int64_t> &shape) : store(store) {
    for (size_t d = 0; d < result.size(); ++d) known[result[d]] = store.dimension(static_cast<int64_t>(d), shape[d]);
  }
  std::vector<Index> of(const std::vector<int64_t> &letters, const std::vector<int64_t> &shape) {
    std::vector<Index> index;
    for (size_t d = 0; d < letters.size(); ++d) {
      auto [found, isNew] = known.try_emplace(letters[d], Index{});
      if (isNew) {
        over.push_back(store.fresh(over, shape[d]));
        found->second = store.of(over.back());
      }
      index.push_back(found->second);
    }
    return index;
  }
  bool sumsNothing() const {
    return std::ranges::any_of(over, [&](Atom v) { return store.atom(v).size == 0; });
  }
  Term sum(const std::vector<Term> &factors) { return store.reduce(Reduce::Sum, over, store.product(factors)); }

  std::map<int64_t, Index> known;

private:
  Store &store;
  std::vector<Atom> over;
};

} // namespace

Tensor Operations::contract(const plan::GraphNode &node, const Tensor &lhs, const Tensor &rhs, const TensorType &type) {
  Letters letters(store, intsOf(node, "result_indices"), type.shape);
  const std::vector<Index> a = letters.of(intsOf(node, "lhs_indices"), lhs.shape),
                           b = letters.of(intsOf(node, "rhs_indices"), rhs.shape);
  if (letters.sumsNothing()) return {type.dtype, type.shape, store.number(0)};
  const Term sum = letters.sum({at(lhs, a), at(rhs, b)});
  const bool isWide = !runtime::isFp8BitFloat(lhs.dtype) && isWider(lhs.dtype, type.dtype);
  return {type.dtype, type.shape, cast(sum, isWide ? type.dtype : plan::F32, type.dtype)};
}

Tensor Operations::groupedContract(const GroupLetters &of, const Tensor &lhs, const Tensor &rhs, const Tensor &groups,
                                   Index start, int64_t globalGroups, const TensorType &type) {
  Letters letters(store, of.result, type.shape);
  const std::vector<Index> row = letters.of(of.rows, groups.shape), a = letters.of(of.lhs, lhs.shape);
  const Index entry = linear(row, rowMajorStrides(groups.shape));
  const Index group = store.subtract(store.row(atLinear(groups, entry), globalGroups), start);
  const auto [summed, isLookedUp] = letters.known.try_emplace(of.group, group);
  const Term isIt =
      isLookedUp ? store.inside(group, 0, of.count) : store.inside(store.subtract(group, summed->second), 0, 1);
  const std::vector<Index> b = letters.of(of.rhs, rhs.shape);
  if (letters.sumsNothing()) return {type.dtype, type.shape, store.number(0)};
  const Term sum = letters.sum({isIt, at(lhs, a), at(rhs, b)});
  return {type.dtype, type.shape, cast(sum, isWider(lhs.dtype, type.dtype) ? type.dtype : plan::F32, type.dtype)};
}

// Of rows or groups that have padding, those that numbers name.
static int64_t realCount(const plan::GraphNode &node, const char *attribute, int64_t all) {
  if (node.attributes().count("shard_axes")) throw Unproved{"it belongs to partitioned code"};
  return node.attributes().count(attribute) ? intOf(node, attribute) : all;
}

Tensor Operations::apply(const plan::GraphNode &node, const std::vector<Tensor> &operands, const TensorType &type,
                         const std::vector<Index> &scalars) {
  try {
    return applied(node, operands, type, scalars);
  } catch (const std::out_of_range &) { // of a vector's at()
    throw Unproved{"its attributes or operands do not fit each other"};
  }
}

Tensor Operations::applied(const plan::GraphNode &node, const std::vector<Tensor> &operands, const TensorType &type,
                           const std::vector<Index> &scalars) {
  const std::string &op = node.op();
  auto needs = [&](size_t count) {
    if (operands.size() != count) throw Unproved{fmt::format("it has {} operands, not {}", operands.size(), count)};
  };
  Index start = store.constant(0);
  if (auto scalar = node.attributes().find("scalar"); scalar != node.attributes().end())
    start = scalars.at(static_cast<size_t>(scalar->second.ints(0)));
  if (op == "Constant") {
    auto value = node.attributes().find("value");
    if (value == node.attributes().end()) throw Unproved{"a constant without a value"};
    return constant(value->second.tensor(), type);
  }
  if (op == "Iota") {
    const auto dim = static_cast<size_t>(intOf(node, "dim"));
    return {type.dtype, type.shape,
            store.indexValue(store.add(start, store.dimension(static_cast<int64_t>(dim), type.shape.at(dim))))};
  }
  if (op == "RandomUniform") {
    needs(1);
    std::vector<int64_t> shape = type.shape;
    if (node.attributes().count("global_shape")) shape = intsOf(node, "global_shape");
    const Index element = store.add(start, linear(dimensions(type.shape), rowMajorStrides(shape)));
    return {type.dtype, type.shape,
            store.function(fmt::format("RandomUniform {}", intOf(node, "stream")),
                           {at(operands[0], {store.constant(0)}), at(operands[0], {store.constant(1)}),
                            store.indexValue(element)})};
  }
  if (op == "ReduceSum" || op == "ReduceMax" || op == "ReduceMin") {
    needs(1);
    const Reduce kind = op == "ReduceSum" ? Reduce::Sum : op == "ReduceMax" ? Reduce::Max : Reduce::Min;
    return reduction(kind, operands[0], intsOf(node, "axes"), type);
  }
  if (op == "Contract") {
    needs(2);
    return contract(node, operands[0], operands[1], type);
  }
  if (op == "GroupedContract") {
    needs(3);
    const int64_t count = intOf(node, "group_count");
    return groupedContract({.lhs = intsOf(node, "lhs_indices"),
                            .rhs = intsOf(node, "rhs_indices"),
                            .rows = intsOf(node, "row_indices"),
                            .result = intsOf(node, "result_indices"),
                            .group = intOf(node, "group_index"),
                            .count = count},
                           operands[0], operands[1], operands[2], store.constant(0),
                           realCount(node, "global_groups", count), type);
  }
  bool isElementwise = true;
  for (const Tensor &operand : operands) isElementwise = isElementwise && operand.shape == type.shape;
  if (op == "Sum" && isElementwise) {
    std::vector<std::pair<double, Term>> terms;
    for (const Tensor &operand : operands) terms.emplace_back(1.0, operand.value);
    return {type.dtype, type.shape, store.sum(terms)};
  }
  if (op == "Where" && isElementwise) {
    needs(3);
    return {type.dtype, type.shape, store.function(op, {operands[0].value, operands[1].value, operands[2].value})};
  }
  if (op == "Cast" && isElementwise) {
    needs(1);
    return {type.dtype, type.shape, cast(operands[0].value, operands[0].dtype, type.dtype)};
  }
  if (isElementwise && !operands.empty() && operands.size() == runtime::elementOperands(op)) {
    const Tensor &x = operands[0];
    return {type.dtype, type.shape,
            operands.size() == 1 ? unary(op, x.value, x.dtype) : binary(op, x.value, operands[1].value, x.dtype)};
  }
  return movement(node, operands, type);
}

// Operators that move elements, and those of libraries.
Tensor Operations::movement(const plan::GraphNode &node, const std::vector<Tensor> &operands, const TensorType &type) {
  const std::string &op = node.op();
  const std::vector<Index> out = dimensions(type.shape);
  if (operands.empty()) throw Unproved{"the prover does not know this operator"};
  const Tensor &x = operands[0];
  auto made = [&](Term value) { return Tensor{type.dtype, type.shape, value}; };
  if (elementCount(type.shape) == 0) return made(store.number(0));
  if (op == "Reshape") return made(atLinear(x, linear(out, rowMajorStrides(type.shape))));
  if (op == "Transpose") {
    const std::vector<int64_t> perm = intsOf(node, "perm");
    std::vector<Index> index(perm.size());
    for (size_t d = 0; d < perm.size(); ++d) index.at(static_cast<size_t>(perm[d])) = out.at(d);
    return made(at(x, index));
  }
  if (op == "Broadcast") {
    std::vector<Index> index;
    for (int64_t dim : intsOf(node, "dims")) index.push_back(out.at(static_cast<size_t>(dim)));
    return made(at(x, index));
  }
  if (op == "Slice") {
    const std::vector<int64_t> starts = intsOf(node, "starts"), steps = intsOf(node, "steps");
    std::vector<Index> index;
    for (size_t d = 0; d < out.size(); ++d)
      index.push_back(store.add(store.scale(out[d], steps.at(d)), store.constant(starts.at(d))));
    return made(at(x, index));
  }
  if (op == "Pad") {
    const std::vector<int64_t> low = intsOf(node, "low"), interior = intsOf(node, "interior");
    const auto value = node.attributes().find("value");
    const double padding =
        value == node.attributes().end() || value->second.floats().empty() ? 0.0 : value->second.floats(0);
    std::vector<Index> index;
    std::vector<Term> conditions;
    for (size_t d = 0; d < out.size(); ++d) {
      const Index moved = store.subtract(out[d], store.constant(low.at(d)));
      const int64_t step = interior.at(d) + 1;
      index.push_back(store.quotient(moved, step));
      conditions.push_back(store.inside(index.back(), 0, x.shape.at(d)));
      if (step > 1) conditions.push_back(store.inside(store.remainder(moved, step), 0, 1));
    }
    const Term condition = store.product(conditions);
    if (padding == 0) return made(store.product({condition, at(x, index)}));
    return made(store.function("Where", {condition, at(x, index), store.number(padding)}));
  }
  if (op == "Concat") {
    const auto axis = static_cast<size_t>(intOf(node, "axis"));
    std::vector<std::pair<double, Term>> parts;
    int64_t start = 0;
    for (const Tensor &part : operands) {
      const int64_t size = part.shape.at(axis);
      if (size == 0) continue;
      std::vector<Index> index = out;
      index[axis] = store.subtract(out[axis], store.constant(start));
      parts.emplace_back(1.0, store.product({store.inside(index[axis], 0, size), at(part, index)}));
      start += size;
    }
    return made(store.sum(parts));
  }
  if (op == "Roll") {
    const auto dim = static_cast<size_t>(intOf(node, "dim"));
    const int64_t size = x.shape.at(dim), distance = (intOf(node, "distance") % size + size) % size;
    std::vector<Index> index = out;
    index[dim] = store.remainder(store.add(out[dim], store.constant(size - distance)), size);
    return made(at(x, index));
  }
  if (op == "CumSum") return cumSum(x, intOf(node, "axis"), flagOf(node, "exclusive"), flagOf(node, "reverse"));
  if (op == "Gather" || op == "ScatterAdd") {
    const bool gathers = op == "Gather";
    const Tensor &indices = operands.at(gathers ? 1 : 0);
    const auto axis = static_cast<size_t>(intOf(node, "axis"));
    const auto batch = static_cast<size_t>(node.attributes().count("batch_dims") ? intOf(node, "batch_dims") : 0);
    if (batch > 0)
      return gathers ? gatherOfEntries(x, indices, axis, batch, type)
                     : scatterAddOfEntries(indices, operands.at(1), axis, batch, type);
    const std::vector<int64_t> &table = gathers ? x.shape : type.shape;
    int64_t outer = 1, inner = 1;
    for (size_t d = 0; d < table.size(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : table[d];
    const int64_t rows = table.at(axis), named = realCount(node, "global_rows", rows);
    return gathers ? gather(x, indices, outer, rows, inner, store.constant(0), named, type.shape)
                   : scatterAdd(indices, operands.at(1), outer, rows, inner, store.constant(0), named, type.shape);
  }
  auto window = [&] {
    Window made{.kernel = {},
                .strides = intsOf(node, "strides"),
                .padsBegin = intsOf(node, "pads_begin"),
                .dilations = intsOf(node, "dilations")};
    if (node.attributes().count("groups")) made.groups = intOf(node, "groups");
    return made;
  };
  if (op == "Conv") return convolution(x, operands.at(1), window(), type);
  if (op == "ConvGradInput") return convolutionInput(x, operands.at(1), window(), type);
  if (op == "ConvGradWeight") return convolutionWeight(x, operands.at(1), window(), type);
  if (op == "MaxPool" || op == "MaxPoolGrad" || op == "AveragePool" || op == "AveragePoolGrad") {
    std::string name = op;
    if (flagOf(node, "include_pad")) name += " with padding";
    for (const char *attribute : {"kernel", "strides", "pads_begin", "pads_end", "dilations"})
      for (int64_t value : intsOf(node, attribute)) name += fmt::format(" {}", value);
    return pool(name, operands, type);
  }
  throw Unproved{"the prover does not know this operator"};
}

} // namespace cleave::proof
