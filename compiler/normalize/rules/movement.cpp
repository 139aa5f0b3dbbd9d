// Operators that move elements without computing.
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

Values reshape(Node &n) {
  Value x = n.in(0);
  Dims shape = n.has(1) ? n.constantInts(1) : n.ints("shape", {});
  ArrayRef<int64_t> from = shapeOf(x);
  bool allowZero = n.integer("allowzero", 0);
  Dims sizes; // without the unknown one
  int64_t unknown = -1;
  for (auto [d, size] : llvm::enumerate(shape)) {
    if (size == 0 && !allowZero) {
      if (d >= from.size()) n.fail("copies a dimension that its operand does not have");
      size = from[d];
    }
    if (size < -1) n.fail("has a dimension of size " + Twine(size));
    if (size == -1) {
      if (unknown >= 0) n.fail("has two dimensions of unknown size");
      unknown = int64_t(d);
    } else {
      sizes.push_back(size);
    }
  }
  n.b.checkSize(sizes);
  int64_t count = typeOf(x).getNumElements();
  if (unknown >= 0) {
    int64_t known = *elementsWithin(sizes);
    if (known == 0 || count % known != 0) n.fail("cannot give " + Twine(count) + " elements that shape");
    shape[unknown] = count / known;
  }
  return {n.b.reshape(x, shape)};
}

Values transpose(Node &n) {
  int64_t rank = rankOf(n.in(0));
  Dims reversed = countUp(rank);
  std::reverse(reversed.begin(), reversed.end());
  return {n.b.transpose(n.in(0), n.ints("perm", reversed))};
}

Values squeeze(Node &n) {
  Value x = n.in(0);
  auto given = n.intsOrInput("axes", 1);
  Dims axes = given ? n.axes(*given, rankOf(x)) : Dims(), shape;
  for (auto [d, size] : llvm::enumerate(shapeOf(x))) {
    bool drop = given ? llvm::is_contained(axes, int64_t(d)) : size == 1;
    if (drop && size != 1) n.fail("cannot drop dimension " + Twine(d) + " of size " + Twine(size));
    if (!drop) shape.push_back(size);
  }
  return {n.b.reshape(x, shape)};
}
Values unsqueeze(Node &n) {
  auto given = n.intsOrInput("axes", 1);
  if (!given) n.fail("needs its axes");
  return {n.b.insertOnes(n.in(0), n.axes(*given, rankOf(n.in(0)) + int64_t(given->size())))};
}
Values flatten(Node &n) {
  Value x = n.in(0);
  int64_t rank = rankOf(x), axis = n.integer("axis", 1), rows = 1;
  axis = axis == rank ? rank : n.axis(axis, rank);
  for (int64_t size : shapeOf(x).take_front(axis)) rows *= size;
  int64_t columns = 1;
  for (int64_t size : shapeOf(x).drop_front(axis)) columns *= size;
  return {n.b.reshape(x, {rows, columns})};
}

Values expand(Node &n) {
  auto shape = broadcastShape(shapeOf(n.in(0)), n.constantInts(1));
  if (!shape) n.fail("its operand does not broadcast to the shape");
  return {n.b.broadcastTo(n.in(0), *shape)};
}

Values tile(Node &n) {
  Value x = n.in(0);
  Dims repeats = n.constantInts(1), between, wide, dims, shape;
  if (int64_t(repeats.size()) != rankOf(x)) n.fail("needs a repeat for each dimension");
  for (auto [d, size] : llvm::enumerate(shapeOf(x))) {
    if (repeats[d] != 1) wide.push_back(repeats[d]);
    dims.push_back(int64_t(wide.size()));
    wide.push_back(size);
  }
  n.b.checkSize(wide);
  for (auto [d, size] : llvm::enumerate(shapeOf(x))) shape.push_back(size * repeats[d]);
  Value repeated =
      n.b.create<onnx::BroadcastOp>(x, n.b.builder.getDenseI64ArrayAttr(wide), n.b.builder.getDenseI64ArrayAttr(dims));
  return {n.b.reshape(repeated, shape)};
}

Values concat(Node &n) {
  Values parts;
  int64_t axis = n.axis(n.integer("axis", 1), rankOf(n.in(0)));
  for (size_t i = 0; i < n.inputs.size(); ++i)
    if (rankOf(n.in(i)) != rankOf(n.in(0)))
      n.fail("joins tensors of " + Twine(rankOf(n.in(0))) + " and " + Twine(rankOf(n.in(i))) + " dimensions");
  for (size_t i = 0; i < n.inputs.size(); ++i)
    if (shapeOf(n.in(i))[axis] != 0) parts.push_back(n.in(i));
  return {parts.empty() ? n.in(0) : n.b.concat(parts, axis)};
}

Values split(Node &n) {
  Value x = n.in(0);
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(x)), size = shapeOf(x)[axis], count = int64_t(n.outputs());
  auto sizes = n.intsOrInput("split", 1);
  if (n.version() >= 18 && sizes.has_value() == (n.attribute("num_outputs") != nullptr))
    n.fail("needs either its input 'split' or its attribute 'num_outputs'");
  if (n.integer("num_outputs", count) != count)
    n.fail("has " + Twine(count) + " outputs, and its attribute 'num_outputs' is " +
           Twine(n.integer("num_outputs", count)));
  if (!sizes) {
    int64_t part = (size + count - 1) / count; // the last one may be smaller (num_outputs, opset 18)
    sizes = Dims(count, part);
    sizes->back() = size - part * (count - 1);
  }
  if (int64_t(sizes->size()) != count) n.fail("its parts do not add up to the whole");
  return splitAlong(n, x, axis, *sizes);
}

Values slice(Node &n) {
  Value x = n.in(0);
  int64_t rank = rankOf(x);
  auto starts = n.intsOrInput("starts", 1), ends = n.intsOrInput("ends", 2), axes = n.intsOrInput("axes", 3);
  if (!starts || !ends) n.fail("needs its starts and ends");
  Dims steps = n.has(4) ? n.constantInts(4) : Dims(starts->size(), 1);
  if (!axes) axes = countUp(int64_t(starts->size()));
  if (ends->size() != starts->size() || axes->size() != starts->size() || steps.size() != starts->size())
    n.fail("its starts, ends, axes and steps differ in number");
  Dims from(rank, 0), sizes(shapeOf(x)), by(rank, 1);
  for (size_t i = 0; i < starts->size(); ++i) {
    int64_t axis = n.axis((*axes)[i], rank), size = shapeOf(x)[axis], step = steps[i];
    if (step == 0) n.fail("its step is 0");
    auto fromEnd = [&](int64_t at) { return at < 0 ? at + size : at; };
    int64_t start = fromEnd((*starts)[i]), end = fromEnd((*ends)[i]);
    if (step > 0) {
      start = std::clamp<int64_t>(start, 0, size);
      end = std::clamp<int64_t>(end, 0, size);
      from[axis] = start;
      sizes[axis] = end > start ? (end - start - 1) / step + 1 : 0;
      by[axis] = step;
      if (sizes[axis] == 0) from[axis] = 0;
    } else {
      start = std::clamp<int64_t>(start, -1, size - 1);
      end = std::clamp<int64_t>(end, -1, size - 1);
      Dims indices;
      n.needsFew(start - end);
      for (int64_t at = start; at > end; at += step) indices.push_back(at);
      x = n.b.pick(x, axis, indices);
      sizes[axis] = int64_t(indices.size());
    }
  }
  return {n.b.create<onnx::SliceOp>(x, n.b.builder.getDenseI64ArrayAttr(from), n.b.builder.getDenseI64ArrayAttr(sizes),
                                    n.b.builder.getDenseI64ArrayAttr(by))};
}

// Where element `at` of a padded dimension comes from.
int64_t padSource(const std::string &mode, int64_t at, int64_t size) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, size - 1);
  if (mode == "wrap") return ((at % size) + size) % size;
  int64_t period = std::max<int64_t>(2 * (size - 1), 1), r = ((at % period) + period) % period;
  return r < size ? r : period - r;
}

Values pad(Node &n) {
  Value x = n.in(0);
  int64_t rank = rankOf(x);
  auto pads = n.intsOrInput("pads", 1);
  if (!pads) n.fail("needs its pads");
  Dims axes = n.has(3) ? n.constantInts(3) : countUp(rank);
  if (pads->size() != 2 * axes.size()) n.fail("needs two pads for each axis");
  Dims low(rank, 0), high(rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = n.axis(axes[i], rank);
    low[axis] = (*pads)[i];
    high[axis] = (*pads)[i + axes.size()];
    for (int64_t pad : {low[axis], high[axis]})
      if (pad < -mostElements || pad > mostElements) n.fail("has a pad of " + Twine(pad));
  }
  std::string mode = n.text("mode", "constant");
  if (mode != "constant") {
    for (int64_t axis = 0; axis < rank; ++axis) {
      int64_t size = shapeOf(x)[axis];
      if (low[axis] == 0 && high[axis] == 0) continue;
      Dims indices;
      if (size == 0) n.fail("repeats elements of dimension " + Twine(axis) + ", which has none");
      n.needsFew(size + low[axis] + high[axis]);
      for (int64_t at = -low[axis]; at < size + high[axis]; ++at) indices.push_back(padSource(mode, at, size));
      x = n.b.pick(x, axis, indices);
    }
    return {x};
  }
  Dims starts(rank, 0), sizes(shapeOf(x)); // negative pads cut
  for (int64_t d = 0; d < rank; ++d) {
    starts[d] = std::max<int64_t>(-low[d], 0);
    sizes[d] -= starts[d] + std::max<int64_t>(-high[d], 0);
    low[d] = std::max<int64_t>(low[d], 0);
    high[d] = std::max<int64_t>(high[d], 0);
    if (sizes[d] < 0) n.fail("cuts more than there is");
  }
  double value = n.has(2) ? n.constantReal(2) : n.real("value", 0);
  Value kept = n.b.sliceAll(x, starts, sizes);
  bool grows = llvm::any_of(low, [](int64_t v) { return v; }) || llvm::any_of(high, [](int64_t v) { return v; });
  return {grows ? n.b.pad(kept, low, high, value) : kept};
}

// [n, c, h, w] with blocks of s x s
Values depthToSpace(Node &n) {
  Value x = n.in(0);
  if (rankOf(x) != 4) n.fail("needs four dimensions");
  int64_t s = n.integer("blocksize", 1);
  ArrayRef<int64_t> d = shapeOf(x);
  if (s < 1 || d[1] % (s * s)) n.fail("its channels do not divide into blocks");
  int64_t c = d[1] / (s * s);
  bool crd = n.text("mode", "DCR") == "CRD";
  Value split = crd ? n.b.reshape(x, {d[0], c, s, s, d[2], d[3]}) : n.b.reshape(x, {d[0], s, s, c, d[2], d[3]});
  Value moved = n.b.transpose(split, crd ? ArrayRef<int64_t>{0, 1, 4, 2, 5, 3} : ArrayRef<int64_t>{0, 3, 4, 1, 5, 2});
  return {n.b.reshape(moved, {d[0], c, d[2] * s, d[3] * s})};
}
Values spaceToDepth(Node &n) {
  Value x = n.in(0);
  if (rankOf(x) != 4) n.fail("needs four dimensions");
  int64_t s = n.integer("blocksize", 1);
  ArrayRef<int64_t> d = shapeOf(x);
  if (s < 1 || d[2] % s || d[3] % s) n.fail("its image does not divide into blocks");
  Value split = n.b.reshape(x, {d[0], d[1], d[2] / s, s, d[3] / s, s});
  return {n.b.reshape(n.b.transpose(split, {0, 3, 5, 1, 2, 4}), {d[0], d[1] * s * s, d[2] / s, d[3] / s})};
}

} // namespace

Values splitAlong(Node &n, Value x, int64_t axis, ArrayRef<int64_t> sizes) {
  Values parts;
  const int64_t whole = shapeOf(x)[axis], count = int64_t(sizes.size());
  int64_t start = 0;
  for (int64_t part : sizes) {
    if (part < 0 || part > whole - start) n.fail("its parts are larger than the whole");
    start += part;
  }
  if (start != whole) n.fail("its parts do not add up to the whole");
  // Equal parts become a dimension of their own, which PushReshapes then carries into the product that made them: the
  // heads of fused q, k, v can be split over devices.
  if (count > 1 && llvm::all_equal(sizes)) {
    Dims view(shapeOf(x)), shape(shapeOf(x));
    view[axis] = shape[axis] = whole / count;
    view.insert(view.begin() + axis, count);
    Value viewed = n.b.reshape(x, view);
    for (int64_t i = 0; i < count; ++i) parts.push_back(n.b.reshape(n.b.slice(viewed, axis, i, 1), shape));
    return parts;
  }
  start = 0;
  for (int64_t part : sizes) {
    parts.push_back(n.b.slice(x, axis, start, part));
    start += part;
  }
  return parts;
}

void addMovement(Rules &rules) {
  rules.add("Reshape", reshape);
  rules.add("Transpose", transpose);
  rules.add("Squeeze", squeeze);
  rules.add("Unsqueeze", unsqueeze);
  rules.add("Flatten", flatten);
  rules.add("Expand", expand);
  rules.add("Tile", tile);
  rules.add("Concat", concat);
  rules.add("Split", split);
  rules.add("Slice", slice);
  rules.add("Pad", pad);
  rules.add("DepthToSpace", depthToSpace);
  rules.add("SpaceToDepth", spaceToDepth);
}

} // namespace cleave::normalize
