#include "compiler/import/artifacts.h"
#include "compiler/import/checkpoint.h"
#include "compiler/import/tensor_store.h"
#include "compiler/import/tensor_values.h"
#include "compiler/recipe/ranges.h"
#include "runtime/base/folder.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unordered_map>

namespace fs = std::filesystem;

namespace cleave::import_ {
namespace {

constexpr const char *evalFile = "eval_model.onnx", *trainingFile = "training_model.onnx",
                     *optimizerFile = "optimizer_model.onnx", *checkpointFile = "checkpoint",
                     *nominalFile = "nominal_checkpoint";
// generate_artifacts names the buffer of a parameter P's gradients P and this.
constexpr std::string_view gradientBuffer = "_grad.accumulation.buffer";
// The inputs that its losses compare with, unless a block of one's own calls them otherwise.
constexpr const char *usualLabels[] = {"labels", "target"};

struct Paths {
  std::string prefix, eval, training, checkpoint;
  std::string optimizer; // "" where there is none
};

std::vector<std::string> filesEndingIn(const std::vector<fs::path> &entries, std::string_view end) {
  std::vector<std::string> names;
  for (const fs::path &entry : entries)
    if (std::string name = entry.filename().string(); name.ends_with(end)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Paths> findFiles(const std::string &folder) {
  Result<std::vector<fs::path>> entries = runtime::entriesOf(folder);
  if (!entries) return entries.status();
  std::vector<std::string> evals = filesEndingIn(*entries, evalFile);
  if (evals.empty())
    return inputError(fmt::format("{}: holds onnxruntime-training's artifacts without {}, the forward graph with its "
                                  "loss",
                                  folder, evalFile));
  if (evals.size() > 1)
    return inputError(
        fmt::format("{}: holds several artifacts ({}); give each a folder", folder, fmt::join(evals, ", ")));
  Paths paths;
  paths.prefix = evals[0].substr(0, evals[0].size() - std::string_view(evalFile).size());
  auto find = [&](const char *name) { return (fs::path(folder) / (paths.prefix + name)).string(); };
  paths.eval = find(evalFile), paths.training = find(trainingFile), paths.checkpoint = find(checkpointFile);
  if (!fs::exists(paths.training))
    return inputError(paths.training + ": there is no such file; it says which parameters train");
  if (!fs::exists(paths.checkpoint))
    return inputError(
        paths.checkpoint + ": there is no such file; it holds the parameters" +
        (fs::exists(find(nominalFile)) ? " (the nominal checkpoint beside it has only their names)" : ""));
  if (std::string optimizer = find(optimizerFile); fs::exists(optimizer)) paths.optimizer = optimizer;
  return paths;
}

// Parameters that the training graph adds up gradients of, sorted.
std::vector<std::string> trainedIn(const ::onnx::GraphProto &graph) {
  std::vector<std::string> names;
  for (const ::onnx::ValueInfoProto &input : graph.input())
    if (std::string_view name = input.name(); name.ends_with(gradientBuffer))
      names.emplace_back(name.substr(0, name.size() - gradientBuffer.size()));
  std::sort(names.begin(), names.end());
  return names;
}

Status checkTrained(const Paths &paths, const Checkpoint &checkpoint, const std::vector<std::string> &inGraph) {
  std::vector<std::string> inCheckpoint;
  inCheckpoint.reserve(checkpoint.trained.size());
  for (const CheckpointTensor &tensor : checkpoint.trained) inCheckpoint.push_back(tensor.name);
  std::sort(inCheckpoint.begin(), inCheckpoint.end());
  if (inCheckpoint == inGraph) return Status::ok();
  return inputError(
      fmt::format("{}: the parameters to train are {} in it, and {} in {}; the files are not of one export",
                  paths.checkpoint, fmt::join(inCheckpoint, ", "), fmt::join(inGraph, ", "), paths.training));
}

using Inputs = std::unordered_map<std::string, const ::onnx::ValueInfoProto *>; // of a graph, by name

// The graph's input `tensor.name` becomes an initializer whose bytes are in the checkpoint.
Status addParameter(const Paths &paths, const CheckpointTensor &tensor, const Inputs &inputs,
                    ::onnx::GraphProto &graph) {
  auto found = inputs.find(tensor.name);
  if (found == inputs.end())
    return inputError(fmt::format("{}: the graph has no input for the parameter '{}' of {}", paths.eval, tensor.name,
                                  paths.checkpoint));
  const ::onnx::ValueInfoProto *input = found->second;
  std::vector<int64_t> shape;
  for (const auto &dim : input->type().tensor_type().shape().dim()) shape.push_back(dim.dim_value());
  if (shape != tensor.shape || input->type().tensor_type().elem_type() != tensor.dataType)
    return inputError(fmt::format("{}: parameter '{}' is {} [{}], {} wants {} [{}]", paths.checkpoint, tensor.name,
                                  dataTypeName(tensor.dataType), fmt::join(tensor.shape, ", "), paths.eval,
                                  dataTypeName(input->type().tensor_type().elem_type()), fmt::join(shape, ", ")));
  ::onnx::TensorProto &initializer = *graph.add_initializer();
  initializer.set_name(tensor.name);
  initializer.set_data_type(tensor.dataType);
  for (int64_t size : tensor.shape) initializer.add_dims(size);
  initializer.set_data_location(::onnx::TensorProto::EXTERNAL);
  auto entry = [&](const char *key, const std::string &value) {
    ::onnx::StringStringEntryProto &added = *initializer.add_external_data();
    added.set_key(key);
    added.set_value(value);
  };
  entry("location", tensor.file);
  entry("offset", std::to_string(tensor.offset));
  entry("length", std::to_string(tensor.length));
  return Status::ok();
}

// generate_artifacts takes the training mode from every Dropout of the eval model: the input that says so is left
// empty. It is put back where the training graph's node of the same result has a constant there, whose name may be
// another one by then: onnxruntime shares equal constants.
Status restoreDropout(const ModelFile &training, ::onnx::GraphProto &graph) {
  TensorStore store(training);
  std::map<std::string, StoredTensor> modes; // a Dropout's result -> its input 2
  for (const ::onnx::NodeProto &node : training.proto.graph().node()) {
    if (!node.op_type().ends_with("Dropout") || node.input_size() < 3 || node.output_size() == 0) continue;
    for (const ::onnx::TensorProto &initializer : training.proto.graph().initializer()) {
      if (initializer.name() != node.input(2)) continue;
      Result<StoredTensor> mode = store.locate(initializer);
      if (!mode) return mode.status();
      if (mode->bytes && mode->length == 1) modes[node.output(0)] = *mode;
    }
  }
  for (::onnx::NodeProto &node : *graph.mutable_node()) {
    if (node.op_type() != "Dropout" || node.input_size() < 3 || !node.input(2).empty()) continue;
    auto mode = modes.find(node.output(0));
    if (mode == modes.end()) continue;
    ::onnx::TensorProto &initializer = *graph.add_initializer();
    initializer.set_name(node.output(0) + "/training_mode");
    initializer.set_data_type(mode->second.dataType);
    initializer.set_raw_data(mode->second.bytes, 1);
    node.set_input(2, initializer.name());
  }
  return Status::ok();
}

// Defaults are those of the operators in onnxruntime.
void readOptimizer(const std::string &path, const ::onnx::GraphProto &graph, recipe::ModelTraining &training) {
  auto refuse = [&](const ::onnx::NodeProto &node, const std::string &why) {
    training.optimizer.reset();
    training.clipNorm.reset();
    training.optimizerFault = fmt::format("{}: node '{}' ({}) {}", path, node.name(), node.op_type(), why);
  };
  for (const ::onnx::NodeProto &node : graph.node()) {
    recipe::Optimizer optimizer;
    if (node.op_type() == "InplaceClipGradNorm") {
      training.clipNorm = number(node, "max_norm", 1);
      if (std::string wrong = recipe::faultOf("clip_norm", *training.clipNorm, recipe::clipNormRange); !wrong.empty())
        return refuse(node, "has a number that cannot be: " + wrong);
      continue;
    }
    if (node.op_type() == "AdamWOptimizer") {
      optimizer.kind = recipe::OptimizerKind::AdamW;
      optimizer.beta1 = number(node, "alpha", 0.9);
      optimizer.beta2 = number(node, "beta", 0.999);
      optimizer.eps = number(node, "epsilon", 1e-8);
      optimizer.weightDecay = number(node, "weight_decay", 1e-2);
      optimizer.form = number(node, "adam_mode", 0) == 0 ? recipe::AdamForm::Pytorch : recipe::AdamForm::Onnx;
      if (number(node, "correct_bias", 1) == 0) optimizer.biasCorrection = recipe::BiasCorrection::None;
    } else if (node.op_type() == "SGDOptimizerV2") {
      optimizer.kind = recipe::OptimizerKind::Sgd;
    } else {
      return refuse(node,
                    "is none that is known of an optimizer (AdamWOptimizer, SGDOptimizerV2, InplaceClipGradNorm)");
    }
    if (std::string wrong = faultOf(optimizer); !wrong.empty())
      return refuse(node, "has a number that cannot be: " + wrong);
    training.optimizer = optimizer;
  }
  if (!training.optimizer) training.optimizerFault = path + ": the graph has no optimizer";
}

Status describeTraining(const std::string &folder, const Paths &paths, const Checkpoint &checkpoint, ModelFile &model) {
  recipe::ModelTraining &training = model.training.emplace();
  training.source = "the artifacts";
  const ::onnx::GraphProto &graph = model.proto.graph();
  if (graph.output_size() == 0) return inputError(paths.eval + ": the graph has no output");
  training.loss = graph.output(0).name();
  for (const char *name : usualLabels)
    for (const ::onnx::ValueInfoProto &input : graph.input())
      if (!training.labels && input.name() == name) training.labels = name;
  if (checkpoint.steps > 0)
    training.notes.push_back(fmt::format("the checkpoint was saved after {} steps; training begins anew from its "
                                         "parameters, without its optimizer state",
                                         checkpoint.steps));
  if (paths.optimizer.empty()) {
    training.optimizerFault = fmt::format("{}: holds no {}{}", folder, paths.prefix, optimizerFile);
    return Status::ok();
  }
  Result<ModelFile> optimizer = openModel(paths.optimizer);
  if (!optimizer) return optimizer.status();
  readOptimizer(paths.optimizer, optimizer->proto.graph(), training);
  if (training.optimizer && checkpoint.learningRate) {
    training.optimizer->lr.peak = recipe::shortest(*checkpoint.learningRate);
    training.givesRate = true;
    if (std::string wrong = faultOf(*training.optimizer); !wrong.empty()) {
      training.optimizer.reset();
      training.optimizerFault = paths.checkpoint + ": " + wrong;
    }
  }
  return Status::ok();
}

} // namespace

bool isArtifactsFolder(const std::vector<fs::path> &entries) {
  for (const char *name : {evalFile, trainingFile, optimizerFile})
    if (!filesEndingIn(entries, name).empty()) return true;
  return std::ranges::count(entries, checkpointFile, &fs::path::filename) > 0;
}

Result<ModelFile> openArtifacts(const std::string &folder) {
  Result<Paths> paths = findFiles(folder);
  if (!paths) return paths.status();
  Result<ModelFile> model = openModel(paths->eval);
  if (!model) return model.status();
  Result<ModelFile> training = openModel(paths->training);
  if (!training) return training.status();
  Result<Checkpoint> checkpoint = readCheckpoint(paths->checkpoint);
  if (!checkpoint) return checkpoint.status();
  const std::vector<std::string> trained = trainedIn(training->proto.graph());
  CLEAVE_RETURN_IF_ERROR(checkTrained(*paths, *checkpoint, trained));
  ::onnx::GraphProto &graph = *model->proto.mutable_graph();
  CLEAVE_RETURN_IF_ERROR(restoreDropout(*training, graph));
  Inputs inputs;
  for (const ::onnx::ValueInfoProto &input : graph.input()) inputs.emplace(input.name(), &input);
  for (const auto *tensors : {&checkpoint->trained, &checkpoint->frozen})
    for (const CheckpointTensor &tensor : *tensors) CLEAVE_RETURN_IF_ERROR(addParameter(*paths, tensor, inputs, graph));
  model->ownFile = fs::path(paths->eval).filename().string();
  CLEAVE_RETURN_IF_ERROR(describeTraining(folder, *paths, *checkpoint, *model));
  model->training->trained = trained;
  return model;
}

} // namespace cleave::import_
