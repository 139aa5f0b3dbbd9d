#include "compiler/import/graph_index.h"
#include <algorithm>
#include <cctype>

namespace cleave::import_ {
namespace {

bool keepsNumbers(const std::string &op) {
  static const std::set<std::string> names = {"Unsqueeze", "Squeeze", "Reshape", "Expand", "DequantizeLinear"};
  return isPassThrough(op) || names.contains(op);
}

} // namespace

Place placeOf(const ::onnx::NodeProto &node, int operand) {
  static const std::set<std::string> norms = {"BatchNormalization", "LayerNormalization", "InstanceNormalization",
                                              "GroupNormalization", "RMSNormalization"};
  const std::string &op = node.op_type();
  if ((norms.contains(op) || isFilter(op)) && operand >= 1 && operand <= 4) return static_cast<Place>(operand - 1);
  return op == "Add" || op == "Sub" ? Place::Bias : Place::Weight;
}

bool isFilter(const std::string &op) { return op == "Gemm" || op == "Conv" || op == "ConvTranspose"; }
bool isElementwise(const std::string &op) {
  static const std::set<std::string> names = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where"};
  return names.contains(op);
}
bool isPassThrough(const std::string &op) { return op == "Transpose" || op == "Cast" || op == "Identity"; }
bool isRecurrent(const std::string &op) { return op == "LSTM" || op == "GRU" || op == "RNN"; }
bool isComparison(const std::string &op) {
  static const std::set<std::string> names = {"Equal",       "Greater", "GreaterOrEqual", "Less",
                                              "LessOrEqual", "IsNaN",   "IsInf"};
  return names.contains(op);
}

bool isGivenName(const std::string &name) {
  return !name.empty() && (std::isalpha(static_cast<unsigned char>(name.front())) || name.front() == '_') &&
         name.find("::") == std::string::npos && name.find('/') == std::string::npos;
}

GraphIndex::GraphIndex(const FlatGraph &flat) : flat(flat) {
  for (size_t i = 0; i < flat.nodes.size(); ++i) {
    for (const std::string &output : flat.nodes[i].node->output()) producer.emplace(output, i);
    for (const std::string &input : flat.nodes[i].node->input())
      if (!input.empty()) consumers[input].push_back(i);
  }
}

std::vector<Use> GraphIndex::reached(const std::vector<Use> &uses,
                                     const std::function<bool(const std::string &op)> &passes) const {
  std::vector<Use> all = uses;
  std::set<Use> seen(uses.begin(), uses.end());
  for (size_t step = 0; step < all.size() && all.size() < reachLimit; ++step) {
    if (!passes(op(all[step]))) continue;
    for (const std::string &value : node(all[step]).output()) {
      auto next = consumers.find(value);
      if (next == consumers.end()) continue;
      for (size_t reader : next->second) {
        const auto &inputs = flat.nodes[reader].node->input();
        const Use use{reader, static_cast<int>(std::ranges::find(inputs, value) - inputs.begin())};
        if (seen.insert(use).second) all.push_back(use);
      }
    }
  }
  return all;
}

std::vector<std::string> GraphIndex::readers(const Use &use) const {
  std::vector<std::string> found;
  for (const Use &at : reached({use}, isPassThrough))
    if (!isPassThrough(op(at)) || node(at).output_size() == 0) found.push_back(op(at));
  return found;
}

bool GraphIndex::isReadBy(const std::vector<Use> &uses, const std::set<std::string> &ops) const {
  return std::ranges::any_of(uses, [&](const Use &use) {
    return std::ranges::any_of(readers(use), [&](const std::string &op) { return ops.contains(op); });
  });
}
bool GraphIndex::isMultiplied(const std::vector<Use> &uses) const {
  return isReadBy(uses, {"MatMul", "Gemm", "Einsum", "Conv"});
}

Use GraphIndex::applying(const Use &use) const {
  Use at = use;
  for (int step = 0; step < 8; ++step) {
    const ::onnx::NodeProto &proto = node(at);
    if (!keepsNumbers(proto.op_type()) || proto.output_size() == 0) break;
    auto next = consumers.find(proto.output(0));
    if (next == consumers.end()) break;
    const auto &inputs = flat.nodes[next->second.front()].node->input();
    at = {next->second.front(), static_cast<int>(std::ranges::find(inputs, proto.output(0)) - inputs.begin())};
  }
  return at;
}

std::optional<size_t> GraphIndex::onlyReader(const std::string &value) const {
  auto found = consumers.find(value);
  return found == consumers.end() || found->second.size() != 1 ? std::nullopt : std::optional(found->second.front());
}

} // namespace cleave::import_
