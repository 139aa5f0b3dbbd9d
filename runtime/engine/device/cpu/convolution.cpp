// Convolutions by oneDNN. Activations with their channels last are read and written where they lie; what the plan holds
// as NCHW, and weights, are reordered to and from oneDNN's blocked layouts around it.
// Where the CPU has no products of 16-bit elements they are widened to f32 before (widen.h).
#include "runtime/engine/device/cpu/commands.h"
#include "runtime/engine/device/cpu/widen.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/image_shape.h"
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

struct Operand {
  int argument;
  Desc plain;     // as in the arena
  Desc preferred; // as the primitive wants it
  const plan::Buffer *buffer;
  std::byte *address;
  size_t offset = 0; // of the reordered copy in the scratch
  size_t wide = 0;   // of the copy in f32, where `isWidened`
  bool isWidened = false;
  bool reordered() const { return plain != preferred; }
  // Where the tensor lies in its plain layout.
  void bindPlain(BoundPrimitive &call, int as) const {
    if (isWidened)
      call.bindScratch(as, plain, wide);
    else
      call.bind(as, plain, address);
  }
};

struct Layout {
  size_t bytes = 0;
  size_t take(size_t size) {
    size_t at = bytes;
    bytes = (bytes + size + 4095) & ~size_t(4095);
    return at;
  }
};

void addReorder(PrimitiveSequence &command, const Operand &operand, bool in, Layout &layout, size_t &scratchpadBytes,
                std::vector<std::pair<size_t, Desc>> &scratchpads) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const Desc &from = in ? operand.plain : operand.preferred, &to = in ? operand.preferred : operand.plain;
  dnnl::reorder::primitive_desc desc(cpuEngine(), from, cpuEngine(), to, attributes);
  BoundPrimitive call{dnnl::reorder(desc)};
  if (in) {
    operand.bindPlain(call, DNNL_ARG_FROM);
    call.bindScratch(DNNL_ARG_TO, to, operand.offset);
  } else {
    call.bindScratch(DNNL_ARG_FROM, from, operand.offset);
    operand.bindPlain(call, DNNL_ARG_TO);
  }
  scratchpadBytes = std::max(scratchpadBytes, desc.scratchpad_desc().get_size());
  scratchpads.emplace_back(command.calls.size(), desc.scratchpad_desc());
  command.calls.push_back(std::move(call));
}

// One pass as oneDNN computes it.
struct Pass {
  dnnl::primitive primitive;
  Desc scratchpad;
  Desc input, weight, output; // as the primitive wants them
  std::string implementation = {};
  // Neither missing nor in plain loops.
  bool isFast() const { return primitive && !implementation.starts_with("ref"); }
};

struct Window {
  Dims strides, low, high, dilations;
};

// Null primitive: oneDNN does not have it for these types.
Pass choosePass(plan::Convolution::Pass kind, const Desc &input, const Desc &weight, const Desc &output,
                const Window &w) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  // In a backward pass the gradient of the weights may have another type than the forward pass has them in.
  Desc forwardWeight(weight.get_dims(), input.get_data_type(), dnnl::memory::format_tag::any);
  dnnl::convolution_forward::primitive_desc forward(
      cpuEngine(),
      kind == plan::Convolution::FORWARD ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training,
      algorithm, input, forwardWeight, output, w.strides, w.dilations, w.low, w.high, attributes, true);
  if (!forward) return {};
  switch (kind) {
  case plan::Convolution::GRAD_INPUT: {
    dnnl::convolution_backward_data::primitive_desc desc(cpuEngine(), algorithm, input, weight, output, w.strides,
                                                         w.dilations, w.low, w.high, forward, attributes, true);
    if (!desc) return {};
    return {dnnl::convolution_backward_data(desc),
            desc.scratchpad_desc(),
            desc.diff_src_desc(),
            desc.weights_desc(),
            desc.diff_dst_desc(),
            desc.impl_info_str()};
  }
  case plan::Convolution::GRAD_WEIGHT: {
    dnnl::convolution_backward_weights::primitive_desc desc(cpuEngine(), algorithm, input, weight, output, w.strides,
                                                            w.dilations, w.low, w.high, forward, attributes, true);
    if (!desc) return {};
    return {dnnl::convolution_backward_weights(desc),
            desc.scratchpad_desc(),
            desc.src_desc(),
            desc.diff_weights_desc(),
            desc.diff_dst_desc(),
            desc.impl_info_str()};
  }
  default:
    return {dnnl::convolution_forward(forward),
            forward.scratchpad_desc(),
            forward.src_desc(),
            forward.weights_desc(),
            forward.dst_desc(),
            forward.impl_info_str()};
  }
}

} // namespace

Result<Prepared> prepareConvolution(const plan::Convolution &c, const CpuContext &context) {
  if (c.input().dtype() == plan::F64 && c.weight().dtype() == plan::F64 && c.output().dtype() == plan::F64)
    return convolutionInLoops(c, context);
  for (const plan::Buffer *buffer : {&c.input(), &c.weight(), &c.output()})
    if (dnnlType(buffer->dtype()) == dnnl::memory::data_type::undef)
      return inputError(fmt::format("no convolution of {}", name(buffer->dtype())));
  if (elementCount(c.input().shape()) == 0 || elementCount(c.output().shape()) == 0)
    return inputError("a convolution of an empty tensor");
  const ImageShape inputShape = imageShape(c.input(), c.channels_last()),
                   outputShape = imageShape(c.output(), c.channels_last());
  ImageShape weightShape = imageShape(c.weight(), c.weight_channels_last());
  if (c.groups() > 1) {
    weightShape.sizes[0] /= c.groups();
    weightShape.strides.insert(weightShape.strides.begin(), weightShape.sizes[0] * weightShape.strides[0]);
    weightShape.sizes.insert(weightShape.sizes.begin(), c.groups());
  }
  // Elements are of 16 bits where all operands are, and the CPU multiplies them; else of f32.
  auto isNative = [](const plan::Buffer &buffer) { return multipliesNatively(buffer.dtype()); };
  bool isWidened = !isNative(c.input()) || !isNative(c.weight()) || !isNative(c.output());
  Window window{{c.strides().begin(), c.strides().end()},
                {c.pads_begin().begin(), c.pads_begin().end()},
                {c.pads_end().begin(), c.pads_end().end()},
                {}};
  for (int64_t dilation : c.dilations()) window.dilations.push_back(dilation - 1); // oneDNN counts the holes
  auto typeOf = [&](const plan::Buffer &buffer) { return isWidened ? plan::F32 : buffer.dtype(); };
  auto plain = [&](const ImageShape &shape, const plan::Buffer &buffer) {
    return Desc(shape.sizes, dnnlType(typeOf(buffer)), shape.strides);
  };
  auto any = [&](const ImageShape &shape, const plan::Buffer &buffer) {
    return Desc(shape.sizes, dnnlType(typeOf(buffer)), dnnl::memory::format_tag::any);
  };
  auto chooseOf = [&](bool inPlace) {
    return choosePass(c.pass(), inPlace ? plain(inputShape, c.input()) : any(inputShape, c.input()),
                      any(weightShape, c.weight()),
                      inPlace ? plain(outputShape, c.output()) : any(outputShape, c.output()), window);
  };
  auto choose = [&] {
    Pass pass = chooseOf(c.channels_last());
    if (!c.channels_last() || pass.isFast()) return pass;
    Pass reordered = chooseOf(false); // oneDNN has nothing fast for some groups and types on that order
    return reordered.isFast() || !pass.primitive ? reordered : pass;
  };
  Pass pass = choose();
  if (!pass.primitive && !isWidened) isWidened = true, pass = choose();
  if (!pass.primitive) return inputError("oneDNN has no such convolution");
  Layout layout;
  auto operand = [&](int argument, const ImageShape &shape, const Desc &preferred, const plan::Buffer &buffer) {
    Operand made{argument, plain(shape, buffer), preferred, &buffer, context.at(buffer)};
    made.isWidened = buffer.dtype() != typeOf(buffer);
    if (made.isWidened) made.wide = layout.take(made.plain.get_size());
    return made;
  };
  Operand x = operand(DNNL_ARG_SRC, inputShape, pass.input, c.input());
  Operand w = operand(DNNL_ARG_WEIGHTS, weightShape, pass.weight, c.weight());
  Operand y = operand(DNNL_ARG_DST, outputShape, pass.output, c.output());
  std::vector<Operand> read;
  Operand written;
  switch (c.pass()) {
  case plan::Convolution::GRAD_INPUT:
    x.argument = DNNL_ARG_DIFF_SRC, y.argument = DNNL_ARG_DIFF_DST;
    read = {y, w}, written = x;
    break;
  case plan::Convolution::GRAD_WEIGHT:
    w.argument = DNNL_ARG_DIFF_WEIGHTS, y.argument = DNNL_ARG_DIFF_DST;
    read = {x, y}, written = w;
    break;
  default:
    read = {x, w}, written = y;
  }

  // reorder in, convolve, reorder out: as many of them as the layouts need.
  auto command = std::make_unique<PrimitiveSequence>(context.stream);
  size_t scratchpadBytes = pass.scratchpad.get_size();
  std::vector<std::pair<size_t, Desc>> scratchpads;
  for (Operand &operand : read) {
    if (!operand.reordered()) continue;
    operand.offset = layout.take(operand.preferred.get_size());
    addReorder(*command, operand, true, layout, scratchpadBytes, scratchpads);
  }
  BoundPrimitive call(pass.primitive);
  for (const Operand &operand : read) {
    if (operand.reordered())
      call.bindScratch(operand.argument, operand.preferred, operand.offset);
    else
      operand.bindPlain(call, operand.argument);
  }
  if (written.reordered()) {
    written.offset = layout.take(written.preferred.get_size());
    call.bindScratch(written.argument, written.preferred, written.offset);
  } else
    written.bindPlain(call, written.argument);
  scratchpads.emplace_back(command->calls.size(), pass.scratchpad);
  command->calls.push_back(std::move(call));
  if (written.reordered()) addReorder(*command, written, false, layout, scratchpadBytes, scratchpads);
  size_t at = layout.take(scratchpadBytes);
  for (auto &[index, desc] : scratchpads) command->calls[index].bindScratch(DNNL_ARG_SCRATCHPAD, desc, at);
  context.scratch->need(layout.bytes);

  auto whole = std::make_unique<ScratchSequence>();
  auto convert = [&](Conversion::Direction direction, const Operand &operand) {
    if (operand.isWidened)
      whole->parts.push_back(std::make_unique<Conversion>(operand.buffer->dtype(), direction, operand.address,
                                                          operand.wide,
                                                          std::vector<int64_t>{elementCount(operand.buffer->shape())},
                                                          std::vector<int64_t>{1}, std::vector<int64_t>{1}));
  };
  for (const Operand &operand : read) convert(Conversion::Widen, operand);
  whole->parts.push_back(std::move(command));
  convert(Conversion::Narrow, written);
  return Prepared(std::move(whole));
}

} // namespace cleave::runtime
