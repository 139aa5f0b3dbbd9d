// The inner problem of the search: on one mesh, with one microbatch count, which factor does tensor parallelism take in
// every node, and how does every parameter lie? Batch axes are settled already: they split the sample dimension.
//
//   y = Contract x, w     candidates of the node: none; n over tp (y split, x's gradient partial);
//                         k over tp (x split, y partial); m = sequence over tp (w's gradient partial)
//
// Nodes of repeated blocks share one variable. A Flow is a tensor between its producer's choice and its readers'.
#pragma once
#include "compiler/cluster/cost.h"
#include "compiler/planner/facts/fusion.h"
#include "compiler/planner/facts/gradients.h"
#include "compiler/planner/facts/recomputation.h"
#include "compiler/planner/facts/stage_units.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/problem/problem.h"
#include "compiler/planner/problem/setting.h"
#include <array>
#include <memory>

namespace cleave::planner {

// How a tensor lies over tp: a dimension that is split, or one of these.
using Layout = int8_t;
inline constexpr Layout whole = -1, partialSum = -2, partialExtremum = -3;

// The layout that a node asks of an operand, and whether the gradient it returns is a partial sum over tp.
struct Use {
  Layout layout = whole;
  bool partialGradient = false;
  bool operator==(const Use &) const = default;
};

// A collective inside an operation, one microbatch: partial attention over a split sequence, a product on a grid of
// devices, a sum over the samples.
struct Exchange {
  Collective collective = Collective::AllReduce;
  AxisSet axes = 0; // 0: the batch axes, which the setting says, and their group
  GroupShape group;
  double bytes = 0;                 // as in collectiveSeconds; of "batch" what one device has
  double forward = 0, backward = 0; // how often in either pass
  const char *why = "";
  bool onceAStep = false;                        // not for every microbatch
  bool isCut = false;                            // of a parameter's gradient: ZeRO cuts it first
  std::array<int, 4> tensors = {-1, -1, -1, -1}; // that it moves, for reports; -1: none

  bool isOverBatch() const { return axes == 0; }
  // Does it sum partial results? These are made again where the operation is; a gathered operand is gathered again
  // anyway, or kept.
  bool isSum() const { return collective == Collective::AllReduce || collective == Collective::ReduceScatter; }
};

struct Candidate {
  int64_t factor = -1; // that tp splits; -1: none
  bool passesPartial = false;
  std::vector<Use> uses = {};       // an operand each
  std::vector<Layout> results = {}; // a result each
  double forward = 0, backward = 0; // compute seconds of one microbatch on the device
  // Besides, where it is not computed again: what was kept comes from far (cost.h: keptSeconds). Counted in the
  // backward pass, and at most what computing it again takes, so that keeping is never the slower: bounds count on it.
  double kept = 0;
  double activationsAgain = 0, launchesOfActivations = 0; // of what Recompute::Activations does again, likewise
  double forwardLaunches = 0, backwardLaunches = 0;       // kernels that the host hands over
  // Bytes in hand at once: in the forward pass operands and results that are not kept, in the backward pass gradients
  // of both, those of parameters that are added to a sum or scattered then, and other terms of these that wait.
  double values = 0, gradients = 0, weightGradients = 0, waitingTerms = 0;
  double held = 0;                      // bytes of what weights still need where the gradient of the operands has been
                                        // made (a backward pass in two halves); a microbatch
  std::vector<Exchange> exchanges = {}; // collectives that the operation itself needs, whatever its neighbours do
};

// How many of the things that a variable or flow stands for are in units of one kind (stage_units.h).
struct UnitShare {
  int kind = 0, count = 0;
};

struct Variable {
  bool isHome = false;               // of a parameter; else a node's split
  int index = 0;                     // node or tensor, of the first repetition
  int count = 1;                     // how many nodes or parameters it stands for
  bool inSegment = false;            // of recomputation, and needed again there
  bool inAttention = false;          // and computed again by selective recomputation
  bool inActivations = false;        // or by that of activations
  int readBack = 0;                  // so many of the parameters the backward pass reads
  std::vector<Candidate> candidates; // of a node
  std::vector<Layout> homes;         // of a parameter
  std::vector<UnitShare> shares;     // parameters that several units read: UnitLayout::shared
  size_t domain() const { return isHome ? homes.size() : candidates.size(); }
};

// The key by which two tensors are one flow: they come from one variable, go to the same, and live alike.
struct FlowKey {
  struct Read {
    int variable = 0;
    size_t operand = 0;
    auto operator<=>(const Read &) const = default;
  };
  int producer = -1; // variable; -1: input or constant
  size_t result = 0;
  std::vector<Read> reads;
  bool anyLayout = false; // an input: every device takes the part it wants
  bool gradient = false;  // flows back
  // From the forward to the backward pass:
  bool saved = false;           // kept
  bool savedWhereSmall = false; // read by the backward pass, and made again unless it is small
  bool madeAgain = false;       // likewise, from others or where another one lies, but for copies that were gathered
  bool isSlice = false;         // without stages the backward pass reads it where what it is a part of lies
  bool savedForSlice = false;   // which is kept for that
  // In segments of recomputation:
  bool inSegment = false;     // made and read inside of one
  bool isNeeded = false;      // and made again there
  bool leavesSegment = false; // made in one, or read in another than its own
  bool inActivations = false; // made by what recomputation of activations does again
  auto operator<=>(const FlowKey &) const = default;
};

struct Flow : FlowKey {
  int tensor = 0;                // the first it stands for
  int count = 1;                 // how many
  double bytes = 0;              // on one device when not split over tp, one microbatch
  double gradientRatio = 1;      // bytes of its gradient for a byte of it (gradients.h)
  bool forWeights = false;       // read by an operation that makes a parameter's gradient of it
  bool inAttention = false;      // made by what selective recomputation computes again
  bool inCore = false;           // made in the core of an attention (fusion.h)
  bool isScores = false;         // and no maximum or sum of them
  int nearLoss = 0;              // so many of them are read again too soon to leave for the host and come back
  int nearLossAgain = 0;         // and where their reader is computed again before its backward pass
  int use = -1;                  // what the same kernel reads last has the same: a node
  std::vector<UnitShare> shares; // by producer; by first reader where no node makes it
};

// The units that pipeline stages are made of, and what passes between them.
struct UnitLayout {
  struct SharedParameter {
    int variable = 0;
    std::vector<int> units; // that read it
  };
  std::vector<Unit> units;
  int kinds = 0;
  std::vector<int> sizeOfKind; // units of each kind
  // By kind: units with the same number, of one stage, are computed again in full together or not at all: they share a
  // segment, inside of which what one hands another is neither kept nor made again by itself. -1: each by itself.
  std::vector<int> togetherAgain;
  std::vector<int> unitOfNode;
  std::vector<std::vector<int>> crossings; // by unit: flows made before it and read in it or later
  // A flow that may pass over stages: made in one unit and read in others, of which the last is not the next one.
  struct Passing {
    int flow = 0, from = 0;
    std::vector<int> readers; // units, in order
  };
  std::vector<Passing> passing;
  std::vector<SharedParameter> shared;
  double flops = 0, heavyFlops = 0; // of a step's forward and backward pass at Problem::samples; heavy: of what takes
                                    // longer with more samples, but for cheap ones
};

struct SplitModel {
  const Problem *problem = nullptr;
  const Cluster *cluster = nullptr;
  Setting setting;
  SharedTable<Variable> variables;
  SharedTable<Flow> flows;
  SharedTable<int> variableOfNode, variableOfTensor; // the latter -1 but for parameters
  std::shared_ptr<const UnitLayout> layout;
  SharedTable<int64_t> batchDims;
  SharedTable<int64_t> batchFactors;   // per node
  SharedTable<int64_t> contextFactors; // per node: that cp splits; -1: none
  SharedTable<bool> contextByHeads;    // per node: and that factor counts heads
  SharedTable<bool> contextSplit;      // per tensor: lies over cp as its producer leaves it
  SharedTable<LaidAxis> laid;
  SharedTable<double> laidParts;     // per tensor: parts in which it lies over them; parameters too
  SharedTable<double> gradientsPast; // per node: bytes of gradients on their way past it, on a device
  SharedTable<bool> sumsOverExperts; // per tensor: a parameter that all devices along ep have, each for its samples
  AttentionSplit attentionSplit = AttentionSplit::Ring;
  SharedTable<bool> lowers; // per tensor: a parameter with Setting::lowerZero; empty: none (mix_zero.cpp)
  // Activations are whole or split as their producer leaves them, and partial sums are all-reduced at once: what
  // Megatron-LM's tensor parallelism without sequence parallelism means (Shoeybi et al. 2019, its operators f and g).
  // A wish, not a rule: heads or a vocabulary that do not divide leave a weight that only a gather goes with.
  bool onlyAllReduces = false;
  // A preset says which weights are split: what their updates exchange for that is no reason to have them whole.
  bool presetSplitsWeights = false;
  std::vector<int> stepSums; // results that no operation reads, sums over samples
  RecomputeSegments segments;
  double keptSecondsPerByte = 0;   // of what is kept between the passes, where the device has caches
  double stepSeconds = 0;          // roughly; of a CPU with a cacheHoldSeconds
  double weightSecondsPerByte = 0; // the same of weights, which a pass leaves and the next one comes back to
  double weightBytes = 0;          // parameters, before ZeRO
  double stateBytes = 0;           // parameters, gradients and optimizer state, before ZeRO: what a step touches once
  double gradientBytes = 0;        // of all parameters, on a device that has them whole: no bucket is larger

  // Does this node, of an attention, see the keys of one device at a time? Then its scores are made again in the
  // backward pass, and no more than those of one device's keys are there at a time.
  bool isOnRing(int node) const {
    return setting.cp > 1 && attentionSplit == AttentionSplit::Ring && contextFactors[size_t(node)] >= 0 &&
           !contextByHeads[size_t(node)];
  }
  // Bytes of a tensor on one device, one microbatch, not split over tp.
  double localBytes(int tensor) const;
  // Of a tensor's bytes, the part that is there at once: of one that is chunked, a chunk.
  double partAtOnce(int tensor) const {
    return problem->tensors[size_t(tensor)].chunked ? 1 / double(setting.chunks) : 1;
  }
  // The bytes of a parameter whose home is `home`, before ZeRO; and the dimension that ZeRO cuts, -1: none that
  // divides.
  double parameterBytes(int tensor, Layout home) const;
  int64_t zeroDimension(int tensor, Layout home) const;
  // The ZeRO stage of a parameter; and what of it counts as the largest parameter of workspaceBytes(), in bytes.
  int zeroStage(int tensor) const {
    return !lowers.empty() && lowers[size_t(tensor)] ? setting.lowerZero : setting.zero;
  }
  double gatheredBytes(int tensor, Layout home) const;
  // The bytes of a parameter's gradient before ZeRO; 0: it has none.
  double gradientBytesOf(int tensor, Layout home) const;
  // How it lies over tp and the laid axes.
  dist::Sharding parameterLayout(int tensor, Layout home) const;
  SharedTable<dist::Sharding> laidHomes; // per tensor; of parameters only
};

// Where a node stands in the repeated blocks.
struct Place {
  int run = -1, repetition = 0;
};

// Facts of a problem that every setting shares.
struct ProblemFacts : Graph {
  explicit ProblemFacts(const Problem &problem) : Graph(problem) {}
  std::vector<int64_t> sequenceDims; // per tensor: dimension that is neither sample nor feature
  SequenceFactors sequence;
  std::vector<bool> canSplitPositions, canSplitHeads; // per node: sequence's factors, where their number divides
  std::string samplesMeetAt;                          // Problem::samplesMeetAt
  std::vector<int64_t> expertCounts;                  // laid_axes.h
  std::vector<bool> readBack;                         // per tensor: gradients of other operands are made of it
  std::vector<Repeat> repeats;
  std::vector<Place> places;                   // per node
  std::vector<int> cuts;                       // where --split-at cuts (stage_units.h)
  std::vector<FusedWork> fused;                // per node
  std::vector<bool> kept, madeAgain;           // per tensor (fusion.h)
  std::vector<double> gradientRatios;          // per tensor (gradients.h)
  std::vector<HeldForWeights> held;            // per node: what Candidate::held counts (gradients.h)
  WaitingGradients waitingGradients;           // gradients.h
  std::vector<bool> core;                      // per node: in the core of an attention (fusion.h)
  std::vector<int64_t> vocabularyFactors;      // per node, -1: none (megatron.h)
  std::vector<bool> residual;                  // per node (megatron.h)
  std::shared_ptr<const SplitModel> structure; // a model without candidates, homes and bytes
  double expensiveFlops = 0; // an operation with as many is worth splitting: a twentieth of the largest
};
// `device`: whose kernels (fusion.h). `tiesBlocks`: repetitions of a block are split alike.
ProblemFacts gatherFacts(const Problem &problem, const Device &device, const Constraints &constraints,
                         bool tiesBlocks = true);

// `like`: a model of the same problem and constraints with the same cp, if there is one: what follows from cp alone is
// taken from it. Errors: a pin that no node or parameter can follow.
Result<SplitModel> buildModel(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                              const Constraints &constraints, const Setting &setting, const SplitModel *like = nullptr);

} // namespace cleave::planner
