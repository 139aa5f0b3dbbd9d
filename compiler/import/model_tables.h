// The nodes and the parameters of a model's file, before any IR.
#pragma once
#include "compiler/import/weights/optimizer_state.h"

namespace cleave::import_ {

struct ModelTables {
  explicit ModelTables(ModelFile file) : model(std::move(file)), store(model) {}
  ModelTables(const ModelTables &) = delete; // flat and store point into model

  ModelFile model;
  TensorStore store;
  FlatGraph flat;
  ParameterTable parameters;
  InitialWeights initial;                  // of a recipe with a checkpoint
  std::optional<OptimizerState> optimizer; // of a recipe that continues a training
};

// Errors: those of openModel, flattenFunctions, classifyParameters, matchCheckpoint and
// matchOptimizerState.
Result<std::unique_ptr<ModelTables>> readTables(const std::string &path, const ImportOptions &options);

} // namespace cleave::import_
