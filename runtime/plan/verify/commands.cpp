// Each command by itself: do its numbers fit its buffers, on every device of the mesh.
#include "runtime/plan/attention_form.h"
#include "runtime/plan/collective_parts.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/image_shape.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// Elements that sizes and strides reach from an offset in [low, high] must lie in the buffer.
template <typename Sizes, typename Strides>
Status reaches(const char *role, const plan::Buffer &buffer, const Sizes &sizes, const Strides &strides,
               std::pair<int64_t, int64_t> offset = {0, 0}) {
  __int128 least = offset.first, most = offset.second;
  auto stride = strides.begin();
  for (int64_t size : sizes) {
    if (size < 0) return inputError(fmt::format("{}: a negative size", role));
    if (size == 0) return Status::ok();
    __int128 reach = static_cast<__int128>(*stride++) * (size - 1);
    (reach < 0 ? least : most) += reach;
  }
  int64_t count = elementCount(buffer.shape());
  if (least < 0 || most >= count)
    return inputError(fmt::format("{} reaches elements {} to {} of {}, which has {}", role, static_cast<int64_t>(least),
                                  static_cast<int64_t>(most), describe(buffer), count));
  return Status::ok();
}

Status verifyContract(const plan::Contract &c) {
  int batch = c.batch_size();
  if (c.lhs_strides_size() != batch + 2 || c.rhs_strides_size() != batch + 2 || c.out_strides_size() != batch + 2)
    return inputError(fmt::format("{} batch dimensions need {} strides an operand", batch, batch + 2));
  std::vector<int64_t> sizes(c.batch().begin(), c.batch().end());
  auto with = [&](int64_t a, int64_t b) {
    std::vector<int64_t> all = sizes;
    all.insert(all.end(), {a, b});
    return all;
  };
  CLEAVE_RETURN_IF_ERROR(reaches("lhs", c.lhs(), with(c.m(), c.k()), c.lhs_strides()));
  CLEAVE_RETURN_IF_ERROR(reaches("rhs", c.rhs(), with(c.k(), c.n()), c.rhs_strides()));
  CLEAVE_RETURN_IF_ERROR(reaches("out", c.out(), with(c.m(), c.n()), c.out_strides()));
  std::vector<int64_t> all = with(c.m(), c.n());
  const int64_t results = elementCount(all);
  if (results < 0 || results > elementCount(c.out().shape()))
    return inputError(fmt::format("out: {} has fewer elements than there are results", describe(c.out())));
  if (results > 0 && c.k() > std::max(elementCount(c.lhs().shape()), elementCount(c.rhs().shape())))
    return inputError(fmt::format("k = {}, and neither operand has so many elements", c.k()));
  for (size_t d = 0; d < all.size(); ++d)
    if (all[d] > 1 && c.out_strides(static_cast<int>(d)) == 0)
      return inputError("out: several results in one element (stride 0)");
  if (c.has_bias() && elementCount(c.bias().shape()) != c.n())
    return inputError(fmt::format("bias {} for n = {}", describe(c.bias()), c.n()));
  if (c.has_pre_activation())
    CLEAVE_RETURN_IF_ERROR(reaches("pre_activation", c.pre_activation(), with(c.m(), c.n()), c.out_strides()));
  if (c.has_pre_activation() ? c.activation() == plan::Contract::NONE : c.activation() == plan::Contract::GELU_GRADIENT)
    return inputError("a pre-activation belongs to an activation, and GELU's gradient needs it");
  if (c.has_lhs_sum() && elementCount(c.lhs_sum().shape()) != c.m())
    return inputError(fmt::format("lhs_sum {} for m = {}", describe(c.lhs_sum()), c.m()));
  if (c.has_rhs_sum() && elementCount(c.rhs_sum().shape()) != c.n())
    return inputError(fmt::format("rhs_sum {} for n = {}", describe(c.rhs_sum()), c.n()));
  if (c.has_pre_activation() && c.pre_activation().dtype() != c.out().dtype())
    return inputError("pre_activation: its elements are not those of out");
  if ((c.has_lhs_sum() || c.has_rhs_sum()) && batch > 0)
    return inputError("sums of an operand of a product with batch dimensions");
  const bool isFp8 = isFp8BitFloat(c.lhs().dtype()) || isFp8BitFloat(c.rhs().dtype());
  const bool isWide = c.out().dtype() == plan::F32 || c.out().dtype() == plan::BF16;
  if (isFp8BitFloat(c.out().dtype()) ||
      (isFp8 && !(isFp8BitFloat(c.lhs().dtype()) && isFp8BitFloat(c.rhs().dtype()) && isWide)))
    return inputError(fmt::format("floats of 8 bits multiply each other, into bf16 or f32: {} and {} into {}",
                                  describe(c.lhs()), describe(c.rhs()), describe(c.out())));
  return Status::ok();
}

constexpr int64_t mostWindowReads = int64_t(1) << 38; // of a pooling: minutes

// Output size of one dimension of a window operation; -1 when it does not fit.
int64_t windowOutput(int64_t in, int64_t kernel, int64_t stride, int64_t low, int64_t high, int64_t dilation) {
  int64_t span = (kernel - 1) * dilation + 1, room = in + low + high - span;
  return room < 0 ? -1 : room / stride + 1;
}
bool withinWindowLimits(const google::protobuf::RepeatedField<int64_t> &values, int64_t least) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= least && v <= (int64_t(1) << 30); });
}

Status verifyGroupedContract(const plan::GroupedContract &c, const dist::Mesh &mesh) {
  if (c.group_of_row().dtype() != plan::I64 && c.group_of_row().dtype() != plan::I32)
    return inputError("groups must be i32 or i64");
  if (c.lhs().dtype() != c.rhs().dtype() || (c.out().dtype() != c.lhs().dtype() && c.out().dtype() != plan::F32))
    return inputError(fmt::format("no grouped product of {} and {} into {}", describe(c.lhs()), describe(c.rhs()),
                                  describe(c.out())));
  if (c.lhs_strides_size() != c.rows_size() || c.rhs_strides_size() != (c.sums_rows() ? c.rows_size() : 0) ||
      c.rows_size() > 16)
    return inputError("one stride a row dimension is needed, and at most 16 dimensions");
  if (c.sums_rows() && c.transposed()) return inputError("a sum over rows has no matrices to transpose");
  const int64_t rows = elementCount(c.rows()), matrices = elementCount(std::array{c.groups(), c.k(), c.n()});
  if (rows < 0 || rows != elementCount(c.group_of_row().shape()))
    return inputError(fmt::format("{} for {} rows", describe(c.group_of_row()), rows));
  auto reachesRows = [&](const char *role, const plan::Buffer &buffer, int64_t width, const auto &strides) {
    std::vector<int64_t> sizes(c.rows().begin(), c.rows().end()), steps(strides.begin(), strides.end());
    sizes.push_back(width), steps.push_back(1);
    return reaches(role, buffer, sizes, steps);
  };
  CLEAVE_RETURN_IF_ERROR(reachesRows("lhs", c.lhs(), c.k(), c.lhs_strides()));
  if (c.sums_rows()) CLEAVE_RETURN_IF_ERROR(reachesRows("rhs", c.rhs(), c.n(), c.rhs_strides()));
  const plan::Buffer &whole = c.sums_rows() ? c.out() : c.rhs();
  if (matrices < 0 || matrices != elementCount(whole.shape()))
    return inputError(fmt::format("{} is not [{}, {}, {}]", describe(whole), c.groups(), c.k(), c.n()));
  if (!c.sums_rows() && elementCount(std::array{rows, c.n()}) != elementCount(c.out().shape()))
    return inputError(fmt::format("{} is not [{}, {}]", describe(c.out()), rows, c.n()));
  CLEAVE_ASSIGN_OR_RETURN(auto start, rangeOf(c.start(), mesh));
  // The last groups may be padding, of shards of one size.
  const bool hasPadding = start.second > c.global_groups() - c.groups();
  if (start.first < 0 || start.second > c.global_groups() || (hasPadding && start.second % c.groups() != 0))
    return inputError(
        fmt::format("groups from {} to {} of {}", start.first, start.second + c.groups(), c.global_groups()));
  return Status::ok();
}

Status verifyConvolution(const plan::Convolution &c) {
  const std::vector<int64_t> x = imageShape(c.input(), c.channels_last()).sizes,
                             w = imageShape(c.weight(), c.weight_channels_last()).sizes,
                             y = imageShape(c.output(), c.channels_last()).sizes;
  int spatial = static_cast<int>(x.size()) - 2;
  if (spatial < 1 || spatial > 3 || w.size() != x.size() || y.size() != x.size())
    return inputError("ranks that are no convolution");
  if (c.strides_size() != spatial || c.pads_begin_size() != spatial || c.pads_end_size() != spatial ||
      c.dilations_size() != spatial)
    return inputError("strides, pads and dilations must have one number a spatial dimension");
  if (!withinWindowLimits(c.strides(), 1) || !withinWindowLimits(c.dilations(), 1) ||
      !withinWindowLimits(c.pads_begin(), 0) || !withinWindowLimits(c.pads_end(), 0))
    return inputError("a stride or dilation below 1, or a negative pad");
  int64_t groups = c.groups();
  if (groups < 1 || x[1] != w[1] * groups || y[1] != w[0] || w[0] % groups || x[0] != y[0])
    return inputError(fmt::format("channels and groups do not fit: input {}, weight {}, output {}, groups {}",
                                  describe(c.input()), describe(c.weight()), describe(c.output()), groups));
  for (int d = 0; d < spatial; ++d)
    if (windowOutput(x[2 + d], w[2 + d], c.strides(d), c.pads_begin(d), c.pads_end(d), c.dilations(d)) != y[2 + d])
      return inputError(fmt::format("spatial dimension {}: input {}, weight {} do not give output {}", d, x[2 + d],
                                    w[2 + d], y[2 + d]));
  return Status::ok();
}

Status verifyPool(const plan::Pool &c) {
  const std::vector<int64_t> x = imageShape(c.input(), c.channels_last()).sizes,
                             y = imageShape(c.output(), c.channels_last()).sizes;
  int spatial = static_cast<int>(x.size()) - 2;
  if (spatial < 1 || spatial > 3 || y.size() != x.size()) return inputError("ranks that are no pooling");
  if (c.kernel_size() != spatial || c.strides_size() != spatial || c.pads_begin_size() != spatial ||
      c.pads_end_size() != spatial || (c.dilations_size() != 0 && c.dilations_size() != spatial))
    return inputError("kernel, strides, pads and dilations must have one number a spatial dimension");
  if (!withinWindowLimits(c.kernel(), 1) || !withinWindowLimits(c.strides(), 1) ||
      !withinWindowLimits(c.dilations(), 1) || !withinWindowLimits(c.pads_begin(), 0) ||
      !withinWindowLimits(c.pads_end(), 0))
    return inputError("a kernel, stride or dilation below 1, or a negative pad");
  if (x[0] != y[0] || x[1] != y[1]) return inputError("samples or channels differ");
  const int64_t window = elementCount(c.kernel()), outputs = std::max<int64_t>(1, elementCount(y));
  if (window < 0 || window > mostWindowReads / outputs)
    return inputError(fmt::format("{} windows of {} elements", outputs, window));
  if (c.input().dtype() != c.output().dtype()) return inputError("dtypes differ");
  bool gradient = c.kind() >= plan::Pool::MAX_GRAD;
  if (gradient != c.has_grad_input())
    return inputError(gradient ? "its grad_input is missing" : "a forward pass with a grad_input");
  if (gradient && !std::equal(c.input().shape().begin(), c.input().shape().end(), c.grad_input().shape().begin(),
                              c.grad_input().shape().end()))
    return inputError("grad_input has another shape than input");
  return Status::ok();
}

// Has the buffer outer * middle * inner elements?
bool isBox(const plan::Buffer &buffer, int64_t outer, int64_t middle, int64_t inner) {
  int64_t count = elementCount(std::array{outer, middle, inner});
  return count >= 0 && count == elementCount(buffer.shape());
}

// table or updates [outer, rows, inner] and the indexed tensor [outer, index..., inner]
template <typename Message>
Status verifyIndexed(const Message &c, const plan::Buffer &rows, const plan::Buffer &indexed, const dist::Mesh &mesh) {
  int64_t indices = elementCount(c.indices().shape());
  if (c.indices().dtype() != plan::I64 && c.indices().dtype() != plan::I32)
    return inputError("indices must be i32 or i64");
  if (!isBox(rows, c.outer(), c.rows(), c.inner()))
    return inputError(fmt::format("{} is not [{}, {}, {}]", describe(rows), c.outer(), c.rows(), c.inner()));
  if (!isBox(indexed, c.outer(), indices, c.inner()))
    return inputError(fmt::format("{} is not [{}, {}, {}]", describe(indexed), c.outer(), indices, c.inner()));
  if (rows.dtype() != indexed.dtype()) return inputError("dtypes differ");
  CLEAVE_ASSIGN_OR_RETURN(auto start, rangeOf(c.start(), mesh));
  if (start.first < 0 || start.second > c.global_rows()) // the last rows may be padding
    return inputError(fmt::format("rows from {} to {} of {}", start.first, start.second + c.rows(), c.global_rows()));
  return Status::ok();
}

Status verifyCopy(const plan::Copy &c, const dist::Mesh &mesh) {
  if (c.source_strides_size() != c.sizes_size() || c.target_strides_size() != c.sizes_size() || c.sizes_size() > 16)
    return inputError("one stride a dimension is needed, and at most 16 dimensions");
  if (c.source().dtype() != c.target().dtype()) return inputError("dtypes differ");
  CLEAVE_ASSIGN_OR_RETURN(auto from, rangeOf(c.source_offset(), mesh));
  CLEAVE_ASSIGN_OR_RETURN(auto to, rangeOf(c.target_offset(), mesh));
  if (c.source().on_host() || c.target().on_host()) {
    if (c.sizes_size() != 1 || c.source_strides(0) != 1 || c.target_strides(0) != 1)
      return inputError("a copy from or to the host's memory moves one run of bytes");
    if (c.source().on_host() && c.target().on_host()) return inputError("a copy within the host's memory");
  }
  const int64_t moved = elementCount(c.sizes());
  if (moved < 0 || moved > elementCount(c.target().shape()))
    return inputError(fmt::format("{} has fewer elements than are copied", describe(c.target())));
  CLEAVE_RETURN_IF_ERROR(reaches("source", c.source(), c.sizes(), c.source_strides(), from));
  return reaches("target", c.target(), c.sizes(), c.target_strides(), to);
}

Status verifyCollective(const plan::Collective &c, const dist::Mesh &mesh) {
  int64_t members = 1;
  for (int i = 0; i < c.axes_size(); ++i) {
    auto axis =
        std::find_if(mesh.axes.begin(), mesh.axes.end(), [&](const dist::MeshAxis &a) { return a.name == c.axes(i); });
    if (axis == mesh.axes.end()) return inputError(fmt::format("unknown mesh axis '{}'", c.axes(i)));
    if (std::count(c.axes().begin(), c.axes().end(), c.axes(i)) > 1)
      return inputError(fmt::format("mesh axis '{}' twice", c.axes(i)));
    members *= axis->size;
  }
  if (c.inputs().empty()) return inputError("a collective of nothing");
  CLEAVE_ASSIGN_OR_RETURN(std::vector<CollectivePart> parts, partsOf(c, members));
  const bool reduces = c.op() == plan::Collective::ALL_REDUCE || c.op() == plan::Collective::REDUCE_SCATTER;
  for (const plan::Buffer &in : c.inputs())
    if (reduces && isFp8BitFloat(in.dtype()))
      return inputError(fmt::format("floats of 8 bits are not reduced: {}", describe(in)));
  // Members read each other's inputs while they write their outputs: the same place or apart, nothing between.
  for (int i = 0; i < c.inputs_size(); ++i)
    for (int o = 0; o < c.outputs_size(); ++o) {
      const plan::Buffer &in = c.inputs(i), &out = c.outputs(o);
      bool apart = in.in_slot() != out.in_slot() || in.offset() + byteSize(in) <= out.offset() ||
                   out.offset() + byteSize(out) <= in.offset();
      bool inPlace = i == o && in.offset() == out.offset() &&
                     (c.op() == plan::Collective::ALL_REDUCE || c.op() == plan::Collective::BROADCAST);
      if (!apart && !inPlace && members > 1)
        return inputError(fmt::format("input {} and output {} overlap", describe(in), describe(out)));
    }
  return Status::ok();
}

// Enums of the command's kind have values that this version knows.
Status verifyEnums(const plan::Command &command) {
  const auto *kind = plan::Command::descriptor()->FindFieldByNumber(command.kind_case());
  if (!kind) return Status::ok();
  const google::protobuf::Message &of = command.GetReflection()->GetMessage(command, kind);
  for (int f = 0; f < of.GetDescriptor()->field_count(); ++f) {
    const auto *field = of.GetDescriptor()->field(f);
    if (!field->enum_type()) continue;
    const int value = of.GetReflection()->GetEnumValue(of, field);
    if (!field->enum_type()->FindValueByNumber(value))
      return inputError(fmt::format("its '{}' is {}, which this version does not know", field->name(), value));
  }
  return Status::ok();
}

} // namespace

Status verifyCommand(const plan::Command &command, const plan::Plan &plan, const dist::Mesh &mesh) {
  CLEAVE_RETURN_IF_ERROR(verifyEnums(command));
  for (const plan::Launch &launch : command.launches()) CLEAVE_RETURN_IF_ERROR(verifyLaunch(launch, plan, mesh));
  switch (command.kind_case()) {
  case plan::Command::kLaunch:
    return verifyLaunch(command.launch(), plan, mesh);
  case plan::Command::kLaunchGroup:
    return verifyLaunchGroup(command.launch_group(), plan, mesh);
  case plan::Command::kContract:
    return verifyContract(command.contract());
  case plan::Command::kGroupedContract:
    return verifyGroupedContract(command.grouped_contract(), mesh);
  case plan::Command::kConvolution:
    return verifyConvolution(command.convolution());
  case plan::Command::kAttention: {
    Result<AttentionForm> form = attentionForm(command.attention());
    return form ? Status::ok() : form.status();
  }
  case plan::Command::kPool:
    return verifyPool(command.pool());
  case plan::Command::kGather:
    return verifyIndexed(command.gather(), command.gather().table(), command.gather().out(), mesh);
  case plan::Command::kScatterAdd:
    return verifyIndexed(command.scatter_add(), command.scatter_add().out(), command.scatter_add().updates(), mesh);
  case plan::Command::kCopy:
    return verifyCopy(command.copy(), mesh);
  case plan::Command::kFill: {
    const plan::Fill &c = command.fill();
    if (static_cast<int64_t>(c.value().size()) != byteSize(c.target().dtype()))
      return inputError(fmt::format("a fill value of {} bytes for {}", c.value().size(), describe(c.target())));
    return Status::ok();
  }
  case plan::Command::kCollective:
    return verifyCollective(command.collective(), mesh);
  case plan::Command::kTransfer: {
    Result<std::pair<int64_t, int64_t>> peer = rangeOf(command.transfer().peer(), mesh);
    return peer ? Status::ok() : peer.status(); // which devices they are: verifyPipeline
  }
  case plan::Command::kCumsum: {
    const plan::CumSum &c = command.cumsum();
    if (!isBox(c.input(), c.outer(), c.length(), c.inner()) || !isBox(c.output(), c.outer(), c.length(), c.inner()) ||
        c.input().dtype() != c.output().dtype())
      return inputError(fmt::format("{} and {} are not [{}, {}, {}]", describe(c.input()), describe(c.output()),
                                    c.outer(), c.length(), c.inner()));
    return Status::ok();
  }
  default:
    return Status::ok();
  }
}

} // namespace cleave::runtime
