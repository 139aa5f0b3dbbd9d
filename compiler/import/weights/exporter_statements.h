// What PyTorch's exporter says of a model's parameters, in the metadata of its graph.
//
//     scale    its signature calls it a PARAMETER             a parameter, whatever its size
//     pos      its signature calls it a BUFFER                not trained in PyTorch
//     val_9    folded_from = "['blocks.0.fc.weight']"         written anew by the exporter, here transposed
//     exp      folded_from = "['neg', 'scale', 'val_3']"      computed from a parameter, which is gone
//     f        folded_from = "['arange', 'val_4']"            computed from no parameter: a constant
#pragma once
#include "onnx/onnx_pb.h"
#include <map>
#include <string>
#include <vector>

namespace cleave::import_ {

struct ExporterStatement {
  enum class Kind { None, Parameter, Buffer };
  Kind kind = Kind::None;              // Buffer: or another tensor that is no parameter, or computed from none
  std::vector<std::string> foldedFrom; // all values that it was computed from
  std::vector<std::string> parameters; // those of them that are parameters
};

using ExporterStatements = std::map<std::string, ExporterStatement>; // by initializer

// The module that a node is of, "layers.1.linear1", from pkg.torch.onnx.name_scopes; "" where nothing is said.
std::string statedModule(const ::onnx::NodeProto &node);

// A tensor of the state_dict, as the signature lists it: buffers that are not persistent are not among them.
struct ListedTensor {
  std::string key;         // "fc.weight"
  std::string placeholder; // "p_fc_weight": what operations call it
};
std::vector<ListedTensor> listedTensors(const ::onnx::GraphProto &graph);

// The operation that a node was written for, from pkg.torch.onnx.fx_node:
// "%linear : ... call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight, %p_fc_bias), kwargs =
// {})"
struct StatedOperation {
  std::string target;                 // "aten.linear.default"; "" where nothing is said
  std::vector<std::string> arguments; // "x", "p_fc_weight", "p_fc_bias"; a list is one argument, "[2, 3]"
};
StatedOperation statedOperation(const ::onnx::NodeProto &node);

ExporterStatements exporterStatements(const ::onnx::GraphProto &graph);

} // namespace cleave::import_
