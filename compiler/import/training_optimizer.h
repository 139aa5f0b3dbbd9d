// The graph of a training_info, and the optimizer that its nodes are (training_info.h).
#pragma once
#include "compiler/import/tensor_store.h"
#include "compiler/recipe/model_training.h"
#include <map>
#include <set>

namespace cleave::import_ {

inline constexpr const char *trainingDomain = "ai.onnx.preview.training";

// The inference graph and the algorithm graph as the one graph that they are, by names.
struct TrainingGraph {
  explicit TrainingGraph(const ModelFile &model);

  const ::onnx::NodeProto *producer(const std::string &value) const; // null: an input, an initializer, nothing
  std::string source(const std::string &value) const;                // before the Identity nodes that it went through
  // The number that all elements of an initializer or constant have in the first step; none if they differ.
  std::optional<double> initialNumberOf(const std::string &value);
  // The nodes that compute `value`; `read` gets every value that they read.
  std::set<const ::onnx::NodeProto *> ancestors(const std::string &value, std::set<std::string> &read) const;

  const ModelFile &model;
  TensorStore store;
  std::vector<const ::onnx::NodeProto *> nodes;
  std::map<std::string, const ::onnx::NodeProto *> producers, beginProducers;
  std::map<std::string, const ::onnx::TensorProto *> initializers, beginTensors;
  std::set<std::string> inputs;
  std::map<std::string, std::string> updates, begins; // update_binding, initialization_binding
  std::map<std::string, std::string> gradients;       // value -> the parameter that it is the gradient of

private:
  std::optional<double> filled(const ::onnx::TensorProto &tensor);
  std::optional<double> constant(const ::onnx::NodeProto &node); // that its attribute gives
};

// Fills `optimizer`, `trained`, `givesRate` from the nodes that update parameters. Error: a node that is none of an
// optimizer, reads something else than gradients, or differs from the others; a state that begins otherwise than
// Cleave's.
Status readOptimizerNodes(TrainingGraph &graph, recipe::ModelTraining &training);

} // namespace cleave::import_
