// Resize and Upsample: along each axis a known linear map. Nearest picks elements, the others are a product with the
// matrix of interpolation weights.
#include "compiler/normalize/node.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
namespace cleave::normalize {
namespace {

struct Axis {
  int64_t from, to;
  double scale;
  double start = 0, end = 1; // of tf_crop_and_resize's region, as parts of the whole
};

// Where output element `i` lies in the input, in elements.
double source(Node &n, const std::string &mode, const Axis &axis, int64_t i) {
  double x = double(i);
  if (mode == "half_pixel") return (x + 0.5) / axis.scale - 0.5;
  if (mode == "half_pixel_symmetric") {
    double adjustment = double(axis.to) / (axis.scale * double(axis.from)), centre = double(axis.from) / 2;
    return centre * (1 - adjustment) + (x + 0.5) / axis.scale - 0.5;
  }
  if (mode == "pytorch_half_pixel") return axis.to > 1 ? (x + 0.5) / axis.scale - 0.5 : 0;
  if (mode == "align_corners") { // the resized length need not be whole
    double length = axis.scale * double(axis.from);
    return axis.to > 1 && length != 1 ? x * double(axis.from - 1) / (length - 1) : 0;
  }
  if (mode == "asymmetric") return x / axis.scale;
  if (mode == "tf_half_pixel_for_nn") return (x + 0.5) / axis.scale;
  if (mode == "tf_crop_and_resize") {
    const double last = double(axis.from - 1);
    return axis.to > 1 ? axis.start * last + x * (axis.end - axis.start) * last / double(axis.to - 1)
                       : (axis.start + axis.end) * last / 2;
  }
  n.fail("coordinate_transformation_mode '" + mode + "' is not supported");
}

int64_t nearest(Node &n, const std::string &mode, double x) {
  if (mode == "round_prefer_floor") return int64_t(std::ceil(x - 0.5));
  if (mode == "round_prefer_ceil") return int64_t(std::floor(x + 0.5));
  if (mode == "floor") return int64_t(std::floor(x));
  if (mode == "ceil") return int64_t(std::ceil(x));
  n.fail("nearest_mode '" + mode + "' is not supported");
}

// Weight of a neighbour at distance x.
double kernelWeight(const std::string &mode, double x, double a) {
  x = std::fabs(x);
  if (mode == "linear") return std::max(0.0, 1 - x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// [to, from] interpolation weights
std::vector<double> weights(Node &n, const std::string &mode, const std::string &coordinates, const Axis &axis) {
  n.needsFew(axis.to * axis.from);
  std::vector<double> matrix(axis.to * axis.from, 0.0);
  double a = n.real("cubic_coeff_a", -0.75);
  double stretch = n.integer("antialias", 0) ? std::max(1.0, 1 / axis.scale) : 1;
  double reach = (mode == "linear" ? 1 : 2) * stretch;
  bool exclude = n.integer("exclude_outside", 0);
  for (int64_t i = 0; i < axis.to; ++i) {
    double x = source(n, coordinates, axis, i), total = 0;
    std::vector<double> row(axis.from, 0.0);
    for (int64_t j = int64_t(std::floor(x - reach)); j <= int64_t(std::ceil(x + reach)); ++j) {
      double weight = kernelWeight(mode, (x - double(j)) / stretch, a);
      if (exclude && (j < 0 || j >= axis.from)) continue;
      row[std::clamp<int64_t>(j, 0, axis.from - 1)] += weight;
      total += weight;
    }
    for (int64_t j = 0; j < axis.from; ++j) matrix[i * axis.from + j] = total != 0 ? row[j] / total : 0;
  }
  return matrix;
}

Value along(Node &n, Value x, int64_t d, const Axis &axis, const std::string &mode, const std::string &coordinates) {
  if (mode == "nearest") {
    Dims indices;
    std::string rounding =
        n.text("nearest_mode", n.type() == "Upsample" || n.version() < 11 ? "floor" : "round_prefer_floor");
    for (int64_t i = 0; i < axis.to; ++i)
      indices.push_back(std::clamp<int64_t>(nearest(n, rounding, source(n, coordinates, axis, i)), 0, axis.from - 1));
    if (axis.to % axis.from == 0) { // each element repeated: no gather needed
      int64_t factor = axis.to / axis.from;
      bool repeats = true;
      for (int64_t i = 0; i < axis.to; ++i) repeats &= indices[i] == i / factor;
      if (repeats) {
        Dims wide(shapeOf(x)), dims = countUp(rankOf(x)), shape(shapeOf(x));
        wide.insert(wide.begin() + d + 1, factor);
        for (int64_t &dim : dims) dim += dim > d;
        shape[d] = axis.to;
        Value repeated = n.b.create<onnx::BroadcastOp>(x, n.b.builder.getDenseI64ArrayAttr(wide),
                                                       n.b.builder.getDenseI64ArrayAttr(dims));
        return n.b.reshape(repeated, shape);
      }
    }
    return n.b.pick(x, d, indices);
  }
  std::string kernel = mode == "cubic" ? "cubic" : "linear";
  Value matrix = n.b.constant(
      runtime::HostTensor::ofReals(dtypeOf(elementOf(x)), {axis.to, axis.from}, weights(n, kernel, coordinates, axis)));
  Dims left = countUp(rankOf(x)), result(left);
  result[d] = rankOf(x);
  return n.b.contract(x, matrix, left, {rankOf(x), d}, result);
}

// Elements outside of the input along d take extrapolation_value.
Value outsideFilled(Node &n, Value x, int64_t d, const Axis &axis) {
  std::vector<double> inside;
  for (int64_t i = 0; i < axis.to; ++i) {
    const double at = source(n, "tf_crop_and_resize", axis, i);
    inside.push_back(at >= 0 && at <= double(axis.from - 1));
  }
  if (llvm::all_of(inside, [](double v) { return v != 0; })) return x;
  Dims shape(rankOf(x), 1);
  shape[d] = axis.to;
  Value mask = n.b.constant(runtime::HostTensor::ofReals(plan::BOOL, {axis.to}, inside));
  return n.b.where(n.b.reshape(mask, shape), x, n.b.scalar(x, n.real("extrapolation_value", 0)));
}

// A resized dimension, which may not be empty or larger than indices can be listed for.
Axis resized(Node &n, int64_t from, double to, double scale) {
  if (from < 1 || !(to >= 1 && to <= double(demandFoldLimit)))
    n.fail("makes " + llvm::formatv("{0}", to).str() + " of " + Twine(from) +
           " elements; it needs one or more, and makes at most " + Twine(demandFoldLimit));
  return {from, int64_t(to), scale};
}

// Inputs: Upsample 9 and Resize 10: x, scales. Resize 11 on: x, roi, scales, sizes. Upsample 7 has scales as attribute.
Values resize(Node &n) {
  Value x = n.in(0);
  int64_t rank = rankOf(x);
  bool isOld = n.type() == "Upsample" || n.version() < 11;
  std::string mode = n.text("mode", "nearest"), coordinates = n.text("coordinate_transformation_mode", "half_pixel");
  if (isOld) coordinates = "asymmetric";
  if (mode == "bilinear" || mode == "trilinear") mode = "linear";
  size_t scalesAt = isOld ? 1 : 2;
  auto some = [&](size_t i) { return n.has(i) && typeOf(n.in(i)).getNumElements() > 0; };
  Dims axes = n.axes(n.ints("axes", countUp(rank)), rank);
  if (auto given = n.ints("axes")) { // in the order given
    axes.clear();
    for (int64_t a : *given) axes.push_back(n.axis(a, rank));
  }
  SmallVector<Axis> plan;
  std::vector<double> scales;
  if (auto given = dyn_cast_or_null<DenseF32ArrayAttr>(n.attribute("scales")))
    scales.assign(given.asArrayRef().begin(), given.asArrayRef().end());
  else if (some(scalesAt))
    scales = n.constantTensor(scalesAt).reals();
  if (!scales.empty()) {
    if (scales.size() != axes.size()) n.fail("needs a scale for each axis");
    for (auto [i, d] : llvm::enumerate(axes)) { // in float, as ONNX infers shapes: 3 * 2.3333333f is 7
      int64_t from = shapeOf(x)[d];
      plan.push_back(resized(n, from, std::floor(float(from) * float(scales[i])), scales[i]));
    }
  } else if (some(3)) {
    Dims sizes = n.constantInts(3);
    if (sizes.size() != axes.size()) n.fail("needs a size for each axis");
    std::string policy = n.text("keep_aspect_ratio_policy", "stretch");
    double common = policy == "not_larger" ? INFINITY : 0;
    for (auto [i, d] : llvm::enumerate(axes)) {
      double scale = double(sizes[i]) / double(shapeOf(x)[d]);
      common = policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
    }
    for (auto [i, d] : llvm::enumerate(axes)) {
      int64_t from = shapeOf(x)[d];
      if (policy == "stretch")
        plan.push_back(resized(n, from, double(sizes[i]), double(sizes[i]) / double(from)));
      else
        plan.push_back(resized(n, from, std::floor(common * double(from) + 0.5), common));
    }
  } else {
    n.fail("needs scales or sizes");
  }
  Type element = elementOf(x);
  if (mode != "nearest" && !isFloatTensor(x)) x = n.b.cast(x, n.b.builder.getF32Type());
  const bool isCrop = coordinates == "tf_crop_and_resize";
  if (isCrop) {
    const std::vector<double> region = n.constantTensor(1).reals();
    if (region.size() != 2 * axes.size()) n.fail("needs a start and an end of its roi for each axis");
    for (size_t i = 0; i < plan.size(); ++i) {
      plan[i].start = region[i];
      plan[i].end = region[i + plan.size()];
    }
  }
  for (auto [axis, d] : llvm::zip(plan, axes))
    if (isCrop || axis.to != axis.from || axis.scale != 1) x = along(n, x, d, axis, mode, coordinates);
  if (isCrop)
    for (auto [axis, d] : llvm::zip(plan, axes)) x = outsideFilled(n, x, d, axis);
  return {n.b.cast(x, element)};
}

} // namespace

void addResizing(Rules &rules) {
  rules.add("Resize", resize);
  rules.add("Upsample", resize);
}

} // namespace cleave::normalize
