// Who makes and who reads each value of a graph.
//
//     GraphIndex index(flat);
//     index.readers({node, 1})    -> {"MatMul"}: what finally reads this operand, past Transpose, Cast, Identity
//     index.applying(node, 1)     -> the Add that a bias meets after it was given another shape
#pragma once
#include "compiler/import/flatten.h"
#include <functional>
#include <optional>
#include <set>

namespace cleave::import_ {

// One operand of a node.
struct Use {
  size_t node = 0; // index in FlatGraph::nodes
  int operand = 0;
  auto operator<=>(const Use &) const = default;
};

// Which tensor of its layer a node reads.
enum class Place { Weight = 0, Bias = 1, Mean = 2, Variance = 3 };
Place placeOf(const ::onnx::NodeProto &node, int operand);

bool isFilter(const std::string &op); // Gemm, Conv, ConvTranspose: an exporter folds a BatchNorm after them into them
bool isElementwise(const std::string &op); // Add, Sub, Mul, Div, Pow, Max, Min, Where
bool isPassThrough(const std::string &op); // Transpose, Cast, Identity
bool isRecurrent(const std::string &op);   // LSTM, GRU, RNN
bool isComparison(const std::string &op);  // its result does not change with small changes of the operands

// A name that PyTorch gave a parameter, not its TorchScript exporter: not "onnx::MatMul_131" nor "/Constant_output_0".
bool isGivenName(const std::string &name);

struct GraphIndex {
  explicit GraphIndex(const FlatGraph &flat);

  const ::onnx::NodeProto &node(const Use &use) const { return *flat.nodes[use.node].node; }
  const std::string &op(const Use &use) const { return node(use).op_type(); }
  const std::string &value(const Use &use) const { return node(use).input(use.operand); }

  // These uses, and those of what their nodes make, as far as `passes` lets through. With reachLimit or more of them
  // the walk has ended early.
  static constexpr size_t reachLimit = 256;
  std::vector<Use> reached(const std::vector<Use> &uses,
                           const std::function<bool(const std::string &op)> &passes) const;
  // Op types that finally read the operand: through Transpose, Cast, Identity.
  std::vector<std::string> readers(const Use &use) const;
  bool isReadBy(const std::vector<Use> &uses, const std::set<std::string> &ops) const;
  bool isGathered(const std::vector<Use> &uses) const { return isReadBy(uses, {"Gather"}); }
  bool isMultiplied(const std::vector<Use> &uses) const; // MatMul, Gemm, Einsum, Conv
  // Where the operand is computed with: past nodes that only change its shape or how its numbers are stored.
  Use applying(const Use &use) const;
  // The only node that reads this value; none where there are others.
  std::optional<size_t> onlyReader(const std::string &value) const;

  const FlatGraph &flat;
  std::map<std::string, size_t> producer;               // value -> node
  std::map<std::string, std::vector<size_t>> consumers; // value -> nodes
};

} // namespace cleave::import_
