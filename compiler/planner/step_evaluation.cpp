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
  if (model.setting.zero == 2) return {part / double(model.setting.microbatches), part};
  // Only the last microbatch's backward makes final gradients; only the first one's forward waits for parameters.
  part = model.cluster->device.gradientOverlap / double(model.setting.microbatches);
  return {model.setting.zero == 1 ? part : 0, part};
}

Price exchangePrice(const SplitModel &model, const Variable &variable, size_t candidate, CollectiveSink *sink) {
  Price price;
  for (const Exchange &exchange : variable.candidates[candidate].exchanges) {
    double times = double(variable.count) * (exchange.onceAStep ? 1.0 : double(model.setting.microbatches));
    double one = collectiveSeconds(*model.cluster, exchange.collective, exchange.group, exchange.bytes);
    price.exposedForward += one * times * exchange.forward;
    price.exposed += one * times * (exchange.forward + exchange.backward);
    if (sink) {
      const Node &node = model.problem->nodes[size_t(variable.index)];
      times *= exchange.forward + exchange.backward;
      sink->push_back({exchange.collective, exchange.axis, false, exchange.bytes, one * times, times,
                       node.results.empty() ? -1 : node.results[0], exchange.why});
    }
  }
  return price;
}

double workspaceBytes(const Setting &setting, double largestOperation, double largestParameter, double gradients,
                      double parameters) {
  double bytes = largestOperation;
  // A bucket under way, and with ZeRO-2 and 3 the whole gradients, with ZeRO-3 parameters, of the operation at work.
  if (setting.gradientWays() > 1) bytes += std::min(constants::bucketBytes, gradients + parameters);
  if (setting.zero >= 2) bytes += largestParameter * (setting.zero >= 3 ? 3 : 1);
  // State that is there, and state that is on its way.
  if (movesState(setting.offload))
    bytes += 2 * setting.stateRatio * largestParameter / double(setting.zero >= 1 ? setting.zeroWays() : 1);
  return bytes;
}

void fillRate(const SplitModel &model, Predicted &predicted) {
  double flops = model.layout->flops * double(model.problem->batch) / double(model.problem->samples);
  if (predicted.stepSeconds > 0)
    predicted.tflopsPerDevice = flops / predicted.stepSeconds / double(model.setting.devices()) / 1e12;
  predicted.mfu = predicted.tflopsPerDevice * 1e12 / model.cluster->device.flopsAt(model.problem->precision);
}

double addHostTime(const SplitModel &model, double seconds, double exposed, double kept, double forward,
                   double backward, Predicted &predicted) {
  double late = 0;
  if (kept > 0) {
    // The latency of copies is in the state's part; these are few and large.
    double way = hostCopySeconds(*model.cluster, kept * double(model.setting.microbatches), 0);
    double part = model.cluster->device.overlap;
    late = std::max(0.0, way - part * forward) + std::max(0.0, way - part * backward);
    seconds += 2 * way;
  }
  predicted.hostSeconds = seconds;
  predicted.exposedHostSeconds = exposed + late;
  predicted.exposedCommunicationSeconds += late;
  return late;
}

Evaluation evaluate(const SplitModel &model, const std::vector<int> &choice, CollectiveSink *sink) {
  Evaluation result;
  double workspace = 0, largestParameter = 0;
  Price passes; // done for every microbatch
  Price homes;  // done once a step, or beside the passes
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    size_t chosen = size_t(choice[v]);
    if (variable.isHome) {
      homes += homePrice(model, variable, chosen, sink);
      largestParameter = std::max(largestParameter, model.parameterBytes(variable.index, variable.homes[chosen]));
      continue;
    }
    passes += nodePrice(model, variable, chosen);
    passes += exchangePrice(model, variable, chosen, sink);
    workspace = std::max(workspace, nodeWorkspace(variable, chosen));
  }
  for (const Flow &flow : model.flows)
    passes += flowPrice(model, flow, producedLayout(model, flow, choice), usesOf(model, flow, choice), sink);
  result.isPossible = passes.exposed < infinity;

  Overlap overlap = overlapOf(model);
  double hidden = std::min(homes.hideable, overlap.forward * passes.forward + overlap.backward * passes.backward);
  Predicted &predicted = result.predicted;
  predicted.computeSeconds = passes.forward + passes.backward + homes.update;
  predicted.hiddenCommunicationSeconds = hidden;
  predicted.exposedCommunicationSeconds = passes.exposed + homes.exposed + homes.hideable - hidden;
  addHostTime(model, homes.hostSeconds, homes.hostExposed, passes.host, passes.forward, passes.backward, predicted);
  predicted.stepSeconds = predicted.computeSeconds + predicted.exposedCommunicationSeconds;
  predicted.memory = {homes.parameters,
                      homes.gradients,
                      homes.optimizer,
                      passes.activations,
                      workspaceBytes(model.setting, workspace, largestParameter, homes.gradients, homes.parameters),
                      homes.host + passes.host};
  fillRate(model, predicted);
  result.price = passes;
  result.price += homes;
  return result;
}

} // namespace cleave::planner
