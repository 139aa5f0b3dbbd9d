#include "compiler/report/report.h"
#include "compiler/cluster/cost.h"
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/report/pricing_source.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <tuple>

namespace cleave::report {
namespace {

std::string scaled(double value, double base, std::initializer_list<const char *> units) {
  const char *unit = *units.begin();
  for (const char *next : units) {
    unit = next;
    if (std::abs(value) < base * 0.9995 || next == *(units.end() - 1)) break;
    value /= base;
  }
  int digits = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, value == 0 ? 0 : digits, unit);
}

std::vector<Stage> stagesOf(const planner::Problem &problem, const planner::Decision &decision, double parameters) {
  double microbatches = double(decision.microbatches);
  std::vector<Stage> stages;
  for (const planner::StageDecision &from : decision.stageDecisions) {
    Stage stage;
    stage.devices = from.devices;
    stage.nodes = from.nodes;
    stage.parameters = from.parameters;
    stage.memoryBytes = from.memory.total();
    stage.rank = from.rank;
    stage.blocks = from.blocks;
    stage.activationBlocks = from.activationBlocks;
    stage.selectiveBlocks = from.selectiveBlocks;
    stage.recomputedBlocks = from.recomputedBlocks;
    stage.forwardSeconds = from.forward * microbatches;
    stage.backwardSeconds = (from.backwardInput + from.backwardWeight) * microbatches;
    stage.reductionSeconds = from.reduction;
    stage.updateSeconds = from.update;
    stage.stepSeconds = stage.forwardSeconds + stage.backwardSeconds + stage.updateSeconds;
    stage.communicationSeconds = from.communication * microbatches;
    stage.forwardCommunicationSeconds = from.communicationForward * microbatches;
    stage.afterPassesSeconds = from.afterPasses;
    stage.pass = planner::timesOf(from);
    stage.sentForwardBytes = from.bytesForward;
    stage.sentBackwardBytes = from.bytesBackward;
    stages.push_back(stage);
  }
  if (stages.size() > 1) return stages;
  Stage all = stages.empty() ? Stage() : stages[0];
  all.devices = decision.mesh.numDevices();
  all.nodes = int64_t(problem.nodes.size());
  all.parameters = parameters;
  all.stepSeconds = decision.predicted.stepSeconds;
  all.memoryBytes = decision.predicted.memory.total();
  return {all};
}

} // namespace

std::string formatBytes(double bytes) { return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}); }

std::string formatFlops(double flops) {
  return scaled(flops, 1000, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"});
}

std::string formatSeconds(double seconds) {
  if (std::abs(seconds) >= 1) return scaled(seconds, 1e12, {"s"});
  return scaled(seconds * 1e6, 1000, {"us", "ms"});
}

std::string formatNumber(double value) {
  if (std::abs(value) < 99.95) return fmt::format("{:.3g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3 + size_t(value < 0);) digits.insert(at -= 3, ",");
  return digits;
}

Report makeReport(const planner::Problem &problem, const planner::Cluster &cluster, const planner::Decision &decision) {
  Report report;
  report.model = problem.name;
  report.cluster = cluster.name;
  report.software = cluster.software;
  report.batch = problem.batch;
  for (const planner::Tensor &tensor : problem.tensors)
    if (tensor.kind == planner::TensorKind::Input && tensor.elementBytes == 8 && tensor.dims.size() == 2 &&
        tensor.batchDim >= 0)
      report.tokensPerSample = std::max(report.tokensPerSample, tensor.dims[size_t(1 - tensor.batchDim)]);
  report.pricePerHour = cluster.pricePerHour;
  report.mesh = decision.mesh;
  report.schedule = decision.schedule;
  report.recompute = planner::name(decision.recompute);
  if (decision.exceptLast) report.recompute += ":except-last";
  report.offload = planner::name(decision.offload);
  report.like = decision.like;
  report.zero = decision.zero;
  report.microbatches = decision.microbatches;
  report.chunks = decision.chunks;
  report.devices = decision.mesh.numDevices();
  report.predicted = decision.predicted;
  report.predictionError = cluster.device.predictionError;
  report.deviceMemoryBytes = cluster.device.memoryBytes;
  report.reservedMemoryBytes = cluster.device.memoryBytes - cluster.device.usableBytes();
  report.estimatedMemoryBytes = decision.predicted.memory.total();
  report.searchSeconds = decision.searchSeconds;
  report.gap = decision.gap;
  report.moves = decision.moves;
  report.candidates = decision.candidates;
  report.alternatives = decision.alternatives;
  report.notes = decision.notes;
  std::map<std::string, size_t> tensors;
  double parameters = 0;
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    if (problem.tensors[i].kind != planner::TensorKind::Parameter) continue;
    parameters += double(problem.tensors[i].elements());
    tensors[problem.tensors[i].name] = i;
  }
  std::vector<std::vector<std::string>> readers(problem.tensors.size());
  for (const planner::Node &node : problem.nodes)
    for (int operand : std::set<int>(node.operands.begin(), node.operands.end()))
      if (problem.tensors[size_t(operand)].kind == planner::TensorKind::Parameter)
        readers[size_t(operand)].push_back(node.name);
  report.stages = stagesOf(problem, decision, parameters);
  for (const planner::ParameterDecision &parameter : decision.parameters)
    if (auto found = tensors.find(parameter.name); found != tensors.end()) {
      const planner::Tensor &tensor = problem.tensors[found->second];
      const bool trains = tensor.trainable;
      report.parameters.push_back({parameter.name, parameter.parameter.str(), trains ? parameter.gradient.str() : "",
                                   trains ? parameter.state.str() : "", tensor.dims,
                                   planner::DecidedModel::zeroOf(decision, parameter),
                                   std::move(readers[found->second])});
    }
  auto take = [&](auto result, auto &into, const char *what) {
    if (result)
      into = std::move(*result);
    else
      report.notes.push_back(fmt::format("no {}: {}", what, result.status().message()));
  };
  if (auto decided = planner::decidedModel(problem, cluster, decision)) {
    if (!decided->model.lowers.empty()) report.lowerZero = decided->model.setting.lowerZero;
    planner::Breakdown breakdown = planner::breakdown(*decided);
    report.predicted.hiddenCommunicationSeconds += breakdown.hiddenBehindProducts;
    report.contentionSeconds = breakdown.contention;
    report.collectives = std::move(breakdown.collectives);
    report.timeParts = std::move(breakdown.time);
    report.tensorCollectives = std::move(breakdown.tensorCollectives);
    std::map<std::string, size_t> indices;
    for (size_t i = 0; i < problem.nodes.size(); ++i) indices.emplace(problem.nodes[i].name, i);
    for (planner::NodeExplanation &choice : planner::explainAll(*decided)) {
      const std::string &part = breakdown.parts[indices.at(choice.nodes[0])];
      report.nodes.push_back({part, std::move(choice)});
    }
    planner::MemoryOverTime memory;
    take(planner::memoryOverTime(*decided), memory, "memory over time");
    if (!memory.ranks.empty()) report.memoryOverTime = memory.ranks[memory.fullest];
    for (std::vector<planner::MemoryPoint> &points : memory.ranks)
      report.rankMemory.emplace_back().overTime = std::move(points);
    take(planner::sensitivities(*decided), report.sensitivities, "sensitivity");
  } else
    report.notes.push_back(fmt::format("nothing beside the choice can be told: {}", decided.status().message()));
  if (decision.twiceMemorySeconds > 0)
    report.sensitivities.push_back({"memory (split chosen again)", decision.twiceMemorySeconds});
  report.source = packSource(problem, cluster);
  return report;
}

std::string proofText(const ReportedProof &proof) {
  if (!proof.isProved) {
    constexpr size_t shown = 160; // a reason may have a long formula
    const std::string why = proof.why.size() <= shown
                                ? proof.why
                                : proof.why.substr(0, shown) + " ... (`cleave verify --proof --details` has the rest)";
    const std::string gap = why.empty() ? "" : "no proof was found, and nothing is known to be wrong: " + why;
    if (proof.verifiedSteps == 0) return gap;
    return fmt::format("verified by running: {} steps agree with the unsplit model's{}", proof.verifiedSteps,
                       gap.empty() ? "" : "; " + gap);
  }
  return std::string("proved: the split computes what the file says") +
         (proof.roundsElsewhere ? "; sums are rounded to 16 bits in other places" : "");
}

std::string comparedPlans(const Report &report) {
  std::string plans = "plans with one ZeRO stage for all parameters, operations split in the ways that were looked at";
  if (report.schedule == "zb-1p" || report.schedule == "zb-2p") plans += ", schedules but zb-1p and zb-2p";
  return plans;
}

} // namespace cleave::report
