#include "test/unit/golden_reference/golden_model.h"
#include "compiler/driver/pass_list.h"
#include "compiler/import/import.h"
#include "compiler/normalize/normalize.h"
#include "compiler/training/export_reference.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include <chrono>
#include <cstring>
#include <fstream>

using nlohmann::json;
namespace cleave::golden {

std::string folderOf(const std::string &model) {
  const char *given = std::getenv("GOLDEN_DATA");
  return std::string(given ? given : GOLDEN_DATA) + "/" + model;
}

namespace {

// The recipe that train.json stands for; JSON is YAML.
json recipeOf(const json &train) {
  json recipe = {{"dims", train["dims"]}, {"loss", train["loss"]}, {"optimizer", train["optimizer"]}};
  if (train.contains("label"))
    recipe["loss"]["labels"] = {{"name", train["label"]["name"]}, {"dtype", train["label"]["dtype"]}};
  for (const char *key : {"trainable", "batch_norm", "clip_norm"})
    if (train.contains(key) && !train[key].is_null()) recipe[key] = train[key];
  return recipe;
}

json readJson(const std::string &path) {
  std::ifstream file(path);
  return json::parse(file);
}

} // namespace

GoldenModel GoldenModel::load(const std::string &name, const TrainingOptions &options, runtime::Precision precision,
                              bool backwardOnly) {
  GoldenModel model;
  Status status = model.build(name, options, precision, backwardOnly);
  if (!status) model.error = status.message().empty() ? "failed" : status.message();
  return model;
}

Status GoldenModel::build(const std::string &name, const TrainingOptions &options, runtime::Precision precision,
                          bool backwardOnly) {
  std::string folder = folderOf(name);
  train = readJson(folder + "/train.json");
  golden = readJson(folder + "/golden.json");
  auto arrays = runtime::readArrays(folder + "/data.npz");
  if (!arrays) return arrays.status();
  data = std::move(*arrays);
  auto parsed = recipe::parseRecipeText(recipeOf(train).dump(), name);
  if (!parsed) return parsed.status();
  recipe = std::move(*parsed);
  microbatches = options.microbatches;

  context = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(context.get(),
                                        [&](mlir::Diagnostic &diagnostic) { messages += diagnostic.str() + "\n"; });
  auto start = std::chrono::steady_clock::now();
  auto imported =
      import_::importModel(*context, folder + "/model.onnx", {.trainable = recipe.trainable, .ties = recipe.ties});
  if (mlir::failed(imported)) return inputError(messages);
  module = std::move(*imported);
  normalize::NormalizeOptions normalized;
  normalized.dims = recipe.dims;
  normalized.dims["batch"] /= microbatches;
  if (recipe.batchNorm == recipe::BatchNorm::Training) normalized.batchNorm = normalize::BatchNormMode::Training;
  mlir::PassManager passes(context.get());
  addNormalizePasses(passes, normalized);
  if (backwardOnly) {
    passes.addPass(training::createAttachLoss({recipe}));
    passes.addPass(training::createBuildBackward({}));
  } else {
    addTrainingPasses(passes, recipe, options);
  }
  if (mlir::failed(passes.run(*module))) return inputError(messages);
  plan::Graph graph;
  if (mlir::failed(training::exportReference(*module, graph))) return inputError(messages);
  compileSeconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  auto created = runtime::ReferenceExecutor::create(std::move(graph), precision);
  if (!created) return created.status();
  executor = std::move(*created);
  return loadWeights(folder);
}

Status GoldenModel::loadWeights(const std::string &folder) {
  auto types = executor->stateTypes();
  for (auto param : module->getOps<onnx::ParamOp>()) {
    auto type = types.find(param.getSymName().str());
    if (type == types.end()) continue;
    runtime::HostTensor &tensor = executor->state[type->first];
    if (param.getFill()) {
      std::vector<double> values(runtime::elementCount(type->second.shape), param.getFill()->convertToDouble());
      tensor = runtime::HostTensor::ofReals(type->second.dtype, type->second.shape, values);
      continue;
    }
    std::string relative = param.getPath().value_or("").str();
    std::ifstream file(folder + "/" + (relative.empty() ? "model.onnx" : relative), std::ios::binary);
    tensor = runtime::HostTensor::zeros(plan::F32, type->second.shape);
    file.seekg(param.getOffset().value_or(0));
    if (!file.read(reinterpret_cast<char *>(tensor.data.data()), static_cast<std::streamsize>(tensor.data.size())))
      return inputError("cannot read the weight " + type->first);
  }
  return {};
}

std::vector<runtime::NamedTensors> GoldenModel::batch(int64_t step) const {
  std::vector<runtime::NamedTensors> parts(microbatches);
  for (const auto &[name, array] : data) {
    std::vector<int64_t> shape(array.shape.begin() + 1, array.shape.end());
    shape[0] /= microbatches;
    size_t bytes = array.bytes.size() / (array.shape[0] * microbatches);
    for (int64_t part = 0; part < microbatches; ++part) {
      runtime::HostTensor tensor = runtime::HostTensor::zeros(array.dtype, shape);
      std::memcpy(tensor.data.data(), array.bytes.data() + (step * microbatches + part) * bytes, bytes);
      parts[part][name] = std::move(tensor);
    }
  }
  return parts;
}

} // namespace cleave::golden
