// Convolutions of float64, which oneDNN does not have, in plain loops. All passes visit the same products of elements
// (input, weight, output) and differ in which of the three is added to. A share is what one sum of planes is written
// to: of the output a (sample, channel), of the input's gradient too, of the weight's gradient a (channel, channel).
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/commands.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/image_shape.h"
#include <array>

namespace cleave::runtime {
namespace {

using Three = std::array<int64_t, 3>;

// A tensor of two leading dimensions and one to three spatial ones, padded in front to three.
struct Planes {
  double *data;
  Three size{1, 1, 1}, stride{0, 0, 0};
  int64_t first, second; // strides of the leading dimensions

  Planes(const plan::Buffer &buffer, bool isChannelsLast, const CpuContext &context)
      : data(reinterpret_cast<double *>(context.at(buffer))) {
    const ImageShape shape = imageShape(buffer, isChannelsLast);
    first = shape.strides[0], second = shape.strides[1];
    const size_t spatial = shape.sizes.size() - 2;
    for (size_t d = 0; d < spatial; ++d) {
      size[3 - spatial + d] = shape.sizes[2 + d];
      stride[3 - spatial + d] = shape.strides[2 + d];
    }
  }
  double *plane(int64_t a, int64_t b) const { return data + a * first + b * second; }
  void clear(double *plane) const {
    for (int64_t z = 0; z < size[0]; ++z)
      for (int64_t y = 0; y < size[1]; ++y)
        for (int64_t x = 0; x < size[2]; ++x) plane[z * stride[0] + y * stride[1] + x * stride[2]] = 0;
  }
};

struct Products {
  Planes input, weight, output;
  Three step{1, 1, 1}, low{0, 0, 0}, dilation{1, 1, 1};
  int64_t samples, groups, inputs, outputs; // channels of a group

  Products(const plan::Convolution &c, const CpuContext &context)
      : input(c.input(), c.channels_last(), context), weight(c.weight(), c.weight_channels_last(), context),
        output(c.output(), c.channels_last(), context), samples(c.input().shape(0)), groups(c.groups()) {
    const int spatial = c.strides_size();
    for (int d = 0; d < spatial; ++d) {
      const size_t to = size_t(3 - spatial + d);
      step[to] = c.strides(d), low[to] = c.pads_begin(d), dilation[to] = c.dilations(d);
    }
    inputs = imageShape(c.input(), c.channels_last()).sizes[1] / groups;
    outputs = imageShape(c.output(), c.channels_last()).sizes[1] / groups;
  }

  // Calls add(input element, weight element, output element) for every product of three planes.
  template <typename Add> void visit(double *in, double *kernel, double *out, Add &&add) const {
    for (int64_t a = 0; a < weight.size[0]; ++a)
      for (int64_t b = 0; b < weight.size[1]; ++b)
        for (int64_t c = 0; c < weight.size[2]; ++c)
          visitTap({a, b, c}, in, kernel[a * weight.stride[0] + b * weight.stride[1] + c * weight.stride[2]], out, add);
  }
  template <typename Add> void visitTap(Three tap, double *in, double &factor, double *out, Add &&add) const {
    auto source = [&](size_t d, int64_t at) { return at * step[d] - low[d] + tap[d] * dilation[d]; };
    for (int64_t z = 0; z < output.size[0]; ++z) {
      const int64_t inZ = source(0, z);
      if (inZ < 0 || inZ >= input.size[0]) continue;
      for (int64_t y = 0; y < output.size[1]; ++y) {
        const int64_t inY = source(1, y);
        if (inY < 0 || inY >= input.size[1]) continue;
        double *row = in + inZ * input.stride[0] + inY * input.stride[1];
        double *to = out + z * output.stride[0] + y * output.stride[1];
        for (int64_t x = 0; x < output.size[2]; ++x)
          if (const int64_t inX = source(2, x); inX >= 0 && inX < input.size[2])
            add(row[inX * input.stride[2]], factor, to[x * output.stride[2]]);
      }
    }
  }

  void forward(int64_t sample, int64_t channel) const {
    double *out = output.plane(sample, channel);
    output.clear(out);
    for (int64_t i = 0; i < inputs; ++i)
      visit(input.plane(sample, channel / outputs * inputs + i), weight.plane(channel, i), out,
            [](double x, double w, double &y) { y += x * w; });
  }
  void inputGradient(int64_t sample, int64_t channel) const {
    double *in = input.plane(sample, channel);
    input.clear(in);
    for (int64_t o = channel / inputs * outputs, end = o + outputs; o < end; ++o)
      visit(in, weight.plane(o, channel % inputs), output.plane(sample, o),
            [](double &x, double w, double y) { x += y * w; });
  }
  void weightGradient(int64_t channel, int64_t i) const {
    double *kernel = weight.plane(channel, i);
    weight.clear(kernel);
    for (int64_t n = 0; n < samples; ++n)
      visit(input.plane(n, channel / outputs * inputs + i), kernel, output.plane(n, channel),
            [](double x, double &w, double y) { w += x * y; });
  }
};

} // namespace

Prepared convolutionInLoops(const plan::Convolution &command, const CpuContext &context) {
  return prepared([products = Products(command, context), pass = command.pass()] {
    auto forEach = [](int64_t count, int64_t each, auto &&body) {
      parallelFor(count * each, 1, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) body(at / each, at % each);
      });
    };
    const Products &p = products;
    if (pass == plan::Convolution::FORWARD)
      forEach(p.samples, p.groups * p.outputs, [&](int64_t n, int64_t channel) { p.forward(n, channel); });
    else if (pass == plan::Convolution::GRAD_INPUT)
      forEach(p.samples, p.groups * p.inputs, [&](int64_t n, int64_t channel) { p.inputGradient(n, channel); });
    else
      forEach(p.groups * p.outputs, p.inputs, [&](int64_t channel, int64_t i) { p.weightGradient(channel, i); });
    return Status::ok();
  });
}

} // namespace cleave::runtime
