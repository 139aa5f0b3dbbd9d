#include "compiler/planner/split/pricing.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/split/split_candidates.h"
#include "compiler/tuning.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace cleave::planner {
namespace {

// The times of collectives.
struct Timed {
  double seconds = 0;
  LinkSeconds links;
  Timed &add(const Timed &other, double times = 1) {
    seconds += times * other.seconds;
    links.add(other.links, times);
    return *this;
  }
};

constexpr UseSet wholeBits = 3, partialBit = 4, unsplitBits = wholeBits | partialBit, firstSplitBit = 8;

// Adds collectives of one tensor to a price and, when asked, to a list.
class Ledger {
public:
  // The ledger of a tensor that is repeated `alike` times. `distance`: as collectiveSeconds has it.
  Ledger(const SplitModel &model, int tensor, int64_t alike, CollectiveSink *sink, double otherCollectiveWeight = 1,
         double distance = 0)
      : model(model), tensor(tensor), alike(alike), sink(sink), otherCollectiveWeight(otherCollectiveWeight),
        distance(distance) {}
  // A collective of tensor parallelism. Products hide a part of its time, but nothing hides an all-reduce; the links are
  // busy for the whole time.
  Timed addTensorParallel(Collective collective, double bytes, double times, const char *why) {
    const double wait = waitSeconds(*model.cluster, collective, groupOf(setOf({Axis::Tensor})));
    Timed timed = add(collective, setOf({Axis::Tensor}), bytes, times, why, false, wait);
    if (collective == Collective::AllReduce) return timed;
    const double overlap = model.cluster->device.tensorOverlap;
    if (sink && timed.seconds > 0) sink->back().behindProducts = overlap * timed.seconds;
    timed.seconds = timed.seconds * (1 - overlap) * otherCollectiveWeight;
    return timed;
  }
  Timed add(Collective collective, AxisSet axes, double bytes, double times, const char *why, bool isHideable = false,
            double wait = 0) {
    const GroupShape group = groupOf(axes);
    if (group.size <= 1 || times <= 0) return {};
    double seconds = times * (collectiveSeconds(*model.cluster, collective, group, bytes, distance) + wait);
    if (sink) sink->push_back({collective, axes, false, isHideable, bytes, seconds, times, {tensor}, alike, why});
    return {seconds, linksOf(collective, group, bytes, times)};
  }
  // The time of many small tensors put together into buckets: latency is shared.
  Timed bucketed(Collective collective, AxisSet axes, double bytes, double times, const char *why) {
    const GroupShape group = groupOf(axes);
    if (group.size <= 1 || times <= 0) return {};
    double bucket = std::max(bytes, std::min(double(tuning::bucketBytes), model.gradientBytes));
    double seconds = times * collectiveSeconds(*model.cluster, collective, group, bucket, distance) * bytes / bucket;
    if (sink) sink->push_back({collective, axes, false, true, bytes, seconds, times, {tensor}, alike, why});
    return {seconds, linksOf(collective, group, bytes, times)};
  }

private:
  LinkSeconds linksOf(Collective collective, const GroupShape &group, double bytes, double times) const {
    return LinkSeconds().add(linkSeconds(*model.cluster, collective, group, bytes), times);
  }
  GroupShape groupOf(AxisSet axes) const { return model.setting.group(*model.cluster, axes); }

  const SplitModel &model;
  int tensor;
  int64_t alike;
  CollectiveSink *sink;
  double otherCollectiveWeight, distance;
};

// Is a variable or flow of a segment computed again?
template <class Of> bool isAgain(Recompute how, const Of &of) {
  return how == Recompute::Full || (how == Recompute::Selective && of.inAttention) ||
         (how == Recompute::Activations && of.inActivations);
}

// Forward collectives that bring a tensor from `produced` to all of `uses`.
Timed forwardSeconds(Ledger &ledger, Layout produced, UseSet uses, double bytes, double times) {
  if ((uses & partialBit) && produced != partialSum) return {infinity, {}};
  bool wantsWhole = uses & wholeBits;
  UseSet splits = uses & ~unsplitBits;
  if (produced == whole) return {};
  if (produced == partialSum || produced == partialExtremum) {
    if (wantsWhole || (produced == partialExtremum && splits))
      return ledger.addTensorParallel(Collective::AllReduce, bytes, times,
                                      "partial results of a split reduction are combined");
    if (!splits) return {};
    Timed timed =
        ledger.addTensorParallel(Collective::ReduceScatter, bytes, times,
                                 "partial results of a split reduction are combined, each device keeps a part");
    int others = std::popcount(splits) - 1;
    return timed.add(ledger.addTensorParallel(Collective::AllToAll, bytes, times * others,
                                              "readers want different dimensions split"));
  }
  if (wantsWhole)
    return ledger.addTensorParallel(Collective::AllGather, bytes, times, "a reader needs all of a split tensor");
  int others = std::popcount(splits & ~(firstSplitBit << produced));
  return ledger.addTensorParallel(Collective::AllToAll, bytes, times * others,
                                  "a reader wants another dimension split");
}

// Backward collectives that bring the readers' gradients to the producer's layout.
Timed backwardSeconds(Ledger &ledger, Layout produced, UseSet uses, double bytes, double times) {
  bool partialGradient = uses & 2;
  UseSet splits = uses & ~unsplitBits;
  if (produced >= 0) {
    int others = std::popcount(splits & ~(firstSplitBit << produced));
    Timed timed;
    if (partialGradient)
      timed = ledger.addTensorParallel(Collective::ReduceScatter, bytes, times,
                                       "partial gradients are combined, each device keeps a part");
    return timed.add(ledger.addTensorParallel(Collective::AllToAll, bytes, times * others,
                                              "gradients come back split in another dimension"));
  }
  Timed timed;
  if (partialGradient)
    timed = ledger.addTensorParallel(Collective::AllReduce, bytes, times, "partial gradients are combined");
  return timed.add(ledger.addTensorParallel(Collective::AllGather, bytes, times * std::popcount(splits),
                                            "gradients come back split and are needed whole"));
}

// Bytes kept for the backward pass: the copies that the readers got, and the producer's own. Where communication can
// run beside compute a split tensor that was gathered is gathered again in the backward pass instead, behind the
// product of the other gradient (Korthikanti et al. 2022, section 4.2.2).
double keptBytes(Layout produced, UseSet uses, double bytes, double ways, bool gathersAgain) {
  bool wantsWhole = (uses & wholeBits) && !(gathersAgain && produced >= 0);
  UseSet splits = uses & ~unsplitBits;
  if (produced == whole || uses == 0) return produced >= 0 ? bytes / ways : bytes;
  if (produced >= 0) {
    int others = std::popcount(splits & ~(firstSplitBit << produced));
    return bytes / ways * (1 + others) + (wantsWhole ? bytes : 0);
  }
  if (wantsWhole || !splits) return bytes;
  return bytes / ways * std::popcount(splits);
}

} // namespace

UseSet bit(const Use &use) {
  if (use.layout == whole) return use.partialGradient ? 2 : 1;
  if (use.layout < 0) return partialBit;
  return firstSplitBit << use.layout;
}

double weightPart(const SplitModel &model, const Variable &variable) {
  int weights = 0, others = 0;
  for (int tensor : model.problem->nodes[size_t(variable.index)].operands) {
    const Tensor &operand = model.problem->tensors[size_t(tensor)];
    if (operand.kind == TensorKind::Parameter)
      weights += operand.trainable;
    else if (operand.kind == TensorKind::Activation)
      ++others;
  }
  return weights == 0 ? 0 : double(weights) / double(weights + others);
}

double gradientsInRoom(const SplitModel &model, const Variable &variable, size_t home) {
  const Layout layout = variable.homes[home];
  const double bytes = model.gradientBytesOf(variable.index, layout);
  if (model.setting.addsUpGradients() || variable.shares.empty() || bytes == 0) return 0;
  const bool isShard = model.setting.zero >= 2 && model.zeroDimension(variable.index, layout) >= 0;
  return aligned(isShard ? bytes / double(model.setting.zeroWays()) : bytes) + bufferAlignment;
}

Cost nodePrice(const SplitModel &model, const Variable &variable, size_t candidate) {
  const Candidate &chosen = variable.candidates[candidate];
  const double times = double(variable.count) * double(model.setting.microbatches);
  const double weights = weightPart(model, variable);
  const Recompute how = model.setting.recompute;
  const bool isWhole = how != Recompute::Activations && isComputedAgain(model, variable); // reads nothing that was kept
  const double backward = (chosen.backward + (isWhole ? 0 : chosen.kept)) * times;
  Cost cost;
  cost.forward = chosen.forward * times;
  cost.again = secondsAgain(how, variable, chosen) * times;
  cost.backwardInput = backward * (1 - weights) + cost.again;
  cost.backwardWeight = backward * weights;
  return cost;
}

namespace {

// Into how many parts ZeRO cuts what is exchanged: a parameter's gradient, as that parameter's stage says.
double partsOf(const SplitModel &model, const Exchange &exchange) {
  if (!exchange.isCut) return 1;
  const int home = model.variableOfTensor[size_t(exchange.tensors[0])];
  return model.zeroStage(model.variables[size_t(home)].index) >= 1 ? double(model.setting.zeroWays()) : 1;
}

// Collectives that the passes wait for: in all, and in the forward pass.
Cost waitedFor(const Timed &all, const Timed &forward) {
  Cost cost;
  cost.communication = all.seconds;
  cost.communicationForward = forward.seconds;
  cost.links = all.links;
  cost.linksForward = forward.links;
  if (all.seconds == infinity) return cost;
  cost.forward = forward.seconds;
  cost.backwardInput = all.seconds - forward.seconds;
  return cost;
}

} // namespace

Cost exchangePrice(const SplitModel &model, const Variable &variable, size_t candidate, CollectiveSink *sink) {
  Timed all, ofForward;
  const bool again = isComputedAgain(model, variable);
  for (const Exchange &exchange : variable.candidates[candidate].exchanges) {
    double times = double(variable.count) * (exchange.onceAStep ? 1.0 : double(model.setting.microbatches));
    GroupShape group = exchange.group;
    double bytes = exchange.bytes / partsOf(model, exchange);
    if (exchange.isOverBatch()) {
      group = model.setting.group(*model.cluster, model.setting.batchSet());
      if (exchange.collective != Collective::AllReduce) bytes *= double(group.size);
    }
    double one = collectiveSeconds(*model.cluster, exchange.collective, group, bytes);
    if (!exchange.onceAStep) one += waitSeconds(*model.cluster, exchange.collective, group);
    const Timed once{one * times,
                     LinkSeconds().add(linkSeconds(*model.cluster, exchange.collective, group, bytes), times)};
    const double passes = exchange.forward * (again && exchange.isSum() ? 2 : 1) + exchange.backward;
    ofForward.add(once, exchange.forward);
    all.add(once, passes);
    if (sink) {
      times *= passes;
      const AxisSet axes = exchange.isOverBatch() ? model.setting.batchSet() : exchange.axes;
      const bool isOnRing = axes == setOf({Axis::Sequence}) && model.isOnRing(variable.index);
      std::vector<int> tensors(exchange.tensors.begin(), exchange.tensors.end());
      std::erase(tensors, -1);
      // On a laid axis not all repetitions may need it.
      const double part = std::min(1.0, std::max(exchange.forward, exchange.backward));
      const int64_t alike = std::max(1L, std::lround(part * double(variable.count)));
      sink->push_back({exchange.collective, axes, isOnRing, false, bytes, one * times, times, std::move(tensors), alike,
                       exchange.why});
      sink->back().forward = passes > 0 ? exchange.forward / passes : 0;
      sink->back().backward = 1 - sink->back().forward;
    }
  }
  return waitedFor(all, ofForward);
}

namespace {

// Adds the update's work beside passing over the parameter: its products, in fp32, and the exchanges of devices with
// parts of it for them and for norms.
void addUpdateWork(const SplitModel &model, const Variable &variable, Layout layout, bool isSharded, Ledger &ledger,
                   Cost &price) {
  const UpdateWork &work = model.problem->tensors[size_t(variable.index)].update;
  if (work.splits.empty()) return;
  const Setting &setting = model.setting;
  const double count = double(variable.count);
  double flops = work.flops;
  auto split = [&](int64_t dim, double ways, AxisSet axes) {
    const UpdateWork::Split &along = work.splits[size_t(dim)];
    if (work.flops > 0) {
      const double alike = along.wholeFlops / work.flops;
      flops *= alike + (1 - alike) / ways;
    }
    auto exchange = [&](Collective collective, double bytes, double times, const char *why) {
      if (times > 0) price.exposed += ledger.add(collective, axes, bytes / times, count * times, why).seconds;
    };
    exchange(Collective::AllGather, along.gathered, along.gathers,
             "an update needs what other devices have of its parameter");
    exchange(Collective::AllReduce, along.summed, along.sums, "an update sums over parts of its parameter");
  };
  const dist::Sharding lies = model.parameterLayout(variable.index, layout);
  const dist::Mesh mesh = setting.mesh();
  for (size_t dim = 0; dim < lies.dims.size(); ++dim) {
    int64_t ways = 1;
    for (const std::string &axis : lies.dims[dim]) ways *= mesh.axisSize(axis);
    if (ways > 1) split(int64_t(dim), double(ways), setOfNames(lies.dims[dim]));
  }
  if (isSharded) split(model.zeroDimension(variable.index, layout), double(setting.zeroWays()), setting.zeroSet());
  if (flops <= 0) return;
  LocalWork product;
  product.flops = flops;
  product.kernels = work.products;
  const double side = std::cbrt(flops / work.products / 2);
  product.product = {side, side, side, 1};
  product.bytes = work.products * 3 * side * side * sizeof(float);
  price.update += count * operationSeconds(*model.cluster, "fp32", product);
}

// The cost of a parameter with this ZeRO stage.
Cost stagePrice(const SplitModel &model, const Variable &variable, size_t home, int zero, CollectiveSink *sink,
                bool isChoice) {
  const Tensor &tensor = model.problem->tensors[size_t(variable.index)];
  const Setting &setting = model.setting;
  Layout layout = variable.homes[home];
  double count = double(variable.count), microbatches = double(setting.microbatches);
  double local = model.parameterBytes(variable.index, layout);
  int64_t ways = model.zeroDimension(variable.index, layout) >= 0 ? setting.zeroWays() : 1;
  double shard = local / double(ways);
  double gradientRatio = double(tensor.gradientBytes) / double(tensor.elementBytes);
  Cost price;
  price.parameters = count * aligned(zero >= 3 ? shard : local);
  if (!tensor.trainable) return price;
  price.parameters *= double(setting.weightVersions);
  double gradient = local * gradientRatio, gradientShard = shard * gradientRatio;
  // With the sum of its squares, until the norm of all gradients is known.
  price.inRoom = count * gradientsInRoom(model, variable, home);
  price.gradients = count * (aligned(zero >= 2 ? gradientShard : gradient) + bufferAlignment) - price.inRoom;
  // Beside the batch axes: devices with other parts of the sequence, and those with other experts and samples.
  const bool overExperts = setting.ep > 1 && model.sumsOverExperts[size_t(variable.index)];
  const int64_t parts = setting.cp * (overExperts ? setting.ep : 1);
  const int64_t gradientWays = setting.batchWays() * parts;
  // A gradient of which no other device has a part becomes its mean where it was summed; in fp16 not everything does,
  // since a step whose gradients are not finite keeps what was there.
  const bool isMeanOfSum = gradientWays <= 1 && model.problem->precision != "fp16";
  price.means = count * (zero >= 1 && ways > 1 ? gradientShard : isMeanOfSum ? 0 : gradient);
  constexpr double stateElementBytes = 4; // of each of the optimizer's states
  double stateElements = (zero >= 1 ? shard : local) / double(tensor.elementBytes);
  // Means over rows and over columns are two tensors, of which a split leaves one whole.
  const double means = double(tensor.elements()) * tensor.meansBytes;
  price.optimizer = count * (aligned(stateElements * stateElementBytes) * (tensor.optimizerBytes - tensor.meansBytes) /
                                 stateElementBytes +
                             (means > 0 ? means + 2 * bufferAlignment : 0));
  const double distance = model.stateBytes / double(zero >= 1 ? ways : 1); // all of it comes by once a step
  // Reads parameter, gradient and state, writes parameter and state.
  LocalWork update;
  update.memoryBound = true;
  update.isUpdate = true;
  update.kernels = 0; // one for many parameters
  // A moving average is three operations and so is taking the step; roots and quotients are most of Adam's time.
  double averages = (tensor.optimizerBytes - tensor.masterBytes) / stateElementBytes;
  update.work = averages > 1 ? ElementWork::Division : ElementWork::Arithmetic;
  update.elements = stateElements * (averages > 1 ? averages : 3 + 3 * averages);
  // The norm reads the gradient once more; of GPUs `updateTraffic` has it.
  const double gradientReads = model.cluster->device.isCpu() ? 2 : 1;
  update.bytes =
      model.cluster->device.updateTraffic * stateElements *
      (gradientReads * double(tensor.gradientBytes) + 2 * double(tensor.elementBytes) + 2 * tensor.optimizerBytes);
  // The part that a device updates is cut out of the whole first, by a copy for each parameter.
  if (model.cluster->device.isCpu() && ways > 1 && (zero == 1 || zero == 2)) {
    update.bytes += 2 * stateElements * double(tensor.elementBytes);
    update.kernels = 1;
    update.isSolo = stateElements <= tuning::soloElements;
  }
  update.distance = distance;
  update.age = model.stepSeconds;
  // Every microbatch but one adds its gradient to the sum: reads both, writes the sum. (A product that adds to what is
  // there, codegen/add_in_place.cpp, does with less.)
  update.bytes += (microbatches - 1) * 3 * (zero >= 2 ? gradientShard : gradient);
  price.update = count * operationSeconds(*model.cluster, model.problem->precision, update);
  Ledger ledger(model, variable.index, variable.count, sink, 1, distance);
  if (!(isChoice && model.presetSplitsWeights))
    addUpdateWork(model, variable, layout, zero >= 1 && ways > 1, ledger, price);

  if (movesState(setting.offload) && price.optimizer >= count * tuning::leastOnHost) {
    // Comes while the parameter before is updated, and leaves while the next one is; both ways at once.
    price.host = std::exchange(price.optimizer, 0);
    price.hostSeconds = hostCopySeconds(*model.cluster, price.host, count);
    price.hostExposed = std::max(0.0, price.hostSeconds - model.cluster->device.overlap * price.update);
    price.exposed += price.hostExposed;
  }

  const AxisSet partSet = overExperts ? setOf({Axis::Sequence, Axis::Experts}) : setOf({Axis::Sequence});
  if (gradientWays <= 1) return price;
  // Compute that hides a collective takes longer for it.
  const Device &device = model.cluster->device;
  const double slows = (zero >= 2 ? device.overlap : device.gradientOverlap) > 0 ? device.interference : 0;
  auto hide = [&](const Timed &timed) {
    price.exposed += slows * timed.seconds;
    price.hideable += (1 - slows) * timed.seconds;
    price.hideableLinks.add(timed.links, 1 - slows);
  };
  if (zero == 0 || ways == 1) {
    hide(ledger.bucketed(Collective::AllReduce, setting.batchSet() | partSet, gradient, count,
                         "gradients are summed over the batch"));
    return price;
  }
  const AxisSet shards = setting.zeroSet();
  double reductions = count * (zero >= 2 ? microbatches : 1.0);
  hide(ledger.bucketed(Collective::ReduceScatter, shards, gradient, reductions,
                       "gradients are summed over the batch, each device keeps its shard (ZeRO)"));
  if (setting.replicas() > 1)
    hide(ledger.bucketed(Collective::AllReduce, AxisSet(setting.batchSet() & ~unsigned(shards)), gradientShard,
                         reductions, "gradient shards are summed over the replicas"));
  if (parts > 1)
    hide(ledger.bucketed(Collective::AllReduce, partSet, gradientShard, reductions,
                         overExperts ? "gradient shards are summed over devices with other experts"
                                     : "gradient shards are summed over the parts of the sequence"));
  if (zero >= 3) {
    // Recomputation in the backward pass uses the same gathered parameter as the backward itself. A collective each:
    // parameters are gathered one by one, where they are used.
    hide(ledger.add(Collective::AllGather, shards, local, (count + variable.readBack) * microbatches,
                    "parameters are gathered where they are used, forward and backward (ZeRO-3)", true));
  } else {
    // Layer by layer before the next step's forward pass needs them, which hides them.
    hide(ledger.bucketed(Collective::AllGather, shards, local, count, "updated parameter shards are gathered (ZeRO)"));
  }
  return price;
}

} // namespace

Cost homePrice(const SplitModel &model, const Variable &variable, size_t home, CollectiveSink *sink, bool isChoice) {
  Cost price = stagePrice(model, variable, home, model.zeroStage(variable.index), sink, isChoice);
  if (!model.lowers.empty() && model.lowers[size_t(variable.index)]) price.hideableLower = price.hideable;
  return price;
}

StepPrice stepPrice(const SplitModel &model, CollectiveSink *sink) {
  const Setting &setting = model.setting;
  constexpr double bytes = 4;
  StepPrice price;
  auto add = [&](AxisSet axes, bool isOfEachRank, const char *why, const std::vector<int> &tensors, double times) {
    const GroupShape group = setting.group(*model.cluster, axes);
    const double seconds = times * collectiveSeconds(*model.cluster, Collective::AllReduce, group, bytes);
    price.exposed += seconds;
    if (isOfEachRank) price.ofEachRank += seconds;
    if (sink && seconds > 0)
      sink->push_back(
          {Collective::AllReduce, axes, false, false, bytes, seconds, times, tensors, 1, why, 0, isOfEachRank});
  };
  const auto results = double(model.stepSums.size());
  if (results > 0)
    add(setting.batchSet(), false,
        setting.pp > 1 ? "the step's sums over the samples, on the last stage" : "the step's sums over the samples",
        model.stepSums, 1);
  auto isInShards = [&](const Variable &variable) { return variable.isHome && model.zeroStage(variable.index) >= 1; };
  if (std::ranges::any_of(model.variables, isInShards))
    add(setting.zeroSet(), true, "the norm of gradients in shards", {}, 1);
  add(setOf({Axis::Tensor}), true, "the norm of gradients in parts", {}, 1);
  if (results > 0)
    add(setOf({Axis::Pipeline}), true, "the step's sums are told to all stages", model.stepSums, results);
  add(setOf({Axis::Pipeline}), true, "the norm of all stages' gradients", {}, 1);
  return price;
}

bool isSentAgain(const SplitModel &model, const Flow &flow) {
  const Recompute how = model.setting.recompute;
  if (!isAgain(how, flow)) return false;
  return flow.inSegment ? flow.isNeeded : how == Recompute::Full && flow.leavesSegment;
}

Cost flowPrice(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses, CollectiveSink *sink,
               double otherCollectiveWeight) {
  Cost cost = transferPrice(model, flow, produced, uses, sink, otherCollectiveWeight);
  const KeptBytes kept = flowBytes(model, flow, produced, uses);
  cost.kept = kept.here;
  cost.keptOnHost = kept.onHost;
  cost.sums = sumBytes(model, flow, produced, uses);
  return cost;
}

Cost transferPrice(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses, CollectiveSink *sink,
                   double otherCollectiveWeight) {
  const Setting &setting = model.setting;
  const bool isParameter = model.problem->tensors[size_t(flow.tensor)].kind == TensorKind::Parameter;
  if (flow.producer < 0) return uses & partialBit ? waitedFor({infinity, {}}, {}) : Cost();
  if (setting.tp <= 1 || !uses) return {};
  Ledger ledger(model, flow.tensor, flow.count, sink, isParameter ? 1 : otherCollectiveWeight);
  const double count = double(flow.count), microbatches = double(setting.microbatches);
  // A parameter that was gathered is gathered again in the backward pass: it does not stay whole between the two.
  const bool readBack = isParameter && model.variables[size_t(flow.producer)].readBack > 0;
  const double passes = isSentAgain(model, flow) || readBack ? 2 : 1;
  size_t listed = sink ? sink->size() : 0;
  auto markNew = [&](double forward) {
    for (; sink && listed < sink->size(); ++listed) {
      (*sink)[listed].forward = forward;
      (*sink)[listed].backward = 1 - forward;
    }
  };
  Timed all = forwardSeconds(ledger, produced, uses, flow.bytes, count * microbatches * passes);
  markNew(1 / passes);
  Timed ofForward;
  ofForward.add(all, 1 / passes);
  // A parameter's gradient is summed over the microbatches before it is combined.
  if (flow.gradient)
    all.add(backwardSeconds(ledger, produced, uses, flow.bytes, isParameter ? count : count * microbatches));
  markNew(0);
  return waitedFor(all, ofForward);
}

double nodeWorkspace(const SplitModel &model, const Variable &variable, size_t candidate, double handedOn) {
  const Candidate &chosen = variable.candidates[candidate];
  return std::max(chosen.values, chosen.gradients + handedOn + chosen.waitingTerms +
                                     (model.setting.passesGradientsOn() ? chosen.weightGradients : 0));
}

double handedOnBytes(const SplitModel &model, const Flow &flow, Layout produced, const Flow::Read &read,
                     size_t candidate) {
  const bool isActivation = model.problem->tensors[size_t(flow.tensor)].kind == TensorKind::Activation;
  if (!flow.gradient || !isActivation || flow.producer < 0 || model.setting.tp <= 1) return 0;
  const Variable &reader = model.variables[size_t(read.variable)];
  if (model.problem->nodes[size_t(reader.index)].stopsGradient) return 0;
  const Layout made = std::max(reader.candidates[candidate].uses[read.operand].layout, whole);
  const Layout wanted = std::max(produced, whole); // of partial results: whole
  if (made == wanted) return 0;
  return aligned(flow.bytes * flow.gradientRatio / (wanted >= 0 ? double(model.setting.tp) : 1));
}

KeptBytes flowBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses) {
  const Setting &setting = model.setting;
  const Tensor &tensor = model.problem->tensors[size_t(flow.tensor)];
  const double count = double(flow.count), bytes = flow.bytes * model.partAtOnce(flow.tensor);
  if (tensor.kind == TensorKind::Parameter) return {};
  if (flow.producer < 0)
    return tensor.kind != TensorKind::Constant || flow.saved ? KeptBytes{aligned(bytes) * count} : KeptBytes{};
  bool crosses = setting.recompute == Recompute::Full && flow.leavesSegment && flow.gradient;
  bool isOnChip = flow.inCore && model.cluster->device.fusedAttention;
  const bool passes = flow.isScores && model.isOnRing(model.variables[size_t(flow.producer)].index);
  double kept = keptBytes(produced, uses, bytes, double(setting.tp), gathersAgain(model));
  const bool isSmall = flow.savedWhereSmall && kept <= tuning::smallBytes;
  // Copies count for a tensor that is made again: what it is made from counts by itself. So it is with slices, but for
  // stages, which copy them.
  const bool readsSlices = setting.pp == 1, isMade = flow.madeAgain || (readsSlices && flow.isSlice);
  const bool isSaved = (flow.saved && !isMade) || (readsSlices && flow.savedForSlice);
  const bool isCopied = isMade && !isSmall && produced >= 0 && !crosses;
  if (isCopied) kept -= bytes / double(setting.tp);
  if (((!isSaved && !isSmall && !isCopied) || isOnChip || passes) && !crosses) return {};
  kept = aligned(kept);
  // Recomputed tensors are there one segment at a time.
  if (isRecomputed(model, flow)) return {kept};
  if (!movesActivations(setting.offload)) return {count * kept};
  const double here = double(nearLossOf(setting, flow));
  return {here * kept, (count - here) * kept};
}

double sumBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses) {
  if (model.problem->tensors[size_t(flow.tensor)].kind != TensorKind::Parameter || !flow.gradient) return 0;
  if (produced < 0 || !(uses & wholeBits) || !model.setting.addsUpGradients()) return 0;
  const double ways = model.zeroStage(flow.tensor) >= 2 ? double(model.setting.zeroWays()) : 1;
  return double(flow.count) / ways *
         (model.gradientBytesOf(flow.tensor, whole) - model.gradientBytesOf(flow.tensor, produced));
}

double combinedBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses) {
  const bool isPartial = produced == whole && (uses & bit({whole, true}));
  const UseSet others = uses & ~UseSet(7) & ~(produced >= 0 ? firstSplitBit << produced : UseSet(0));
  if (model.problem->tensors[size_t(flow.tensor)].kind != TensorKind::Parameter || !flow.gradient ||
      (!isPartial && !others))
    return 0;
  return model.setting.tp > 1 ? double(flow.count) * model.gradientBytesOf(flow.tensor, produced) : 0;
}

double gatheredParameterBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses) {
  const bool isParameter = model.problem->tensors[size_t(flow.tensor)].kind == TensorKind::Parameter;
  if (!isParameter || flow.producer < 0 || model.setting.tp <= 1 || produced < 0) return 0;
  if (!(uses & ~(firstSplitBit << produced))) return 0;
  const double passes = model.variables[size_t(flow.producer)].readBack > 0 ? 2 : 1;
  return double(flow.count) * passes * aligned(flow.bytes);
}

int nearLossOf(const Setting &setting, const Flow &flow) {
  if (setting.pp > 1) return 0; // of a stage's microbatch others are in between
  return setting.recompute == Recompute::Full ? flow.nearLossAgain : flow.nearLoss;
}

bool gathersAgain(const SplitModel &model) {
  return model.setting.grid != TensorGrid::None || (model.setting.tp > 1 && model.cluster->device.overlap > 0);
}

bool isComputedAgain(const SplitModel &model, const Variable &variable) {
  return variable.inSegment && isAgain(model.setting.recompute, variable);
}

double secondsAgain(Recompute how, const Variable &variable, const Candidate &candidate) {
  if (!variable.inSegment || !isAgain(how, variable)) return 0;
  return how == Recompute::Activations ? candidate.activationsAgain : candidate.forward;
}

double launchesAgain(Recompute how, const Variable &variable, const Candidate &candidate) {
  if (!variable.inSegment || !isAgain(how, variable)) return 0;
  return how == Recompute::Activations ? candidate.launchesOfActivations : candidate.forwardLaunches;
}

bool isRecomputed(const SplitModel &model, const Flow &flow) {
  return flow.inSegment && isAgain(model.setting.recompute, flow);
}

Layout producedLayout(const SplitModel &model, const Flow &flow, const std::vector<int> &choice) {
  if (flow.producer < 0) return whole;
  const Variable &variable = model.variables[size_t(flow.producer)];
  size_t chosen = size_t(choice[size_t(flow.producer)]);
  return variable.isHome ? variable.homes[chosen] : variable.candidates[chosen].results[flow.result];
}

double sentBytes(const SplitModel &model, const Flow &flow, const std::vector<int> &choice) {
  return flow.bytes / (producedLayout(model, flow, choice) >= 0 ? double(model.setting.tp) : 1);
}

UseSet usesOf(const SplitModel &model, const Flow &flow, const std::vector<int> &choice) {
  UseSet uses = 0;
  for (const Flow::Read &read : flow.reads)
    uses |= bit(
        model.variables[size_t(read.variable)].candidates[size_t(choice[size_t(read.variable)])].uses[read.operand]);
  return uses;
}

} // namespace cleave::planner
