// The nodes of a model's graph with every call of a model-local function replaced by the function's nodes.
//
// A value inside a call gets the call's name in front, attributes that refer to the function's are filled in, and each
// node keeps the opset of the scope it was written in. Values are unique: a second call by a node of that name has
// "attn#2/" in front.
//
//     node "attn" = my.domain::Attention(x, w)             MatMul "attn/mm" (x, w) -> "attn/scores"
//     function Attention(q, m) -> (y) {                    Softmax "attn/sm" ("attn/scores") -> z
//       mm: scores = MatMul(q, m);  sm: y = Softmax(scores) }
#pragma once
#include "compiler/import/model_file.h"
#include <deque>
#include <map>
#include <vector>

namespace cleave::import_ {

struct FlatNode {
  const ::onnx::NodeProto *node;
  const Opsets *opsets; // that the node's scope imports
  std::string name;     // of the node; if it has none, its first output's; never empty
};

struct FlatGraph {
  std::vector<FlatNode> nodes;
  std::deque<::onnx::NodeProto> owned; // nodes that came from function bodies
  std::deque<Opsets> scopes;
  // Of the nodes in subgraphs that call functions; nodes of other subgraphs have their owner's.
  std::map<const ::onnx::NodeProto *, const Opsets *> opsetsInside;

  int64_t version(const FlatNode &node) const; // of the node's domain; 0 when it imports none
};

// The limits of all calls of functions together: a model of a few lines can ask for 2^64 nodes.
inline constexpr size_t mostInlinedNodes = size_t(1) << 20, mostInlinedBytes = size_t(1) << 30;

// Errors, which name the call: a function that calls itself, a call with more inputs than the function has, more nodes
// or bytes than functions may become.
Result<FlatGraph> flattenFunctions(const ModelFile &model);

} // namespace cleave::import_
