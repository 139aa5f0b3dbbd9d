// What PyTorch's `dynamo` exporter says of a model in the metadata of its graph.
//
//     scale    its signature calls it a PARAMETER             a parameter, whatever its size
//     pos      its signature calls it a BUFFER                not trained in PyTorch
//     val_9    folded_from = "['blocks.0.fc.weight']"         written anew by the exporter, here transposed
//     exp      folded_from = "['neg', 'scale', 'val_3']"      computed from a parameter, which is gone
//     f        folded_from = "['arange', 'val_4']"            computed from no parameter: a constant
//
// Every node names the operation that it was written for, with its arguments. So it is known which parameter a node
// reads after equal ones were merged, and which numbers are the operation's own:
//
//     Add "node_linear_1" (val_17, h.0.ln_1.bias), written for aten.linear(layer_norm, p_h_0_attn_k_proj_weight,
//     p_h_0_attn_k_proj_bias), reads "h.0.attn.k_proj.bias"
//     Mul "node_mul_1" (pow_1, scale), written for aten.mul(pow_1, 0.5), reads a literal that was merged with "scale"
#pragma once
#include "compiler/import/graph_index.h"

namespace cleave::import_ {

// A tensor of the state_dict, as the signature lists it: buffers that are not persistent are not among them.
struct ListedTensor {
  std::string key;         // "fc.weight"
  std::string placeholder; // "p_fc_weight": what operations call it
  bool isParameter = false;
};

// "%linear : ... call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight, 2), kwargs = {})"
struct StatedOperation {
  std::string result;                 // "linear"
  std::string target;                 // "aten.linear.default"; "" where nothing is said
  std::vector<std::string> arguments; // "x", "p_fc_weight", "2"; a list is one argument, "[2, 3]"
  std::vector<std::string> values;    // those that are values: "x", "p_fc_weight"
};

// The module that a node is of, "layers.1.linear1", from pkg.torch.onnx.name_scopes; "" where nothing is said.
std::string statedModule(const ::onnx::NodeProto &node);

class ExporterMetadata {
public:
  ExporterMetadata(const ::onnx::GraphProto &graph, const GraphIndex &index);

  bool isSigned() const { return !listed.empty() || !kinds.empty(); }
  const std::vector<ListedTensor> &state() const { return listed; }
  bool isParameter(const std::string &key) const;
  bool isBuffer(const std::string &name) const; // or another tensor that is no parameter
  // All values that an initializer was computed from, and those of them that are parameters.
  const std::vector<std::string> &foldedFrom(const std::string &initializer) const;
  const std::vector<std::string> &parametersOf(const std::string &initializer) const;

  // Made of one parameter by operations that only give it another shape or turn it: values are called after operations.
  bool isRepeated(const std::string &initializer) const; // made by an expand or repeat
  bool isView(const std::string &initializer) const;
  bool isLookup(const std::string &initializer) const; // rows of one parameter, of a table of positions
  bool isSlice(const std::string &initializer) const;  // the same, each row once

  const StatedOperation &operation(size_t node) const { return operations[node]; }
  std::string keyOf(const Use &use) const;           // the state_dict's entry that is read; "": not told
  std::string keyAt(size_t node, Place place) const; // of the node's operation; "": it has none there
  bool readsState(size_t node) const;                // an entry of the state_dict is among its arguments
  bool isLiteral(const Use &use) const;              // a number of the operation's own
  bool isKnown(size_t node) const;                   // where its operation has weights and biases
  bool hasOperations() const { return saysOperations; }
  bool isRead(const std::string &key) const { return read.contains(key); }
  bool isOfFoldedNorm(size_t node) const; // a filter, written for the BatchNorm after it
  // Whether a BatchNorm's operation takes the statistics of the batch.
  bool trainsNorm(size_t node) const;
  // An operation was merged with an equal one: its reader names "div_1" and reads "div".
  bool hasMergedOperations() const;
  // Sums, products and powers that no node makes any more, though something names them: the exporter takes away what
  // changes nothing, such as a product with a parameter of 1, or the sum with a penalty of 0.
  std::vector<std::string> lostOperations() const;
  // The number that this operand was, where an operation computed it and no node does any more: 1 - p, merged with an
  // equal p. "": none is known.
  std::string computedOperand(const Use &use) const;
  std::string lostDetach() const; // a detach() that no node stands for; "": none
  // Row of an embedding's table that has no gradient; none where there is no such row.
  std::optional<int64_t> paddingRow(size_t node) const;

private:
  bool isOtherOperand(const Use &use) const;
  bool mayHaveGradient(size_t node) const;
  bool isGone(const std::string &value) const; // no node makes it, and no tensor is called so
  // The value was merged with an equal one of the same operation, which the node reads in its place.
  bool isMergedAt(size_t node, const std::string &value) const;

  const GraphIndex &index;
  std::vector<ListedTensor> listed;
  std::map<std::string, bool> kinds; // by target: is it a parameter?
  std::map<std::string, std::vector<std::string>> folded, parameters;
  std::map<std::string, std::string> keys; // by placeholder
  std::vector<StatedOperation> operations; // by node
  std::set<std::string> read, present;     // keys; results of operations, inputs
  std::set<std::string> initializers;      // by name
  std::vector<std::string> results;        // of the graph, as the signature names them
  bool saysOperations = false;             // nodes name the operations that they were written for
};

} // namespace cleave::import_
