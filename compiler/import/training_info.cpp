#include "compiler/import/training_info.h"
#include "compiler/import/tensor_store.h"
#include "compiler/import/tensor_values.h"
#include "compiler/import/training_optimizer.h"
#include "compiler/recipe/glob.h"
#include "compiler/recipe/ranges.h"
#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cleave::import_ {

using ::onnx::NodeProto;
using ::onnx::TensorProto;

TrainingGraph::TrainingGraph(const ModelFile &model) : model(model), store(model) {
  const ::onnx::TrainingInfoProto &info = model.proto.training_info(0);
  for (const ::onnx::GraphProto *graph : {&model.proto.graph(), &info.algorithm()}) {
    for (const NodeProto &node : graph->node()) {
      nodes.push_back(&node);
      for (const std::string &output : node.output())
        if (!output.empty()) producers[output] = &node;
    }
    for (const TensorProto &tensor : graph->initializer()) initializers[tensor.name()] = &tensor;
    for (const ::onnx::ValueInfoProto &input : graph->input()) inputs.insert(input.name());
  }
  for (const auto &binding : info.update_binding()) updates[binding.key()] = binding.value();
  for (const auto &binding : info.initialization_binding()) begins[binding.key()] = binding.value();
  for (const NodeProto &node : info.initialization().node())
    for (const std::string &output : node.output()) beginProducers[output] = &node;
  for (const TensorProto &tensor : info.initialization().initializer()) beginTensors[tensor.name()] = &tensor;
}

const NodeProto *TrainingGraph::producer(const std::string &value) const {
  auto found = producers.find(value);
  return found == producers.end() ? nullptr : found->second;
}

std::string TrainingGraph::source(const std::string &value) const {
  std::string name = value;
  for (size_t passed = 0; passed <= producers.size(); ++passed) { // a cycle ends, too
    const NodeProto *node = producer(name);
    if (!node || node->op_type() != "Identity" || node->input_size() != 1) break;
    name = node->input(0);
  }
  return name;
}

std::optional<double> TrainingGraph::filled(const TensorProto &tensor) {
  Result<StoredTensor> stored = store.locate(tensor);
  if (!stored || !stored->bytes || stored->length == 0) return std::nullopt;
  if (stored->elements() > 1 && !allEqual(*stored)) return std::nullopt;
  return firstNumber(*stored);
}

std::optional<double> TrainingGraph::constant(const NodeProto &node) {
  for (const ::onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_t()) return filled(attribute.t());
    if (attribute.name() == "value_float") return attribute.f();
    if (attribute.name() == "value_int") return static_cast<double>(attribute.i());
  }
  return std::nullopt;
}

std::optional<double> TrainingGraph::initialNumberOf(const std::string &value) {
  if (auto bound = begins.find(value); bound != begins.end()) {
    if (auto tensor = beginTensors.find(bound->second); tensor != beginTensors.end()) return filled(*tensor->second);
    auto made = beginProducers.find(bound->second);
    if (made == beginProducers.end()) return std::nullopt;
    const NodeProto &node = *made->second;
    if (node.op_type() != "Constant" && node.op_type() != "ConstantOfShape") return std::nullopt;
    if (node.op_type() == "ConstantOfShape" && node.attribute().empty()) return 0.0;
    return constant(node);
  }
  if (auto tensor = initializers.find(value); tensor != initializers.end()) return filled(*tensor->second);
  const NodeProto *node = producer(value);
  return node && node->op_type() == "Constant" ? constant(*node) : std::nullopt;
}

std::set<const NodeProto *> TrainingGraph::ancestors(const std::string &value, std::set<std::string> &read) const {
  std::set<const NodeProto *> seen;
  std::vector<std::string> open = {value};
  while (!open.empty()) {
    std::string at = open.back();
    open.pop_back();
    if (!read.insert(at).second) continue;
    const NodeProto *node = producer(at);
    if (!node || !seen.insert(node).second) continue;
    for (const std::string &input : node->input())
      if (!input.empty()) open.push_back(input);
    for (const ::onnx::AttributeProto &attribute : node->attribute())
      if (attribute.has_g()) // what a body reads from around it
        for (const NodeProto &inner : attribute.g().node())
          open.insert(open.end(), inner.input().begin(), inner.input().end());
  }
  return seen;
}

namespace {

std::string where(const ModelFile &model, const NodeProto &node) {
  std::string name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  return fmt::format("{}: training_info: node '{}' ({})", model.path, name, node.op_type());
}

// The one Gradient node, with the independent variables that its result is for.
Status readGradient(TrainingGraph &graph, recipe::ModelTraining &training) {
  const ModelFile &model = graph.model;
  const NodeProto *gradient = nullptr;
  for (const NodeProto *node : graph.nodes) {
    if (node->op_type() != "Gradient" || node->domain() != trainingDomain) continue;
    if (gradient) return inputError(where(model, *node) + " is the second Gradient; a training with one loss has one");
    gradient = node;
  }
  if (!gradient)
    return inputError(fmt::format("{}: training_info: the algorithm has no Gradient ({})", model.path, trainingDomain));
  std::vector<std::string> variables;
  for (const ::onnx::AttributeProto &attribute : gradient->attribute()) {
    if (attribute.name() == "y") training.loss = attribute.s();
    if (attribute.name() != "xs" && attribute.name() != "zs") continue;
    for (const std::string &name : attribute.strings())
      if (const NodeProto *by = graph.producer(name))
        return inputError(fmt::format("{} is with respect to '{}', which node '{}' ({}) computes: only parameters can "
                                      "train",
                                      where(model, *gradient), name, by->name(), by->op_type()));
    if (attribute.name() == "xs") variables.assign(attribute.strings().begin(), attribute.strings().end());
  }
  if (!graph.producer(training.loss))
    return inputError(fmt::format("{}: nothing computes its y, '{}'", where(model, *gradient), training.loss));
  for (size_t i = 0; i < variables.size() && i < static_cast<size_t>(gradient->output_size()); ++i)
    if (const std::string &output = gradient->output(static_cast<int>(i)); !output.empty())
      graph.gradients[output] = variables[i];
  return Status::ok();
}

void findLabels(const TrainingGraph &graph, recipe::ModelTraining &training) {
  std::set<std::string> read;
  graph.ancestors(training.loss, read);
  std::vector<std::string> found;
  for (const ::onnx::ValueInfoProto &input : graph.model.proto.training_info(0).algorithm().input())
    if (read.count(input.name())) found.push_back(input.name());
  if (found.size() == 1) training.labels = found[0];
}

// Parameters whose file is missing begin as the initialization graph says.
void readInitialization(TrainingGraph &graph, recipe::ModelTraining &training) {
  for (const std::string &name : training.trained) {
    auto bound = graph.begins.find(name);
    auto tensor = graph.initializers.find(name);
    if (bound == graph.begins.end() || tensor == graph.initializers.end()) continue;
    Result<StoredTensor> stored = graph.store.locate(*tensor->second);
    if (!stored || stored->bytes) continue;
    recipe::InitRule rule;
    rule.match = recipe::exactly(name);
    auto made = graph.beginProducers.find(bound->second);
    std::string op = made == graph.beginProducers.end() ? "" : made->second->op_type();
    if (op == "RandomNormal" || op == "RandomNormalLike") {
      rule.kind = "normal";
      rule.mean = number(*made->second, "mean", 0);
      rule.std = number(*made->second, "scale", 1);
    } else if (op == "RandomUniform" || op == "RandomUniformLike") {
      rule.kind = "uniform";
      rule.low = number(*made->second, "low", 0);
      rule.high = number(*made->second, "high", 1);
    } else if (std::optional<double> value = graph.initialNumberOf(name)) {
      rule.kind = "constant";
      rule.value = *value;
    } else {
      training.notes.push_back(fmt::format("the weights of '{}' are missing, and training_info's initialization of it "
                                           "({}) is not known; the recipe's `init` can say how it begins",
                                           name, op.empty() ? "a tensor" : op));
      continue;
    }
    if (std::string wrong = faultOf(rule); !wrong.empty()) {
      training.notes.push_back(fmt::format("the weights of '{}' are missing, and training_info's initialization of it "
                                           "has a number that cannot be: {}",
                                           name, wrong));
      continue;
    }
    training.initial.push_back(std::move(rule));
  }
}

} // namespace

recipe::ModelTraining readTrainingInfo(const ModelFile &model) {
  recipe::ModelTraining training;
  training.source = "training_info";
  if (model.proto.training_info_size() > 1) {
    training.fault =
        fmt::format("{}: has {} training_info; one can be taken", model.path, model.proto.training_info_size());
    return training;
  }
  TrainingGraph graph(model);
  if (Status read = readGradient(graph, training); !read) {
    training.fault = read.message();
    return training;
  }
  findLabels(graph, training);
  if (Status read = readOptimizerNodes(graph, training); !read) {
    training.optimizer.reset();
    training.optimizerFault = read.message();
    // Which parameters train is known without it.
    training.trained.clear();
    for (const auto &[gradient, parameter] : graph.gradients)
      if (graph.updates.count(parameter)) training.trained.push_back(parameter);
  }
  readInitialization(graph, training);
  return training;
}

void appendLoss(ModelFile &model) {
  TrainingGraph graph(model);
  std::set<std::string> read;
  const std::set<const NodeProto *> needed = graph.ancestors(model.training->loss, read);
  const ::onnx::GraphProto algorithm = model.proto.training_info(0).algorithm();
  ::onnx::GraphProto &into = *model.proto.mutable_graph();
  std::set<std::string> needs;
  for (const NodeProto *node : needed)
    for (const std::string &output : node->output()) needs.insert(output);
  for (const NodeProto &node : algorithm.node())
    if (node.output_size() > 0 && needs.count(node.output(0))) *into.add_node() = node;
  for (const TensorProto &tensor : algorithm.initializer())
    if (read.count(tensor.name())) *into.add_initializer() = tensor;
  for (const ::onnx::ValueInfoProto &input : algorithm.input())
    if (read.count(input.name())) *into.add_input() = input;
  for (const auto *values : {&algorithm.value_info(), &algorithm.output()})
    for (const ::onnx::ValueInfoProto &value : *values)
      if (read.count(value.name())) *into.add_value_info() = value;
  for (const ::onnx::ValueInfoProto &output : into.output())
    if (output.name() == model.training->loss) return;
  into.add_output()->set_name(model.training->loss);
}

} // namespace cleave::import_
