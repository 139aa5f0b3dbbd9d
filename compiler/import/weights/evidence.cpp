#include "compiler/import/weights/evidence.h"
#include <algorithm>
#include <map>
#include <set>

namespace cleave::import_ {
namespace {

constexpr int64_t scanLimit = 1 << 20; // elements

const std::string &opOf(const GraphIndex &index, const Use &use) { return index.flat.nodes[use.node].node->op_type(); }

} // namespace

bool isConfiguration(const std::string &op, int operand) {
  static const std::map<std::string, std::set<int>> table = {{"Resize", {1, 2}},
                                                             {"Upsample", {1}},
                                                             {"OneHot", {2}},
                                                             {"Dropout", {1}},
                                                             {"Pad", {2}},
                                                             {"Clip", {1, 2}},
                                                             {"Range", {0, 1, 2}},
                                                             {"QuantizeLinear", {1}},
                                                             {"DequantizeLinear", {1}},
                                                             {"MatMulNBits", {2, 3}},
                                                             {"RoiAlign", {1}},
                                                             {"CastLike", {1}},
                                                             {"EyeLike", {0}},
                                                             {"NonMaxSuppression", {3, 4}}};
  auto found = table.find(op);
  return found != table.end() && found->second.count(operand) > 0;
}

bool isWeightOperand(const std::string &op, int operand) {
  static const std::map<std::string, std::set<int>> table = {{"MatMul", {0, 1}},
                                                             {"Gemm", {0, 1, 2}},
                                                             {"Conv", {1, 2}},
                                                             {"ConvTranspose", {1, 2}},
                                                             {"BatchNormalization", {1, 2}},
                                                             {"LayerNormalization", {1, 2}},
                                                             {"PRelu", {1}},
                                                             {"InstanceNormalization", {1, 2}},
                                                             {"GroupNormalization", {1, 2}},
                                                             {"RMSNormalization", {1}},
                                                             {"LSTM", {1, 2, 3}},
                                                             {"GRU", {1, 2, 3}}};
  auto found = table.find(op);
  return found != table.end() && found->second.count(operand) > 0;
}

bool isQuantizedOperand(const std::string &op, int operand) {
  return (op == "DequantizeLinear" && operand == 0) || (op == "MatMulNBits" && operand == 1);
}

bool isComparison(const std::string &op) {
  static const std::set<std::string> names = {"Equal",       "Greater", "GreaterOrEqual", "Less",
                                              "LessOrEqual", "IsNaN",   "IsInf"};
  return names.count(op) != 0;
}

bool isComparedPast(const GraphIndex &index, size_t node) {
  static const std::set<std::string> movements = {"Transpose", "Cast",    "Identity", "Slice",
                                                  "Unsqueeze", "Squeeze", "Reshape",  "Expand"};
  std::vector<size_t> open = {node};
  std::set<size_t> seen = {node};
  while (!open.empty() && seen.size() < 64) {
    const ::onnx::NodeProto &at = *index.flat.nodes[open.back()].node;
    open.pop_back();
    if (isComparison(at.op_type())) return true;
    if (!movements.contains(at.op_type()) || at.output_size() == 0) continue;
    if (auto next = index.consumers.find(at.output(0)); next != index.consumers.end())
      for (size_t reader : next->second)
        if (seen.insert(reader).second) open.push_back(reader);
  }
  return false;
}

bool isReadAsWeight(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses) {
  return std::ranges::any_of(uses, [&](const Use &use) { return isWeightOperand(opOf(index, use), use.operand); }) ||
         (tensor.shape.size() == 2 && readByGather(index, uses)) || hasWeightUse(index, tensor, uses);
}

bool isMaskNumber(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses) {
  auto fills = [&](const Use &use) { return opOf(index, use) == "Where"; };
  return firstNumber(tensor).value_or(0) <= -100 || (!uses.empty() && std::ranges::all_of(uses, fills));
}

bool hasWeightUse(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses) {
  return std::any_of(uses.begin(), uses.end(), [&](const Use &use) {
    if (isWeightOperand(opOf(index, use), use.operand)) return true;
    const ::onnx::NodeProto &node = *index.flat.nodes[use.node].node;
    if (node.op_type() != "Add" || node.input_size() != 2 || tensor.shape.empty()) return false;
    auto other = index.producer.find(node.input(1 - use.operand));
    if (other == index.producer.end()) return false;
    const std::string &op = index.flat.nodes[other->second].node->op_type();
    return op == "MatMul" || op == "Einsum" || op == "Conv";
  });
}

bool isRotary(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses, bool isStated) {
  if (tensor.name.ends_with("inv_freq")) return true;
  auto real = std::count_if(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size > 1; });
  if (isStated || real < 2 || uses.empty() || tensor.name.find('.') != std::string::npos) return false;
  return std::all_of(uses.begin(), uses.end(), [&](const Use &use) {
    std::vector<std::string> ops = readers(index, use);
    return !ops.empty() && std::all_of(ops.begin(), ops.end(), [](const std::string &op) { return op == "Mul"; });
  });
}

bool isNeutral(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses,
               const std::function<bool(const std::string &)> &isInitializer) {
  if (uses.empty() || tensor.name.find('.') != std::string::npos || !allEqual(tensor)) return false;
  auto consumers = [&](size_t node) -> std::vector<size_t> {
    auto found = index.consumers.find(index.flat.nodes[node].node->output(0));
    return found == index.consumers.end() ? std::vector<size_t>() : found->second;
  };
  auto isOp = [&](size_t node, const char *op) { return index.flat.nodes[node].node->op_type() == op; };
  return std::all_of(uses.begin(), uses.end(), [&](const Use &use) {
    if (opOf(index, use) != "InstanceNormalization" || use.operand == 0) return false;
    std::vector<size_t> after = consumers(use.node);
    if (after.size() != 1 || !isOp(after[0], "Reshape")) return false;
    after = consumers(after[0]);
    if (after.size() != 1 || !isOp(after[0], "Mul")) return false;
    const ::onnx::NodeProto &product = *index.flat.nodes[after[0]].node;
    return std::any_of(product.input().begin(), product.input().end(), isInitializer);
  });
}

bool isLargeWeight(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses) {
  return tensor.elements() > scanLimit && (readByGather(index, uses) || readByProduct(index, uses));
}

} // namespace cleave::import_
