#include "compiler/planner/split/split_candidates.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/problem/pins.h"
#include "compiler/tuning.h"
#include "runtime/base/names/glob.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace cleave::planner {
namespace {

// The dimension that splitting `factor` splits; `whole` where the tensor does not have it.
Layout layoutOf(const dist::FactorRule &rule, const dist::TensorFactors &dims, int64_t factor) {
  int64_t dim = dimOf(rule, dims, factor);
  return dim < 0 ? whole : Layout(dim);
}

// One factor of a node that tensor parallelism splits, and what batch axes and microbatches leave of the samples.
struct LocalSizes {
  int64_t split = -1, ways = 1;
  int64_t batchFactor = -1;
  double batchScale = 1;
  int64_t contextFactor = -1;
  double contextScale = 1;
  std::vector<std::pair<int64_t, double>> laid; // factors of laid axes and what is left of them

  double elements(const Node &node) const {
    double count = 1;
    for (size_t f = 0; f < node.rule.factors.size(); ++f) count *= of(node, int64_t(f));
    return count;
  }

  double of(const Node &node, int64_t factor) const {
    double size = double(node.rule.factors[size_t(factor)].size);
    if (factor == split) size /= double(ways);
    if (factor == batchFactor) size *= batchScale;
    if (factor == contextFactor) size *= contextScale;
    for (auto [laidFactor, scale] : laid)
      if (factor == laidFactor) size *= scale;
    return size;
  }
};

// The matrix product that a heavy node is: factors by which of its tensors have them. A convolution counts as the
// product it is without its windows' overlap. A grouped product is as many products as there are groups, each of as many
// rows.
Product productOf(const Node &node, const LocalSizes &local) {
  Product product;
  if (node.operands.size() < 2 || node.results.size() != 1) return {1e9, 1e9, 1e9, 1};
  const int64_t groups = groupFactor(node.rule);
  for (int64_t factor = 0; factor < int64_t(node.rule.factors.size()); ++factor) {
    bool inA = indexes(node.rule.operands[0], factor), inB = indexes(node.rule.operands[1], factor);
    bool inResult = indexes(node.rule.results[0], factor);
    double size = local.of(node, factor);
    if (factor == groups)
      product.batch *= size, product.m /= size;
    else
      (inA && inB && inResult ? product.batch : inA && inB ? product.k : inA ? product.m : product.n) *= size;
  }
  if (product.m < 1) product.batch *= product.m, product.m = 1; // groups without a row
  return product;
}

// At whose rate a node computes: in fp8 only products of elements of 8 bits are faster than those of 16.
std::string precisionOf(const Problem &problem, const Node &node) {
  if (problem.precision != "fp8") return problem.precision;
  const bool isEight = !node.cheap && std::ranges::any_of(node.operands, [&](int tensor) {
    return problem.tensors[size_t(tensor)].elementBytes == 1;
  });
  return isEight ? "fp8" : "bf16";
}

// Which pass of a convolution a node is; none: it is a product, or a device's convolutions are products.
std::optional<ConvolutionPass> passOf(const Node &node, const Device &device) {
  if (device.convolutions.block <= 0 || node.results.size() != 1) return std::nullopt;
  if (node.kind.form == dist::Form::Convolution) return ConvolutionPass::Forward;
  if (node.kind.form == dist::Form::TransposedConvolution) return ConvolutionPass::GradInput;
  return std::nullopt;
}

// Weights are [out, in, ...], of all groups and of one: a group is a factor of both operands and of the result.
ConvolutionShape shapeOf(const Node &node, const LocalSizes &local) {
  auto sizeOf = [&](const std::vector<int64_t> &factors) {
    double size = 1;
    for (int64_t factor : factors) size *= local.of(node, factor);
    return size;
  };
  ConvolutionShape shape;
  const auto &weights = node.rule.operands[1];
  shape.groups = productOf(node, local).batch;
  shape.out = std::max(1.0, sizeOf(weights[0]) / shape.groups);
  shape.in = std::max(1.0, sizeOf(weights[1]));
  return shape;
}

// Sums over samples, as a normalization by statistics of the batch: its backward pass waits for sums, too. One kernel
// sums up what another one reads, so that two terms of the gradient stand in memory, in 32 bits.
bool isStatisticOfSamples(const Node &node, int64_t batchFactor) {
  return node.cheap && node.reduces() && node.operands.size() == 1 && batchFactor >= 0 &&
         node.rule.factors[size_t(batchFactor)].kind == dist::Factor::Reduced;
}

// Does another term of a weight's gradient wait while this node makes one? In a pipeline a term in another unit does
// not: that may be a stage of its own.
bool waitsForTerm(const ProblemFacts &facts, const SplitModel &model, int node, int weight) {
  const std::vector<int> &units = model.layout->unitOfNode;
  return std::ranges::any_of(facts.readers[size_t(weight)], [&](const auto &reader) {
    return reader.first > node && (model.setting.pp == 1 || units[size_t(reader.first)] == units[size_t(node)]);
  });
}

void price(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const SplitModel &model,
           int index, Candidate &candidate) {
  const Setting &setting = model.setting;
  const Node &node = problem.nodes[size_t(index)];
  const FusedWork &fused = facts.fused[size_t(index)];
  LocalSizes local{candidate.factor,
                   setting.tp,
                   facts.batchFactors[size_t(index)],
                   double(problem.batch) / double(setting.microbatches) / double(problem.samples) /
                       double(setting.batchWays()),
                   model.contextFactors[size_t(index)],
                   1.0 / double(setting.cp),
                   {}};
  double part = local.batchFactor >= 0 ? local.batchScale : 1.0;
  if (local.contextFactor >= 0) part *= local.contextScale;
  if (candidate.factor >= 0) part /= double(setting.tp);
  for (const LaidAxis &axis : model.laid)
    if (int64_t factor = axis.factors[size_t(index)]; factor >= 0) {
      local.laid.emplace_back(factor, 1.0 / double(axis.size));
      part /= double(axis.size);
    }
  // Attention keeps the tensors of its core on the chip.
  const bool fusesCores = cluster.device.fusedAttention, fusedCore = fusesCores && facts.core[size_t(index)];
  auto isInCore = [&](int tensor) {
    const int producer = facts.producers[size_t(tensor)];
    return producer >= 0 && facts.core[size_t(producer)];
  };
  auto bytes = [&](int tensor, Layout layout) {
    if (fusesCores && isInCore(tensor)) return 0.0;
    // Large constants are one value repeated: the operation has it at hand.
    if (problem.tensors[size_t(tensor)].kind == TensorKind::Constant) return 0.0;
    double size = problem.tensors[size_t(tensor)].bytes() / model.laidParts[size_t(tensor)];
    if (facts.batchDims[size_t(tensor)] >= 0) size *= local.batchScale;
    if (model.contextSplit[size_t(tensor)]) size *= local.contextScale;
    return layout >= 0 ? size / double(setting.tp) : size;
  };
  LocalWork work;
  const bool hasWeights =
      node.operands.size() > 1 && problem.tensors[size_t(node.operands[1])].kind == TensorKind::Parameter;
  work.memoryBound = node.cheap;
  work.isScores = facts.core[size_t(index)];
  if (node.cheap) {
    work.kernels = fusedCore ? 0 : fused.kernels;
    work.isSolo = local.elements(node) <= tuning::soloElements;
  }
  auto isKept = [&](int tensor) {
    return facts.kept[size_t(tensor)] && problem.tensors[size_t(tensor)].kind == TensorKind::Activation;
  };
  // Tensors that go through memory, and the parts of them that do.
  double readAgain = 0; // of what is kept, in the backward pass
  auto sourceOf = [&](size_t o) { return node.cheap ? fused.sources[o] : node.operands[o]; };
  for (size_t o = 0; o < node.operands.size(); ++o) {
    const double read = bytes(sourceOf(o), candidate.uses[o].layout) * (node.cheap ? fused.reads[o] : 1);
    work.bytes += read;
    if (isKept(sourceOf(o))) readAgain += read;
  }
  for (size_t r = 0; r < node.results.size(); ++r) {
    const double written = bytes(node.results[r], candidate.results[r]) * (node.cheap ? fused.writes[r] : 1);
    work.bytes += written;
    if (isKept(node.results[r])) work.kept += written;
  }
  int64_t heads = facts.sequence.heads[size_t(index)];
  if (node.cheap && work.isScores && !fusedCore && heads >= 0 && local.batchFactor >= 0 &&
      std::fmod(local.of(node, heads) * local.of(node, local.batchFactor), cluster.device.softmaxMatrices) != 0) {
    // Each of a softmax's two reductions counts half of its further kernels.
    if (node.reduces()) work.kernels += (constants::unfusedSoftmaxKernels - 1) / 2;
    work.bytes *= constants::unfusedSoftmaxTraffic;
  }
  auto inHand = [&](int tensor, Layout layout) {
    if (problem.tensors[size_t(tensor)].kind != TensorKind::Activation) return;
    const bool passes = isInCore(tensor) && model.isOnRing(facts.producers[size_t(tensor)]);
    const double size = bytes(tensor, layout) * model.partAtOnce(tensor) / (passes ? double(setting.cp) : 1);
    if (!facts.kept[size_t(tensor)] || passes) candidate.values += aligned(size);
    if (facts.needsGradient[size_t(tensor)])
      candidate.gradients += aligned(size * facts.gradientRatios[size_t(tensor)]);
  };
  for (size_t o = 0; o < node.operands.size(); ++o) {
    // It lies as this operation reads it, whether its kernel reads it for this operation or for another one.
    const bool isFirst = std::ranges::find(node.operands, node.operands[o]) - node.operands.begin() == ptrdiff_t(o);
    if (isFirst && facts.waitingGradients.waitsForOperand[size_t(index)][o])
      candidate.gradients += bytes(fused.sources[o], candidate.uses[o].layout) * model.partAtOnce(fused.sources[o]) *
                             facts.gradientRatios[size_t(fused.sources[o])];
    if (!node.cheap || fused.reads[o] != 0) inHand(sourceOf(o), candidate.uses[o].layout);
  }
  for (size_t r = 0; r < node.results.size(); ++r)
    if (!node.cheap || fused.writes[r] > 0) inHand(node.results[r], candidate.results[r]);
  if (isStatisticOfSamples(node, facts.batchFactors[size_t(index)]) && facts.needsGradient[size_t(node.operands[0])]) {
    const double width = double(problem.tensors[size_t(node.operands[0])].elementBytes);
    // The gradient lies where one of them was, if it is as wide.
    const double terms = problem.precision == "fp32" ? 1 : 2;
    candidate.gradients += terms * aligned(bytes(node.operands[0], candidate.uses[0].layout) * sizeof(float) / width);
  }
  // Other gradients that wait: how they lie is not this operation's choice.
  candidate.gradients += model.gradientsPast[size_t(index)];
  for (size_t o = 0; o < node.operands.size(); ++o) {
    const Tensor &weight = problem.tensors[size_t(node.operands[o])];
    if (weight.kind != TensorKind::Parameter || !weight.trainable) continue;
    const double gradient = double(weight.elements() * weight.gradientBytes) /
                            model.laidParts[size_t(node.operands[o])] /
                            (candidate.uses[o].layout >= 0 ? double(setting.tp) : 1);
    candidate.weightGradients += gradient;
    if (waitsForTerm(facts, model, index, node.operands[o])) candidate.waitingTerms += gradient;
  }
  const HeldForWeights &held = facts.held[size_t(index)];
  if (held.gradient) candidate.held = bytes(node.results[0], candidate.results[0]);
  for (size_t o = 0; o < node.operands.size(); ++o)
    if (node.operands[o] == held.operand) candidate.held += bytes(held.operand, candidate.uses[o].layout);
  // Only memory-bound operations that draw and compare numbers count their arithmetic: inside a fused kernel
  // nothing else tells a split mask from a whole one.
  if (!node.cheap || node.stopsGradient) work.flops = node.flops * part;
  if (!node.cheap) {
    work.product = productOf(node, local);
    if (node.operands.size() > 1) work.read = bytes(node.operands[1], candidate.uses[1].layout);
    if (hasWeights) work.readSeconds = model.weightSecondsPerByte;
    work.hasOwnWeights = hasWeights;
    work.isGrouped = groupFactor(node.rule) >= 0;
    if (work.isGrouped && !cluster.device.isCpu()) work.kernels = constants::groupedKernels;
    if (!node.results.empty()) work.written = bytes(node.results[0], candidate.results[0]);
  }
  const std::optional<ConvolutionPass> pass = passOf(node, cluster.device);
  ConvolutionShape convolution;
  if (pass) {
    convolution = shapeOf(node, local);
    convolution.inputBytes = bytes(node.operands[0], candidate.uses[0].layout);
    convolution.outputBytes = work.written;
    if (*pass == ConvolutionPass::GradInput) std::swap(convolution.inputBytes, convolution.outputBytes);
    convolution.weightBytes = work.read;
    work.isConvolution = true;
  }
  auto fillBlocks = [&](ConvolutionPass as) {
    if (!pass) return;
    const Blocked blocked = blockedBy(cluster.device.convolutions.block, as, convolution);
    work.flops *= blocked.work;
    work.read = blocked.ordered;
  };
  if (pass) fillBlocks(*pass);
  // Queries meet the keys of each device in a product and in kernels of their own.
  const bool onRing = facts.sequence.inAttention[size_t(index)] && model.isOnRing(index) && !fusedCore;
  if (onRing) {
    work.kernels *= double(setting.cp);
    if (!node.cheap) {
      const bool fromLeft = indexes(node.rule.operands[0], local.contextFactor);
      Product &p = work.product;
      (!work.isScores ? p.k : fromLeft ? p.n : p.m) /= double(setting.cp);
    }
  }
  // The work of a device beside moving bytes; the operation's arithmetic is one an element.
  if (node.cheap && !fusedCore) {
    work.work = node.kind.work;
    work.elements = node.flops * part;
  }
  if (fusedCore && node.kind.work == ElementWork::Function) work.exponentials = node.flops * part;
  const std::string precision = precisionOf(problem, node);
  candidate.forward = operationSeconds(cluster, precision, work);
  if (const ActivationsAgain &again = model.segments.activations[size_t(index)]; again.computes) {
    // One kernel for each value that a product reads; inside of it costs arithmetic only.
    LocalWork once = work;
    once.bytes = once.kept = 0;
    once.kernels = again.sources.empty() ? 0 : 1;
    for (int source : again.sources) once.bytes += bytes(source, candidate.results[0]);
    if (!again.sources.empty()) once.bytes += bytes(node.results[0], candidate.results[0]);
    candidate.activationsAgain = operationSeconds(cluster, precision, once);
    candidate.launchesOfActivations = once.kernels;
  }
  double kept = keptSeconds(cluster, work, model.keptSecondsPerByte);
  candidate.forwardLaunches = work.kernels;
  work.kept = readAgain;
  size_t gradients = 0;
  for (int tensor : node.operands) gradients += facts.needsGradient[size_t(tensor)];
  if (gradients == 0 || node.stopsGradient) return;
  kept += keptSeconds(cluster, work, model.keptSecondsPerByte);
  candidate.kept = std::min(kept, candidate.forward);
  if (node.cheap) {
    // A fused kernel reads what its forward read and the results' gradients, and writes the operands' gradients.
    // It makes what is inside of it again, and as much for the gradients.
    // Pooling finds its windows' elements again to give them their gradients.
    if (fused.isFused) work.bytes *= 2;
    work.exponentials *= constants::backwardExponentials;
    if (fused.isFused || work.work == ElementWork::Window) work.elements *= 2;
    // The launches on GPUs are known of other software, by its passes.
    if (cluster.device.isCpu()) work.kernels += fused.columnSums;
    candidate.backward = operationSeconds(cluster, precision, work);
    candidate.backwardLaunches = work.kernels;
    return;
  }
  // One operation an operand: of as much work, with one of its dimensions summed over instead of k.
  const Product forward = work.product;
  const double result = work.written, weights = work.read, rows = bytes(node.operands[0], candidate.uses[0].layout);
  const double flops = node.backwardFlops * part / double(gradients);
  for (size_t o = 0; o < node.operands.size(); ++o) {
    if (!facts.needsGradient[size_t(node.operands[o])]) continue;
    work.product = o == 0 ? Product{forward.m, forward.k, forward.n, forward.batch}
                          : Product{forward.k, forward.n, forward.m, forward.batch};
    work.flops = flops;
    work.read = o == 0 ? weights : rows + result;
    work.written = o == 0 ? rows : bytes(node.operands[o], candidate.uses[o].layout);
    work.readSeconds = hasWeights && o == 0 ? model.weightSecondsPerByte : 0;
    work.writtenSeconds = hasWeights && o > 0 ? model.weightSecondsPerByte : 0;
    fillBlocks(o > 0                              ? ConvolutionPass::GradWeight
               : pass == ConvolutionPass::Forward ? ConvolutionPass::GradInput
                                                  : ConvolutionPass::Forward);
    candidate.backward += operationSeconds(cluster, precision, work);
    candidate.backwardLaunches += work.kernels;
  }
  if (fusedCore || (onRing && work.isScores)) candidate.backward += candidate.forward; // scores again
}

// Candidates that one factor (or none, or a passed partial sum) gives.
void enumerate(const Node &node, const dist::Mesh &mesh, int64_t batchFactor, int64_t contextFactor,
               const std::vector<int64_t> &laidFactors, std::vector<Candidate> &candidates) {
  size_t operands = node.operands.size(), results = node.results.size();
  candidates.push_back({-1, false, std::vector<Use>(operands), std::vector<Layout>(results, whole)});
  if (mesh.axisSize("tp") <= 1) return;
  for (size_t f = 0; f < node.rule.factors.size(); ++f) {
    const dist::Factor &factor = node.rule.factors[f];
    dist::Axes axes = int64_t(f) == contextFactor ? dist::Axes{"cp", "tp"} : dist::Axes{"tp"};
    if (std::find(laidFactors.begin(), laidFactors.end(), int64_t(f)) != laidFactors.end()) continue;
    if (int64_t(f) == batchFactor || factor.size <= 1 || !dist::canSplit(mesh, node.rule, int64_t(f), axes)) continue;
    Candidate candidate{int64_t(f)};
    for (const auto &dims : node.rule.operands) {
      Layout layout = layoutOf(node.rule, dims, int64_t(f));
      candidate.uses.push_back({layout, layout == whole});
    }
    bool reduced = factor.kind == dist::Factor::Reduced;
    Layout outcome = factor.reduction == dist::Reduction::Sum ? partialSum : partialExtremum;
    bool isConsistent = true;
    for (const auto &dims : node.rule.results) {
      Layout layout = reduced ? outcome : layoutOf(node.rule, dims, int64_t(f));
      // A result without a parallel factor would be computed in full by every device from its part: not a split.
      isConsistent = isConsistent && layout != whole;
      candidate.results.push_back(layout);
    }
    if (isConsistent) candidates.push_back(std::move(candidate));
  }
  if (!node.cheap || node.rule.linearity == dist::FactorRule::NotLinear) return;
  auto isLinear = [&](size_t o) { return o < node.rule.linearOperands.size() && node.rule.linearOperands[o]; };
  Candidate pass{-1, true, std::vector<Use>(operands), std::vector<Layout>(results, partialSum)};
  if (node.rule.linearity == dist::FactorRule::LinearJointly) {
    for (size_t o = 0; o < operands; ++o)
      if (isLinear(o)) pass.uses[o].layout = partialSum;
    candidates.push_back(std::move(pass));
    return;
  }
  for (size_t o = 0; o < operands; ++o) {
    if (!isLinear(o)) continue;
    Candidate one = pass;
    for (size_t other = 0; other < operands; ++other) one.uses[other] = {other == o ? partialSum : whole, other != o};
    candidates.push_back(std::move(one));
  }
}

// Keeps the candidates for which `keep` holds, if there are any.
template <typename Predicate> void prefer(std::vector<Candidate> &candidates, Predicate keep) {
  if (std::ranges::any_of(candidates, keep)) std::erase_if(candidates, std::not_fn(keep));
}

} // namespace

bool pinnedLayout(const Constraints &constraints, const Tensor &tensor, Layout &layout) {
  for (const Pin &pin : constraints.pins) {
    if (!names::matchGlob(pin.glob, tensor.name)) continue;
    layout = whole;
    for (size_t dim = 0; dim < pin.dims.size(); ++dim)
      if (std::find(pin.dims[dim].begin(), pin.dims[dim].end(), "tp") != pin.dims[dim].end())
        layout = Layout(dimensionOf(pin, tensor, dim));
    return true;
  }
  return false;
}

std::vector<Candidate> nodeCandidates(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                      const Constraints &constraints, const SplitModel &model, int index) {
  const Node &node = problem.nodes[size_t(index)];
  std::vector<Candidate> candidates;
  std::vector<int64_t> laidFactors;
  for (const LaidAxis &axis : model.laid) laidFactors.push_back(axis.factors[size_t(index)]);
  enumerate(node, model.setting.mesh(), facts.batchFactors[size_t(index)], model.contextFactors[size_t(index)],
            laidFactors, candidates);

  std::erase_if(candidates, [&](const Candidate &candidate) {
    for (size_t r = 0; r < node.results.size(); ++r) {
      Layout layout = whole;
      if (pinnedLayout(constraints, problem.tensors[size_t(node.results[r])], layout) && candidate.results[r] != layout)
        return true;
    }
    return false;
  });

  auto splitsOperand = [&](const Candidate &candidate, auto isThere) {
    for (size_t o = 0; o < node.operands.size(); ++o)
      if (candidate.uses[o].layout >= 0 && isThere(node.operands[o], candidate.uses[o].layout)) return true;
    return false;
  };
  auto alongSequence = [&](const Candidate &candidate) {
    return candidate.factor >= 0 && splitsOperand(candidate, [&](int tensor, Layout layout) {
             return facts.sequenceDims[size_t(tensor)] == layout;
           });
  };
  auto isWeight = [&](int tensor) { return isMatrix(problem.tensors[size_t(tensor)]); };
  auto splitsWeight = [&](const Candidate &candidate) {
    return splitsOperand(candidate, [&](int tensor, Layout) { return isWeight(tensor); });
  };
  bool isExpensive = !node.cheap && node.flops > 0 && node.flops >= facts.expensiveFlops;
  if (isExpensive && constraints.tensorSplit == TensorSplit::Searched && !constraints.allowRedundantWork)
    prefer(candidates, [](const Candidate &c) { return c.factor >= 0; });
  if (constraints.tensorSplit == TensorSplit::None) prefer(candidates, [](const Candidate &c) { return c.factor < 0; });
  if (constraints.sequenceSplit == SequenceSplit::Off) std::erase_if(candidates, alongSequence);
  if (constraints.tensorSplit == TensorSplit::Megatron) {
    const int64_t vocabulary = facts.vocabularyFactors[size_t(index)], heads = facts.sequence.heads[size_t(index)];
    const bool readsWeight = std::ranges::any_of(node.operands, isWeight);
    // A vocabulary that does not divide (Megatron-LM pads it) is no reason to sum up partial logits: any split will do.
    if (readsWeight && vocabulary >= 0)
      prefer(candidates, [&](const Candidate &c) { return c.factor == vocabulary; });
    else if (readsWeight && !node.cheap)
      prefer(candidates, splitsWeight);
    else if (!readsWeight && heads >= 0)
      prefer(candidates, [&](const Candidate &c) { return c.factor == heads; });
  }
  // Where nothing divides it stays whole: partial sums alone would ask neighbours for what they may not have.
  auto isSplit = [](const Candidate &c) { return c.factor >= 0; };
  if (constraints.sequenceSplit == SequenceSplit::On && node.cheap && std::ranges::any_of(candidates, isSplit))
    prefer(candidates, [&](const Candidate &c) { return c.factor >= 0 || c.passesPartial; });
  if (constraints.sequenceSplit == SequenceSplit::On && facts.residual[size_t(index)])
    prefer(candidates, alongSequence);

  for (Candidate &candidate : candidates) price(problem, facts, cluster, model, index, candidate);
  return candidates;
}

} // namespace cleave::planner
