// The ONNX model that was trained, with its trained weights.
#pragma once
#include "compiler/export/export.h"
#include "compiler/export/trained_model.h"

namespace cleave {

// Parameters that the model's file has as one initializer, and that were trained as several, get initializers of their
// own. Errors: weights of more than 2 GiB, which one file cannot hold; such a parameter that a model-local function
// reads.
Result<Exported> writeOnnxOf(const TrainedModel &model, const std::string &output);

} // namespace cleave
