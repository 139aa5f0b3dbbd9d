// Runs the unpartitioned training step, one core operator after the other on the evaluator: the oracle of
// `cleave verify` and of the tests against recorded trainings. Knows nothing of partitioning, compiled code or memory
// plans.
//
//   auto executor = ReferenceExecutor::create(graph, Precision::Double);
//   executor->state["fc.weight"] = ...;                       // every persistent tensor the graph reads
//   auto step = executor->step({{{"input", x}, {"labels", t}}}, {.step = 1, .learningRate = 1e-3});
//   step->loss, step->gradNorm                                // executor->state holds the new parameters
//
// Double: every f32 value is held as F64 from the inputs on; values of 16 bits are rounded to them (evaluator.h).
#pragma once
#include "graph.pb.h"
#include "runtime/check/reference/evaluator.h"
#include <functional>
#include <memory>

namespace cleave::runtime {

using NamedTensors = std::map<std::string, HostTensor>;

// The host's values for a step.
struct HostValues {
  int64_t step = 1;    // counted from 1
  int64_t skipped = 0; // of the steps before, those that changed nothing (fp16)
  double learningRate = 0;
  uint64_t seed = 0;
};
struct StepOutcome {
  double loss = 0;
  double gradNorm = 0;
  std::optional<double> skipped; // fp16: so far
};

class ReferenceExecutor {
public:
  // Fails when a node's operator is unknown to the evaluator or an index is out of range; every unknown operator is
  // named.
  static Result<ReferenceExecutor> create(plan::Graph graph, Precision precision);

  // Persistent tensors by name. `stateTypes` lists what the graph reads and writes.
  NamedTensors state;
  std::map<std::string, TensorType> stateTypes() const;

  // Told before each node: the microbatch, and the share of the function's nodes that are done.
  std::function<void(int64_t microbatch, double done)> progress;

  // Runs one function ("final", "accumulate", "count", "evaluate"); its outputs by name. Reads see the state before the
  // call, writes take effect at its end. Key of random numbers: seed, and step + microbatch * 2^32.
  Result<NamedTensors> run(const std::string &function, const NamedTensors &inputs, const HostValues &host,
                           int64_t microbatch = 0);
  // A whole step: "count", if there is one, for all microbatches, "accumulate" for all microbatches but the last, then
  // "final".
  Result<StepOutcome> step(const std::vector<NamedTensors> &microbatches, const HostValues &host);

private:
  struct Node {
    const plan::GraphNode *proto = nullptr;
    Attributes attributes;
    std::vector<TensorType> types;
    std::vector<int32_t> lastUses; // values that no later node of the function reads
  };
  struct Function {
    const plan::GraphFunction *proto = nullptr;
    std::vector<Node> nodes;
    // Results of nodes that repeat what they read: made anew for each reader instead of kept for all of them.
    std::map<int32_t, size_t> repeated; // by value: the node's place in `nodes`
  };
  class Values;                             // of a function's run
  std::shared_ptr<const plan::Graph> graph; // nodes point into it
  Precision precision = Precision::AsTyped;
  std::map<std::string, Function> functions;

  Status prepare(const plan::GraphFunction &proto);
  Status prepareNode(const plan::GraphNode &proto, Node &node) const;
  TensorType typeOf(int32_t value) const; // as held: F64 for f32 in double precision
  Result<HostTensor> input(const plan::GraphInput &proto, const NamedTensors &inputs, const HostValues &host,
                           int64_t microbatch) const;
};

} // namespace cleave::runtime
