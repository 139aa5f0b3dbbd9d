// What `cleave.export` wrote into a model's metadata, "cleave.module": every parameter and buffer of the PyTorch
// module, and which initializer holds it. A file that has it is read by it, and nothing is guessed.
//
//     {"name": "fc.weight", "kind": "parameter", "requires_grad": true, "shape": [64, 20],
//      "held": [{"initializer": "fc.weight", "form": "as_is"}]}
//     {"name": "head.weight", "tied_to": "embed.weight", ...}     the same parameter
//
// docs/reference/models.md has all keys.
#pragma once
#include "compiler/import/initializers.h"
#include "compiler/import/weights/state_dict.h"

namespace cleave::import_ {

struct Holding {
  enum class Form { AsIs, Transposed, Reshaped, Ranges };
  std::string initializer;
  Form form = Form::AsIs;
  std::vector<ElementRange> ranges; // of Form::Ranges
};

struct StatedTensor {
  std::string name;
  bool isParameter = false, requiresGrad = false, isPersistent = true;
  std::vector<int64_t> shape;
  std::string tiedTo; // "": a tensor of its own
  std::optional<int64_t> paddingRow;
  std::optional<double> initial; // of one that the graph has not: all of its elements
  std::vector<Holding> held;
};

// Sizes first, first + step, ... up to last, or without end.
struct SizeRange {
  int64_t first = 1;
  std::optional<int64_t> last;
  int64_t step = 1;
};

struct ModuleStatement {
  std::string exporter; // "torch 2.15.0, dynamo"
  std::vector<StatedTensor> tensors;
  std::set<std::string> trainingNorms; // modules whose running statistics move
  std::vector<std::string> lost;       // where the graph has other gradients than the module: "detach()"
  std::vector<SizeRange> batches;      // those that the graph is right for; none: all
  std::vector<std::string> remarks;    // what the helper chose, for people
};

// Whether the graph does for a batch of this size what the module does.
bool isRightFor(const ModuleStatement &statement, int64_t batch);

// None where the model has none. Errors: a statement that cannot be read, or does not fit the initializers.
Result<std::optional<ModuleStatement>> moduleStatement(const ModelFile &model, const Initializers &initializers);

} // namespace cleave::import_
