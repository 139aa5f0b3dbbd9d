#include "compiler/planner/cost/step_evaluation.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/cost/update_bytes.h"
#include "compiler/planner/infinity.h"
#include "compiler/tuning.h"
#include "runtime/plan/input_stages.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

namespace cleave::planner {
namespace {

// The overlap of parameters with this ZeRO stage.
Overlap overlapOf(const SplitModel &model, int zero) {
  const double all = model.cluster->device.overlap, microbatches = double(model.setting.microbatches);
  if (zero >= 3) return {all, all};
  if (zero == 2) return {all / microbatches, all};
  // Only the last microbatch's backward makes final gradients; only the first one's forward waits for parameters.
  const double part = model.cluster->device.gradientOverlap / microbatches;
  return {zero == 1 ? part : 0, part};
}

} // namespace

Overlap overlapOf(const SplitModel &model) { return overlapOf(model, model.setting.zero); }

PassSeconds PassSeconds::of(const Cost &work, double microbatches) {
  const double forward = work.computeForward();
  PassSeconds passes{microbatches * forward, microbatches * (work.compute() - forward),
                     microbatches * work.communicationForward,
                     microbatches * (work.communication - work.communicationForward)};
  passes.linksForward.add(work.linksForward, microbatches);
  passes.linksBackward.add(work.links, microbatches).add(work.linksForward, -microbatches);
  return passes;
}

PassSeconds &PassSeconds::add(const PassSeconds &other, double times) {
  forward += times * other.forward;
  backward += times * other.backward;
  waitedForward += times * other.waitedForward;
  waitedBackward += times * other.waitedBackward;
  linksForward.add(other.linksForward, times);
  linksBackward.add(other.linksBackward, times);
  return *this;
}

namespace {

// Parameters with the lower stage come first, as far as that one may hide; both together have no more room than the
// higher one. Where a cluster file gives gradients more room than ZeRO's collectives (gradient_overlap > overlap) that
// counts less as hidden than could be, and never more.
double hiddenSeconds(const SplitModel &model, double hideable, double lower, double forward, double backward) {
  const Overlap all = overlapOf(model);
  if (lower > 0) {
    const Overlap part = overlapOf(model, model.setting.lowerZero);
    hideable += std::min(0.0, part.forward * forward + part.backward * backward - lower);
  }
  return std::min(hideable, all.forward * forward + all.backward * backward);
}

// The seconds of a step's passes that take turns with collectives beside them, and the product of both sides' seconds
// on the links that they share.
struct SharedLinks {
  double turn = 0, shared = 0;
};
SharedLinks sharedLinks(const SplitModel &model, int zero, const BesideSeconds &beside, const PassSeconds &passes) {
  const Window window = windowOf(model, zero, passes);
  const auto [node, network] = window.links;
  // Groups of several devices in each of several nodes are busy on both links at once, which counts once.
  const double shared =
      std::min(beside.links.node * node + beside.links.network * network, beside.seconds * std::max(node, network));
  return {window.turn(), shared};
}

} // namespace

Window windowOf(const SplitModel &model, int zero, const PassSeconds &passes) {
  const double once = 1 / double(model.setting.microbatches);
  const double forward = zero >= 3 ? 1 : zero >= 1 ? once : 0, backward = zero >= 2 ? 1 : once;
  const Overlap overlap = overlapOf(model, zero);
  Window window{overlap.forward * passes.forward + overlap.backward * passes.backward,
                forward * passes.waitedForward + backward * passes.waitedBackward,
                {}};
  window.links.add(passes.linksForward, forward).add(passes.linksBackward, backward);
  return window;
}

// Compute and waiting take turns all the time, so that what runs beside comes on in proportion: by overlap * compute
// where they compute, and by as much as they do where both have half of a link. Where parameters have two stages, those
// of the higher one run beside those of the lower one, too, as much as its passes are of theirs.
Hidden hide(const SplitModel &model, const BesideSeconds &beside, const PassSeconds &passes) {
  Hidden hidden{hiddenSeconds(model, beside.seconds, beside.lower, passes.forward, passes.backward), 0};
  if (hidden.seconds <= 0) return hidden;
  const double lowerPart = beside.lower / beside.seconds;
  const SharedLinks all = sharedLinks(model, model.setting.zero, beside, passes);
  double longer = 0; // waiting
  if (all.shared > 0) longer = (1 - lowerPart) * all.shared / std::max(beside.seconds, all.turn);
  if (lowerPart > 0) {
    const SharedLinks some = sharedLinks(model, model.setting.lowerZero, beside, passes);
    const double meanwhile = beside.lower + (beside.seconds - beside.lower) * some.turn / all.turn;
    if (some.shared > 0) longer += lowerPart * some.shared / std::max(meanwhile, some.turn);
  }
  // Collectives that are not hidden would have been done in those turns as well.
  hidden.contention = std::max(0.0, longer - (beside.seconds - hidden.seconds));
  return hidden;
}

double holdBySends(const Cluster &cluster, const LinkSeconds &sent, Cost &work) {
  const double turn = std::max(sent.node + sent.network, work.seconds());
  if (turn <= 0 || cluster.node.topology == Link::Topology::Memory) return 0;
  auto held = [&](const LinkSeconds &waited) {
    return (sent.node * waited.node + sent.network * waited.network) / turn;
  };
  const double forward = held(work.linksForward), all = held(work.links), backward = all - forward;
  work.forward += forward;
  work.communicationForward += forward;
  work.backwardInput += backward;
  work.communication += all;
  return all;
}

namespace {

// Bytes of gradients that are there when the backward pass comes to the end of a unit, on a device: of what was made
// before and is read behind it.
double gradientsAtEnd(const SplitModel &model, const std::vector<int> &choice, size_t unit) {
  double bytes = 0;
  for (int index : model.layout->crossings[unit + 1]) {
    const Flow &flow = model.flows[size_t(index)];
    if (flow.gradient) bytes += flow.bytes / (producedLayout(model, flow, choice) >= 0 ? double(model.setting.tp) : 1);
  }
  return bytes;
}

// A segment of a model without repeated blocks is computed again as a whole, whichever units it lies in.
void shareTransients(const UnitLayout &layout, const RecomputeSegments &segments,
                     const std::map<int, double> &ofSegment, std::vector<Cost> &memory) {
  for (const Unit &unit : layout.units) {
    if (unit.isBlock) continue;
    double &transient = memory[size_t(unit.kind)].transient;
    for (int node = unit.first; node < unit.end; ++node)
      if (auto segment = ofSegment.find(segments.segmentOf[size_t(node)]); segment != ofSegment.end())
        transient = std::max(transient, segment->second);
  }
}

// While a segment is computed again its operations have their values in hand, and the gradients at its end wait.
void besideGradients(const SplitModel &model, const std::vector<int> &choice, std::vector<Cost> &memory) {
  const UnitLayout &layout = *model.layout;
  std::vector<double> values(memory.size(), 0.0);
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (variable.isHome || !variable.inSegment) continue;
    for (const UnitShare &share : variable.shares)
      values[size_t(share.kind)] = std::max(values[size_t(share.kind)], variable.candidates[size_t(choice[v])].values);
  }
  std::vector<bool> seen(memory.size(), false); // blocks are alike
  double behind = 0;
  for (size_t u = layout.units.size(); u-- > 0;) {
    const Unit &unit = layout.units[u];
    const int segment = model.segments.segmentOf[size_t(unit.first)];
    if (segment < 0 || seen[size_t(unit.kind)]) continue;
    seen[size_t(unit.kind)] = true;
    const bool isEnd = unit.isBlock || u + 1 == layout.units.size() ||
                       model.segments.segmentOf[size_t(layout.units[u + 1].first)] != segment;
    if (isEnd) behind = gradientsAtEnd(model, choice, u);
    Cost &one = memory[size_t(unit.kind)];
    one.beside = std::max(one.beside, one.transient + values[size_t(unit.kind)] + behind);
  }
}

// By variable: bytes of gradients that it hands on in another layout than it makes them, which stand beside its own
// until all of them have come.
std::vector<double> gradientsHandedOn(const SplitModel &model, const std::vector<int> &choice) {
  std::vector<double> bytes(model.variables.size(), 0.0);
  for (const Flow &flow : model.flows) {
    const Layout produced = producedLayout(model, flow, choice);
    for (const Flow::Read &read : flow.reads)
      bytes[size_t(read.variable)] += handedOnBytes(model, flow, produced, read, size_t(choice[size_t(read.variable)]));
  }
  return bytes;
}

// A unit's gradients take the room of what it kept for the backward pass: only of the unit at work both are there.
void shareRoom(const SplitModel &model, const std::vector<int> &choice, std::vector<Cost> &memory) {
  std::vector<double> gradients(memory.size(), 0.0);
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (!variable.isHome) continue;
    const double bytes = gradientsInRoom(model, variable, size_t(choice[v]));
    for (const UnitShare &share : variable.shares)
      gradients[size_t(share.kind)] +=
          bytes * double(share.count) / double(model.layout->sizeOfKind[size_t(share.kind)]);
  }
  for (size_t kind = 0; kind < memory.size(); ++kind) {
    Cost &one = memory[kind];
    one.activations = one.kept;
    one.beside += std::min(one.kept, gradients[kind]);
    one.kept = std::max(one.kept, gradients[kind]);
  }
}

// Bytes of one input or label in the stages of a GPU, which have the microbatches one behind the other.
double stagedBytes(const SplitModel &model, const Flow &flow) {
  const TensorKind kind = model.problem->tensors[size_t(flow.tensor)].kind;
  const bool isFed = kind == TensorKind::Input || kind == TensorKind::Label;
  if (!isFed) return 0;
  constexpr auto alignment = double(runtime::stagedAlignment);
  return double(runtime::inputStages * model.setting.microbatches) * std::ceil(flow.bytes / alignment) * alignment;
}

} // namespace

std::vector<double> sumsOfShared(const SplitModel &model, const std::vector<int> &choice) {
  std::vector<double> sums(model.layout->shared.size(), 0.0);
  if (sums.empty()) return sums;
  for (const Flow &flow : model.flows)
    for (size_t i = 0; i < sums.size(); ++i)
      if (model.layout->shared[i].variable == flow.producer)
        sums[i] += sumBytes(model, flow, producedLayout(model, flow, choice), usesOf(model, flow, choice));
  return sums;
}

std::vector<Cost> unitMemory(const SplitModel &model, const std::vector<int> &choice) {
  const UnitLayout &layout = *model.layout;
  const Setting &setting = model.setting;
  const bool isGpu = !computeCapability(model.cluster->device.kind).empty(); // the plan is for a GPU
  std::vector<Cost> memory(size_t(layout.kinds));
  auto partOf = [&](const UnitShare &share) {
    return double(share.count) / double(layout.sizeOfKind[size_t(share.kind)]);
  };
  const std::vector<double> handedOn = gradientsHandedOn(model, choice);
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (variable.isHome) continue;
    for (const UnitShare &share : variable.shares) {
      Cost &sum = memory[size_t(share.kind)];
      sum.held += partOf(share) * variable.candidates[size_t(choice[v])].held;
      sum.workspace = std::max(sum.workspace, nodeWorkspace(model, variable, size_t(choice[v]), handedOn[v]));
    }
  }
  std::map<int, double> ofSegment; // computed again
  std::map<int, double> leaving;   // by use: what comes back at once, of one
  for (const Flow &flow : model.flows) {
    const Layout produced = producedLayout(model, flow, choice);
    const UseSet uses = usesOf(model, flow, choice);
    const KeptBytes bytes = flowBytes(model, flow, produced, uses);
    double sums = sumBytes(model, flow, produced, uses);
    const double combined = combinedBytes(model, flow, produced, uses);
    const double gathered = gatheredParameterBytes(model, flow, produced, uses);
    if (sums > 0 && std::ranges::any_of(layout.shared, [&](const auto &one) { return one.variable == flow.producer; }))
      sums = 0; // sumsOfShared
    const bool isAgain = isRecomputed(model, flow);
    if (isAgain)
      ofSegment[model.segments.segmentOf[size_t(model.variables[size_t(flow.producer)].index)]] += bytes.here;
    for (const UnitShare &share : flow.shares) {
      Cost &sum = memory[size_t(share.kind)];
      (isAgain ? sum.transient : sum.kept) += partOf(share) * bytes.here / (isAgain ? 1.0 : double(flow.count));
      if (isAgain && flow.forWeights) sum.held += partOf(share) * bytes.here;
      if (isGpu) sum.staged += partOf(share) * stagedBytes(model, flow);
      sum.sums += partOf(share) * sums / double(flow.count);
      sum.combined += partOf(share) * combined / double(flow.count);
      sum.gathered += partOf(share) * gathered / double(flow.count);
      if (gathered > 0) sum.largestGathered = std::max(sum.largestGathered, aligned(flow.bytes));
      sum.keptOnHost += partOf(share) * bytes.onHost / double(flow.count);
    }
    if (bytes.onHost > 0) leaving[flow.use] += bytes.onHost / (flow.count - nearLossOf(setting, flow));
  }
  if (!leaving.empty())
    for (const Flow &flow : model.flows)
      if (auto use = leaving.find(flow.use); use != leaving.end())
        for (const UnitShare &share : flow.shares) {
          double &largest = memory[size_t(share.kind)].largestLeaving;
          largest = std::max(largest, use->second);
        }
  shareTransients(layout, model.segments, ofSegment, memory);
  for (Cost &one : memory) one.beside = one.transient + one.workspace;
  if (setting.recompute == Recompute::Full)
    for (const Unit &unit : layout.units)
      if (model.segments.segmentOf[size_t(unit.first)] >= 0) memory[size_t(unit.kind)].unitsAgain = 1;
  if (setting.recompute == Recompute::Full) besideGradients(model, choice, memory);
  shareRoom(model, choice, memory);
  if (setting.exceptLast) { // it has a slot of its own
    SplitModel plain = model;
    plain.setting.exceptLast = false;
    plain.setting.recompute = Recompute::None;
    const std::vector<Cost> all = unitMemory(plain, choice);
    for (size_t kind = 0; kind < memory.size(); ++kind) memory[kind].keptOfLast = all[kind].kept;
  }
  return memory;
}

std::vector<double> gatheredAgain(const SplitModel &model, const std::vector<int> &choice) {
  const UnitLayout &layout = *model.layout;
  std::map<int, double> ofSegment;
  std::vector<std::pair<int, int>> readers; // node and segment
  for (const Flow &flow : model.flows) {
    if (flow.producer < 0 || !model.variables[size_t(flow.producer)].isHome || flow.reads.empty()) continue;
    const Variable &reader = model.variables[size_t(flow.reads[0].variable)];
    if (!reader.inSegment) continue;
    const int segment = model.segments.segmentOf[size_t(reader.index)];
    const Variable &home = model.variables[size_t(flow.producer)];
    ofSegment[segment] += model.gatheredBytes(flow.tensor, home.homes[size_t(choice[size_t(flow.producer)])]);
    readers.emplace_back(reader.index, segment);
  }
  std::vector<double> bytes(size_t(layout.kinds), 0.0);
  for (auto [node, segment] : readers) {
    double &largest = bytes[size_t(layout.units[size_t(layout.unitOfNode[size_t(node)])].kind)];
    largest = std::max(largest, ofSegment[segment]);
  }
  return bytes;
}

void fillRate(const SplitModel &model, int64_t devices, Predicted &predicted) {
  double flops = model.layout->flops * double(model.problem->batch) / double(model.problem->samples);
  if (predicted.stepSeconds > 0) predicted.tflopsPerDevice = flops / predicted.stepSeconds / double(devices) / 1e12;
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
    // Nothing hides the last bucket that leaves in a stage's microbatch and the first that comes.
    if (model.setting.pp > 1) late = std::max(late, 2 * way / tuning::hostBuckets);
    seconds += 2 * way;
  }
  predicted.hostSeconds = seconds;
  predicted.exposedHostSeconds = exposed + late;
  predicted.exposedCommunicationSeconds += late;
  return late;
}

Evaluation evaluate(const SplitModel &model, const std::vector<int> &choice, CollectiveSink *sink) {
  Evaluation result;
  Cost &cost = result.cost;
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (variable.isHome) {
      cost.add(parameterCost(model, variable, size_t(choice[v]), sink));
      continue;
    }
    cost.add(nodePrice(model, variable, size_t(choice[v])));
    cost.add(exchangePrice(model, variable, size_t(choice[v]), sink));
  }
  double keptOnHost = 0; // bytes of a microbatch
  for (const Flow &flow : model.flows) {
    const Layout produced = producedLayout(model, flow, choice);
    const UseSet uses = usesOf(model, flow, choice);
    cost.add(transferPrice(model, flow, produced, uses, sink));
    keptOnHost += flowBytes(model, flow, produced, uses).onHost;
  }
  cost.exposed += stepPrice(model, sink).exposed;
  result.isPossible = cost.communication < infinity;

  const Hidden hidden = hide(model, BesideSeconds::of(cost), PassSeconds::of(cost, 1));
  Predicted &predicted = result.predicted;
  predicted.computeSeconds = cost.compute() + cost.update;
  predicted.hiddenCommunicationSeconds = hidden.seconds;
  predicted.exposedCommunicationSeconds =
      cost.communication + cost.exposed + cost.hideable - hidden.seconds + hidden.contention;
  addHostTime(model, cost.hostSeconds, cost.hostExposed, keptOnHost, cost.computeForward(),
              cost.compute() - cost.computeForward(), predicted);
  predicted.stepSeconds = predicted.computeSeconds + predicted.exposedCommunicationSeconds;
  Cost device = cost;
  for (double sums : sumsOfShared(model, choice)) device.sums += sums;
  const std::vector<Cost> units = unitMemory(model, choice);
  for (size_t kind = 0; kind < units.size(); ++kind) device.add(units[kind], double(model.layout->sizeOfKind[kind]));
  if (model.setting.zero >= 3 && device.unitsAgain > 0)
    device.gatheredAgain = std::ranges::max(gatheredAgain(model, choice));
  predicted.memory = deviceMemory(model.setting, device, device.kept, 0);
  predicted.memory.host += device.keptOnHost;
  fillRate(model, model.setting.devices(), predicted);
  return result;
}

} // namespace cleave::planner
