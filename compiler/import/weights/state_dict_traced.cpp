// The state_dict of a model from PyTorch's TorchScript exporter. It keeps the names of parameters, but calls what it
// folded "onnx::MatMul_131"; nodes are called after modules, "/encoder/layers.0/linear1/MatMul".
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/parameters.h"
#include "compiler/import/weights/role_rules.h"
#include "compiler/import/weights/state_dict.h"
#include "runtime/base/names/module_scope.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::import_ {
namespace {

using Path = std::vector<std::string>;

Path scopeOf(const FlatNode &node) { return names::scopeOf(node.name); }

// Full names of modules by scope. A scope has only the last name of each module ("layers.0") and leaves out those that
// are never called: what a parameter with a name is read by tells the whole of it.
class ModuleNames {
public:
  ModuleNames(const FlatGraph &flat, const std::vector<std::pair<size_t, std::string>> &reads) {
    for (const auto &[node, key] : reads)
      for (std::string module = moduleOfKey(key); !module.empty(); module = moduleOfKey(module)) known.insert(module);
    for (const auto &[node, key] : reads) {
      const Path scope = scopeOf(flat.nodes[node]);
      const std::string module = moduleOfKey(key), joined = joinedOf(scope);
      if (joined.empty() || !("." + module).ends_with("." + joined)) continue;
      const std::string before = module.substr(0, module.size() - joined.size());
      for (size_t length = 1; length <= scope.size(); ++length)
        prefixes.try_emplace(joinedOf(Path(scope.begin(), scope.begin() + static_cast<ptrdiff_t>(length))), before);
    }
  }

  std::string of(const Path &scope) const {
    const std::string joined = joinedOf(scope);
    for (std::string module = joined; !module.empty(); module = moduleOfKey(module))
      if (auto found = prefixes.find(module); found != prefixes.end()) return found->second + joined;
    return joined;
  }

private:
  // "norm_1" is norm's second call.
  std::string joinedOf(const Path &scope) const {
    std::string joined, last;
    for (std::string part : scope) {
      const size_t call = part.rfind('_');
      const bool isNumbered = call != std::string::npos && call + 1 < part.size() &&
                              part.find_first_not_of("0123456789", call + 1) == std::string::npos;
      const std::string parent = names::moduleAround(joined, last, part);
      if (isNumbered && !isKnown(parent + part) && isKnown(parent + part.substr(0, call))) part.resize(call);
      joined = parent + part;
      last = part;
    }
    return joined;
  }
  bool isKnown(const std::string &module) const {
    return known.contains(module) ||
           std::ranges::any_of(known, [&](const std::string &one) { return one.ends_with("." + module); });
  }

  std::set<std::string> known;
  std::map<std::string, std::string> prefixes; // "h.0" -> "transformer."
};

class TracedStateDict {
public:
  TracedStateDict(const RuleContext &context, const ParameterTable &table)
      : flat(context.index.flat), table(table), consumers(context.index), reads(namedReads(flat, table)),
        modules(flat, reads) {
    for (const FlatNode &node : flat.nodes) {
      const Path scope = scopeOf(node);
      ++nodesOf[scope];
      if (node.node->op_type() == "InstanceNormalization") norms.insert(scope);
      for (Path outer = scope; !outer.empty();) {
        outer.pop_back();
        isOuter.insert(outer);
      }
    }
  }

  StateDict run() {
    for (size_t i = 0; i < table.parameters.size(); ++i) claimNamed(i);
    for (size_t i = 0; i < table.parameters.size(); ++i) claimByModule(i);
    countUpdates();
    if (!guesses.empty())
      dict.notes.push_back(
          fmt::format("names that `cleave export` takes from modules only: {}", fmt::join(guesses, ", ")));
    dict.folded.assign(folded.begin(), folded.end());
    if (!folded.empty())
      dict.notes.push_back(
          fmt::format("the exporter folded a BatchNorm into {}, so that `cleave export` has no weights for it: export "
                      "with training=TrainingMode.TRAINING and do_constant_folding=False to keep it",
                      fmt::join(folded, ", ")));
    return std::move(dict);
  }

private:
  // Nodes and the names, given by PyTorch, that they read.
  static std::vector<std::pair<size_t, std::string>> namedReads(const FlatGraph &flat, const ParameterTable &table) {
    std::vector<std::pair<size_t, std::string>> reads;
    for (const Parameter &parameter : table.parameters)
      for (const Use &use : parameter.uses)
        if (const std::string &value = flat.nodes[use.node].node->input(use.operand); isGivenName(value))
          reads.emplace_back(use.node, value);
    return reads;
  }

  bool claim(const std::string &key, StateEntry entry) {
    if (!keys.insert(key).second) return false;
    entry.key = key;
    dict.entries.push_back(std::move(entry));
    return true;
  }
  bool claim(const std::string &key, size_t parameter, bool isTransposed) {
    return claim(key, entryOf(table, parameter, isTransposed));
  }

  const ::onnx::NodeProto &nodeOf(const Use &use) const { return *flat.nodes[use.node].node; }

  void claimNamed(size_t i) {
    const Parameter &parameter = table.parameters[i];
    for (const Use &use : parameter.uses) {
      const std::string &value = nodeOf(use).input(use.operand);
      const bool isTurned = std::ranges::count(parameter.transposedAliases, value) > 0;
      if (isGivenName(value) && isOfModel(value)) claim(value, i, isTurned);
    }
    if (parameter.uses.empty() && isGivenName(parameter.name)) claim(parameter.name, i, false);
  }

  // Not an output of a Constant node.
  bool isOfModel(const std::string &value) const {
    return std::ranges::none_of(flat.nodes, [&](const FlatNode &node) {
      return node.node->op_type() == "Constant" && node.node->output(0) == value;
    });
  }

  // Tensors without a name, or that the module of another one reads too.
  void claimByModule(size_t i) {
    const Parameter &parameter = table.parameters[i];
    if (parameter.role == Role::Constant || !parameter.tensor.isFloat()) return; // quantized: PyTorch has the numbers
    for (const Use &use : parameter.uses) {
      const ::onnx::NodeProto &node = nodeOf(use);
      const std::string &value = node.input(use.operand), &op = node.op_type();
      const bool isAliasTurned = std::ranges::count(parameter.transposedAliases, value) > 0;
      if (isGivenName(value)) {
        const std::string module = modules.of(scopeOf(flat.nodes[use.node]));
        if (module != moduleOfKey(value) && isTiedLayer(use) && leafOfKey(value) == leafAt(node, use.operand))
          claim(module + "." + leafOfKey(value), i, isAliasTurned);
        continue;
      }
      if (isRecurrent(op)) {
        claimRecurrent(i, use);
        continue;
      }
      const auto [applied, operand] = consumers.applying(use);
      const std::string &layer = flat.nodes[applied].node->op_type();
      if (layer != "MatMul" && layer != "Conv" && layer != "ConvTranspose" && layer != "Gemm" && layer != "Gather" &&
          layer != "LayerNormalization" && !isLayer(scopeOf(flat.nodes[use.node])) &&
          !isNorm(scopeOf(flat.nodes[use.node])))
        continue;
      const bool isTurned =
          layer == "MatMul" || (layer == "Gemm" && operand == 1 && number(*flat.nodes[applied].node, "transB", 0) == 0);
      nameByModule(i, use, operand, isTurned != isAliasTurned);
      if (layer == "Conv" && operand == 1 && hasNamelessBias(*flat.nodes[applied].node))
        folded.insert("'" + modules.of(scopeOf(flat.nodes[use.node])) + "'");
      else if (operand == 1 && isNumbered(value) && keepsName(*flat.nodes[applied].node))
        dict.computed.push_back(i);
    }
  }

  // What the exporter names itself: "onnx::Conv_15", and "412" in old files; not "0.weight" of a Sequential.
  static bool isNumbered(const std::string &value) {
    return value.find("::") != std::string::npos || value.find_first_not_of("0123456789") == std::string::npos;
  }

  // Whether the exporter writes this layer's weight as the parameter lies, so that it keeps its name: `weight @ x`, not
  // the transposed one of a MatMul. Without the name it was computed, as weight_norm's "onnx::Gemm_14".
  static bool keepsName(const ::onnx::NodeProto &node) {
    const std::string &op = node.op_type();
    return op == "Conv" || op == "ConvTranspose" || (op == "Gemm" && number(node, "transB", 0) != 0);
  }

  // A BatchNorm that was folded leaves a bias, too.
  static bool hasNamelessBias(const ::onnx::NodeProto &node) {
    return node.input_size() > 2 && !node.input(2).empty() && isNumbered(node.input(2));
  }

  void nameByModule(size_t i, const Use &use, int operand, bool isTransposed) {
    const ::onnx::NodeProto &node = nodeOf(use);
    const Place place = placeOf(node, operand);
    if (std::string key = besideBias(node); place == Place::Weight && !key.empty()) {
      claim(key, i, isTransposed);
      return;
    }
    const std::string module = modules.of(scopeOf(flat.nodes[use.node]));
    const std::string prefix = module.empty() ? "" : module + ".";
    const bool isAttention = place == Place::Weight && keys.contains(prefix + "out_proj.weight");
    const std::string key = prefix + (isAttention ? "in_proj_weight" : place == Place::Weight ? "weight" : "bias");
    if (!claim(key, i, isTransposed)) return;
    StateEntry &entry = dict.entries.back();
    entry.isGuess = true;
    if (!entry.isTransposed && node.op_type() != "MatMul" && !isFilter(node.op_type())) {
      entry.shape = vectorShape(entry.shape);
      entry.isReshaped = true;
    }
    const Path scope = scopeOf(flat.nodes[use.node]);
    if (!isLayer(scope) && !isNorm(scope)) guesses.push_back("'" + key + "'");
  }

  // The weight whose product a named bias is added to: "fc.weight" of "fc.bias", "in_proj_weight" of "in_proj_bias".
  std::string besideBias(const ::onnx::NodeProto &product) const {
    if (product.op_type() != "MatMul" || product.output_size() == 0) return "";
    const std::optional<size_t> reader = consumers.onlyReader(product.output(0));
    if (!reader || flat.nodes[*reader].node->op_type() != "Add") return "";
    const std::string module = modules.of(scopeOf(flat.nodes[*reader]));
    for (std::string name : flat.nodes[*reader].node->input())
      if (isGivenName(name) && name.ends_with("bias") && moduleOfKey(name) == module)
        return name.replace(name.size() - 4, 4, "weight");
    return "";
  }

  // The scope of one Linear or Embedding: its few nodes, and no module within.
  bool isLayer(const Path &scope) const {
    auto count = nodesOf.find(scope);
    return !scope.empty() && !isOuter.contains(scope) && count != nodesOf.end() && count->second <= 4;
  }
  // A group normalization, which the exporter writes as an instance normalization, a product and a sum.
  bool isNorm(const Path &scope) const { return norms.contains(scope) && !isOuter.contains(scope); }
  bool isTiedLayer(const Use &use) const {
    const std::string &op = nodeOf(use).op_type();
    return isLayer(scopeOf(flat.nodes[use.node])) &&
           (op == "Transpose" || op == "MatMul" || op == "Gemm" || op == "Gather" || op == "Add");
  }
  static std::string leafAt(const ::onnx::NodeProto &node, int operand) {
    return placeOf(node, operand) == Place::Bias ? "bias" : "weight";
  }

  // Layers of a module are its recurrent nodes, in order.
  void claimRecurrent(size_t i, const Use &use) {
    const ::onnx::NodeProto &node = nodeOf(use);
    const std::string module = modules.of(scopeOf(flat.nodes[use.node]));
    std::vector<std::string> &layers = recurrentLayers[module];
    const std::string &weight = node.input(2);
    auto layer = std::ranges::find(layers, weight);
    if (layer == layers.end()) {
      for (const FlatNode &other : flat.nodes)
        if (isRecurrent(other.node->op_type()) && modules.of(scopeOf(other)) == module &&
            other.node->input_size() > 2 && std::ranges::count(layers, other.node->input(2)) == 0)
          layers.push_back(other.node->input(2));
      layer = std::ranges::find(layers, weight);
    }
    for (StateEntry &entry : recurrentEntries(node.op_type(), use.operand, table.parameters[i].tensor.shape, module,
                                              static_cast<int>(layer - layers.begin()))) {
      entry.parameter = i;
      claim(std::string(entry.key), std::move(entry));
    }
  }

  // The exporter leaves the counters of BatchNorms out.
  void countUpdates() {
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      const std::string key = dict.entries[i].key;
      if (leafOfKey(key) != "running_var") continue;
      StateEntry count;
      count.source = StateEntry::Source::Updates;
      claim(moduleOfKey(key) + ".num_batches_tracked", std::move(count));
    }
  }

  const FlatGraph &flat;
  const ParameterTable &table;
  const GraphIndex &consumers;
  const std::vector<std::pair<size_t, std::string>> reads;
  const ModuleNames modules;
  std::map<Path, int> nodesOf;
  std::set<Path> norms;
  std::set<Path> isOuter;                                          // scopes around others
  std::map<std::string, std::vector<std::string>> recurrentLayers; // module -> R of each layer
  std::set<std::string> keys;
  StateDict dict;
  std::vector<std::string> guesses;
  std::set<std::string> folded;
};

} // namespace

StateDict tracedStateDict(const RuleContext &context, const ParameterTable &table) {
  return TracedStateDict(context, table).run();
}

} // namespace cleave::import_
