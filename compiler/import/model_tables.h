// The nodes and the parameters of a model's file, before any IR.
#pragma once
#include "compiler/import/weights/initial_weights.h"

namespace cleave::import_ {

struct ModelTables {
  explicit ModelTables(ModelFile file) : model(std::move(file)), store(model) {}
  ModelTables(const ModelTables &) = delete; // flat and store point into model

  ModelFile model;
  TensorStore store;
  FlatGraph flat;
  ParameterTable parameters;
  InitialWeights initial; // of a recipe with a checkpoint
};

// Errors: those of openModel, flattenFunctions, classifyParameters and matchCheckpoint.
Result<std::unique_ptr<ModelTables>> readTables(const std::string &path, const ImportOptions &options);

} // namespace cleave::import_
