// Values of an image between its elements: grids, regions of interest, deformed convolutions. Along each dimension a
// position has a few taps (an element's index and its weight); every combination of them is a gather.
//
// A tap's index takes no gradient, its weight does: that is the derivative with respect to the position.
#include "compiler/normalize/window.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

Value within(Node &n, Value x, double low, double high) { // no gradient beyond the ends
  x = n.b.where(n.b.binary<onnx::LessOp>(x, n.b.scalar(x, low)), n.b.scalar(x, low), x);
  return n.b.where(n.b.binary<onnx::GreaterOp>(x, n.b.scalar(x, high)), n.b.scalar(x, high), x);
}
Value isOutside(Node &n, Value x, double low, double high) {
  return n.b.binary<onnx::OrOp>(n.b.binary<onnx::LessOp>(x, n.b.scalar(x, low)),
                                n.b.binary<onnx::GreaterOp>(x, n.b.scalar(x, high)));
}
// x mirrored at both ends until it lies between them.
Value reflected(Node &n, Value x, double low, double high) {
  const double length = high - low;
  if (length <= 0) return n.b.mul(x, 0.0);
  Value away = n.b.unary<onnx::AbsOp>(n.b.sub(x, low));
  Value turns = n.b.unary<onnx::FloorOp>(n.b.div(away, length));
  Value rest = n.b.sub(away, n.b.mul(turns, length));
  Value half = n.b.mul(turns, 0.5);
  Value isEven = n.b.binary<onnx::EqualOp>(n.b.unary<onnx::FloorOp>(half), half);
  return n.b.where(isEven, n.b.add(rest, low), n.b.sub(n.b.scalar(x, high), rest));
}

struct Tap {
  Value index;  // [tables, positions], a whole number; of an element that is there once tapAt has made it
  Value weight; // the same; null: 1
};

// The value as positions are computed: 16 bits hold no indices.
Value forPositions(Node &n, Value x) {
  return isFloatTensor(x) && elementOf(x).getIntOrFloatBitWidth() >= 32 ? x : n.b.cast(x, n.b.builder.getF32Type());
}

struct Border {
  std::string mode; // zeros, border, reflection
  bool isCorner;    // whether the outermost elements' middles are the ends
  double low() const { return isCorner ? 0 : -0.5; }
  double high(int64_t size) const { return double(size) - (isCorner ? 1 : 0.5); }
};

// A tap at a whole number, which may lie outside.
Tap tapAt(Node &n, Value at, Value weight, int64_t size, const Border &border) {
  if (border.mode == "zeros")
    weight = n.b.where(isOutside(n, at, 0, double(size - 1)), n.b.scalar(weight, 0), weight);
  else if (border.mode == "reflection")
    at = reflected(n, at, border.low(), border.high(size));
  return {within(n, at, 0, double(size - 1)), weight};
}

SmallVector<Tap> tapsOf(Node &n, Value position, int64_t size, const std::string &mode, const Border &border) {
  if (mode == "nearest") position = n.b.unary<onnx::RoundOp>(position);
  if (border.mode != "zeros") {
    Value inside = border.mode == "border" ? within(n, position, 0, double(size - 1))
                                           : reflected(n, position, border.low(), border.high(size));
    position = n.b.where(isOutside(n, position, border.low(), border.high(size)), inside, position);
  }
  if (mode == "nearest") return {tapAt(n, position, n.b.splat(typeOf(position), 1), size, border)};
  Value first = n.b.unary<onnx::FloorOp>(position), t = n.b.sub(position, first);
  auto at = [&](double offset, Value weight) { return tapAt(n, n.b.add(first, offset), weight, size, border); };
  Value left = n.b.sub(n.b.scalar(t, 1), t);
  if (mode == "linear") return {at(0, left), at(1, t)};
  constexpr double a = -0.75; // Keys's cubic convolution
  auto near = [&](Value x) {  // of an element at distance x <= 1
    return n.b.add(n.b.mul(n.b.mul(n.b.sub(n.b.mul(x, a + 2), a + 3), x), x), 1);
  };
  auto far = [&](Value x) { // 1 <= x <= 2
    Value y = n.b.add(n.b.mul(n.b.sub(n.b.mul(x, a), 5 * a), x), 8 * a);
    return n.b.sub(n.b.mul(y, x), 4 * a);
  };
  return {at(-1, far(n.b.add(t, 1))), at(0, near(t)), at(1, near(left)), at(2, far(n.b.add(left, 1)))};
}

Value sampled(Node &n, Value tables, ArrayRef<int64_t> sizes, ArrayRef<SmallVector<Tap>> taps, bool isMax = false) {
  int64_t combinations = 1;
  for (const SmallVector<Tap> &dim : taps) combinations *= int64_t(dim.size());
  n.writeOut(combinations);
  const bool hasOneTable = shapeOf(tables)[0] == 1;
  if (hasOneTable) tables = n.b.reshape(tables, shapeOf(tables).drop_front());
  Value result;
  for (int64_t c = 0; c < combinations; ++c) {
    Value index, weight;
    for (int64_t d = int64_t(taps.size()) - 1, rest = c, stride = 1; d >= 0; --d) {
      const Tap &tap = taps[size_t(d)][size_t(rest % int64_t(taps[size_t(d)].size()))];
      rest /= int64_t(taps[size_t(d)].size());
      Value at = n.b.mul(n.b.cast(tap.index, n.b.builder.getI64Type()), double(stride));
      index = index ? n.b.add(at, index) : at;
      if (tap.weight) weight = weight ? n.b.mul(tap.weight, weight) : tap.weight;
      stride *= sizes[size_t(d)];
    }
    const int64_t lines = shapeOf(index)[0], positions = shapeOf(index)[1];
    Value values = hasOneTable ? n.b.gather(tables, index, 0) : n.b.gather(tables, index, 1, 1);
    Value part = n.b.mul(values, n.b.reshape(weight, {lines, positions, 1}));
    result = !result ? part : isMax ? n.b.binary<onnx::MaxOp>(result, part) : n.b.add(result, part);
  }
  return result;
}

// [n, c, spatial] as tables [n, elements, c].
Value asTables(Node &n, Value x) {
  Dims shape{shapeOf(x)[0], shapeOf(x)[1], 1};
  for (int64_t size : shapeOf(x).drop_front(2)) shape[2] *= size;
  return n.b.transpose(n.b.reshape(x, shape), {0, 2, 1});
}

Values gridSample(Node &n) {
  Value grid = forPositions(n, n.in(1)), x = n.b.cast(n.in(0), elementOf(grid));
  const int64_t spatial = rankOf(x) - 2;
  if (spatial < 1 || rankOf(grid) != rankOf(x) || shapeOf(grid).back() != spatial ||
      shapeOf(grid).front() != shapeOf(x).front())
    n.fail("needs operands [N, C, spatial] and [N, positions, spatial dimensions]");
  std::string mode = n.text("mode", "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  const Border border{n.text("padding_mode", "zeros"), n.integer("align_corners", 0) != 0};
  const int64_t batch = shapeOf(x)[0], channels = shapeOf(x)[1];
  Dims out(shapeOf(grid).drop_front().drop_back());
  int64_t positions = 1;
  for (int64_t size : out) positions *= size;
  Value flat = n.b.reshape(grid, {batch, positions, spatial});
  SmallVector<SmallVector<Tap>> taps;
  for (int64_t d = 0; d < spatial; ++d) { // the grid's last number is of the first dimension
    const int64_t size = shapeOf(x)[d + 2];
    if (size < 1) n.fail("has no elements to take values from");
    Value from = n.b.reshape(n.b.slice(flat, 2, spatial - 1 - d, 1), {batch, positions});
    Value position = border.isCorner ? n.b.mul(n.b.add(from, 1), double(size - 1) / 2)
                                     : n.b.div(n.b.sub(n.b.mul(n.b.add(from, 1), double(size)), 1), 2);
    taps.push_back(tapsOf(n, position, size, mode, border));
  }
  Value y = sampled(n, asTables(n, x), shapeOf(x).drop_front(2), taps);
  Dims shape{batch, channels};
  llvm::append_range(shape, out);
  return {n.b.cast(n.b.reshape(n.b.transpose(y, {0, 2, 1}), shape), elementOf(n.in(0)))};
}

// theta [n, d, d + 1] times the coordinates (x, y .., 1) of each position.
Values affineGrid(Node &n) {
  Value theta = n.in(0);
  const Dims size = n.constantInts(1);
  const int64_t spatial = int64_t(size.size()) - 2;
  if (spatial < 2 || spatial > 3 || rankOf(theta) != 3) n.fail("needs 4 or 5 sizes [N, C, spatial]");
  n.needsShape(0, {size[0], spatial, spatial + 1});
  const bool isCorner = n.integer("align_corners", 0) != 0;
  Dims out(ArrayRef(size).drop_front(2)), shape(out);
  n.b.checkSize(size);
  Values columns;
  for (int64_t c = 0; c <= spatial; ++c) { // the last dimension's coordinate first, then 1
    Dims column(out);
    column.push_back(1);
    auto type = RankedTensorType::get(out, elementOf(theta));
    if (c == spatial) {
      columns.push_back(n.b.reshape(n.b.splat(type, 1), column));
      continue;
    }
    const int64_t d = spatial - 1 - c, count = out[d];
    if (count < 1) n.fail("its size " + Twine(count) + " is not 1 or more");
    n.needsFew(count);
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(!isCorner   ? double(2 * i + 1) / double(count) - 1
                       : count > 1 ? double(2 * i) / double(count - 1) - 1
                                   : 0);
    Value row = n.b.constant(runtime::HostTensor::ofReals(dtypeOf(elementOf(theta)), {count}, values));
    columns.push_back(n.b.reshape(n.b.create<onnx::BroadcastOp>(row, n.b.builder.getDenseI64ArrayAttr(out),
                                                                n.b.builder.getDenseI64ArrayAttr({d})),
                                  column));
  }
  Value coordinates = n.b.concat(columns, spatial);
  Dims right, result{0};
  for (int64_t d = 0; d < spatial; ++d) {
    right.push_back(3 + d);
    result.push_back(3 + d);
  }
  right.push_back(2);
  result.push_back(1);
  return {n.b.contract(theta, coordinates, {0, 1, 2}, right, result)};
}

// Taps of a region's positions: none further than an element outside, the rest on the outermost elements at most.
SmallVector<Tap> regionTaps(Node &n, Value position, int64_t size) {
  Value gone = isOutside(n, position, -1, double(size));
  Value inside = within(n, position, 0, double(size - 1));
  Value first = n.b.unary<onnx::FloorOp>(inside), t = n.b.sub(inside, first);
  auto weight = [&](Value w) { return n.b.where(gone, n.b.scalar(w, 0), w); };
  Value second = within(n, n.b.add(first, 1), 0, double(size - 1));
  return {Tap{first, weight(n.b.sub(n.b.scalar(t, 1), t))}, Tap{second, weight(t)}};
}

// `count` positions in each of `bins` bins of every region, from `start` [regions] on, `length` in all.
Value regionPositions(Node &n, Value start, Value length, int64_t bins, int64_t count) {
  const int64_t regions = shapeOf(start)[0], all = bins * count;
  n.needsFew(all);
  std::vector<double> parts;
  for (int64_t i = 0; i < all; ++i) parts.push_back((double(i) + 0.5) / double(all));
  Value row = n.b.constant(runtime::HostTensor::ofReals(dtypeOf(elementOf(start)), {1, all}, parts));
  return n.b.add(n.b.reshape(start, {regions, 1}), n.b.mul(n.b.reshape(length, {regions, 1}), row));
}

Values roiAlign(Node &n) {
  Value x = forPositions(n, n.in(0)), rois = forPositions(n, n.in(1)), of = n.in(2);
  const int64_t regions = shapeOf(rois)[0], batch = shapeOf(x)[0], channels = shapeOf(x)[1];
  const int64_t height = shapeOf(x)[2], width = shapeOf(x)[3];
  const int64_t rows = n.integer("output_height", 1), columns = n.integer("output_width", 1);
  const int64_t count = n.integer("sampling_ratio", 0);
  const double scale = n.real("spatial_scale", 1);
  if (count == 0)
    n.fail("takes as many positions as its regions are large, which depends on data: "
           "it needs a sampling_ratio of 1 or more");
  if (height < 1 || width < 1) n.fail("has no elements to take values from");
  const bool isHalf =
      n.text("coordinate_transformation_mode", n.version() < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  auto edge = [&](int64_t which) {
    Value v = n.b.mul(n.b.reshape(n.b.slice(rois, 1, which, 1), {regions}), scale);
    return isHalf ? n.b.sub(v, 0.5) : v;
  };
  auto length = [&](Value from, Value to) {
    Value v = n.b.sub(to, from);
    return isHalf ? v : n.b.where(n.b.binary<onnx::LessOp>(v, n.b.scalar(v, 1)), n.b.scalar(v, 1), v);
  };
  Value left = edge(0), top = edge(1);
  Value y = regionPositions(n, top, length(top, edge(3)), rows, count);
  Value z = regionPositions(n, left, length(left, edge(2)), columns, count);
  // Every pair of a row's and a column's position.
  const int64_t down = rows * count, across = columns * count;
  Dims grid{regions, down, across}, positions{1, regions * down * across};
  n.b.checkSize(grid);
  auto spread = [&](SmallVector<Tap> taps, ArrayRef<int64_t> shape) {
    for (Tap &tap : taps)
      for (Value *part : {&tap.index, &tap.weight})
        *part = n.b.reshape(n.b.broadcastTo(n.b.reshape(*part, shape), grid), positions);
    return taps;
  };
  SmallVector<SmallVector<Tap>> taps{spread(regionTaps(n, y, height), {regions, down, 1}),
                                     spread(regionTaps(n, z, width), {regions, 1, across})};
  Value image = n.b.broadcastTo(n.b.reshape(n.b.cast(of, elementOf(x)), {regions, 1, 1}), grid);
  taps.insert(taps.begin(), SmallVector<Tap>{{n.b.reshape(image, positions), Value()}});
  Value table = n.b.reshape(n.b.transpose(x, {0, 2, 3, 1}), {1, batch * height * width, channels});
  const bool isMax = n.text("mode", "avg") == "max";
  Value values = sampled(n, table, {batch, height, width}, taps, isMax);
  Value bins = n.b.reshape(values, {regions, rows, count, columns, count, channels});
  Value pooled = isMax ? n.b.reduceMax(bins, {2, 4}, false) : n.b.mean(bins, {2, 4}, false);
  return {n.b.cast(n.b.transpose(pooled, {0, 3, 1, 2}), elementOf(n.in(0)))};
}

// The input at every tap of the kernel, moved by its offset and weighed by its mask, then a product with the weight.
Values deformConv(Node &n) {
  Value x = forPositions(n, n.in(0)), w = n.b.cast(n.in(1), elementOf(x)), offset = forPositions(n, n.in(2));
  const int64_t spatial = rankOf(x) - 2;
  if (spatial < 1 || rankOf(w) != rankOf(x)) n.fail("needs operands [N, C, spatial] and [O, C, kernel]");
  const Window window = windowOf(n, shapeOf(x).drop_front(2), shapeOf(w).drop_front(2));
  const int64_t batch = shapeOf(x)[0], channels = shapeOf(x)[1], outputs = shapeOf(w)[0];
  const int64_t groups = n.integer("group", 1), parts = n.integer("offset_group", 1);
  if (channels % groups || outputs % groups || channels % parts || shapeOf(w)[1] != channels / groups)
    n.fail("its channels do not divide into its groups");
  Dims out, grid{batch, parts};
  int64_t taps = 1, positions = 1;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t room =
        shapeOf(x)[d + 2] + window.padsBegin[d] + window.padsEnd[d] - (window.kernel[d] - 1) * window.dilations[d] - 1;
    if (room < 0 || shapeOf(x)[d + 2] < 1) n.fail("its kernel is larger than its padded input");
    out.push_back(room / window.strides[d] + 1);
    positions *= out.back();
    taps *= window.kernel[d];
  }
  Dims wanted{batch, parts * taps * spatial};
  llvm::append_range(wanted, out);
  n.needsShape(2, wanted);
  wanted[1] = parts * taps;
  n.needsShape(4, wanted);
  // [n, part, kernel tap, dimension, position]
  Dims kernelGrid(window.kernel), whole{batch, parts, taps, positions}, flat{batch * parts, taps * positions};
  Value moves = n.b.reshape(offset, {batch, parts, taps, spatial, positions});
  SmallVector<SmallVector<Tap>> all;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t size = shapeOf(x)[d + 2];
    Type type = elementOf(x);
    Value tap = n.b.reshape(n.b.cast(n.b.indexAlong(kernelGrid, d), type), {taps, 1});
    Value place = n.b.reshape(n.b.cast(n.b.indexAlong(out, d), type), {1, positions});
    Value start = n.b.sub(n.b.add(n.b.mul(place, double(window.strides[d])), n.b.mul(tap, double(window.dilations[d]))),
                          double(window.padsBegin[d]));
    Value move = n.b.reshape(n.b.slice(moves, 3, d, 1), whole);
    Value position = n.b.reshape(n.b.add(move, start), flat);
    all.push_back(tapsOf(n, position, size, "linear", {"zeros", true}));
  }
  const int64_t each = channels / parts;
  Dims split{batch * parts, each};
  llvm::append_range(split, shapeOf(x).drop_front(2));
  Value values = sampled(n, asTables(n, n.b.reshape(x, split)), shapeOf(x).drop_front(2), all);
  if (n.has(4)) values = n.b.mul(values, n.b.reshape(forPositions(n, n.in(4)), {batch * parts, taps * positions, 1}));
  // [n, part, tap, position, channel of the part] -> [n, group, channel of the group, tap, position]
  Value columns = n.b.transpose(n.b.reshape(values, {batch, parts, taps, positions, each}), {0, 1, 4, 2, 3});
  columns = n.b.reshape(columns, {batch, groups, channels / groups, taps, positions});
  Value kernel = n.b.reshape(w, {groups, outputs / groups, channels / groups, taps});
  Value y = n.b.contract(columns, kernel, {0, 1, 2, 3, 4}, {1, 5, 2, 3}, {0, 1, 5, 4});
  Dims shape{batch, outputs};
  llvm::append_range(shape, out);
  y = n.b.cast(n.b.reshape(y, shape), elementOf(n.in(0)));
  if (!n.has(3)) return {y};
  n.needsShape(3, {outputs});
  Dims ones(rankOf(y), 1);
  ones[1] = outputs;
  return {n.b.add(y, n.b.reshape(n.in(3), ones))};
}

} // namespace

void addSampling(Rules &rules) {
  rules.add("GridSample", gridSample);
  rules.add("AffineGrid", affineGrid);
  rules.add("RoiAlign", roiAlign);
  rules.add("DeformConv", deformConv);
}

} // namespace cleave::normalize
