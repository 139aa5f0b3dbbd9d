// The part of the split that the person fixed; the search chooses the rest. Presets are constraints of the same search.
//
//   --mesh dp=2,tp=2 --zero 3 --pin "*.mlp.up.weight=-,tp"
//   --pin "*.attn.weight=64:-,192:tp"     by the file's dimensions, where the plan has 64 x 3 x 4 x 16 of them
//   --mesh-order dp,pp     pipelines side by side: dp outside pp, the other axes where it is best
//   --like megatron     tp inside a node; every contraction's weight that divides is split over tp, embedding and head
//                       along the vocabulary, norms along the sequence (megatron.h), optimizer state over dp
//   --like 2.5d         tp=8 becomes tp_depth=2, tp_row=2, tp_col=2 (laid_axes.h)
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/problem/mesh_order.h"
#include "runtime/base/status.h"
#include <optional>
#include <string>
#include <vector>

namespace cleave::planner {

// The split flags of the command line, as typed; empty: not given.
struct SplitFlags {
  std::string mesh = {}, meshOrder = {}, zero = {}, microbatches = {}, schedule = {}, recompute = {}, like = {},
              offload = {}, chunk = {};
  bool sequenceParallel = false, allowRepeatedWork = false;
  std::vector<std::string> pins = {};
  std::vector<std::string> splitAt = {}; // "GLOB", "GLOB:before", "GLOB:after"
  std::string balance = {};              // "3,3,2"
};

struct Pin {
  std::string text;                // as typed
  std::string glob;                // of tensor or parameter names
  std::vector<dist::Axes> dims;    // one entry a dimension
  std::vector<int64_t> sizes = {}; // of the dimensions, "192:tp"; empty: not told, they are those of the plan
};

// A border between two pipeline stages: before the first node that matches, or after the last.
struct StageCut {
  std::string text; // as typed
  std::string glob; // of node names
  bool after = false;
};

// Tensor parallelism that a preset demands instead of leaving it to the costs.
enum class TensorSplit : uint8_t { Searched, None, Megatron };
// Tensor parallelism over several axes (laid_axes.h): 2d and 2.5d on a plane of side * side devices, `depth` of them;
// 3d in a cube.
enum class TensorGrid : uint8_t { None, Plane, Cube };
// The residual stream's sequence dimension over tp where no weight is split.
enum class SequenceSplit : uint8_t { Searched, Off, On };

struct Constraints {
  std::optional<int64_t> dp, fsdp, tp; // sizes of mesh axes; fsdp: the ZeRO axis inside dp replicas (hsdp)
  std::optional<int64_t> pp, cp, ep;   // pipeline ranks; parts of the sequence; of the experts
  std::vector<Axis> order;             // of those named, from the outermost; the search puts others anywhere
  int64_t leastRanks = 1;              // of the pipeline, where pp is open
  std::optional<std::string> schedule; // of the pipeline
  std::vector<std::string> schedules;  // where it is open: only these kinds; empty: any
  std::vector<StageCut> cuts;
  std::vector<int64_t> balance; // units of each stage (stage_units.h)
  std::optional<int> zero;
  std::optional<int64_t> microbatches;
  std::optional<Offload> offload;
  std::optional<int64_t> chunks;      // Decision::chunks
  std::optional<Recompute> recompute; // of every block
  std::vector<Recompute> recomputeOf; // of each stage, or of each block; empty: not given one by one
  bool exceptLast = false;            // what is recomputed is kept of a step's last microbatch
  bool recomputesAll = false;         // of a segment: also what nothing reads again, as other software does
  TensorSplit tensorSplit = TensorSplit::Searched;
  TensorGrid grid = TensorGrid::None; // then tp is depth * side * side
  int64_t gridSide = 1, gridDepth = 1;
  SequenceSplit sequenceSplit = SequenceSplit::Searched;
  bool mustSplitSequence = false; // On: a model without a sequence is an error
  AttentionSplit attentionSplit = AttentionSplit::Ring;
  std::vector<Pin> pins;
  std::string like;
  // An expensive operation that can be split over tp is: devices asked for do not repeat each other's work to save a
  // collective. True: that is left to the costs.
  bool allowRedundantWork = false;
  // Also a plan whose batch does not divide over the data parallel devices, so that each computes all of it.
  bool acceptsRepeatedWork = false;

  // Stages that --split-at or --balance ask for; 0: neither is given.
  int64_t stages() const { return cuts.empty() ? int64_t(balance.size()) : int64_t(cuts.size()) + 1; }
  // "mesh dp=2, zero 3" for messages.
  std::string str() const;
};

// Errors: malformed flags, unknown axes and schedules, sizes that contradict the cluster.
Result<Constraints> parseConstraints(const SplitFlags &flags, const Cluster &cluster);

// Every preset name, as docs/reference/splits.md lists them.
const std::vector<std::string> &presetNames();

} // namespace cleave::planner
