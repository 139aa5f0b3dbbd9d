// What PyTorch's exporter says of initializers, in the metadata of their value_info entries.
//
//     scale   InputSpec.kind = PARAMETER                 a parameter, whatever its size
//     pos     InputSpec.kind = BUFFER                    not trained in PyTorch
//     val_9   folded_from = "['blocks.0.fc.weight']"     written anew by the exporter, here transposed
#pragma once
#include "onnx/onnx_pb.h"
#include <map>
#include <string>
#include <vector>

namespace cleave::import_ {

struct ExporterStatement {
  enum class Kind { None, Parameter, Buffer };
  Kind kind = Kind::None;              // Buffer: or another tensor that is no parameter
  std::vector<std::string> foldedFrom; // the values that it was computed from
};

using ExporterStatements = std::map<std::string, ExporterStatement>; // by initializer

ExporterStatements exporterStatements(const ::onnx::GraphProto &graph);

} // namespace cleave::import_
