// Fourier transforms of known length, as products with a matrix of sines and cosines, and the mel scale.
#include "compiler/normalize/node.h"
#include <cmath>
#include <numbers>

using namespace mlir;
namespace cleave::normalize {
namespace {

struct Transform {
  int64_t length;         // of the signal in full
  bool inverse, oneSided; // oneSided: length / 2 + 1 frequencies are all of a real signal's
  int64_t parts;          // of the operand: 1 (real), 2 (real, imaginary)
  int64_t frequencies() const { return oneSided ? length / 2 + 1 : length; }
  int64_t inputs() const { return inverse ? frequencies() : length; }
  int64_t outputs() const { return inverse ? length : frequencies(); }
  int64_t outputParts() const { return inverse && oneSided ? 1 : 2; }
};

// [inputs, parts, outputs, output parts]: what element i's part p adds to element o's part q.
Value transformMatrix(Node &n, const Transform &t, Type element) {
  const int64_t rows = t.inputs(), columns = t.outputs(), parts = t.outputParts();
  if (t.length < 1) n.fail("has a length of " + Twine(t.length));
  n.needsFew(rows * t.parts);
  n.needsFew(rows * t.parts * columns * parts);
  std::vector<double> matrix;
  matrix.reserve(size_t(rows * t.parts * columns * parts));
  for (int64_t i = 0; i < rows; ++i) {
    // An inverse of one side counts each frequency for its mirror image, too.
    const bool hasImage = t.inverse && t.oneSided && i != 0 && 2 * i != t.length;
    const double scale = t.inverse ? (hasImage ? 2.0 : 1.0) / double(t.length) : 1;
    for (int64_t p = 0; p < t.parts; ++p)
      for (int64_t o = 0; o < columns; ++o) {
        const double angle = 2 * std::numbers::pi * double(i * o % t.length) / double(t.length);
        const double cosine = scale * std::cos(angle), sine = scale * std::sin(t.inverse ? angle : -angle);
        matrix.push_back(p == 0 ? cosine : -sine); // (a + bi)(cosine + sine i)
        if (parts == 2) matrix.push_back(p == 0 ? sine : cosine);
      }
  }
  return n.b.constant(runtime::HostTensor::ofReals(dtypeOf(element), {rows, t.parts, columns, parts}, matrix));
}

// x[.., i along axis, .., p] -> [.., o along axis, .., q]
Value transformed(Node &n, Value x, int64_t axis, const Transform &t) {
  const int64_t rank = rankOf(x), outputs = rank, parts = rank + 1;
  Dims left = countUp(rank), result(left);
  result[axis] = outputs;
  result[rank - 1] = parts;
  return n.b.contract(x, transformMatrix(n, t, elementOf(x)), left, {axis, rank - 1, outputs, parts}, result);
}

// The first `length` along `axis`; zeros follow what there is.
Value ofLength(Node &n, Value x, int64_t axis, int64_t length) {
  const int64_t size = shapeOf(x)[axis];
  if (size >= length) return n.b.slice(x, axis, 0, length);
  Dims low(rankOf(x), 0), high(low);
  high[axis] = length - size;
  return n.b.pad(x, low, high, 0);
}

Values dft(Node &n) {
  Value x = n.in(0);
  const int64_t rank = rankOf(x);
  if (rank < 2 || shapeOf(x)[rank - 1] < 1 || shapeOf(x)[rank - 1] > 2)
    n.fail("needs an operand [.., signal, .., 1 or 2]");
  const int64_t given = n.version() < 20 ? n.integer("axis", 1) : n.has(2) ? n.constantInt(2) : -2;
  const int64_t axis = n.axis(given, rank);
  if (axis == rank - 1) n.fail("its axis must not be the last, which holds real and imaginary parts");
  Transform t{0, n.integer("inverse", 0) != 0, n.integer("onesided", 0) != 0, shapeOf(x)[rank - 1]};
  if (t.oneSided && !t.inverse && t.parts == 2) n.fail("has one side of a real signal's transform only");
  const int64_t size = shapeOf(x)[axis];
  t.length = n.has(1) ? n.constantInt(1) : t.inverse && t.oneSided ? 2 * (size - 1) : size;
  if (t.length < 1 || t.length > demandFoldLimit)
    n.fail("its length is " + Twine(t.length) + ", which is not from 1 to " + Twine(demandFoldLimit));
  return {transformed(n, ofLength(n, x, axis, t.inputs()), axis, t)};
}

Values stft(Node &n) {
  Value signal = n.in(0);
  if (rankOf(signal) == 2) signal = n.b.insertOnes(signal, {2});
  if (rankOf(signal) != 3 || shapeOf(signal)[2] < 1 || shapeOf(signal)[2] > 2)
    n.fail("needs a signal [batch, length, 1 or 2]");
  const int64_t step = n.constantInt(1), length = shapeOf(signal)[1];
  if (!n.has(2) && !n.has(3)) n.fail("needs a window or a frame_length");
  const int64_t frame = n.has(3) ? n.constantInt(3) : shapeOf(n.in(2)).empty() ? 0 : shapeOf(n.in(2))[0];
  if (step < 1 || frame < 1 || frame > length)
    n.fail("takes frames of " + Twine(frame) + " every " + Twine(step) + " from a signal of " + Twine(length));
  const int64_t frames = (length - frame) / step + 1;
  n.needsFew(frames * frame);
  std::vector<int64_t> places;
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t i = 0; i < frame; ++i) places.push_back(f * step + i);
  Value at = n.b.constant(runtime::HostTensor::ofIntegers(plan::I64, {frames, frame}, places));
  Value framed = n.b.gather(signal, at, 1); // [batch, frames, frame, parts]
  if (n.has(2)) {
    n.needsShape(2, {frame});
    framed = n.b.mul(framed, n.b.reshape(n.in(2), {frame, 1}));
  }
  const Transform t{frame, false, n.integer("onesided", 1) != 0, shapeOf(signal)[2]};
  if (t.oneSided && t.parts == 2) n.fail("has one side of a real signal's transform only");
  return {transformed(n, framed, 2, t)};
}

// Triangles that are equally wide on the mel scale, 2595 log10(1 + f / 700), over the bins of a transform.
Values melWeightMatrix(Node &n) {
  const int64_t bands = n.constantInt(0), length = n.constantInt(1), rate = n.constantInt(2);
  const double lowest = n.constantReal(3), highest = n.constantReal(4);
  auto mel = [](double frequency) { return 2595 * std::log10(1 + frequency / 700); };
  const int64_t bins = length / 2 + 1;
  if (bands < 1 || length < 1 || rate < 1 || !(lowest >= 0) || !(highest >= lowest) || !std::isfinite(highest))
    n.fail("needs one band, bin and sample a second or more, and edges that ascend from 0");
  n.needsFew(bands);
  n.needsFew(bins);
  n.needsFew(bands * bins);
  const double low = mel(lowest), step = (mel(highest) - low) / double(bands + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double frequency = 700 * (std::pow(10, (double(i) * step + low) / 2595) - 1);
    edges.push_back(int64_t(std::floor(double(length + 1) * frequency / double(rate))));
  }
  if (edges.back() > bins) n.fail("its upper edge is above half of its sample rate");
  std::vector<double> matrix(size_t(bins * bands), 0.0);
  auto set = [&](int64_t bin, int64_t band, double value) {
    if (bin < bins) matrix[size_t(bin * bands + band)] = value;
  };
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t from = edges[size_t(band)], middle = edges[size_t(band + 1)], to = edges[size_t(band + 2)];
    if (from == middle) set(middle, band, 1);
    for (int64_t bin = from; from < middle && bin <= middle; ++bin)
      set(bin, band, double(bin - from) / double(middle - from));
    for (int64_t bin = middle; bin < to; ++bin) set(bin, band, double(to - bin) / double(to - middle));
  }
  Value result = n.b.constant(runtime::HostTensor::ofReals(plan::F64, {bins, bands}, matrix));
  return {n.b.cast(result, n.elementType(n.integer("output_datatype", 1)))};
}

} // namespace

void addSpectra(Rules &rules) {
  rules.add("DFT", dft);
  rules.add("STFT", stft);
  rules.add("MelWeightMatrix", melWeightMatrix);
}

} // namespace cleave::normalize
