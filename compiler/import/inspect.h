// What is in a model, as `cleave inspect` shows it: one structure, printed as text or JSON.
//
//     Inspection seen = inspectModule(*module, [](domain, op, version) { return normalize::supports(domain, op,
//     version); }); seen.flops = ...;                 // from later phases, where they could be reached std::cout <<
//     seen.text();
//
//     minGPT.onnx: pytorch 2.15.0, IR 10, opset 20
//     inputs   input_ids int64 [batch, 64]
//     ...
//     not supported: 2 operators
//       NonMaxSuppression (opset 20): node_nms, node_nms_1
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cleave::import_ {

struct InspectedValue {
  std::string name, dtype;
  std::vector<std::string> shape; // numbers or names of dimensions
};
struct InspectedParameter {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t elements = 0, bytes = 0;
  std::string role; // parameter | running_statistic
  std::string kind; // trained | frozen | running statistic | buffer | constant
  bool trainable = false;
  std::string why; // it trains, or does not
  std::vector<std::string> nodes;
  std::vector<std::string> aliases;    // tied to it
  std::vector<std::string> foldedFrom; // what the exporter made it from
  std::vector<std::string> stateKeys;  // PyTorch's names for it, where they are others
  std::string file;                    // relative to the model; "" is the .onnx file itself
};
struct InspectedConstant {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  std::string kind, why; // kind: buffer | constant | frozen
  bool isFloat = false;
};
// A row of the table of all tensors above one number.
struct TensorRole {
  std::string name; // PyTorch's, where it is known
  std::vector<int64_t> shape;
  std::string role, why; // role: trained | frozen | running statistic | buffer | constant
};
struct InspectedDoubt {
  std::string text;
  std::vector<std::string> tensors;
};
struct UnsupportedOperator {
  std::string domain, op;
  int64_t version = 0;
  std::vector<std::string> nodes;
  std::vector<std::string> outputs; // of the model, that need one of them
};
// Parts of the model that are the same work; filled by the caller.
struct RepeatedBlock {
  int64_t count = 0;
  std::string first, last;              // what the first and the last are called: "h.0", "h.11"; "": no common name
  std::vector<std::string> firstNodes;  // the exported nodes of the first of them
  int64_t parameters = 0, elements = 0; // of one of them: trained and frozen parameters, and their numbers
};

struct Inspection {
  std::string path, producer;
  int64_t irVersion = 0, opset = 0;
  std::vector<InspectedValue> inputs, outputs;
  std::vector<InspectedParameter> parameters;
  int64_t trainedElements = 0, frozenElements = 0, statisticElements = 0, parameterBytes = 0;
  std::map<std::string, int64_t> operators; // "MatMul", "com.microsoft.Gelu" -> nodes
  std::vector<UnsupportedOperator> unsupported;
  std::string source; // what the import rests on
  std::vector<std::string> ties, notes;
  std::vector<InspectedDoubt> doubts;       // what would change the numbers, and the file does not tell
  std::vector<InspectedConstant> constants; // of two elements and more
  std::optional<double> flops;              // of one forward pass
  std::string flopsAt;                      // the dimensions they hold for: "batch=8"
  std::vector<RepeatedBlock> blocks;

  std::string text(bool notesInFull = false) const; // in full: with all names that a doubt is about
  std::string json() const;
};

using SupportsOperator = std::function<bool(const std::string &domain, const std::string &op, int64_t version)>;

// `module` is what importModel gave. Nodes of subgraphs are counted too.
std::vector<TensorRole> tensorRoles(mlir::ModuleOp module);
Inspection inspectModule(mlir::ModuleOp module, const SupportsOperator &supports);

} // namespace cleave::import_
