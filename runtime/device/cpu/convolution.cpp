// Convolutions by oneDNN in its blocked layouts; operands that the plan holds as NCHW / OIHW are reordered around it.
#include "runtime/device/cpu/commands.h"
#include "runtime/plan/dtype.h"
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

struct Operand {
  int argument;
  Desc plain;     // dense, as in the arena
  Desc preferred; // as the primitive wants it
  std::byte *address;
  size_t offset = 0; // of the reordered copy in the scratch
  bool reordered() const { return plain != preferred; }
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
    call.bind(DNNL_ARG_FROM, from, operand.address);
    call.bindScratch(DNNL_ARG_TO, to, operand.offset);
  } else {
    call.bindScratch(DNNL_ARG_FROM, from, operand.offset);
    call.bind(DNNL_ARG_TO, to, operand.address);
  }
  scratchpadBytes = std::max(scratchpadBytes, desc.scratchpad_desc().get_size());
  scratchpads.emplace_back(command.calls.size(), desc.scratchpad_desc());
  command.calls.push_back(std::move(call));
}

} // namespace

Result<Prepared> prepareConvolution(const plan::Convolution &c, const CpuContext &context) {
  auto type = dnnlType(c.input().dtype());
  if (type == dnnl::memory::data_type::undef || c.weight().dtype() != c.input().dtype() ||
      c.output().dtype() != c.input().dtype())
    return inputError(fmt::format("no convolution of {}", name(c.input().dtype())));
  if (elementCount(c.input().shape()) == 0 || elementCount(c.output().shape()) == 0)
    return inputError("a convolution of an empty tensor");
  auto dense = [&](const Dims &dims) {
    Dims strides = dims;
    int64_t step = 1;
    for (size_t d = dims.size(); d-- > 0;) strides[d] = step, step *= dims[d];
    return Desc(dims, type, strides);
  };
  auto any = [&](const Desc &desc) { return Desc(desc.get_dims(), type, dnnl::memory::format_tag::any); };
  Dims weightDims(c.weight().shape().begin(), c.weight().shape().end());
  if (c.groups() > 1) {
    weightDims[0] /= c.groups();
    weightDims.insert(weightDims.begin(), c.groups());
  }
  Desc input = dense({c.input().shape().begin(), c.input().shape().end()}), weight = dense(weightDims);
  Desc output = dense({c.output().shape().begin(), c.output().shape().end()});
  Dims strides(c.strides().begin(), c.strides().end()), low(c.pads_begin().begin(), c.pads_begin().end());
  Dims high(c.pads_end().begin(), c.pads_end().end()), dilations;
  for (int64_t dilation : c.dilations()) dilations.push_back(dilation - 1); // oneDNN counts the holes

  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  dnnl::convolution_forward::primitive_desc forward(
      cpuEngine(),
      c.pass() == plan::Convolution::FORWARD ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training,
      algorithm, any(input), any(weight), any(output), strides, dilations, low, high, attributes);
  std::byte *inputAt = context.at(c.input()), *weightAt = context.at(c.weight()), *outputAt = context.at(c.output());
  std::vector<Operand> read;
  Operand written;
  dnnl::primitive primitive;
  Desc scratchpad;
  switch (c.pass()) {
  case plan::Convolution::GRAD_INPUT: {
    dnnl::convolution_backward_data::primitive_desc desc(cpuEngine(), algorithm, any(input), any(weight), any(output),
                                                         strides, dilations, low, high, forward, attributes);
    read = {{DNNL_ARG_DIFF_DST, output, desc.diff_dst_desc(), outputAt},
            {DNNL_ARG_WEIGHTS, weight, desc.weights_desc(), weightAt}};
    written = {DNNL_ARG_DIFF_SRC, input, desc.diff_src_desc(), inputAt};
    primitive = dnnl::convolution_backward_data(desc);
    scratchpad = desc.scratchpad_desc();
    break;
  }
  case plan::Convolution::GRAD_WEIGHT: {
    dnnl::convolution_backward_weights::primitive_desc desc(cpuEngine(), algorithm, any(input), any(weight),
                                                            any(output), strides, dilations, low, high, forward,
                                                            attributes);
    read = {{DNNL_ARG_SRC, input, desc.src_desc(), inputAt},
            {DNNL_ARG_DIFF_DST, output, desc.diff_dst_desc(), outputAt}};
    written = {DNNL_ARG_DIFF_WEIGHTS, weight, desc.diff_weights_desc(), weightAt};
    primitive = dnnl::convolution_backward_weights(desc);
    scratchpad = desc.scratchpad_desc();
    break;
  }
  default:
    read = {{DNNL_ARG_SRC, input, forward.src_desc(), inputAt},
            {DNNL_ARG_WEIGHTS, weight, forward.weights_desc(), weightAt}};
    written = {DNNL_ARG_DST, output, forward.dst_desc(), outputAt};
    primitive = dnnl::convolution_forward(forward);
    scratchpad = forward.scratchpad_desc();
  }

  // reorder in, convolve, reorder out: as many of them as the layouts need.
  auto command = std::make_unique<PrimitiveSequence>(context.stream);
  Layout layout;
  size_t scratchpadBytes = scratchpad.get_size();
  std::vector<std::pair<size_t, Desc>> scratchpads;
  for (Operand &operand : read) {
    if (!operand.reordered()) continue;
    operand.offset = layout.take(operand.preferred.get_size());
    addReorder(*command, operand, true, layout, scratchpadBytes, scratchpads);
  }
  BoundPrimitive call(primitive);
  for (const Operand &operand : read) {
    if (operand.reordered())
      call.bindScratch(operand.argument, operand.preferred, operand.offset);
    else
      call.bind(operand.argument, operand.plain, operand.address);
  }
  if (written.reordered()) {
    written.offset = layout.take(written.preferred.get_size());
    call.bindScratch(written.argument, written.preferred, written.offset);
  } else
    call.bind(written.argument, written.plain, written.address);
  scratchpads.emplace_back(command->calls.size(), scratchpad);
  command->calls.push_back(std::move(call));
  if (written.reordered()) addReorder(*command, written, false, layout, scratchpadBytes, scratchpads);
  size_t at = layout.take(scratchpadBytes);
  for (auto &[index, desc] : scratchpads) command->calls[index].bindScratch(DNNL_ARG_SCRATCHPAD, desc, at);
  context.scratch->need(layout.bytes);
  return Prepared(std::move(command));
}

} // namespace cleave::runtime
