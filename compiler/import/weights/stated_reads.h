// Which entry of the state_dict each node reads, as PyTorch's `dynamo` exporter says: every node names the operation
// that it was written for, with its arguments. TorchScript's names of merged initializers say the same.
//
//     Add "node_linear_1" (val_17, h.0.ln_1.bias), written for aten.linear(layer_norm, p_h_0_attn_k_proj_weight,
//     p_h_0_attn_k_proj_bias), reads "h.0.attn.k_proj.bias", which the exporter merged with an equal one
#pragma once
#include "compiler/import/weights/exporter_statements.h"
#include "compiler/import/weights/parameters.h"
#include <set>

namespace cleave::import_ {

// Which tensor of its layer a node reads.
enum class Place { Weight = 0, Bias = 1, Mean = 2, Variance = 3 };
Place placeOf(const ::onnx::NodeProto &node, int operand);

bool isFilter(const std::string &op); // Gemm, Conv, ConvTranspose: an exporter folds a BatchNorm after them into them

// Who reads each value of a graph.
class Consumers {
public:
  explicit Consumers(const FlatGraph &flat);
  // The node that computes with what (node, operand) reads, and the operand there: past nodes that only change its
  // shape or how its numbers are stored.
  std::pair<size_t, int> applying(size_t node, int operand) const;
  // The only node that reads this value; none where there are others.
  std::optional<size_t> only(const std::string &value) const;

private:
  const FlatGraph &flat;
  std::map<std::string, std::vector<size_t>> readers;
};

class StatedReads {
public:
  StatedReads(const FlatGraph &flat, const std::vector<ListedTensor> &listed);

  std::string keyOf(const Use &use) const;           // "": not told
  std::string keyAt(size_t node, Place place) const; // of the node's operation; "": it has none there
  bool isKnown(size_t node) const;                   // where its operation has weights and biases
  bool isRead(const std::string &key) const { return read.contains(key); }
  bool isOfFoldedNorm(size_t node) const; // a filter, written for the BatchNorm after it
  const StatedOperation &operation(size_t node) const { return operations[node]; }

private:
  const FlatGraph &flat;
  const Consumers consumers;
  std::map<std::string, std::string> keys; // by placeholder
  std::vector<StatedOperation> operations; // by node
  std::set<std::string> read;
};

// A name that PyTorch gave a parameter, not its TorchScript exporter: not "onnx::MatMul_131" nor "/Constant_output_0".
bool isGivenName(const std::string &name);

} // namespace cleave::import_
