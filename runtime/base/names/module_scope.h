// The modules in a node's name, as PyTorch's TorchScript exporter writes it.
//
//     scopeOf("/encoder/layers.0/linear1/MatMul")   // {"encoder", "layers.0", "linear1"}
//     moduleOf("/h.0/mlp/mlp.0/MatMul")             // "h.0.mlp.0"
//     moduleOf("node_linear")                       // ""
#pragma once
#include <string>
#include <vector>

namespace cleave::names {

std::vector<std::string> scopeOf(const std::string &node);
std::string moduleOf(const std::string &node);

// The beginning of the name of `part`, a module in the module `joined`, whose last part is `last`: "encoder." where
// "layers.0" is in "encoder", "" where "net.0" is in "net". The children of a Sequential have its name in front.
std::string moduleAround(const std::string &joined, const std::string &last, const std::string &part);

} // namespace cleave::names
