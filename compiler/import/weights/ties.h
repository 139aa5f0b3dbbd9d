// Which uses of one initializer are one parameter, and which initializers are one. See parameters.h for the cases.
#pragma once
#include "compiler/import/weights/parameters.h"
#include <set>

namespace cleave::import_ {

// Who produces and who reads each value of a flat graph.
struct GraphIndex {
  explicit GraphIndex(const FlatGraph &flat);

  const FlatGraph &flat;
  std::map<std::string, size_t> producer;               // value -> node
  std::map<std::string, std::vector<size_t>> consumers; // value -> nodes
};

// Op types that finally read the operand: through Transpose, Cast, Identity.
std::vector<std::string> readers(const GraphIndex &index, const Use &use);
bool readByGather(const GraphIndex &index, const std::vector<Use> &uses);
bool readByProduct(const GraphIndex &index, const std::vector<Use> &uses); // MatMul, Gemm, Einsum, Conv

// A node that multiplies by an initializer of two or more dimensions, elementwise ones apart, and that initializer.
struct Product {
  size_t node = 0;
  std::string initializer;
};
using IsMatrix = std::function<bool(const std::string &value)>;
// The nearest such node at or before `node`, against the flow of data.
std::optional<Product> nearestProduct(const GraphIndex &index, size_t node, const IsMatrix &isMatrix);

// Whether the exporter lists a parameter of this name that the file has not.
using IsGone = std::function<bool(const std::string &name)>;
// Parameters that an exporter lists and that no initializer was made from: they were merged with equal ones.
struct MergedParameters {
  bool isKnown = false; // the exporter lists its parameters
  std::set<std::string> names = {};
  bool isIn(const std::string &module) const; // directly: "norm.weight" is in "norm"
};
struct TieDecision {
  std::string text = {}; // "" when there was nothing to decide
  bool isGuess = false;  // or one that changes what the file shares: `compile` tells it
};
// PyTorch's name of the parameter that a use reads; "": not told.
using KeyOfUse = std::function<std::string(const Use &)>;
// Uses by these names, in the order of their first ones; none where not all are told.
std::vector<std::vector<Use>> groupByKey(const std::vector<Use> &uses, const KeyOfUse &keyOf);
// The decision that an initializer is several of PyTorch's parameters, in words.
std::string tellMerged(const GraphIndex &index, const std::string &name, const std::vector<Use> &uses, size_t number);
// Cuts the uses of one trained initializer, which no names tell apart, into groups that are one parameter each.
std::vector<std::vector<Use>> groupUses(const GraphIndex &index, const StoredTensor &tensor,
                                        const std::vector<Use> &uses, recipe::Ties ties, const IsMatrix &isMatrix,
                                        const IsGone &isGone, const MergedParameters &merged, const KeyOfUse &keyOf,
                                        TieDecision &decision);

} // namespace cleave::import_
