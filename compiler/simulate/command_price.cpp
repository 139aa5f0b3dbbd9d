#include "compiler/simulate/command_price.h"
#include "compiler/simulate/collective_price.h"
#include "compiler/tuning.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/image_shape.h"
#include <algorithm>

namespace cleave::simulate {
namespace {

planner::ConvolutionPass passOf(const plan::Convolution &c) {
  return c.pass() == plan::Convolution::FORWARD      ? planner::ConvolutionPass::Forward
         : c.pass() == plan::Convolution::GRAD_INPUT ? planner::ConvolutionPass::GradInput
                                                     : planner::ConvolutionPass::GradWeight;
}

} // namespace

bool isWithHost(const plan::Command &command) {
  return command.has_copy() && (command.copy().source().on_host() || command.copy().target().on_host());
}

CommandPrices::CommandPrices(const plan::Plan &plan, const planner::Cluster &cluster, const dist::Mesh &mesh)
    : plan(plan), cluster(cluster), mesh(mesh), works(plan) {
  double weights = 0; // of a device
  for (const plan::Parameter &parameter : plan.parameters()) {
    if (parameter.role() != plan::Parameter::PARAMETER) continue;
    double bytes = double(runtime::byteSize(parameter.dtype()));
    for (int64_t size : parameter.shape()) bytes *= double(size);
    for (const plan::DimSharding &dim : parameter.dims()) bytes /= double(mesh.groupSize(runtime::axesOf(dim.axes())));
    weights += bytes / double(std::max(1, parameter.pp_coordinates_size() ? plan.programs_size() : 1));
  }
  weightSecondsPerByte = cluster.device.secondsPerByte(weights);
}

std::string CommandPrices::precisionOf(const plan::Buffer &operand) const {
  switch (operand.dtype()) {
  case plan::BF16:
    return "bf16";
  case plan::F16:
    return "fp16";
  case plan::F64:
    return "fp64";
  case plan::F8E4M3:
  case plan::F8E5M2:
    return "fp8";
  default:
    return plan.cuda().tf32() ? "tf32" : "fp32";
  }
}

double CommandPrices::computeSeconds(const plan::Command &command, const CommandWork &work) const {
  const planner::Device &device = cluster.device;
  planner::LocalWork local{.flops = work.flops, .bytes = work.bytes, .product = work.product, .kernels = work.launches};
  if (command.has_contract() || command.has_grouped_contract()) {
    const bool isGrouped = command.has_grouped_contract();
    const plan::Buffer &rhs = isGrouped ? command.grouped_contract().rhs() : command.contract().rhs(),
                       &out = isGrouped ? command.grouped_contract().out() : command.contract().out();
    const bool isWeight = isGrouped ? !command.grouped_contract().sums_rows() : command.contract().rhs_is_parameter();
    local.read = bytesOf(rhs), local.written = bytesOf(out);
    local.hasOwnWeights = isGrouped || isWeight;
    local.isGrouped = isGrouped;
    if (isWeight) local.readSeconds = weightSecondsPerByte;
    return planner::operationSeconds(
        cluster, precisionOf(isGrouped ? command.grouped_contract().lhs() : command.contract().lhs()), local);
  }
  if (command.has_attention()) {
    // What stands around the products in kernels of their own, such as the gradient's sums, is about its operands once.
    local.exponentials = work.exponentials;
    return work.bytes * device.secondsPerByte(work.bytes) +
           planner::operationSeconds(cluster, precisionOf(command.attention().query()), local);
  }
  if (command.has_convolution()) {
    const plan::Convolution &c = command.convolution();
    if (device.convolutions.block > 0) {
      const std::vector<int64_t> w = runtime::imageShape(c.weight(), c.weight_channels_last()).sizes;
      const planner::ConvolutionShape shape{.in = double(w[1]),
                                            .out = double(w[0]) / double(std::max<int64_t>(1, c.groups())),
                                            .groups = double(std::max<int64_t>(1, c.groups())),
                                            .inputBytes = bytesOf(c.input()),
                                            .outputBytes = bytesOf(c.output()),
                                            .weightBytes = bytesOf(c.weight())};
      const planner::Blocked blocked = planner::blockedBy(device.convolutions.block, passOf(c), shape);
      local.isConvolution = true, local.flops *= blocked.work, local.read = blocked.ordered;
    }
    return planner::operationSeconds(cluster, precisionOf(c.input()), local);
  }
  local.memoryBound = true;
  local.isUpdate = command.phase() == "update";
  local.isSolo = command.has_launch() && command.launch().extent() <= tuning::soloElements;
  double seconds = planner::operationSeconds(cluster, precisionOf({}), local);
  for (size_t kind = 0; kind < planner::elementWorks; ++kind)
    seconds += device.computeFactor * work.elements[kind] * (device.elementSeconds[kind] + 1 / device.flopsAt("fp32"));
  return seconds;
}

CommandPrice CommandPrices::of(const plan::Command &command, int64_t device) const {
  CommandPrice price{works.of(command)};
  if (command.has_collective()) {
    price.seconds = priceOf(command.collective(), cluster, mesh).seconds;
  } else if (command.has_transfer()) {
    const plan::Transfer &transfer = command.transfer();
    const int64_t peer = runtime::evaluate(transfer.peer(), mesh, device);
    const bool sends = transfer.direction() == plan::Transfer::SEND;
    const double bytes = bytesOf(transfer.buffer());
    if (sends && peer != device)
      price.seconds = planner::sendSeconds(cluster, planner::tierBetween(cluster, device, peer), bytes);
  } else if (isWithHost(command)) {
    price.seconds = planner::hostCopySeconds(cluster, price.work.bytes / 2, 1);
  } else {
    price.seconds = computeSeconds(command, price.work);
  }
  return price;
}

} // namespace cleave::simulate
