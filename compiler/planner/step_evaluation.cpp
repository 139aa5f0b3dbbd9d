#include "compiler/planner/step_evaluation.h"
#include "compiler/planner/device_presets.h"
#include <algorithm>
#include <limits>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

} // namespace

Overlap overlapOf(const SplitModel &model) {
  double part = model.cluster->device.overlap;
  if (model.setting.zero >= 3) return {part, part};
  if (model.setting.zero == 2) return {0, part};
  return {0, part / double(model.setting.microbatches)}; // only the last microbatch's backward makes final gradients
}

Evaluation evaluate(const SplitModel &model, const std::vector<int> &choice, CollectiveSink *sink) {
  Evaluation result;
  double workspace = 0, largestParameter = 0;
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    size_t chosen = size_t(choice[v]);
    if (variable.isHome) {
      result.price += homePrice(model, variable, chosen, sink);
      const Tensor &tensor = model.problem->tensors[size_t(variable.index)];
      largestParameter =
          std::max(largestParameter, tensor.bytes() / (variable.homes[chosen] >= 0 ? double(model.setting.tp) : 1.0));
      continue;
    }
    result.price += nodePrice(model, variable, chosen);
    workspace = std::max(workspace, nodeWorkspace(model, variable, chosen));
  }
  for (const Flow &flow : model.flows)
    result.price += flowPrice(model, flow, producedLayout(model, flow, choice), usesOf(model, flow, choice), sink);
  const Price &price = result.price;
  result.isPossible = price.exposed < infinity;
  // A bucket under way, and with ZeRO-2 and 3 the whole gradients, with ZeRO-3 parameters, of the operation at work.
  if (model.setting.batchWays() > 1) workspace += std::min(constants::bucketBytes, price.gradients + price.parameters);
  if (model.setting.zero >= 2) workspace += largestParameter * (model.setting.zero >= 3 ? 3 : 1);

  Predicted &predicted = result.predicted;
  Overlap overlap = overlapOf(model);
  double hidden = std::min(price.hideable, overlap.forward * price.forward + overlap.backward * price.backward);
  predicted.computeSeconds = price.forward + price.backward + price.update;
  predicted.hiddenCommunicationSeconds = hidden;
  predicted.exposedCommunicationSeconds =
      price.exposed + price.hideable - hidden + model.batchSeconds * double(model.setting.microbatches);
  predicted.stepSeconds = predicted.computeSeconds + predicted.exposedCommunicationSeconds;
  predicted.memory = {price.parameters, price.gradients, price.optimizer, price.activations, workspace};
  double flops = 0;
  for (const Node &node : model.problem->nodes) flops += node.flops + node.backwardFlops;
  flops *= double(model.problem->batch) / double(model.problem->samples);
  double devices = double(model.setting.dp * model.setting.fsdp * model.setting.tp);
  if (predicted.stepSeconds > 0) predicted.tflopsPerDevice = flops / predicted.stepSeconds / devices / 1e12;
  predicted.mfu = predicted.tflopsPerDevice * 1e12 / model.cluster->device.flopsAt(model.problem->precision);
  return result;
}

} // namespace cleave::planner
