// Builds planner problems by hand, an einsum-like subscript an operation:
//
//   ProblemBuilder b("mlp", 32);
//   int x = b.input("x", {32, 64});
//   int y = b.op("up", "Contract", "bk,kn->bn", {x, b.parameter("w", {64, 128})});
#pragma once
#include "compiler/planner/problem/decision.h"

namespace cleave::planner::testing {

class ProblemBuilder {
public:
  ProblemBuilder(std::string name, int64_t batch);
  int input(const std::string &name, std::vector<int64_t> dims, TensorKind kind = TensorKind::Input, int64_t bytes = 4);
  int parameter(const std::string &name, std::vector<int64_t> dims);
  // Letters are factors; one that the result lacks is reduced by a sum ("Max": by a maximum). "Contract" is a matrix
  // product and saves its operands; other operations are cheap.
  int op(const std::string &name, const std::string &op, const std::string &subscripts,
         const std::vector<int> &operands);

  Problem problem;
};

// Two linear layers with ReLU and a mean squared loss.
Problem mlp(int64_t batch, int64_t in, int64_t hidden, int64_t out);

struct GptShape {
  int64_t batch, sequence, hidden, heads, layers, vocabulary;
};
// A pre-LayerNorm decoder in core operations, its head tied to the token embedding, with its cross-entropy.
Problem gpt(const GptShape &shape);

// Null: the decision has none of that name.
const NodeDecision *findNode(const Decision &decision, const std::string &node);
const ParameterDecision *findParameter(const Decision &decision, const std::string &parameter);

} // namespace cleave::planner::testing
