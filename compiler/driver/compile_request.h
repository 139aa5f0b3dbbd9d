// The request of a compilation: the model, how it trains, on which cluster, and the fixed part of the split.
//
//   CompileRequest request{.model = "gpt.onnx", .recipe = *recipe, .cluster = *cluster, .split = {.zero = "3"}};
#pragma once
#include "compiler/annotations/results.h"
#include "compiler/cluster/cluster.h"
#include "compiler/padding/padding.h"
#include "compiler/planner/problem/constraints.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/recipe/recipe.h"
#include <functional>
#include <string>

namespace cleave {

struct CompileRequest {
  std::string model; // path of the .onnx file, or of a folder of onnxruntime-training's artifacts
  recipe::Recipe recipe;
  bool recipeIsWhole = false; // resolved before: what the model says of its training is in it
  planner::Cluster cluster;
  planner::SplitFlags split;
  bool acceptsDoubts = false;   // what the file does not tell is taken as import concludes it
  std::string importCheck = {}; // what a check of the import beside the PyTorch module found; "": there was none
  bool annotations = true;      // what the model's own annotations say of the split goes with these flags
  std::string problemFile;      // not empty: the planner's problem is written there, as text
  std::string resumed;          // snapshots that the training goes on from with this recipe; "": none
  bool emptyPlaces = false;     // the batch is counted in places, some of which stay empty
  padding::PadDimensionsOptions padding = {}; // sizes that are made to divide over the devices
  bool emulate = false;      // of a GPU's plan: also a form of its kernels that `cleave run` executes on this CPU
  bool checkWeights = false; // the plan holds digests of all of each weight file
  std::string irFolder;      // not empty: the module is written there after each phase
  // Called with what the passes warn of (parameters that no gradient reaches); the report notes it too.
  std::function<void(const std::string &)> warn = [](const std::string &) {};
  planner::SearchOptions search = {};
  std::vector<annotations::ResultLayout> results = {}; // that annotations tell
  std::vector<std::string> notes = {};                 // of what was taken from the model: the report begins with them

  // So has the last batch of an epoch, if it may be smaller.
  bool mayHaveEmptyPlaces() const {
    return emptyPlaces || (recipe.data && recipe.data->lastBatch == recipe::LastBatch::Smaller);
  }
};

} // namespace cleave
