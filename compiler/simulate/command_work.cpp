#include "compiler/simulate/command_work.h"
#include "compiler/cluster/device_presets.h"
#include "plan/graph.pb.h"
#include "runtime/plan/attention_form.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/image_shape.h"
#include "runtime/plan/routine.h"
#include <algorithm>

namespace cleave::simulate {
namespace {

double elementsOf(const auto &sizes) {
  double elements = 1;
  for (int64_t size : sizes) elements *= double(size);
  return elements;
}

// The bytes that the kernel reaches of each buffer, once.
double bytesOfLaunch(const plan::Plan &plan, const plan::Launch &launch) {
  const plan::Kernel &kernel = plan.kernels(launch.kernel());
  double bytes = 0;
  for (int i = 0; i < launch.buffers_size(); ++i) {
    const double whole = bytesOf(launch.buffers(i));
    if (kernel.buffers_size() != launch.buffers_size()) {
      bytes += whole;
      continue;
    }
    const plan::KernelBuffer &reached = kernel.buffers(i);
    const int64_t times = reached.per() > 0 ? (launch.extent() + reached.per() - 1) / reached.per() : 1;
    bytes += std::min(whole, double(reached.elements()) * double(times) * double(reached.element_bytes()));
  }
  return bytes;
}

// Its elements alone, where they lie in rows between others.
double bytesOfResult(const plan::Contract &product) {
  const double elements = double(product.m()) * double(product.n()) * elementsOf(product.batch());
  return std::min(bytesOf(product.out()), elements * double(runtime::byteSize(product.out().dtype())));
}

double bytesOfProduct(const plan::Contract &product) {
  double bytes =
      bytesOf(product.lhs()) + bytesOf(product.rhs()) + bytesOfResult(product) * (product.accumulate() ? 2 : 1);
  if (product.has_bias()) bytes += bytesOf(product.bias());
  if (product.has_pre_activation()) bytes += bytesOf(product.pre_activation());
  if (product.has_lhs_sum()) bytes += bytesOf(product.lhs_sum());
  if (product.has_rhs_sum()) bytes += bytesOf(product.rhs_sum());
  return bytes;
}

double bytesMoved(const plan::Plan &plan, const plan::Command &command) {
  if (command.has_launch()) return bytesOfLaunch(plan, command.launch());
  if (command.has_contract()) return bytesOfProduct(command.contract());
  if (command.has_collective() || command.has_transfer()) return 0; // their own price says what they send
  if (command.has_gather()) return bytesOf(command.gather().indices()) + 2 * bytesOf(command.gather().out());
  if (command.has_copy())
    return 2 * elementsOf(command.copy().sizes()) * double(runtime::byteSize(command.copy().source().dtype()));
  double bytes = 0;
  if (command.has_launch_group()) {
    for (const plan::Launch &part : command.launch_group().parts()) bytes += bytesOfLaunch(plan, part);
    return bytes;
  }
  plan::Command others = command; // every operand once
  others.clear_launches();
  runtime::forEachBuffer(others, [&](plan::Buffer &buffer) { bytes += bytesOf(buffer); });
  return bytes;
}

planner::Product productOf(const plan::Contract &c) {
  return {double(c.m()), double(c.n()), double(c.k()), elementsOf(c.batch())};
}
// As many products as there are groups, each of as many rows.
planner::Product productOf(const plan::GroupedContract &c) {
  const double rows = elementsOf(c.rows()) * double(c.groups()) / double(std::max<int64_t>(1, c.global_groups()));
  const double groups = std::max(1.0, std::min(rows, double(c.groups())));
  if (c.sums_rows()) return {double(c.k()), double(c.n()), rows / groups, groups};
  return {rows / groups, double(c.n()), double(c.k()), groups};
}
// Without its windows' overlap: the output's channels, its pixels, and what a pixel sums up.
planner::Product productOf(const plan::Convolution &c) {
  const std::vector<int64_t> w = runtime::imageShape(c.weight(), c.weight_channels_last()).sizes,
                             y = runtime::imageShape(c.output(), c.channels_last()).sizes;
  const double groups = double(std::max<int64_t>(1, c.groups()));
  return {elementsOf(y) / double(y[1]), double(w[0]) / groups, elementsOf(w) / double(w[0]), groups};
}
planner::Product productOf(const plan::Attention &a) {
  const auto &q = a.query().shape();
  return {double(q[2]), double(a.key().shape(2)), double(q[3]), double(q[0]) * double(q[1])};
}

double flopsOf(const planner::Product &product) { return 2 * product.m * product.n * product.k * product.batch; }

// Two products forward, five backward, where the scores are made again; of the tiles in which a query sees a key.
void addAttention(const plan::Attention &attention, CommandWork &work) {
  const bool isBackward = attention.pass() == plan::Attention::BACKWARD;
  const planner::Product p = work.product = productOf(attention);
  const double part =
      runtime::bandOf(attention).part(int64_t(p.m), int64_t(p.n), int64_t(planner::constants::attentionTile));
  work.flops = (isBackward ? 5 : 2) * part * flopsOf(p);
  work.exponentials = (isBackward ? planner::constants::backwardExponentials : 1) * part * p.m * p.n * p.batch;
}

} // namespace

double bytesOf(const plan::Buffer &buffer) { return double(std::max<int64_t>(0, runtime::byteSize(buffer))); }

PlanWork::PlanWork(const plan::Plan &plan) : plan(plan) {
  for (const plan::Kernel &kernel : plan.kernels()) {
    KernelWork &work = kernels.emplace_back();
    plan::Graph graph;
    if (kernel.operations().empty() || !graph.ParseFromString(kernel.operations())) continue;
    for (int kind = 0; kind < std::min(int(planner::elementWorks), graph.work_size()); ++kind)
      work.flops[size_t(kind)] = graph.work(kind);
    if (!kernel.flat()) continue;
    for (const plan::GraphValue &value : graph.values()) work.per = std::max(work.per, elementsOf(value.shape()));
  }
}

void PlanWork::addLaunch(const plan::Launch &launch, CommandWork &work) const {
  const KernelWork &kernel = kernels.at(size_t(launch.kernel()));
  const double times = kernel.per > 0 ? double(launch.extent()) / kernel.per : 1;
  for (size_t kind = 0; kind < planner::elementWorks; ++kind) work.elements[kind] += kernel.flops[kind] * times;
}

CommandWork PlanWork::of(const plan::Command &command) const {
  CommandWork work;
  work.bytes = bytesMoved(plan, command);
  work.launches = std::max(1, command.launches_size());
  auto multiply = [&](const planner::Product &product, double times) {
    work.product = product;
    work.flops = times * flopsOf(product);
  };
  if (command.has_launch()) addLaunch(command.launch(), work);
  for (const plan::Launch &part : command.launch_group().parts()) addLaunch(part, work);
  if (command.has_contract()) multiply(productOf(command.contract()), 1);
  if (command.has_grouped_contract()) multiply(productOf(command.grouped_contract()), 1);
  if (command.has_convolution()) multiply(productOf(command.convolution()), 1);
  if (command.has_attention()) addAttention(command.attention(), work);
  if (command.has_pool())
    work.elements[size_t(planner::ElementWork::Window)] =
        elementsOf(command.pool().output().shape()) * elementsOf(command.pool().kernel());
  return work;
}

} // namespace cleave::simulate
