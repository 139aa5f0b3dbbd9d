// What an initializer is where no statement of the module tells: one table of rules (role_rules.cpp). Each row says
// what it looks at, what it concludes, and whether that is sure. The first one that holds decides.
//
//     onnx::Mul_25 [4], read by a Mul, of a TorchScript file    a constant or a weight: a doubt, `roles` settles it
//     h.0.ln.weight [64], read by a LayerNormalization          trained
//     val_8 of [2, 3], int64                                    a constant
#pragma once
#include "compiler/import/doubts.h"
#include "compiler/import/exporter_metadata.h"
#include "compiler/import/initializers.h"
#include "compiler/import/weights/state_dict.h"

namespace cleave::import_ {

enum class Producer { Dynamo, TorchScript, TensorFlow, Other }; // Dynamo: whose metadata lists the state_dict
Producer producerOf(const ModelFile &model, const GraphIndex &index, const ExporterMetadata &metadata);

// Bytes up to which a tensor that does not train is a constant of the graph; a larger one stays in its file.
inline constexpr int64_t integerConstantLimit = 16 << 20, maskConstantLimit = 64 << 10, frozenConstantLimit = 4 << 10;

// The model, as rules look at it.
struct RuleContext {
  const Initializers &initializers;
  const GraphIndex &index;
  const ExporterMetadata &metadata;
  Producer producer = Producer::Other;
  bool weightsAreNodes = false;         // no initializer is of real numbers: Constant nodes hold them
  std::set<std::string> modules = {};   // the first part of weights' dotted names
  std::set<std::string> missing = {};   // parameters that the exporter lists and no initializer was made from
  std::set<std::string> notCopies = {}; // made from one value, with other numbers than another made from it

  // An initializer that is one parameter, only renamed, transposed or given another shape.
  bool isCopyOfOne(const std::string &initializer) const;
  bool isReadAsMatrix(const std::string &initializer) const;
  // The one value that the exporter made this initializer from; "": none, or several.
  std::string madeFrom(const std::string &initializer) const;
};

enum class Conclusion { Constant, Trained, Frozen }; // Frozen: a weight that cannot train

struct Decision {
  Conclusion conclusion = Conclusion::Constant;
  int64_t limit = 0; // bytes, of a constant
  std::string why;
  const char *doubt = nullptr; // null: it is sure
  bool isFree = true;          // the recipe may say otherwise
};

// `name`: of the initializer; `key`: PyTorch's name of what these uses read, else ""; what the recipe says came before.
Decision decideRole(const RuleContext &context, const std::string &name, const std::string &key,
                    const std::vector<Use> &uses);

bool isReadAsWeight(const GraphIndex &index, const std::vector<Use> &uses); // by an operator that has weights
bool isStatistic(const GraphIndex &index, const Use &use);                  // mean or variance of a BatchNormalization

} // namespace cleave::import_
