#include "compiler/import/weights/stated_reads.h"
#include <algorithm>
#include <cctype>

namespace cleave::import_ {
namespace {

// Where an operation has weight, bias, mean and variance among its arguments.
struct Signature {
  std::string_view target;
  std::vector<size_t> arguments;
};

const std::vector<size_t> *argumentsOf(const std::string &target) {
  static const std::vector<Signature> table = {{"aten.linear.", {1, 2}},
                                               {"aten.addmm.", {2, 0}},
                                               {"aten.embedding.", {0}},
                                               {"aten.conv", {1, 2}},
                                               {"aten.layer_norm.", {2, 3}},
                                               {"aten.native_layer_norm.", {2, 3}},
                                               {"aten.group_norm.", {2, 3}},
                                               {"aten.native_group_norm.", {1, 2}},
                                               {"aten.batch_norm.", {1, 2, 3, 4}},
                                               {"aten._native_batch_norm", {1, 2, 3, 4}},
                                               {"aten.instance_norm.", {1, 2, 3, 4}},
                                               {"aten.rms_norm.", {2}},
                                               {"aten.prelu.", {1}},
                                               {"aten._prelu_kernel.", {1}}};
  for (const Signature &entry : table)
    if (target.starts_with(entry.target)) return &entry.arguments;
  return nullptr;
}

bool isBatchNorm(const std::string &target) { return target.find("batch_norm") != std::string::npos; }

bool keepsNumbers(const std::string &op) {
  static const std::set<std::string> names = {"Transpose", "Cast",    "Identity", "Unsqueeze",
                                              "Squeeze",   "Reshape", "Expand",   "DequantizeLinear"};
  return names.contains(op);
}

} // namespace

Place placeOf(const ::onnx::NodeProto &node, int operand) {
  static const std::set<std::string> layers = {"Gemm",
                                               "Conv",
                                               "ConvTranspose",
                                               "BatchNormalization",
                                               "LayerNormalization",
                                               "InstanceNormalization",
                                               "GroupNormalization",
                                               "RMSNormalization"};
  const std::string &op = node.op_type();
  if (layers.contains(op) && operand >= 1 && operand <= 4) return static_cast<Place>(operand - 1);
  return op == "Add" || op == "Sub" ? Place::Bias : Place::Weight;
}

bool isFilter(const std::string &op) { return op == "Gemm" || op == "Conv" || op == "ConvTranspose"; }

Consumers::Consumers(const FlatGraph &flat) : flat(flat) {
  for (size_t i = 0; i < flat.nodes.size(); ++i)
    for (const std::string &input : flat.nodes[i].node->input())
      if (!input.empty()) readers[input].push_back(i);
}

std::optional<size_t> Consumers::only(const std::string &value) const {
  auto found = readers.find(value);
  return found == readers.end() || found->second.size() != 1 ? std::nullopt : std::optional(found->second.front());
}

std::pair<size_t, int> Consumers::applying(size_t node, int operand) const {
  for (int step = 0; step < 8; ++step) {
    const ::onnx::NodeProto &proto = *flat.nodes[node].node;
    if (!keepsNumbers(proto.op_type()) || proto.output_size() == 0) break;
    auto next = readers.find(proto.output(0));
    if (next == readers.end()) break;
    const auto &inputs = flat.nodes[next->second.front()].node->input();
    operand = static_cast<int>(std::ranges::find(inputs, proto.output(0)) - inputs.begin());
    node = next->second.front();
  }
  return {node, operand};
}

StatedReads::StatedReads(const FlatGraph &flat, const std::vector<ListedTensor> &listed) : flat(flat), consumers(flat) {
  for (const ListedTensor &tensor : listed) keys[tensor.placeholder] = tensor.key;
  for (const FlatNode &node : flat.nodes) {
    operations.push_back(statedOperation(*node.node));
    for (const std::string &argument : operations.back().arguments)
      if (auto key = keys.find(argument); key != keys.end()) read.insert(key->second);
  }
}

bool StatedReads::isKnown(size_t node) const { return argumentsOf(operations[node].target) != nullptr; }

bool StatedReads::isOfFoldedNorm(size_t node) const {
  return isBatchNorm(operations[node].target) && isFilter(flat.nodes[node].node->op_type());
}

std::string StatedReads::keyAt(size_t node, Place place) const {
  const StatedOperation &operation = operations[node];
  if (const std::vector<size_t> *arguments = argumentsOf(operation.target)) {
    const auto at = static_cast<size_t>(place);
    if (at >= arguments->size() || (*arguments)[at] >= operation.arguments.size()) return "";
    auto found = keys.find(operation.arguments[(*arguments)[at]]);
    return found == keys.end() ? "" : found->second;
  }
  std::string only;
  for (const std::string &argument : operation.arguments)
    if (auto found = keys.find(argument); found != keys.end()) {
      if (!only.empty()) return "";
      only = found->second;
    }
  return only;
}

std::string StatedReads::keyOf(const Use &use) const {
  const auto [node, operand] = consumers.applying(use.node, use.operand);
  return isOfFoldedNorm(node) ? "" : keyAt(use.node, placeOf(*flat.nodes[node].node, operand));
}

bool isGivenName(const std::string &name) {
  return !name.empty() && (std::isalpha(static_cast<unsigned char>(name.front())) || name.front() == '_') &&
         name.find("::") == std::string::npos && name.find('/') == std::string::npos;
}

} // namespace cleave::import_
