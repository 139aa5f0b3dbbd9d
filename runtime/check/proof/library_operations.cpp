// Operators that libraries compute: table lookups, running sums, convolutions and pools.
#include "runtime/check/proof/operations.h"
#include <algorithm>
#include <cmath>

namespace cleave::proof {

// y[outer, index..., inner] = table[outer, row, inner], 0 where the device has not the row.
Tensor Operations::gather(const Tensor &table, const Tensor &indices, int64_t outer, int64_t rows, int64_t inner,
                          Index start, int64_t globalRows, const std::vector<int64_t> &shape) {
  const int64_t count = elementCount(indices.shape);
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
  const int64_t count = elementCount(indices.shape);
  if (count == 0) return {updates.dtype, shape, store.number(0)};
  const std::vector<Index> place = places(linear(dimensions(shape), rowMajorStrides(shape)), {outer, rows, inner});
  const Atom m = store.fresh({}, count);
  const Index named = store.row(atLinear(indices, store.of(m)), globalRows);
  const Term isIt = store.inside(store.subtract(store.subtract(named, start), place[1]), 0, 1);
  const Index from = linear({place[0], store.of(m), place[2]}, {count * inner, inner, 1});
  const Term isNamed = store.inside(store.add(place[1], start), 0, globalRows); // not padding
  const Term sum = store.reduce(Reduce::Sum, {m}, store.product({isIt, atLinear(updates, from)}));
  return {updates.dtype, shape, store.product({isNamed, sum})};
}

// The row that the number at a place of the indices names; so does every number of them.
Index Operations::rowOfEntry(const Tensor &indices, const std::vector<Index> &place, int64_t rows) {
  store.nameRows(indices.value, dimensions(indices.shape), indices.shape, rows);
  return store.row(at(indices, place), rows);
}

// y[b..., outer..., i..., inner...] = table[b..., outer..., indices[b..., i...], inner...]
Tensor Operations::gatherOfEntries(const Tensor &table, const Tensor &indices, size_t axis, size_t batch,
                                   const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  const size_t inner = axis + indices.shape.size() - batch; // where the table's dimensions behind `axis` begin
  if (batch > axis || batch > indices.shape.size() || inner + table.shape.size() != out.size() + axis + 1)
    throw Unproved{"its operands do not fit each other"};
  const auto begin = out.begin();
  auto place = [&](size_t from) { return begin + static_cast<std::ptrdiff_t>(from); };
  std::vector<Index> named(begin, place(batch)), read(begin, place(axis));
  named.insert(named.end(), place(axis), place(inner));
  read.push_back(rowOfEntry(indices, named, table.shape[axis]));
  read.insert(read.end(), place(inner), out.end());
  return {type.dtype, type.shape, at(table, read)};
}

// y[b..., outer..., row, inner...] = sum over the i... with indices[b..., i...] = row of
// updates[b..., outer..., i..., inner...]
Tensor Operations::scatterAddOfEntries(const Tensor &indices, const Tensor &updates, size_t axis, size_t batch,
                                       const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  if (batch > axis || axis >= out.size() || batch > indices.shape.size())
    throw Unproved{"its operands do not fit each other"};
  if (elementCount(indices.shape) == 0) return {type.dtype, type.shape, store.number(0)};
  const auto begin = out.begin();
  auto place = [&](size_t from) { return begin + static_cast<std::ptrdiff_t>(from); };
  std::vector<Index> named(begin, place(batch)), read(begin, place(axis));
  std::vector<Atom> over;
  for (size_t d = batch; d < indices.shape.size(); ++d) {
    over.push_back(store.fresh(over, indices.shape[d]));
    named.push_back(store.of(over.back()));
    read.push_back(named.back());
  }
  read.insert(read.end(), place(axis + 1), out.end());
  const Index row = rowOfEntry(indices, named, type.shape[axis]);
  const Term isIt = store.inside(store.subtract(row, out[axis]), 0, 1);
  return {type.dtype, type.shape, store.reduce(Reduce::Sum, over, store.product({isIt, at(updates, read)}))};
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

// The element of the input that an output meets at a tap of the window, along a spatial dimension.
Index Operations::windowPlace(const Window &window, size_t d, Index output, Index tap) {
  const Index place = store.add(store.scale(output, window.strides.at(d)), store.scale(tap, window.dilations.at(d)));
  return store.subtract(place, store.constant(window.padsBegin.at(d)));
}

Tensor Operations::overWindows(WindowSum sum, const Window &window, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  std::vector<Term> factors;
  for (size_t d = 0; d + 2 < sum.x.shape.size(); ++d) {
    sum.over.push_back(store.fresh(sum.over, sum.other.shape.at(d + 2)));
    const Index met = store.of(sum.over.back());
    sum.ofOther.push_back(met);
    sum.ofX.push_back(sum.isOverTaps ? windowPlace(window, d, out[d + 2], met)
                                     : windowPlace(window, d, met, out[d + 2]));
    factors.push_back(store.inside(sum.ofX.back(), 0, sum.x.shape.at(d + 2)));
  }
  factors.push_back(at(sum.x, sum.ofX));
  factors.push_back(at(sum.other, sum.ofOther));
  return {type.dtype, type.shape, store.reduce(Reduce::Sum, sum.over, store.product(factors))};
}

Tensor Operations::convolution(const Tensor &x, const Tensor &w, const Window &window, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  const int64_t channels = w.shape.at(1), outputs = w.shape.at(0) / window.groups;
  const Atom channel = store.fresh({}, channels);
  const Index from = store.add(store.scale(store.quotient(out[1], outputs), channels), store.of(channel));
  return overWindows({x, w, true, {channel}, {out[0], from}, {out[1], store.of(channel)}}, window, type);
}

Tensor Operations::convolutionInput(const Tensor &dy, const Tensor &w, const Window &window, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  const int64_t channels = w.shape.at(1), outputs = w.shape.at(0) / window.groups;
  std::vector<Atom> over{store.fresh({}, outputs)};
  const Index output = store.add(store.scale(store.quotient(out[1], channels), outputs), store.of(over[0]));
  std::vector<Index> from{out[0], output}, weight{output, store.remainder(out[1], channels)};
  std::vector<Term> factors;
  for (size_t d = 0; d + 2 < dy.shape.size(); ++d) { // spatial dimensions come after two others
    const Atom y = store.fresh(over, dy.shape.at(d + 2));
    over.push_back(y);
    const Atom k = store.fresh(over, w.shape.at(d + 2));
    over.push_back(k);
    from.push_back(store.of(y));
    weight.push_back(store.of(k));
    const Index place = windowPlace(window, d, store.of(y), store.of(k));
    factors.push_back(store.inside(store.subtract(place, out[d + 2]), 0, 1));
  }
  factors.push_back(at(dy, from));
  factors.push_back(at(w, weight));
  return {type.dtype, type.shape, store.reduce(Reduce::Sum, over, store.product(factors))};
}

Tensor Operations::convolutionWeight(const Tensor &x, const Tensor &dy, const Window &window, const TensorType &type) {
  const std::vector<Index> out = dimensions(type.shape);
  const int64_t channels = type.shape.at(1), outputs = type.shape.at(0) / window.groups;
  const Atom sample = store.fresh({}, x.shape.at(0));
  const Index n = store.of(sample), from = store.add(store.scale(store.quotient(out[0], outputs), channels), out[1]);
  return overWindows({x, dy, false, {sample}, {n, from}, {n, out[0]}}, window, type);
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

// A key's or value's element for one of so many heads of the query, several of which may share it.
Term Operations::ofHead(const Tensor &x, const std::vector<Index> &index, int64_t heads) {
  std::vector<Index> own = index;
  own[1] = store.quotient(index[1], heads / x.shape.at(1));
  return at(x, own);
}

// x[b, h, s, t] = cap(scale * q k^T) + bias, minus infinity outside of the band
Operations::Scores Operations::scores(const AttentionOperands &of) {
  const std::vector<int64_t> shape{of.query.shape.at(0), of.query.shape.at(1), of.query.shape.at(2),
                                   of.key.shape.at(2)};
  const std::vector<Index> i = dimensions(shape);
  const Atom d = store.fresh({}, of.query.shape.at(3));
  const Term product = store.reduce(Reduce::Sum, {d},
                                    store.product({at(of.query, {i[0], i[1], i[2], store.of(d)}),
                                                   ofHead(of.key, {i[0], i[1], i[3], store.of(d)}, shape[1])}));
  Term x = store.times(of.scale, product);
  std::optional<Term> slope;
  if (of.softCap != 0) {
    const Term part = unary("Tanh", binary("Div", x, store.number(of.softCap), plan::F32), plan::F32);
    x = store.times(of.softCap, part);
    slope = binary("Sub", store.number(1), store.product({part, part}), plan::F32);
  }
  if (of.bias) {
    std::vector<Index> own = i;
    for (size_t dim = 0; dim < own.size(); ++dim)
      if (of.bias->shape.at(dim) == 1) own[dim] = store.constant(0);
    x = store.sum(x, at(*of.bias, own));
  }
  const auto after = [&](Index index, int64_t distance) {
    return store.indexValue(store.add(index, store.constant(distance)));
  };
  const auto hide = [&](Term seen) { x = store.function("Where", {seen, x, store.number(-INFINITY)}); };
  if (of.band.right) hide(store.function("LessOrEqual", {after(i[3], 0), after(i[2], *of.band.right)}));
  if (of.band.left) hide(store.function("Less", {after(i[2], 0), after(i[3], *of.band.left)}));
  return {{plan::F32, shape, x}, slope};
}

// exp(x - stats)
Tensor Operations::probabilities(const Tensor &scores, const Tensor &stats) {
  const std::vector<Index> i = dimensions(scores.shape);
  return {plan::F32, scores.shape,
          store.function("Exp", {binary("Sub", scores.value, at(stats, {i[0], i[1], i[2]}), plan::F32)})};
}

// stats = m + log(sum of exp(x - m)), m = max x; output = exp(x - stats) v
Operations::AttentionForward Operations::attention(const AttentionOperands &of) {
  const Tensor x = scores(of).x;
  const std::vector<int64_t> rows(x.shape.begin(), x.shape.end() - 1);
  const Tensor max = reduction(Reduce::Max, x, {3}, {plan::F32, rows});
  const Tensor least = probabilities(x, max);
  const Tensor sum = reduction(Reduce::Sum, least, {3}, {plan::F32, rows});
  const Tensor stats{plan::F32, rows, store.sum(max.value, store.function("Log", {sum.value}))};
  const Tensor p = probabilities(x, stats);
  const std::vector<Index> i = dimensions({x.shape[0], x.shape[1], x.shape[2], of.value.shape.at(3)});
  const Atom t = store.fresh({}, x.shape[3]);
  const Term output = store.reduce(Reduce::Sum, {t},
                                   store.product({at(p, {i[0], i[1], i[2], store.of(t)}),
                                                  ofHead(of.value, {i[0], i[1], store.of(t), i[3]}, x.shape[1])}));
  return {cast(output, plan::F32, of.query.dtype), stats.value};
}

// p = exp(x - stats);  dv = p^T do;  dx = scale * cap' * p * (do v^T - sum of do * output);  dq = dx k;  dk = dx^T q
Operations::AttentionBackward Operations::attentionGradient(const AttentionOperands &of, const Tensor &output,
                                                            const Tensor &stats, const Tensor &outputGradient) {
  const auto [x, slope] = scores(of);
  const Tensor p = probabilities(x, stats), &given = outputGradient;
  const int64_t heads = x.shape[1], shared = heads / of.key.shape.at(1);
  const std::vector<Index> i = dimensions(x.shape);
  const Atom e = store.fresh({}, of.value.shape.at(3));
  const std::vector<Index> place{i[0], i[1], i[2], store.of(e)};
  const Term delta = store.reduce(Reduce::Sum, {e}, store.product({at(given, place), at(output, place)}));
  const Term dp = store.reduce(
      Reduce::Sum, {e}, store.product({at(given, place), ofHead(of.value, {i[0], i[1], i[3], store.of(e)}, heads)}));
  const Term ofScores = store.product({p.value, binary("Sub", dp, delta, plan::F32)});
  const Tensor dx{plan::F32, x.shape, store.times(of.scale, slope ? store.product({ofScores, *slope}) : ofScores)};
  const std::vector<Index> q = dimensions(of.query.shape), k = dimensions(of.key.shape);
  const Atom t = store.fresh({}, x.shape[3]);
  const Term query = store.reduce(
      Reduce::Sum, {t},
      store.product({at(dx, {q[0], q[1], q[2], store.of(t)}), ofHead(of.key, {q[0], q[1], store.of(t), q[3]}, heads)}));
  // Of keys and values that several heads share, the sum over these.
  auto overQueries = [&](const Tensor &weight, const Tensor &rows) {
    const Atom s = store.fresh({}, x.shape[2]);
    std::vector<Atom> over{s};
    Index head = k[1];
    if (shared > 1) {
      over.push_back(store.fresh(over, shared));
      head = store.add(store.scale(k[1], shared), store.of(over.back()));
    }
    return store.reduce(
        Reduce::Sum, over,
        store.product({at(weight, {k[0], head, store.of(s), k[2]}), at(rows, {k[0], head, store.of(s), k[3]})}));
  };
  auto narrow = [&](Term value) { return cast(value, plan::F32, of.query.dtype); };
  return {narrow(query), narrow(overQueries(dx, of.query)), narrow(overQueries(p, given))};
}

} // namespace cleave::proof
