// The state_dict of a model from PyTorch's `dynamo` exporter, which lists it: each key is looked for by a name, by what
// an initializer was made from, by the operations that read it, and by the module that reads a tied one.
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/exporter_statements.h"
#include "compiler/import/weights/parameters.h"
#include "compiler/import/weights/state_dict.h"
#include "compiler/import/weights/stated_reads.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::import_ {
namespace {

class ListedStateDict {
public:
  ListedStateDict(const ModelFile &model, const FlatGraph &flat, const ParameterTable &table)
      : flat(flat), table(table), listed(listedTensors(model.proto.graph())),
        statements(exporterStatements(model.proto.graph())), reads(flat, listed) {
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
    if (!folded.empty())
      dict.notes.push_back(fmt::format("`cleave export` writes what the exporter folded into other layers as layers "
                                       "that change nothing: {}",
                                       fmt::join(folded, ", ")));
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
    auto found = statements.find(initializer);
    if (isKey.contains(initializer) || found == statements.end() || found->second.foldedFrom.size() != 1) return "";
    return found->second.foldedFrom.front();
  }

  // A matrix that the exporter made from one parameter is its transpose, but where the layer itself transposes it.
  bool isTurned(const Parameter &parameter, const std::string &initializer) const {
    if (originOf(initializer).empty() || parameter.tensor.shape.size() != 2) return false;
    return std::ranges::none_of(parameter.uses, [&](const Use &use) {
      const ::onnx::NodeProto &node = nodeOf(use);
      if (node.input(use.operand) != initializer) return false;
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
    static const std::set<std::string> readers = {"MatMul", "Gemm", "Gather", "Conv", "ConvTranspose", "Einsum"};
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
      auto statement = statements.find(parameter.tensor.name);
      if (statement == statements.end() || parameter.uses.empty()) continue;
      const Use &use = parameter.uses.front();
      const std::string &op = nodeOf(use).op_type();
      if (!isRecurrent(op) || use.operand < 1 || use.operand > 3) continue;
      for (const std::string &key : statement->second.parameters) {
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
      auto statement = statements.find(parameter.tensor.name);
      if (!isKey.contains(parameter.tensor.name) &&
          (statement == statements.end() || statement->second.parameters.empty()))
        continue; // a constant of the operation itself
      const bool isComputed = parameter.foldedFrom.size() > 1;
      const bool isCopy = isTurned(parameter, parameter.tensor.name);
      for (const Use &use : parameter.uses) {
        const std::string &value = nodeOf(use).input(use.operand);
        if (std::ranges::count(parameter.aliases, value) + std::ranges::count(parameter.transposedAliases, value) > 0)
          continue;
        const std::string key = reads.keyOf(use);
        if (!isComputed)
          claim(key, i, isCopy);
        else if (reads.isKnown(use.node) && std::ranges::count(parameter.foldedFrom, key) > 0)
          claimReshaped(key, i);
      }
    }
  }

  void claimReshaped(const std::string &key, size_t parameter) {
    StateEntry entry;
    entry.parameter = parameter;
    entry.shape = vectorShape(table.parameters[parameter].tensor.shape);
    entry.isReshaped = true;
    claim(key, std::move(entry));
  }

  // A parameter that was only given another shape: values are called after the operations that made them.
  void claimViews() {
    static constexpr std::array operations = {"unsqueeze", "squeeze", "view", "reshape", "flatten", "val"};
    auto isView = [](const std::string &value) {
      return std::ranges::count(operations, value.substr(0, value.find('_'))) > 0;
    };
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      auto statement = statements.find(parameter.tensor.name);
      if (statement == statements.end() || statement->second.parameters.size() != 1 || parameter.uses.empty()) continue;
      std::string key = statement->second.parameters.front();
      // One of several equal parameters is told; the others are called alike in their modules.
      if (isSplit(parameter)) key = statedModule(nodeOf(parameter.uses.front())) + "." + leafOfKey(key);
      const auto others = std::ranges::count_if(statement->second.foldedFrom, isView);
      if (isView(parameter.tensor.name) && !parameter.tensor.name.starts_with("val") &&
          size_t(others) + 1 == statement->second.foldedFrom.size())
        claimReshaped(key, i);
    }
  }

  // An embedding of positions that do not depend on the input is a constant of the rows [.., positions, width] it gave.
  void claimRowsOfTables() {
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const Parameter &parameter = table.parameters[i];
      auto statement = statements.find(parameter.tensor.name);
      const std::vector<int64_t> &shape = parameter.tensor.shape;
      if (statement == statements.end() || statement->second.parameters.size() != 1 || shape.size() < 2 ||
          statement->second.foldedFrom.size() < 2 || !parameter.tensor.name.starts_with("embedding"))
        continue;
      const std::string &key = statement->second.parameters.front();
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
      if (entries.contains(tensor.key) || reads.isRead(tensor.key)) continue;
      const std::string module = moduleOfKey(tensor.key), leaf = leafOfKey(tensor.key);
      if (leaf != "weight" && leaf != "bias") continue;
      for (size_t i = 0; i < flat.nodes.size(); ++i) {
        if (!reads.isKnown(i) || statedModule(*flat.nodes[i].node) != module) continue;
        const std::string other = reads.keyAt(i, leaf == "weight" ? Place::Weight : Place::Bias);
        auto found = entries.find(other);
        if (found == entries.end() || moduleOfKey(other) == module) continue;
        claim(tensor.key, StateEntry(found->second));
        break;
      }
      // transformers' heads of masked models have a bias that is their decoder's
      if (auto decoder = entries.find(module + ".decoder.bias"); leaf == "bias" && decoder != entries.end())
        claim(tensor.key, StateEntry(decoder->second));
      if (leaf == "weight" && isSharedTable(module)) claimSharedTable(tensor.key);
    }
  }

  // How transformers calls tables that several modules hold as one object: of these, nodes name one.
  static bool isSharedTable(const std::string &module) {
    const std::string name = leafOfKey(module);
    return name == "shared" || name == "embed_tokens" || name == "lm_head";
  }
  void claimSharedTable(const std::string &key) {
    const StateEntry *table = nullptr;
    for (const auto &[other, entry] : entries) {
      if (!isSharedTable(moduleOfKey(other)) || entry.source != StateEntry::Source::Parameter) continue;
      if (table && table->parameter != entry.parameter) return;
      table = &entry;
    }
    if (table) claim(key, StateEntry(*table));
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
      if (!isFilter(node.op_type()) || hasBias(node) || reads.isOfFoldedNorm(i)) continue;
      if (std::optional<int64_t> outputs = outputsOf(node)) fill(reads.keyAt(i, Place::Bias), 0, {*outputs});
    }
  }

  // A BatchNorm that was folded into the layer before it is written as one that changes nothing: scale 1 and, if the
  // layer has no bias of its own, its bias.
  void fillFoldedNorms() {
    for (size_t i = 0; i < flat.nodes.size(); ++i) {
      const ::onnx::NodeProto &node = *flat.nodes[i].node;
      const StatedOperation &operation = reads.operation(i);
      if (!reads.isOfFoldedNorm(i)) continue;
      const std::optional<int64_t> outputs = outputsOf(node);
      const std::string scale = reads.keyAt(i, Place::Weight), shift = reads.keyAt(i, Place::Bias);
      const std::string mean = reads.keyAt(i, Place::Mean), variance = reads.keyAt(i, Place::Variance);
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
      folded.push_back("'" + moduleOfKey(scale) + "'");
    }
  }

  const FlatGraph &flat;
  const ParameterTable &table;
  const std::vector<ListedTensor> listed;
  const ExporterStatements statements;
  const StatedReads reads;
  std::set<std::string> isKey;
  std::map<std::string, int> tensorsOf; // initializer -> parameters that it is read as
  std::map<std::string, StateEntry> entries;
  std::vector<std::string> parts, folded;
};

} // namespace

StateDict listedStateDict(const ModelFile &model, const FlatGraph &flat, const ParameterTable &table) {
  return ListedStateDict(model, flat, table).run();
}

} // namespace cleave::import_
