// A recorded training of test/golden/data: the model compiled up to the end of the training phase, in the reference
// executor with its weights, and the batches of every step.
//
//   auto model = GoldenModel::load("mlp", {.microbatches = 2});
//   auto outcome = model.executor->step(model.batch(0), {.step = 1, .learningRate = model.recipe.optimizer.lr.at(1)});
#pragma once
#include "compiler/driver/pass_list.h"
#include "compiler/training/training.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/check/reference/executor.h"
#include "runtime/train/data/array.h"
#include <nlohmann/json.hpp>

namespace cleave::golden {

// The folder of a model; the environment's GOLDEN_DATA overrides where the models lie.
std::string folderOf(const std::string &model);

struct GoldenModel {
  nlohmann::json train, golden;
  recipe::Recipe recipe;
  std::map<std::string, runtime::Array> data;
  int64_t microbatches = 1;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<runtime::ReferenceExecutor> executor;
  double compileSeconds = 0;
  std::string error; // not empty: nothing else is valid

  // With `backwardOnly` the graph is @model after BuildBackward, whose outputs are the gradients.
  static GoldenModel load(const std::string &name, const TrainingOptions &options,
                          runtime::Precision precision = runtime::Precision::Double, bool backwardOnly = false);
  std::vector<runtime::NamedTensors> batch(int64_t step) const;

private:
  Status build(const std::string &name, const TrainingOptions &options, runtime::Precision precision,
               bool backwardOnly);
  Status loadWeights(const std::string &folder);
};

} // namespace cleave::golden
