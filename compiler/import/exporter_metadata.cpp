#include "compiler/import/exporter_metadata.h"
#include <algorithm>
#include <array>
#include <cctype>
#include <llvm/ADT/StringRef.h>
#include <sstream>

namespace cleave::import_ {
namespace {

std::string metadata(const auto &owner, std::string_view key) {
  for (const ::onnx::StringStringEntryProto &entry : owner.metadata_props())
    if (entry.key() == key) return entry.value();
  return "";
}

// The strings of a Python list: ['a', "b's"].
std::vector<std::string> stringsOf(const std::string &list) {
  std::vector<std::string> strings;
  for (size_t at = list.find_first_of("'\""); at != std::string::npos; at = list.find_first_of("'\"", at)) {
    size_t end = list.find(list[at], at + 1);
    if (end == std::string::npos) break;
    strings.push_back(list.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return strings;
}

struct SignatureLine {
  std::string placeholder, kind, target, rest; // rest: " persistent=True"
};

// The signature's lines: "p_fc_weight: PARAMETER target='fc.weight'". Outputs name targets too, which they change.
std::vector<SignatureLine> signatureOf(const ::onnx::GraphProto &graph) {
  std::vector<SignatureLine> signature;
  std::istringstream lines(metadata(graph, "pkg.torch.export.ExportedProgram.graph_signature"));
  for (std::string line; std::getline(lines, line) && line != "# outputs";) {
    const size_t kind = line.find(": "), target = line.find(" target=");
    if (kind == std::string::npos || target == std::string::npos || target < kind) continue;
    const std::vector<std::string> names = stringsOf(line.substr(target));
    if (names.size() == 1)
      signature.push_back({line.substr(0, kind), line.substr(kind + 2, target - kind - 2), names.front(),
                           line.substr(line.find_last_of("'\"") + 1)});
  }
  return signature;
}

// Behind "# outputs": "linear: USER_OUTPUT".
std::vector<std::string> resultsOf(const ::onnx::GraphProto &graph) {
  std::vector<std::string> results;
  std::istringstream lines(metadata(graph, "pkg.torch.export.ExportedProgram.graph_signature"));
  for (std::string line; std::getline(lines, line);)
    if (const size_t kind = line.find(": USER_OUTPUT"); kind != std::string::npos)
      results.push_back(line.substr(0, kind));
  return results;
}

bool isNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

StatedOperation operationOf(const ::onnx::NodeProto &node) {
  StatedOperation operation;
  const std::string text = metadata(node, "pkg.torch.onnx.fx_node");
  constexpr std::string_view target = "[target=torch.ops.", arguments = "](args = (";
  const size_t from = text.find(target), to = text.find(arguments);
  auto nameAt = [&](size_t at) {
    size_t end = at;
    while (end < text.size() && isNameCharacter(text[end])) ++end;
    return text.substr(at, end - at);
  };
  if (text.starts_with('%')) operation.result = nameAt(1);
  if (from == std::string::npos || to == std::string::npos || to < from) return operation;
  operation.target = text.substr(from + target.size(), to - from - target.size());
  int depth = 0;
  std::string argument;
  for (size_t at = to + arguments.size(); at < text.size(); ++at) {
    const char c = text[at];
    if (c == '%') operation.values.push_back(nameAt(at + 1));
    if (depth < 0) continue; // keyword arguments
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    if ((depth == 0 && c == ',') || depth < 0) {
      if (!argument.empty()) operation.arguments.push_back(argument);
      argument.clear();
    } else if (c != '%' && (c != ' ' || depth > 0)) {
      argument += c;
    }
  }
  return operation;
}

// Where an operation has weight, bias, mean and variance among its arguments.
const std::vector<size_t> *placesOf(const std::string &target) {
  static const std::vector<std::pair<std::string_view, std::vector<size_t>>> table = {
      {"aten.linear.", {1, 2}},
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
  for (const auto &[start, places] : table)
    if (target.starts_with(start)) return &places;
  return nullptr;
}

bool isBatchNorm(const std::string &target) { return target.find("batch_norm") != std::string::npos; }

// "div" of "div" and "div_12".
std::string stemOf(const std::string &value) {
  const size_t end = value.find_last_not_of("0123456789");
  return end != std::string::npos && end + 1 < value.size() && value[end] == '_' ? value.substr(0, end) : value;
}

// Operations that only give a tensor another shape, or turn it.
const std::set<std::string> views = {"unsqueeze", "squeeze", "view", "reshape", "flatten", "t", "permute", "transpose"};
const std::set<std::string> repeats = {"expand", "repeat", "tile", "broadcast_to", "expand_as", "repeat_interleave"};

const std::vector<std::string> &listOf(const std::map<std::string, std::vector<std::string>> &lists,
                                       const std::string &name) {
  static const std::vector<std::string> none;
  auto found = lists.find(name);
  return found == lists.end() ? none : found->second;
}

} // namespace

// ['', 'layers', 'layers.1', 'layers.1.linear1', 'linear_6']: modules, and last the operation.
std::string statedModule(const ::onnx::NodeProto &node) {
  const std::vector<std::string> scopes = stringsOf(metadata(node, "pkg.torch.onnx.name_scopes"));
  return scopes.size() < 2 ? "" : scopes[scopes.size() - 2];
}

ExporterMetadata::ExporterMetadata(const ::onnx::GraphProto &graph, const GraphIndex &index) : index(index) {
  for (const SignatureLine &line : signatureOf(graph)) {
    const bool isParameter = line.kind == "PARAMETER";
    kinds[line.target] = isParameter;
    if (isParameter || (line.kind == "BUFFER" && line.rest != " persistent=False"))
      listed.push_back({line.target, line.placeholder, isParameter});
  }
  for (const ListedTensor &tensor : listed) keys[tensor.placeholder] = tensor.key;
  for (const ::onnx::ValueInfoProto &value : graph.value_info()) {
    const std::string origins = metadata(value, "pkg.onnxscript.optimizer.folded_from");
    if (origins.empty()) continue;
    folded[value.name()] = stringsOf(origins);
    for (const std::string &origin : folded[value.name()])
      if (isParameter(origin)) parameters[value.name()].push_back(origin);
  }
  for (const ::onnx::ValueInfoProto &input : graph.input()) present.insert(input.name());
  for (const ::onnx::TensorProto &initializer : graph.initializer()) initializers.insert(initializer.name());
  results = resultsOf(graph);
  for (const FlatNode &node : index.flat.nodes) {
    const StatedOperation &operation = operations.emplace_back(operationOf(*node.node));
    present.insert(operation.result);
    saysOperations |= !operation.target.empty();
    for (const std::string &value : operation.values)
      if (auto key = keys.find(value); key != keys.end()) read.insert(key->second);
  }
}

bool ExporterMetadata::isParameter(const std::string &key) const {
  auto found = kinds.find(key);
  return found != kinds.end() && found->second;
}
bool ExporterMetadata::isBuffer(const std::string &name) const {
  auto found = kinds.find(name);
  return found != kinds.end() && !found->second;
}
const std::vector<std::string> &ExporterMetadata::foldedFrom(const std::string &initializer) const {
  return listOf(folded, initializer);
}
const std::vector<std::string> &ExporterMetadata::parametersOf(const std::string &initializer) const {
  return listOf(parameters, initializer);
}

bool ExporterMetadata::isRepeated(const std::string &initializer) const {
  auto isRepeat = [](const std::string &value) { return repeats.contains(stemOf(value)); };
  return isRepeat(initializer) || std::ranges::any_of(foldedFrom(initializer), isRepeat);
}

bool ExporterMetadata::isView(const std::string &initializer) const {
  const std::vector<std::string> &origins = foldedFrom(initializer);
  auto isStep = [&](const std::string &value) {
    return views.contains(stemOf(value)) || stemOf(value) == "val" || isParameter(value);
  };
  return parametersOf(initializer).size() == 1 && views.contains(stemOf(initializer)) &&
         std::ranges::all_of(origins, isStep);
}

bool ExporterMetadata::isSlice(const std::string &initializer) const {
  auto isStep = [&](const std::string &value) {
    return stemOf(value) == "slice" || stemOf(value) == "val" || isParameter(value);
  };
  return parametersOf(initializer).size() == 1 && stemOf(initializer) == "slice" &&
         std::ranges::all_of(foldedFrom(initializer), isStep);
}

bool ExporterMetadata::isLookup(const std::string &initializer) const {
  return isSlice(initializer) || (parametersOf(initializer).size() == 1 && stemOf(initializer) == "embedding");
}

bool ExporterMetadata::isKnown(size_t node) const { return placesOf(operations[node].target) != nullptr; }

bool ExporterMetadata::isOfFoldedNorm(size_t node) const {
  return isBatchNorm(operations[node].target) && isFilter(index.flat.nodes[node].node->op_type());
}

// aten.batch_norm(x, weight, bias, mean, variance, training, ...)
bool ExporterMetadata::trainsNorm(size_t node) const {
  const StatedOperation &operation = operations[node];
  return isBatchNorm(operation.target) && operation.arguments.size() > 5 && operation.arguments[5] == "True";
}

std::optional<int64_t> ExporterMetadata::paddingRow(size_t node) const {
  const StatedOperation &operation = operations[node];
  if (!operation.target.starts_with("aten.embedding.") || operation.arguments.size() < 3) return std::nullopt;
  const int64_t row = std::atoll(operation.arguments[2].c_str());
  return row < 0 ? std::nullopt : std::optional(row);
}

std::string ExporterMetadata::keyAt(size_t node, Place place) const {
  const StatedOperation &operation = operations[node];
  if (const std::vector<size_t> *places = placesOf(operation.target)) {
    const auto at = static_cast<size_t>(place);
    if (at >= places->size() || (*places)[at] >= operation.arguments.size()) return "";
    auto found = keys.find(operation.arguments[(*places)[at]]);
    return found == keys.end() ? "" : found->second;
  }
  std::string only;
  for (const std::string &value : operation.values)
    if (auto found = keys.find(value); found != keys.end() && found->second != only) {
      if (!only.empty()) return "";
      only = found->second;
    }
  return only;
}

std::string ExporterMetadata::keyOf(const Use &use) const {
  const Use at = index.applying(use);
  if (isOfFoldedNorm(at.node) || isOtherOperand(use)) return "";
  // Of two parameters in one sum or product each is an operand.
  const StatedOperation &operation = operations[use.node];
  if (isElementwise(index.op(use)) && int(operation.arguments.size()) == index.node(use).input_size() &&
      operation.target.starts_with("aten." + llvm::StringRef(index.op(use)).lower()))
    if (auto found = keys.find(operation.arguments[size_t(use.operand)]); found != keys.end()) return found->second;
  return keyAt(use.node, placeOf(index.node(at), at.operand));
}

bool ExporterMetadata::readsState(size_t node) const {
  return std::ranges::any_of(operations[node].values, [&](const std::string &value) { return keys.contains(value); });
}

// Of two operands that are one value, the one that is a number in the operation: p of aten.rsub(p, 0.5) is the second.
bool ExporterMetadata::isOtherOperand(const Use &use) const {
  const ::onnx::NodeProto &node = index.node(use);
  const StatedOperation &operation = operations[use.node];
  if (node.input_size() != 2 || node.input(0) != node.input(1) || operation.arguments.size() < 2) return false;
  const bool isReversed = operation.target.starts_with("aten.rsub.");
  return !std::ranges::count(operation.values, operation.arguments[size_t(isReversed ? 1 - use.operand : use.operand)]);
}

bool ExporterMetadata::isLiteral(const Use &use) const {
  const StatedOperation &operation = operations[use.node];
  if (operation.target.empty()) return false;
  if (isOtherOperand(use)) return true;
  return std::ranges::all_of(
      operation.values, [&](const std::string &value) { return present.contains(value) && !keys.contains(value); });
}

std::string ExporterMetadata::lostDetach() const {
  for (size_t i = 0; i < operations.size(); ++i)
    for (const std::string &value : operations[i].values)
      if (stemOf(value) == "detach" && isGone(value) && mayHaveGradient(i)) return value;
  return "";
}

// Whether its results reach the model's by other ways than comparisons and counts; so, too, where that is far away.
bool ExporterMetadata::mayHaveGradient(size_t node) const {
  static const std::set<std::string> counts = {"ArgMax", "ArgMin", "Shape", "Size", "Sign",
                                               "Round",  "Floor",  "Ceil",  "Not"};
  auto passes = [&](const std::string &op) { return !isComparison(op) && !counts.contains(op); };
  const std::vector<Use> reached = index.reached({{node, 0}}, passes);
  return reached.size() >= GraphIndex::reachLimit || std::ranges::any_of(reached, [&](const Use &use) {
           const auto &outputs = index.node(use).output();
           return passes(index.op(use)) && std::ranges::none_of(outputs, [&](const std::string &output) {
                    return index.consumers.contains(output);
                  });
         });
}

bool ExporterMetadata::isGone(const std::string &value) const {
  return !present.contains(value) && !keys.contains(value) && !initializers.contains(value);
}

std::string ExporterMetadata::computedOperand(const Use &use) const {
  static const std::set<std::string> copies = {"clone",  "contiguous", "_to_copy", "dropout",    "alias",
                                               "detach", "to",         "getitem",  "lift_fresh", "_unsafe_view"};
  for (const std::string &value : operations[use.node].values)
    if (isGone(value) && !copies.contains(stemOf(value)) && !views.contains(stemOf(value))) return value;
  return "";
}

bool ExporterMetadata::isMergedAt(size_t node, const std::string &value) const {
  return std::ranges::any_of(index.flat.nodes[node].node->input(), [&](const std::string &input) {
    return stemOf(input) == stemOf(value) && present.contains(input) &&
           std::ranges::count(operations[node].values, input) == 0;
  });
}

std::vector<std::string> ExporterMetadata::lostOperations() const {
  // Operations whose further arguments are sizes, which are computed, too.
  static constexpr std::array shapings = {"aten.view",  "aten.reshape", "aten._unsafe_view", "aten.expand",
                                          "aten.slice", "aten.arange",  "aten.full",         "aten.zeros",
                                          "aten.ones",  "aten.repeat",  "aten.new_"};
  static const std::set<std::string> arithmetic = {"mul", "add", "sub", "div", "pow", "rsub"};
  auto isLost = [&](const std::string &value) {
    std::string stem = stemOf(value);
    if (stem.ends_with('_')) stem.pop_back(); // in place
    return arithmetic.contains(stem) && isGone(value);
  };
  std::set<std::string> lost;
  std::ranges::copy_if(results, std::inserter(lost, lost.end()), isLost);
  for (size_t i = 0; i < operations.size(); ++i) {
    auto isShaped = [&](const char *start) { return operations[i].target.starts_with(start); };
    const bool hasSizes = std::ranges::any_of(shapings, isShaped);
    for (const std::string &value : operations[i].values)
      if (isLost(value) && !isMergedAt(i, value) && !(hasSizes && value != operations[i].arguments.front()))
        lost.insert(value);
  }
  return {lost.begin(), lost.end()};
}

bool ExporterMetadata::hasMergedOperations() const {
  for (size_t i = 0; i < operations.size(); ++i)
    for (const std::string &value : operations[i].values)
      if (isGone(value) && isMergedAt(i, value)) return true;
  return false;
}

} // namespace cleave::import_
