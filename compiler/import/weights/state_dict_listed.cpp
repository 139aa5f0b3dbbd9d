// The state_dict of a model from PyTorch's `dynamo` exporter, which lists it: each key is looked for by a name, by what
// an initializer was made from, by the operations that read it, and by the module that reads a tied one.
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/parameters.h"
#include "compiler/import/weights/role_rules.h"
#include "compiler/import/weights/state_dict.h"
#include "runtime/base/names/first_few.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::import_ {
namespace {

class ListedStateDict {
public:
  ListedStateDict(const RuleContext &context, const ParameterTable &table)
      : flat(context.index.flat), metadata(context.metadata), listed(metadata.state()), table(table) {
    for (const ListedTensor &tensor : listed) isKey.insert(tensor.key);
    for (const Parameter &parameter : table.parameters) ++tensorsOf[parameter.tensor.name];
  }

  StateDict run() {
    claimByName();
    claimByOrigin();
    claimRecurrent();
    claimByOperation();
    claimViews();
    claimRowsOfTables();
    claimTied();
    fillZeroBiases();
    fillFoldedNorms();
    StateDict dict;
    dict.norms = folded;
    for (const ListedTensor &tensor : listed) {
      if (auto entry = entries.find(tensor.key); entry != entries.end()) {
        entry->second.key = tensor.key;
        dict.entries.push_back(entry->second);
      } else if (leafOfKey(tensor.key) == "num_batches_tracked") {
        StateEntry count;
        count.key = tensor.key;
        count.source = StateEntry::Source::Updates;
        dict.entries.push_back(std::move(count));
      } else {
        dict.absent.push_back(tensor.key);
      }
    }
    if (!parts.empty())
      dict.notes.push_back(fmt::format("the file has only the rows that the model was exported with of {}: `cleave "
                                       "export` writes these, and with `--base` the others of the original checkpoint",
                                       fmt::join(parts, ", ")));
    if (!reshaped.empty())
      dict.notes.push_back(
          fmt::format("the exporter has given other shapes to {}, and the file does not tell PyTorch's: "
                      "`cleave export --base` takes them from the original checkpoint",
                      names::firstFew(reshaped, 6)));
    if (!folded.empty())
      dict.notes.push_back(fmt::format("`cleave export` writes what the exporter folded into other layers as layers "
                                       "that change nothing: {}",
                                       names::firstFew(names::quoted(folded), 6)));
    return dict;
  }

private:
  void claim(const std::string &key, StateEntry entry) {
    if (isKey.contains(key)) entries.try_emplace(key, std::move(entry));
  }
  void claim(const std::string &key, size_t parameter, bool isTransposed) {
    claim(key, entryOf(table, parameter, isTransposed));
  }
  void fill(const std::string &key, double value, std::vector<int64_t> shape) {
    StateEntry entry;
    entry.source = StateEntry::Source::Fill;
    entry.fill = value;
    entry.shape = std::move(shape);
    claim(key, std::move(entry));
  }

  const ::onnx::NodeProto &nodeOf(const Use &use) const { return *flat.nodes[use.node].node; }

  // Read as several parameters, so that its name says nothing of each.
  bool isSplit(const Parameter &parameter) const { return tensorsOf.at(parameter.tensor.name) > 1; }

  std::string originOf(const std::string &initializer) const {
    const std::vector<std::string> &origins = metadata.foldedFrom(initializer);
    return isKey.contains(initializer) || origins.size() != 1 ? "" : origins.front();
  }

  // A matrix that the exporter made from one parameter is its transpose, but where the layer itself transposes it, or
  // an operation has moved the dimensions that it indexes to the front.
  bool isTurned(const Parameter &parameter, const std::string &initializer) const {
    if (originOf(initializer).empty() || parameter.tensor.shape.size() != 2) return false;
    return std::ranges::none_of(parameter.uses, [&](const Use &use) {
      const ::onnx::NodeProto &node = nodeOf(use);
      if (node.input(use.operand) != initializer) return false;
      const StatedOperation &operation = metadata.operation(use.node);
      if (operation.target.starts_with("aten.index.") && operation.arguments.size() > 1)
        return !operation.arguments[1].starts_with("[None");
      return node.op_type() == "Gather" ||
             (node.op_type() == "Gemm" && use.operand == 1 && number(node, "transB", 0) != 0);
    });
  }

  void claimByName() {
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      if (!isSplit(parameter)) claim(parameter.tensor.name, i, false);
      for (const std::string &alias : parameter.aliases) claim(alias, i, false);
      for (const std::string &alias : parameter.transposedAliases) claim(alias, i, true);
    }
  }

  // Exporters copy matrices of products and tables, and seldom compute with them.
  bool isReadAsMatrix(const Parameter &parameter, const std::string &initializer) const {
    static const std::set<std::string> readers = {"MatMul", "Gemm",          "Gather", "GatherND",
                                                  "Conv",   "ConvTranspose", "Einsum"};
    return parameter.tensor.shape.size() > 1 && std::ranges::any_of(parameter.uses, [&](const Use &use) {
             return nodeOf(use).input(use.operand) == initializer && readers.contains(nodeOf(use).op_type());
           });
  }

  void claimByOrigin() {
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      auto claimOrigin = [&](const std::string &initializer, bool isAliasTurned) {
        if (std::string origin = originOf(initializer); !origin.empty() && isReadAsMatrix(parameter, initializer))
          claim(origin, i, isTurned(parameter, initializer) != isAliasTurned);
      };
      if (!isSplit(parameter)) claimOrigin(parameter.tensor.name, false);
      for (const std::string &alias : parameter.aliases) claimOrigin(alias, false);
      for (const std::string &alias : parameter.transposedAliases) claimOrigin(alias, true);
      const std::string origin = originOf(parameter.tensor.name);
      const std::vector<int64_t> &shape = parameter.tensor.shape;
      if (!isSplit(parameter) && !origin.empty() && vectorShape(shape) != shape) claimReshaped(origin, i);
    }
  }

  // The exporter writes the weights of a whole layer, gates reordered, as one tensor.
  void claimRecurrent() {
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      if (parameter.uses.empty()) continue;
      const Use &use = parameter.uses.front();
      const std::string &op = nodeOf(use).op_type();
      if (!isRecurrent(op) || use.operand < 1 || use.operand > 3) continue;
      for (const std::string &key : metadata.parametersOf(parameter.tensor.name)) {
        const std::string leaf = leafOfKey(key); // weight_ih_l0
        const size_t layer = leaf.rfind("_l");
        if (layer == std::string::npos) continue;
        for (StateEntry &entry : recurrentEntries(op, use.operand, parameter.tensor.shape, moduleOfKey(key),
                                                  std::atoi(leaf.c_str() + layer + 2))) {
          entry.parameter = i;
          claim(std::string(entry.key), std::move(entry));
        }
      }
    }
  }

  void claimByOperation() {
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      if (!parameter.isWeight) continue; // a constant of the operation itself
      const bool isComputed = parameter.foldedFrom.size() > 1;
      const bool isCopy = isTurned(parameter, parameter.tensor.name);
      for (const Use &use : parameter.uses) {
        const std::string &value = nodeOf(use).input(use.operand);
        if (std::ranges::count(parameter.aliases, value) + std::ranges::count(parameter.transposedAliases, value) > 0)
          continue;
        const std::string key = metadata.keyOf(use);
        if (!isComputed)
          claim(key, i, isCopy);
        else if (metadata.isKnown(use.node) && std::ranges::count(parameter.foldedFrom, key) > 0)
          claimReshaped(key, i);
      }
    }
  }

  // Of what one dimension was put into the shape is known, and that of a vector.
  void claimReshaped(const std::string &key, size_t parameter) {
    const StoredTensor &tensor = table.parameters[parameter].tensor;
    StateEntry entry;
    entry.parameter = parameter;
    entry.shape = vectorShape(tensor.shape);
    entry.isReshaped = true;
    const bool isUnsqueezed = tensor.name.starts_with("unsqueeze") && std::ranges::count(tensor.shape, 1) == 1;
    if (isUnsqueezed) std::erase(entry.shape, 1);
    if (!isUnsqueezed && entry.shape.size() != 1 && isKey.contains(key) && !entries.contains(key))
      reshaped.push_back("'" + key + "'");
    claim(key, std::move(entry));
  }

  // A parameter that was only given another shape.
  void claimViews() {
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      if (!metadata.isView(parameter.tensor.name) || parameter.uses.empty()) continue;
      std::string key = metadata.parametersOf(parameter.tensor.name).front();
      // One of several equal parameters is told; the others are called alike in their modules.
      if (isSplit(parameter)) key = statedModule(nodeOf(parameter.uses.front())) + "." + leafOfKey(key);
      claimReshaped(key, i);
    }
  }

  // An embedding of positions that do not depend on the input is a constant of the rows [.., positions, width] it gave.
  void claimRowsOfTables() {
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      const std::vector<std::string> &origins = metadata.parametersOf(parameter.tensor.name);
      const std::vector<int64_t> &shape = parameter.tensor.shape;
      if (!metadata.isLookup(parameter.tensor.name) || shape.size() < 2) continue;
      const std::string &key = origins.front();
      if (entries.contains(key) || !isKey.contains(key)) continue;
      StateEntry entry;
      entry.parameter = i;
      entry.shape = {parameter.tensor.elements() / std::max<int64_t>(shape.back(), 1), shape.back()};
      entry.isPart = true;
      claim(key, std::move(entry));
      parts.push_back(fmt::format("'{}' ({} rows)", key, entries.at(key).shape[0]));
    }
  }

  // Operations name one of several tied parameters. The others are known by their modules, whose operations read it.
  void claimTied() {
    for (const ListedTensor &tensor : listed) {
      if (entries.contains(tensor.key) || metadata.isRead(tensor.key)) continue;
      const std::string module = moduleOfKey(tensor.key), leaf = leafOfKey(tensor.key);
      if (leaf != "weight" && leaf != "bias") continue;
      for (size_t i = 0; i < flat.nodes.size(); ++i) {
        if (!metadata.isKnown(i) || statedModule(*flat.nodes[i].node) != module) continue;
        const std::string other = metadata.keyAt(i, leaf == "weight" ? Place::Weight : Place::Bias);
        auto found = entries.find(other);
        if (found == entries.end() || moduleOfKey(other) == module) continue;
        claim(tensor.key, StateEntry(found->second));
        break;
      }
    }
  }

  // Outputs of a layer, from its weight; none where that is computed.
  std::optional<int64_t> outputsOf(const ::onnx::NodeProto &node) const {
    auto weight = node.input_size() < 2 ? table.byValue.end() : table.byValue.find(node.input(1));
    if (weight == table.byValue.end()) return std::nullopt;
    std::vector<int64_t> shape = table.parameters[weight->second.parameter].tensor.shape;
    if (shape.size() < 2) return std::nullopt;
    if (weight->second.transposed) std::swap(shape[0], shape[1]);
    if (node.op_type() == "Gemm") return number(node, "transB", 0) != 0 ? shape[0] : shape[1];
    return node.op_type() == "Conv" ? shape[0] : shape[1] * static_cast<int64_t>(number(node, "group", 1));
  }

  static bool hasBias(const ::onnx::NodeProto &node) { return node.input_size() > 2 && !node.input(2).empty(); }

  // Biases that are zero at export are left out.
  void fillZeroBiases() {
    for (size_t i = 0; i < flat.nodes.size(); ++i) {
      const ::onnx::NodeProto &node = *flat.nodes[i].node;
      if (!isFilter(node.op_type()) || hasBias(node) || metadata.isOfFoldedNorm(i)) continue;
      if (std::optional<int64_t> outputs = outputsOf(node)) fill(metadata.keyAt(i, Place::Bias), 0, {*outputs});
    }
  }

  // A BatchNorm that was folded into the layer before it is written as one that changes nothing: scale 1 and, if the
  // layer has no bias of its own, its bias.
  void fillFoldedNorms() {
    for (size_t i = 0; i < flat.nodes.size(); ++i) {
      const ::onnx::NodeProto &node = *flat.nodes[i].node;
      const StatedOperation &operation = metadata.operation(i);
      if (!metadata.isOfFoldedNorm(i)) continue;
      const std::optional<int64_t> outputs = outputsOf(node);
      const std::string scale = metadata.keyAt(i, Place::Weight), shift = metadata.keyAt(i, Place::Bias);
      const std::string mean = metadata.keyAt(i, Place::Mean), variance = metadata.keyAt(i, Place::Variance);
      auto weight = table.byValue.find(node.input(1));
      if (!outputs || scale.empty() || shift.empty() || mean.empty() || weight == table.byValue.end()) continue;
      const size_t epsilonAt = operation.target.starts_with("aten.batch_norm.") ? 7 : operation.arguments.size() - 1;
      if (epsilonAt >= operation.arguments.size()) continue;
      const double epsilon = std::atof(operation.arguments[epsilonAt].c_str());
      std::string own; // the layer's bias in PyTorch
      for (const auto &[key, entry] : entries)
        if (entry.source == StateEntry::Source::Parameter && entry.parameter == weight->second.parameter)
          own = moduleOfKey(key) + ".bias";
      auto bias = hasBias(node) ? table.byUse.find({i, 2}) : table.byUse.end();
      if (bias != table.byUse.end()) claim(isKey.contains(own) ? own : shift, bias->second.parameter, false);
      fill(own, 0, {*outputs});
      fill(shift, 0, {*outputs});
      fill(scale, 1, {*outputs});
      fill(mean, 0, {*outputs});
      fill(variance, 1 - epsilon, {*outputs});
      folded.push_back(moduleOfKey(scale));
    }
  }

  const FlatGraph &flat;
  const ExporterMetadata &metadata;
  const std::vector<ListedTensor> &listed;
  const ParameterTable &table;
  std::set<std::string> isKey;
  std::map<std::string, int> tensorsOf; // initializer -> parameters that it is read as
  std::map<std::string, StateEntry> entries;
  std::vector<std::string> parts, folded, reshaped;
};

} // namespace

StateDict listedStateDict(const RuleContext &context, const ParameterTable &table) {
  return ListedStateDict(context, table).run();
}

} // namespace cleave::import_
