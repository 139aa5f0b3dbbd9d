// The inner problem of the search: on one mesh, with one microbatch count, which factor does tensor parallelism take in
// every node, and how does every parameter lie? Batch axes are settled already: they split the sample dimension.
//
//   y = Contract x, w     candidates of the node: none; n over tp (y split, x's gradient partial);
//                         k over tp (x split, y partial); m = sequence over tp (w's gradient partial)
//
// Nodes of repeated blocks share one variable. A Flow is a tensor between its producer's choice and its readers'.
#pragma once
#include "compiler/planner/constraints.h"
#include "compiler/planner/cost.h"
#include "compiler/planner/decision.h"
#include "compiler/planner/problem.h"

namespace cleave::planner {

// How a tensor lies over tp: a dimension that is split, or one of these.
using Layout = int8_t;
inline constexpr Layout whole = -1, partialSum = -2, partialExtremum = -3;

// What a node asks of an operand, and whether the gradient it returns is a partial sum over tp.
struct Use {
  Layout layout = whole;
  bool partialGradient = false;
  bool operator==(const Use &) const = default;
};

struct Candidate {
  int64_t factor = -1; // that tp splits; -1: none
  bool passesPartial = false;
  std::vector<Use> uses;            // an operand each
  std::vector<Layout> results;      // a result each
  double forward = 0, backward = 0; // compute seconds of one microbatch
};

// One point of the outer search.
struct Setting {
  int64_t dp = 1, fsdp = 1, tp = 1;
  int64_t pp = 1; // pipeline ranks
  int zero = 0;
  int64_t microbatches = 1;
  Recompute recompute = Recompute::None;
  bool batchDivides = true;      // false: the sample dimension is left whole
  std::string schedule = "none"; // of the pipeline

  int64_t batchWays() const { return batchDivides ? dp * fsdp : 1; }
  int64_t zeroWays() const { return fsdp > 1 ? fsdp : dp; }
  dist::Mesh mesh() const;
  dist::Axes batchAxes() const;
  dist::Axes zeroAxes() const;
  std::string str() const; // "dp=2,tp=4 zero 1 microbatches 2 recompute none"
};

struct Variable {
  bool isHome = false; // of a parameter; else a node's split
  int index = 0;       // node or tensor, of the first repetition
  int count = 1;       // how many nodes or parameters it stands for
  bool inBlock = false;
  std::vector<Candidate> candidates; // of a node
  std::vector<Layout> homes;         // of a parameter
  size_t domain() const { return isHome ? homes.size() : candidates.size(); }
};

struct Flow {
  struct Read {
    int variable = 0;
    size_t operand = 0;
    bool operator==(const Read &) const = default;
  };
  int tensor = 0;    // the first it stands for
  int count = 1;     // how many
  int producer = -1; // variable; -1: input or constant
  size_t result = 0;
  std::vector<Read> reads;
  double bytes = 0;         // on one device when not split over tp, one microbatch
  bool gradient = false;    // flows back
  bool saved = false;       // kept for the backward pass
  bool anyLayout = false;   // an input: every device takes the part it wants
  bool inBlock = false;     // made and read inside one repetition of a block
  bool leavesBlock = false; // made in a block, or read in another than its own
  bool cheap = false;       // made by a cheap node
};

struct SplitModel {
  const Problem *problem = nullptr;
  const Cluster *cluster = nullptr;
  Setting setting;
  std::vector<Variable> variables;
  std::vector<Flow> flows;
  std::vector<int> variableOfNode, variableOfTensor; // the latter -1 but for parameters
  double batchSeconds = 0; // collectives over batch axes inside the step that no choice changes, one microbatch
  std::vector<int64_t> batchDims;
  std::vector<int64_t> batchFactors; // per node
  std::vector<Repeat> repeats;

  // Bytes of a tensor on one device, one microbatch, not split over tp.
  double localBytes(int tensor) const;
};

// Facts of a problem that every setting shares.
struct ProblemFacts {
  std::vector<int64_t> batchDims, batchFactors, sequenceDims; // sequence: dimension that is neither sample nor feature
  std::vector<bool> needsGradient;
  std::vector<int> producers;
  std::vector<std::vector<std::pair<int, size_t>>> readers; // per tensor: node and operand
  std::vector<Repeat> repeats;
  double expensiveFlops = 0; // an operation with as many is worth splitting: a twentieth of the largest
};
ProblemFacts gatherFacts(const Problem &problem, const Constraints &constraints);

// Errors: a pin that no node or parameter can follow.
Result<SplitModel> buildModel(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                              const Constraints &constraints, const Setting &setting);

} // namespace cleave::planner
