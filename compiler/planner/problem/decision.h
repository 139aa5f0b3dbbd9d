// The decision of the search: the mesh, how each node's factors and each parameter lie on it, and its predicted cost.
//
//   mesh dp=2,tp=2  zero 1  microbatches 4  recompute none
//   node "/layers.0/mlp/up/MatMul": factors b s n k -> [{dp},{},{tp},{}]
//   param "layers.0.mlp.up.weight": parameter [{},{tp}], gradient [{},{tp}], state [{dp},{tp}]
#pragma once
#include "compiler/planner/problem/problem.h"
#include "runtime/base/sharding/factor_rule.h"
#include "runtime/base/status.h"
#include <array>
#include <string>
#include <tuple>
#include <vector>

namespace cleave::planner {

enum class Recompute : uint8_t { None, Activations, Selective, Full };
inline constexpr std::array everyRecompute = {Recompute::None, Recompute::Activations, Recompute::Selective,
                                              Recompute::Full};
const char *name(Recompute recompute);
// "none", "activations", "selective", "full".
bool parseRecompute(const std::string &text, Recompute &recompute);

// The split of attention where the sequence is split over cp: keys and values travel round a ring of devices, or
// all-to-alls exchange the split of positions for one of heads (Ulysses).
enum class AttentionSplit : uint8_t { Ring, Ulysses };

// The data that lies in the host's memory and passes through the device where it is used.
enum class Offload : uint8_t { None, Optimizer, Activations, All };
inline bool movesState(Offload offload) { return offload == Offload::Optimizer || offload == Offload::All; }
inline bool movesActivations(Offload offload) { return offload == Offload::Activations || offload == Offload::All; }
const char *name(Offload offload);
// "none", "optimizer", "activations", "all".
bool parseOffload(const std::string &text, Offload &offload);

struct NodeDecision {
  std::string node;                      // Problem::nodes[i].name, same order
  dist::FactorSharding split;            // one entry a factor of the node's rule
  dist::Axes passesPartial;              // axes over which its operands and results stay partial sums (linear ops only)
  int stage = 0;                         // of the pipeline; a consumer's is never before its producer's
  Recompute recompute = Recompute::None; // of the block that the node is in
  int segment = -1; // of recomputation (recomputation.h) that the node is in; -1: none, or nothing of it is done again
  bool again = false;   // computed again in the backward pass, with the others of its segment
  bool computes = true; // false: it only moves elements, and a step of other sizes may do without it; not in the text
};

struct ParameterDecision {
  std::string name;
  dist::Sharding parameter; // how it is stored between steps
  dist::Sharding gradient;  // how the reduced gradient (and the accumulator from ZeRO-2 on) lies
  dist::Sharding state;     // how optimizer state lies; the update runs in this layout
};

// Bytes on one device, and what it has in the host's memory.
struct MemoryBreakdown {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0;
  double host = 0; // no part of total()
  double total() const { return parameters + gradients + optimizer + activations + workspace; }
};

struct Predicted {
  double stepSeconds = 0, computeSeconds = 0, exposedCommunicationSeconds = 0, bubbleSeconds = 0;
  double hiddenCommunicationSeconds = 0;
  MemoryBreakdown memory;
  double tflopsPerDevice = 0, mfu = 0; // model FLOPs (forward and backward, recomputation not counted) a second
  double hostSeconds = 0, exposedHostSeconds = 0; // copies from and to the host's memory; what of it nothing hides
};

struct Alternative {
  std::string name; // "ddp", "zero3", ..., or "searched #2"
  std::string schedule = "none";
  dist::Mesh mesh;
  int zero = 0;
  int64_t microbatches = 1;
  Recompute recompute = Recompute::None;
  double stepSeconds = 0, memoryBytes = 0;
  double computeSeconds = 0, exposedCommunicationSeconds = 0, bubbleSeconds = 0; // of the step
  bool fits = false;
  std::string whyNot; // empty for the chosen one
  Offload offload = Offload::None;
};

// A neighbour that a node shares a tensor with, and the seconds a step to bring it from the one to the other.
struct Neighbour {
  std::string relation; // "result", that others read; "operand", that another node makes; "parameter"; "input"
  std::string tensor;   // the parameter's or input's name, or that of the node which makes it
  std::string reader;   // of a result: the first node that reads it
  int64_t more = 0;     // and how many others do
  double seconds = 0;

  bool isSame(const Neighbour &other) const { // all but the seconds
    return std::tie(relation, tensor, reader, more) == std::tie(other.relation, other.tensor, other.reader, other.more);
  }
};

// One candidate split of one node, priced with everything else as decided: the node's compute and the collectives and
// kept bytes of the tensors around it, for all its repetitions, a step on one device.
struct CandidateCost {
  dist::FactorSharding split;
  dist::Axes passesPartial;
  double computeSeconds = 0, communicationSeconds = 0, memoryBytes = 0;
  std::vector<Neighbour> neighbours; // of the communication: those with which it is not none
  bool chosen = false;
  double seconds() const { return computeSeconds + communicationSeconds; }
};

// A node, and those of repeated blocks that were decided with it.
struct NodeExplanation {
  std::string op, rule;           // rule: FactorRule::str()
  std::vector<std::string> nodes; // names; the first stands for all
  std::vector<CandidateCost> candidates;
  std::vector<int> stages = {}; // of each name, where there are several
};

// One stage of the pipeline on one of its devices; without pipeline the whole model is one. Seconds of one microbatch,
// but for the last line.
struct StageDecision {
  int rank = 0;                                                            // on axis pp
  int64_t devices = 1;                                                     // that work on it
  int64_t nodes = 0;                                                       // forward operations
  int64_t blocks = 0;                                                      // repetitions of repeated blocks among them
  int64_t activationBlocks = 0, selectiveBlocks = 0, recomputedBlocks = 0; // of these: computed again by each kind
  double parameters = 0;                                                   // elements, of the whole stage
  double forward = 0, backwardInput = 0, backwardWeight = 0;               // with the collectives that nothing hides
  double communication = 0;                                                // those collectives, part of the three above
  double communicationForward = 0;                                         // and of the forward pass
  double recompute = 0;                       // forward work done again, part of backwardInput
  double sendForward = 0, sendBackward = 0;   // to the stage after, to the one before
  double bytesForward = 0, bytesBackward = 0; // that are sent
  int linkForward = 0, linkBackward = 0;      // over which of a device's links (schedule.h)
  double heldBySends = 0;                     // part of communication: what is sent meanwhile has a part of its links
  double reduction = 0, update = 0;           // a step: gradients' collectives, optimizer
  double afterPasses = 0;                     // a step of its rank: update, and what no pass hides of the collectives
  MemoryBreakdown memory;                     // of the device, with its other stages
};

// The result of a move of the search (search/moves/move.h).
struct MoveResult {
  std::string name;
  double seconds = 0;            // that it took
  double gained = 0, raised = 0; // seconds of a step: of the best plan; of the bound
};

struct Decision {
  dist::Mesh mesh;
  dist::Axes batchAxes; // split the sample dimension: {"dp"}, or {"dp","fsdp"} for hsdp
  dist::Axes zeroAxes;  // ZeRO splits persistent tensors over these
  int zero = 0;
  int64_t microbatches = 1;
  Recompute recompute = Recompute::None; // of most blocks
  bool exceptLast = false;               // a step's last microbatch keeps what it makes
  Offload offload = Offload::None;
  std::string schedule = "none"; // a pipeline's ("1f1b", "interleaved:2", ..., "FILE.csv"); "none" without pipeline
  int stages = 1;                // of the pipeline: the size of axis pp times the model chunks a device holds
  AttentionSplit attention = AttentionSplit::Ring; // where the mesh has an axis cp
  int64_t chunks = 1;        // parts of the rows of the head and its loss (ChunkProducts), which then run one by one
  bool gathersAgain = false; // activations gathered for an operation are gathered again in the backward pass
  std::string like;          // the preset asked for, or empty
  std::vector<NodeDecision> nodes;
  std::vector<ParameterDecision> parameters;
  std::vector<StageDecision> stageDecisions; // one a stage
  Predicted predicted;
  double searchSeconds = 0;
  double gap = 0;                // how much faster another plan may be, of this one's time
  std::vector<MoveResult> moves; // of the search
  int64_t candidates =
      0;           // assignments of a whole mesh, ZeRO stage, microbatch count and recomputation that were priced
  Alternative row; // itself, as alternatives would show it: "searched #1", or a preset
  std::vector<Alternative> alternatives;
  std::vector<Decision> runnersUp; // the fastest others, as many as SearchOptions::refine asks for
  double twiceMemorySeconds = 0;   // a step's, searched for devices with twice the memory; 0: not searched
  std::vector<std::string> notes;  // what a person should know: a dimension left whole and why

  // Reads what partition follows of a decision, for tests of it: "stages 2", "microbatches 4", "chunks 8" and "gathers-again" may be left out, and of
  // a node all behind the axes of its factors.
  //
  //   cleave-decision 2
  //   mesh dp=2,tp=2
  //   batch-axes dp
  //   zero 1 dp
  //   node "/up/MatMul" dp tp - stage 1 segment 3 keeps passes tp
  //   parameter "w" [-,tp] [-,tp] [dp,tp]                          its own layout, its gradient's, its state's
  static Result<Decision> parse(const std::string &text, const std::string &file);
};

// Is the decision one of this problem? Every node and parameter once and in order, factors divide evenly, no axis used
// twice in a tensor, parameters lie as their consumers can be fed from.
Status verify(const Problem &problem, const Decision &decision);

} // namespace cleave::planner
