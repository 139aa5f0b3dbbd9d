// The first recipe for a model (`cleave init`): what its inputs, outputs and parameters let one guess, with the other
// choices as comments. It compiles as it is, on random data.
//
//   auto seen = inspect("gpt.onnx", {});
//   Result<std::string> text = draftRecipe(*seen, {.task = "lm"});     // "dims:\n  batch: 8 ...\nloss: ..."
#pragma once
#include "compiler/import/inspect.h"
#include "runtime/base/status.h"
#include <string>
#include <vector>

namespace cleave {

struct DraftOptions {
  std::string task;        // one of draftTasks(); empty: follows from the outputs
  std::string data;        // a file or folder of the data; empty: random data, and the fitting kind as a comment
  bool saysLoss = false;   // the model's file says how it trains: loss and optimizer stay with it
  std::string source = {}; // the command, for the first comment
};

// "lm", "classify", ...
std::vector<std::string> draftTasks();

// YAML text of a recipe. Errors: an unknown task, an output that the task cannot have.
Result<std::string> draftRecipe(const import_::Inspection &model, const DraftOptions &options);

} // namespace cleave
