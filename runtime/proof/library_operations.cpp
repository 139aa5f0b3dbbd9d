// Operators that libraries compute: table lookups, running sums, convolutions and pools.
#include "runtime/proof/operations.h"
#include <algorithm>

namespace cleave::proof {

// y[outer, index..., inner] = table[outer, row, inner], 0 where the device has not the row.
Tensor Operations::gather(const Tensor &table, const Tensor &indices, int64_t outer, int64_t rows, int64_t inner,
                          Index start, int64_t globalRows, const std::vector<int64_t> &shape) {
  const int64_t count = elementsOf(indices.shape);
  const Index linearOut = linear(dimensions(shape), rowMajorStrides(shape));
  const std::vector<Index> place = places(linearOut, {outer, count, inner});
  const Index row = store.subtract(store.row(atLinear(indices, place[1]), globalRows), start);
  Tensor view{table.dtype, {outer, rows, inner}, {}}; // so that a row outside of it is no other row
  view.value = atLinear(table, linear(dimensions(view.shape), rowMajorStrides(view.shape)));
  return {table.dtype, shape, store.product({store.inside(row, 0, rows), at(view, {place[0], row, place[2]})})};
}

// y[outer, row, inner] = sum over the indices that name the row of updates[outer, index..., inner]
Tensor Operations::scatterAdd(const Tensor &indices, const Tensor &updates, int64_t outer, int64_t rows, int64_t inner,
                              Index start, int64_t globalRows, const std::vector<int64_t> &shape) {
  const int64_t count = elementsOf(indices.shape);
  if (count == 0) return {updates.dtype, shape, store.number(0)};
  const std::vector<Index> place = places(linear(dimensions(shape), rowMajorStrides(shape)), {outer, rows, inner});
  const Atom m = store.fresh({}, count);
  const Index named = store.row(atLinear(indices, store.of(m)), globalRows);
  const Term isIt = store.inside(store.subtract(store.subtract(named, start), place[1]), 0, 1);
  const Index from = linear({place[0], store.of(m), place[2]}, {count * inner, inner, 1});
  return {updates.dtype, shape, store.reduce(Reduce::Sum, {m}, store.product({isIt, atLinear(updates, from)}))};
}

Tensor Operations::cumSum(const Tensor &x, int64_t axis, bool exclusive, bool reverse) {
  std::vector<Index> index = dimensions(x.shape);
  const auto a = static_cast<size_t>(axis);
  const Atom k = store.fresh({}, x.shape.at(a));
  const Index back = reverse ? store.subtract(store.of(k), index[a]) : store.subtract(index[a], store.of(k));
  index[a] = store.of(k);
  const Term counts = store.inside(back, exclusive ? 1 : 0, Range::infinite);
  return {x.dtype, x.shape, store.reduce(Reduce::Sum, {k}, store.product({counts, at(x, index)}))};
}

namespace {
// Spatial dimensions come after two others.
int64_t spatialOf(const Tensor &x) { return static_cast<int64_t>(x.shape.size()) - 2; }
} // namespace

Tensor Operations::convolution(const Tensor &x, const Tensor &w, const Window &window, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  const int64_t channels = w.shape.at(1), outputs = w.shape.at(0) / window.groups;
  std::vector<Atom> over{store.fresh({}, channels)};
  std::vector<Index> from{out[0], store.add(store.scale(store.quotient(out[1], outputs), channels), store.of(over[0]))};
  std::vector<Index> weight{out[1], store.of(over[0])};
  std::vector<Term> factors;
  for (int64_t s = 0; s < spatialOf(x); ++s) {
    const auto d = static_cast<size_t>(s);
    over.push_back(store.fresh(over, w.shape.at(d + 2)));
    weight.push_back(store.of(over.back()));
    Index place = store.add(store.scale(out[d + 2], window.strides.at(d)),
                            store.scale(store.of(over.back()), window.dilations.at(d)));
    place = store.subtract(place, store.constant(window.padsBegin.at(d)));
    factors.push_back(store.inside(place, 0, x.shape.at(d + 2)));
    from.push_back(place);
  }
  factors.push_back(at(x, from));
  factors.push_back(at(w, weight));
  return {type.dtype, type.shape, store.reduce(Reduce::Sum, over, store.product(factors))};
}

Tensor Operations::convolutionInput(const Tensor &dy, const Tensor &w, const Window &window, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  const int64_t channels = w.shape.at(1), outputs = w.shape.at(0) / window.groups;
  std::vector<Atom> over{store.fresh({}, outputs)};
  const Index output = store.add(store.scale(store.quotient(out[1], channels), outputs), store.of(over[0]));
  std::vector<Index> from{out[0], output}, weight{output, store.remainder(out[1], channels)};
  std::vector<Term> factors;
  for (int64_t s = 0; s < spatialOf(dy); ++s) {
    const auto d = static_cast<size_t>(s);
    const Atom y = store.fresh(over, dy.shape.at(d + 2));
    over.push_back(y);
    const Atom k = store.fresh(over, w.shape.at(d + 2));
    over.push_back(k);
    from.push_back(store.of(y));
    weight.push_back(store.of(k));
    const Index place =
        store.add(store.scale(store.of(y), window.strides.at(d)), store.scale(store.of(k), window.dilations.at(d)));
    factors.push_back(
        store.inside(store.subtract(store.subtract(place, store.constant(window.padsBegin.at(d))), out[d + 2]), 0, 1));
  }
  factors.push_back(at(dy, from));
  factors.push_back(at(w, weight));
  return {type.dtype, type.shape, store.reduce(Reduce::Sum, over, store.product(factors))};
}

Tensor Operations::convolutionWeight(const Tensor &x, const Tensor &dy, const Window &window, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  const int64_t channels = type.shape.at(1), outputs = type.shape.at(0) / window.groups;
  std::vector<Atom> over{store.fresh({}, x.shape.at(0))};
  std::vector<Index> from{store.of(over[0]), store.add(store.scale(store.quotient(out[0], outputs), channels), out[1])};
  std::vector<Index> gradient{store.of(over[0]), out[0]};
  std::vector<Term> factors;
  for (int64_t s = 0; s < spatialOf(x); ++s) {
    const auto d = static_cast<size_t>(s);
    over.push_back(store.fresh(over, dy.shape.at(d + 2)));
    gradient.push_back(store.of(over.back()));
    Index place = store.add(store.scale(store.of(over.back()), window.strides.at(d)),
                            store.scale(out[d + 2], window.dilations.at(d)));
    place = store.subtract(place, store.constant(window.padsBegin.at(d)));
    factors.push_back(store.inside(place, 0, x.shape.at(d + 2)));
    from.push_back(place);
  }
  factors.push_back(at(x, from));
  factors.push_back(at(dy, gradient));
  return {type.dtype, type.shape, store.reduce(Reduce::Sum, over, store.product(factors))};
}

Tensor Operations::pool(const std::string &name, const std::vector<Tensor> &operands, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  std::vector<Atom> over;
  std::vector<Term> bodies;
  for (const Tensor &operand : operands) {
    std::vector<Index> index{out[0], out[1]};
    for (size_t d = 2; d < operand.shape.size(); ++d) {
      over.push_back(store.fresh(over, operand.shape[d]));
      index.push_back(store.of(over.back()));
    }
    bodies.push_back(at(operand, index));
  }
  return {type.dtype, type.shape, store.opaque(name, over, bodies, {out.begin() + 2, out.end()})};
}

} // namespace cleave::proof
