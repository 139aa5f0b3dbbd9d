#include "test/unit/fabric/rank/collective_plan.h"
#include "runtime/engine/comm/cuda/reduction_kernels.h"
#include "runtime/plan/dtype.h"
#include "test/unit/fabric/rank/values.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cleave::runtime::test {
namespace {

using plan::Collective;
using Axes = std::vector<std::string>;
constexpr plan::DType types[] = {plan::F32, plan::BF16, plan::I32};
constexpr int64_t large = 3 << 18; // elements, 3 MiB of F32: more than a shared ring or a socket takes at once

std::vector<CollectiveCase> casesOf(const Axes &axes) {
  const std::vector<int64_t> some{6, 12, 18}, none{0, 6, 1}, one{1, 1, 1};
  std::vector<CollectiveCase> cases;
  for (Collective::Reduce reduce : {Collective::SUM, Collective::MAX, Collective::MIN}) {
    CollectiveCase &all = cases.emplace_back(Collective::ALL_REDUCE, axes);
    all.reduce = reduce;
    for (plan::DType dtype : types)
      for (bool isInPlace : {false, true}) all.parts.push_back({.dtype = dtype, .shape = some, .isInPlace = isInPlace});
    all.parts.push_back({.shape = none}), all.parts.push_back({.shape = one});
    CollectiveCase &scatter = cases.emplace_back(Collective::REDUCE_SCATTER, axes);
    scatter.reduce = reduce;
    for (int dim = 0; dim < 3; ++dim)
      for (plan::DType dtype : types) scatter.parts.push_back({.dtype = dtype, .shape = some, .dim = dim});
    scatter.parts.push_back({.shape = none, .dim = 1});
  }
  CollectiveCase &gather = cases.emplace_back(Collective::ALL_GATHER, axes);
  for (int dim = 0; dim < 3; ++dim)
    for (plan::DType dtype : types) gather.parts.push_back({.dtype = dtype, .shape = {3, 4, 5}, .dim = dim});
  gather.parts.push_back({.shape = none, .dim = 1}), gather.parts.push_back({.shape = one, .dim = 2});
  CollectiveCase &exchange = cases.emplace_back(Collective::ALL_TO_ALL, axes);
  for (int dim = 0; dim < 3; ++dim)
    for (int split = 0; split < 3; ++split)
      exchange.parts.push_back({.dtype = types[(dim + 2 * split) % 3], .shape = some, .dim = dim, .splitDim = split});
  CollectiveCase &shift = cases.emplace_back(Collective::SHIFT, axes);
  for (int distance : {1, -1, 2, 0})
    shift.parts.push_back({.dtype = types[(distance + 1) % 3], .shape = {3, 4, 5}, .dim = distance});
  shift.parts.push_back({.shape = none, .dim = 1});
  CollectiveCase &broadcast = cases.emplace_back(Collective::BROADCAST, axes);
  for (plan::DType dtype : types)
    for (bool isInPlace : {false, true})
      broadcast.parts.push_back({.dtype = dtype, .shape = {3, 4, 5}, .isInPlace = isInPlace});
  broadcast.parts.push_back({.shape = none}), broadcast.parts.push_back({.shape = one});
  return cases;
}

// Over both axes, and of the pairs along one.
std::vector<CollectiveCase> largeCases() {
  const Axes axes{"a", "b"};
  return {{Collective::ALL_REDUCE, axes, {{.shape = {1, 1, large}, .isInPlace = true}}},
          {Collective::ALL_REDUCE, {"a"}, {{.shape = {1, 1, large}}}},
          {Collective::REDUCE_SCATTER, axes, {{.shape = {6, 1, large / 6}}}},
          {Collective::ALL_GATHER, axes, {{.shape = {1, 2, large / 4}}, {.shape = {2, 1, large / 4}, .dim = 1}}},
          {Collective::ALL_TO_ALL, axes, {{.shape = {6, 1, large / 6}, .dim = 2}}},
          {Collective::SHIFT, axes, {{.shape = {1, 1, large}, .dim = 1}}},
          {Collective::BROADCAST, axes, {{.shape = {1, 1, large}}}},
          {Collective::ALL_REDUCE, axes, {{.shape = {0, 1, 1}}}}};
}

std::vector<int64_t> outputShape(const CollectiveCase &of, const CollectivePart &part, int64_t members) {
  std::vector<int64_t> shape = part.shape;
  const auto dim = static_cast<size_t>(part.dim);
  if (of.op == Collective::REDUCE_SCATTER) shape[dim] /= members;
  if (of.op == Collective::ALL_TO_ALL) shape[static_cast<size_t>(part.splitDim)] /= members;
  if (of.op == Collective::ALL_TO_ALL || of.op == Collective::ALL_GATHER) shape[dim] *= members;
  return shape;
}

} // namespace

plan::Mesh planMesh(const dist::Mesh &mesh) {
  plan::Mesh out;
  for (const dist::MeshAxis &axis : mesh.axes) {
    plan::MeshAxis &made = *out.add_axes();
    made.set_name(axis.name), made.set_size(axis.size);
  }
  return out;
}

plan::Buffer addTensor(plan::Plan &plan, const std::string &name, plan::DType dtype, const std::vector<int64_t> &shape,
                       int64_t &top) {
  plan::Buffer buffer;
  buffer.set_dtype(dtype), buffer.set_offset(top);
  *buffer.mutable_shape() = {shape.begin(), shape.end()};
  top += (byteSize(buffer) + 127) / 64 * 64; // with a gap, which nobody writes
  plan::Parameter &parameter = *plan.add_parameters();
  parameter.set_name(name), parameter.set_dtype(dtype), parameter.set_offset(buffer.offset());
  *parameter.mutable_shape() = buffer.shape(), *parameter.mutable_original_shape() = buffer.shape();
  for (size_t d = 0; d < shape.size(); ++d) parameter.add_dims();
  return buffer;
}

void finishPlan(plan::Plan &plan, int64_t top, const std::string &gpu) {
  for (plan::Program &program : *plan.mutable_programs()) {
    program.set_persistent_bytes(top), program.set_arena_bytes(top);
    if (gpu == "cpu") continue;
    program.set_fault_offset(top), program.set_arena_bytes(top + 64);
  }
  if (gpu == "cpu") return;
  plan.mutable_cuda()->set_target("sm_80");
  if (gpu == "fake")
    plan.mutable_cuda()->set_cubin("fake-module 0 0\n");
  else
    plan.mutable_cuda()->set_ptx(cuda::reductionPtx());
}

CollectivePlan::CollectivePlan(const dist::Mesh &mesh, bool isWhole) : mesh(mesh) {
  // Both orders of two axes are groups of their own; the last axis has one device.
  std::vector<Axes> groups{{"b"}, {"b", "a"}};
  if (isWhole) groups.insert(groups.end(), {{"a"}, {"a", "b"}, {"c"}});
  for (const Axes &axes : groups)
    for (CollectiveCase &made : casesOf(axes)) cases.push_back(std::move(made));
  if (isWhole)
    for (CollectiveCase &made : largeCases()) cases.push_back(std::move(made));
  *plan.mutable_mesh() = planMesh(mesh);
  plan::Program &program = *plan.add_programs();
  plan::Fragment &fragment = *program.add_fragments();
  fragment.set_name("all");
  std::map<Axes, int> sequences;
  int64_t top = 0, number = 0;
  for (size_t c = 0; c < cases.size(); ++c) {
    const CollectiveCase &of = cases[c];
    plan::Command &command = *fragment.add_commands();
    command.set_name(fmt::format("{} {} over {}", c, Collective::Op_Name(of.op), fmt::join(of.axes, ", ")));
    command.set_phase("forward");
    command.set_stream(static_cast<int32_t>(c % 2));
    Collective &collective = *command.mutable_collective();
    collective.set_op(of.op), collective.set_reduce(of.reduce);
    for (const std::string &axis : of.axes) collective.add_axes(axis);
    Axes group = of.axes;
    std::ranges::sort(group);
    collective.set_sequence(sequences[group]++);
    for (size_t p = 0; p < of.parts.size(); ++p, ++number) {
      const CollectivePart &part = of.parts[p];
      const std::vector<int64_t> shape = outputShape(of, part, mesh.groupSize(of.axes));
      const std::string name = fmt::format("{}, part {}", command.name(), p);
      plan::Buffer input = addTensor(plan, name + ", input", part.dtype, part.shape, top), output = input;
      tensors.push_back({name + ", input", number, &of, &part, part.shape, true, part.isInPlace});
      if (!part.isInPlace) {
        output = addTensor(plan, name + ", output", part.dtype, shape, top);
        tensors.push_back({name + ", output", number, &of, &part, shape, false, true});
      }
      *collective.add_inputs() = input, *collective.add_outputs() = output;
      collective.add_dims(part.dim), collective.add_split_dims(part.splitDim);
    }
  }
  plan::Routine &step = *program.add_routines();
  step.set_name("step");
  step.add_actions();
  plan.mutable_training()->set_global_batch(1), plan.mutable_training()->set_microbatches(1);
  plan.mutable_training()->mutable_lr()->set_kind("constant");
  program.set_arena_bytes(top);
}

std::vector<double> CollectivePlan::expected(const CollectiveTensor &tensor, int64_t device, int64_t step) const {
  const CollectiveCase &of = *tensor.of;
  const CollectivePart &part = *tensor.part;
  const std::vector<int64_t> members = mesh.group(device, of.axes), &in = part.shape, &out = tensor.shape;
  const int64_t count = std::ssize(members), self = std::ranges::find(members, device) - members.begin();
  const auto d = static_cast<size_t>(part.dim), s = static_cast<size_t>(part.splitDim);
  std::vector<double> all, theirs(members.size());
  all.reserve(static_cast<size_t>(out[0] * out[1] * out[2]));
  std::array<int64_t, 3> at;
  for (at[0] = 0; at[0] < out[0]; ++at[0])
    for (at[1] = 0; at[1] < out[1]; ++at[1])
      for (at[2] = 0; at[2] < out[2]; ++at[2]) {
        std::array<int64_t, 3> from = at;
        int64_t member = 0; // whose element it is; all reduce theirs
        switch (of.op) {
        case Collective::REDUCE_SCATTER:
          from[d] += self * out[d];
          break;
        case Collective::ALL_GATHER:
          member = at[d] / in[d], from[d] = at[d] % in[d];
          break;
        case Collective::ALL_TO_ALL: {
          const int64_t width = s == d ? in[d] / count : in[d];
          member = at[d] / width, from[d] = at[d] % width;
          from[s] += self * (in[s] / count);
          break;
        }
        case Collective::SHIFT:
          member = ((self - part.dim) % count + count) % count;
          break;
        default:
          break;
        }
        const int64_t element = (from[0] * in[1] + from[1]) * in[2] + from[2];
        auto valueAt = [&](int64_t of) { return valueOf(part.dtype, of, tensor.number, step, element); };
        if (of.op != Collective::ALL_REDUCE && of.op != Collective::REDUCE_SCATTER) {
          all.push_back(valueAt(members[static_cast<size_t>(member)]));
          continue;
        }
        for (size_t m = 0; m < members.size(); ++m) theirs[m] = valueAt(members[m]);
        all.push_back(reduceInOrder(part.dtype, of.reduce, theirs));
      }
  return all;
}

} // namespace cleave::runtime::test
