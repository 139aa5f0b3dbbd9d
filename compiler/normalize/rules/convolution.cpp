// Convolutions. ConvTranspose is the gradient of a convolution with respect to its input.
#include "compiler/normalize/window.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

// v[C] along dimension 1 of a tensor shaped like x
Value addBias(Node &n, Value x, Value bias) {
  return n.b.add(x, n.b.create<onnx::BroadcastOp>(bias, n.b.builder.getDenseI64ArrayAttr(shapeOf(x)),
                                                  n.b.builder.getDenseI64ArrayAttr({1})));
}

Values convolution(Node &n) {
  Value x = n.in(0), w = n.in(1);
  if (rankOf(x) < 3 || rankOf(w) != rankOf(x)) n.fail("needs operands [N, C, spatial] and [O, C, kernel]");
  Window window = windowOf(n, shapeOf(x).drop_front(2), shapeOf(w).drop_front(2));
  Value y =
      n.b.create<onnx::ConvOp>(x, w, window.attribute(n.b, window.strides), window.attribute(n.b, window.padsBegin),
                               window.attribute(n.b, window.padsEnd), window.attribute(n.b, window.dilations),
                               n.b.builder.getI64IntegerAttr(n.integer("group", 1)));
  return {n.has(2) ? addBias(n, y, n.in(2)) : y};
}

Values transposedConvolution(Node &n) {
  Value x = n.in(0), w = n.in(1); // w: [C, O/groups, kernel], as the weight of the convolution this is the gradient of
  if (rankOf(x) < 3 || rankOf(w) != rankOf(x)) n.fail("needs operands [N, C, spatial] and [C, O, kernel]");
  ArrayRef<int64_t> input = shapeOf(x).drop_front(2), kernel = shapeOf(w).drop_front(2);
  size_t rank = input.size();
  int64_t groups = n.integer("group", 1);
  Dims strides = n.ints("strides", Dims(rank, 1)), dilations = n.ints("dilations", Dims(rank, 1));
  Dims outputPadding = n.ints("output_padding", Dims(rank, 0)), pads = n.ints("pads", Dims(2 * rank, 0));
  auto outputShape = n.ints("output_shape");
  if (outputShape && outputShape->size() != rank && outputShape->size() != rank + 2)
    n.fail("its output_shape does not fit " + Twine(rank) + " spatial dimensions");
  std::string automatic = n.text("auto_pad", "NOTSET");
  Dims begin(rank), end(rank), shape{shapeOf(x)[0], shapeOf(w)[1] * groups};
  for (size_t d = 0; d < rank; ++d) {
    int64_t whole = strides[d] * (input[d] - 1) + outputPadding[d] + (kernel[d] - 1) * dilations[d] + 1;
    bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
    if (outputShape || same) {
      int64_t size = outputShape ? (*outputShape)[outputShape->size() - rank + d] : input[d] * strides[d];
      int64_t total = whole - size, half = total >= 0 ? total / 2 : -((1 - total) / 2); // rounds down
      begin[d] = automatic == "SAME_UPPER" ? half : total - half;
      end[d] = total - begin[d];
    } else if (automatic != "VALID") {
      begin[d] = pads[d];
      end[d] = pads[rank + d];
    }
    shape.push_back(whole - begin[d] - end[d]);
  }
  // Negative pads, and an output padding of a whole stride or more, are zeros around what the taps reach: computed
  // without, then padded.
  Dims low(rank + 2, 0), high(rank + 2, 0), core(shape);
  bool grows = false;
  for (size_t d = 0; d < rank; ++d) {
    low[d + 2] = std::max<int64_t>(-begin[d], 0);
    high[d + 2] = std::max<int64_t>(-end[d], 0);
    grows |= low[d + 2] || high[d + 2];
    core[d + 2] -= low[d + 2] + high[d + 2];
    begin[d] += low[d + 2];
    end[d] += high[d + 2];
    int64_t beyond = core[d + 2] - (strides[d] * input[d] + (kernel[d] - 1) * dilations[d] - begin[d] - end[d]);
    if (beyond <= 0) continue;
    int64_t cropped = std::min(beyond, end[d]); // less is cut off instead
    end[d] -= cropped;
    high[d + 2] += beyond - cropped;
    core[d + 2] -= beyond - cropped;
    grows |= beyond > cropped;
  }
  auto list = [&](ArrayRef<int64_t> values) { return n.b.builder.getDenseI64ArrayAttr(values); };
  Value y = n.b.create<onnx::ConvGradInputOp>(x, w, list(core), list(strides), list(begin), list(end), list(dilations),
                                              n.b.builder.getI64IntegerAttr(groups));
  if (grows) y = n.b.pad(y, low, high, 0);
  return {n.has(2) ? addBias(n, y, n.in(2)) : y};
}

} // namespace

void addConvolutions(Rules &rules) {
  rules.add("Conv", convolution);
  rules.add("ConvTranspose", transposedConvolution);
}

} // namespace cleave::normalize
