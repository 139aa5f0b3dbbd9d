// The artifacts folder of onnxruntime-training (artifacts.generate_artifacts): four files that it trains from.
//
//     training_model.onnx    forward, loss and gradient graph: says which parameters train
//     eval_model.onnx        forward and loss graph with the parameters as inputs: the graph that is imported
//     optimizer_model.onnx   one node for all parameters: says the optimizer (may be missing: the recipe says it then)
//     checkpoint             the parameters' values; they stay there (checkpoint.h)
//
// The folder's files may all have one prefix (generate_artifacts' `prefix`).
#pragma once
#include "compiler/import/model_file.h"
#include <filesystem>

namespace cleave::import_ {

// Whether `folder` holds such files.
bool isArtifactsFolder(const std::vector<std::filesystem::path> &entries);

// The eval model with its parameters as initializers in the checkpoint, in training mode where the training model is,
// and `training` filled. Errors name the file: missing, several of one kind, damaged; parameters that the checkpoint
// has and the graph has not, or with another shape; other trained parameters in the checkpoint than in the training
// graph.
Result<ModelFile> openArtifacts(const std::string &folder);

} // namespace cleave::import_
