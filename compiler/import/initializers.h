// The initializers and Constant nodes of a model, with the nodes that read them.
#pragma once
#include "compiler/import/graph_index.h"
#include "compiler/import/tensor_store.h"

namespace cleave::import_ {

struct Initializer {
  StoredTensor tensor;
  bool fromNode = false; // a Constant node
  std::vector<Use> uses;
  std::map<Use, std::string> identity; // use -> the Identity output it goes through
};

struct Initializers {
  // Errors: those of TensorStore::locate, two initializers of one name.
  static Result<Initializers> of(const ModelFile &model, const FlatGraph &flat, TensorStore &store);

  std::map<std::string, Initializer> byName;
  std::vector<std::string> order;
  std::map<std::string, std::string> resolved;              // value -> initializer, through Identity
  std::map<std::string, std::vector<std::string>> valuesOf; // the inverse
  std::set<std::string> direct;                             // read without a use: graph outputs, subgraphs
  std::vector<bool> dissolved;                              // by node: an Identity of an initializer, a Constant

  const Initializer &at(const std::string &name) const { return byName.at(name); }
  bool has(const std::string &name) const { return byName.contains(name); }
  std::string resolve(const std::string &value) const; // the initializer, or the value itself
  bool isMatrix(const std::string &value) const;       // a float initializer of two or more dimensions
};

} // namespace cleave::import_
