#include "compiler/import/weights/parameters.h"
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/evidence.h"
#include "compiler/import/weights/exporter_statements.h"
#include "compiler/import/weights/notes.h"
#include "compiler/import/weights/stated_reads.h"
#include "compiler/recipe/glob.h"
#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cleave::import_ {
namespace {

constexpr int64_t integerConstantLimit = 16 << 20; // bytes: larger integer tensors stay in their file
constexpr int64_t maskConstantLimit = 64 << 10;
constexpr int64_t frozenConstantLimit = 4 << 10;

struct Initializer {
  StoredTensor tensor;
  bool fromNode = false; // a Constant node: folded by the exporter
  std::vector<Use> uses;
  std::map<std::pair<size_t, int>, std::string> identity; // use -> the Identity output it goes through
};

class Classifier {
public:
  Classifier(const ModelFile &model, const FlatGraph &flat, TensorStore &store, const ImportOptions &options)
      : model(model), flat(flat), store(store), options(options),
        isAnyTrained(std::find(options.trainable.begin(), options.trainable.end(), "*") != options.trainable.end()),
        intended(intentions(options.trainable)), index(flat), statements(exporterStatements(model.proto.graph())),
        reads(flat, listedTensors(model.proto.graph())) {}

  Result<ParameterTable> run() {
    CLEAVE_RETURN_IF_ERROR(collect());
    weightsAreNodes = std::ranges::none_of(initializers, [](const auto &one) {
      const Initializer &initializer = one.second;
      return !initializer.fromNode && initializer.tensor.isFloat() && initializer.tensor.elements() > 1;
    });
    collectModules();
    collectMerged();
    mergeEqualMatrices();
    mergeFoldedCopies();
    for (const std::string &name : order) CLEAVE_RETURN_IF_ERROR(classify(name, initializers.at(name)));
    for (const std::string &name : order) classifyStatistics(name, initializers.at(name));
    if (isAnyTrained) addBiasesLeftOut();
    table.state = stateDictOf(model, flat, table);
    renameCopies();
    if (isAnyTrained && isTorchScript) noteAnonymous(flat, table);
    noteBiasesAlone(table);
    noteComputed(computations, table);
    return std::move(table);
  }

private:
  static std::vector<std::string> intentions(std::vector<std::string> patterns) {
    std::erase(patterns, "*");
    return patterns;
  }

  Status collect() {
    table.dissolved.assign(flat.nodes.size(), false);
    for (const ::onnx::TensorProto &tensor : model.proto.graph().initializer()) {
      Result<StoredTensor> stored = store.locate(tensor);
      if (!stored) return stored.status();
      if (!initializers.emplace(tensor.name(), Initializer{std::move(*stored), false, {}, {}}).second)
        return inputError(fmt::format("{}: two initializers are called '{}'", model.path, tensor.name()));
      order.push_back(tensor.name());
      resolved[tensor.name()] = tensor.name();
    }
    for (size_t i = 0; i < flat.nodes.size(); ++i) CLEAVE_RETURN_IF_ERROR(collectNode(i));
    for (const ::onnx::ValueInfoProto &output : model.proto.graph().output())
      direct.insert(resolvedName(output.name()));
    for (const auto &[value, initial] : resolved) valuesOf[initial].push_back(value);
    return Status::ok();
  }

  Status collectNode(size_t i) {
    const ::onnx::NodeProto &node = *flat.nodes[i].node;
    bool standard = canonicalDomain(node.domain()).empty();
    if (standard && node.op_type() == "Constant" && node.attribute_size() == 1 && node.attribute(0).has_t() &&
        node.output_size() == 1) {
      ::onnx::TensorProto tensor = node.attribute(0).t();
      tensor.set_name(node.output(0));
      Result<StoredTensor> stored = store.locate(tensor);
      if (!stored) return stored.status();
      initializers.emplace(node.output(0), Initializer{std::move(*stored), true, {}, {}});
      order.push_back(node.output(0));
      resolved[node.output(0)] = node.output(0);
      table.dissolved[i] = true;
      return Status::ok();
    }
    if (standard && node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1 &&
        resolved.count(node.input(0))) {
      resolved[node.output(0)] = resolvedName(node.input(0));
      table.dissolved[i] = true;
      return Status::ok();
    }
    for (int operand = 0; operand < node.input_size(); ++operand) {
      auto found = resolved.find(node.input(operand));
      if (found == resolved.end()) continue;
      Initializer &initializer = initializers.at(found->second);
      initializer.uses.push_back({i, operand});
      if (found->first != found->second) initializer.identity[{i, operand}] = found->first;
    }
    for (const ::onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g()) collectCaptures(attribute.g());
    return Status::ok();
  }

  // Initializers that a subgraph reads from around it.
  void collectCaptures(const ::onnx::GraphProto &graph) {
    for (const ::onnx::NodeProto &node : graph.node()) {
      for (const std::string &input : node.input())
        if (resolved.count(input)) direct.insert(resolvedName(input));
      for (const ::onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g()) collectCaptures(attribute.g());
    }
    for (const ::onnx::ValueInfoProto &output : graph.output())
      if (resolved.count(output.name())) direct.insert(resolvedName(output.name()));
  }

  std::string resolvedName(const std::string &value) const {
    auto found = resolved.find(value);
    return found == resolved.end() ? value : found->second;
  }

  // An embedding that the exporter wrote a second time, usually transposed, for the head.
  void mergeEqualMatrices() {
    if (options.ties != recipe::Ties::Auto) return;
    for (const std::string &tableName : order) {
      Initializer &embedding = initializers.at(tableName);
      const StoredTensor &rows = embedding.tensor;
      if (rows.shape.size() != 2 || !rows.isFloat() || !rows.bytes || !readByGather(index, embedding.uses) ||
          allEqual(rows))
        continue;
      for (const std::string &headName : order) {
        if (headName == tableName || aliasOf.count(headName)) continue;
        Initializer &head = initializers.at(headName);
        if (head.tensor.length != rows.length || !readByProduct(index, head.uses) || readByGather(index, head.uses))
          continue;
        bool same = sameContent(rows, head.tensor);
        if (!same && !transposedContent(rows, head.tensor)) continue;
        aliasOf[headName] = {tableName, !same};
        table.ties.push_back(
            fmt::format("'{}' holds the same numbers as '{}'{}: one parameter (an embedding and its head); "
                        "`ties: as_exported` separates them",
                        headName, tableName, same ? "" : " transposed"));
        table.sharing.push_back(table.ties.back());
      }
    }
  }

  // Who exported the model, and where weights are: "blocks" of "blocks.0.attention.weight".
  void collectModules() {
    isTorchScript = model.proto.producer_name() == "pytorch" &&
                    std::ranges::any_of(flat.nodes, [](const FlatNode &node) { return node.name.starts_with('/'); });
    for (const auto &[name, initializer] : initializers) {
      auto isWeight = [&](const Use &use) { return isWeightOperand(opOf(use), use.operand); };
      if (initializer.tensor.isFloat() && initializer.tensor.elements() > 1 &&
          std::ranges::any_of(initializer.uses, isWeight))
        modules.insert(name.substr(0, name.find('.')));
    }
  }

  // A weight that several nodes read, which the exporter wrote for each of them anew.
  void mergeFoldedCopies() {
    if (options.ties != recipe::Ties::Auto) return;
    std::map<std::string, std::string> firstOf; // by origin
    for (const std::string &name : order) {
      const std::string origin = renamedFrom(name);
      if (origin.empty() || aliasOf.count(name)) continue;
      auto [first, isFirst] = firstOf.try_emplace(origin, initializers.count(origin) ? origin : name);
      if (first->second == name) continue;
      std::string target = first->second;
      for (auto tied = aliasOf.find(target); tied != aliasOf.end(); tied = aliasOf.find(target))
        target = tied->second.first;
      auto isOfName = [&](const auto &alias) { return alias.second.first == name; };
      if (target == name || std::ranges::any_of(aliasOf, isOfName)) continue; // others are one with it already
      const StoredTensor &kept = initializers.at(target).tensor, &copy = initializers.at(name).tensor;
      if (!copy.isFloat()) continue;
      const bool isKnown = kept.bytes && copy.bytes;
      bool same = isKnown ? sameContent(kept, copy) : kept.dataType == copy.dataType && kept.shape == copy.shape;
      const bool isTurned = !same && (isKnown ? transposedContent(kept, copy) : isTransposedShape(kept, copy));
      // Without the weights' file nothing tells a computation from a copy but where it is read.
      if (!same && !isTurned && isKnown) apart.insert({target, name});
      if ((!same && !isTurned) || (!isKnown && !(isReadAsMatrix(target) && isReadAsMatrix(name)))) continue;
      aliasOf[name] = {target, isTurned};
      table.ties.push_back(fmt::format("'{}' was made from '{}'{}: one parameter with '{}'; `ties: as_exported` "
                                       "separates them",
                                       name, origin, same || target != origin ? "" : ", transposed", target));
      table.sharing.push_back(table.ties.back());
    }
  }

  static bool isTransposedShape(const StoredTensor &a, const StoredTensor &b) {
    return a.dataType == b.dataType && a.shape.size() == 2 && b.shape == std::vector{a.shape[1], a.shape[0]};
  }

  void collectMerged() {
    std::set<std::string> held;
    for (const auto &[name, initializer] : initializers) {
      held.insert(name);
      const std::vector<std::string> &origins = statementOf(name).foldedFrom;
      held.insert(origins.begin(), origins.end());
    }
    for (const auto &[name, statement] : statements) {
      if (statement.kind != ExporterStatement::Kind::Parameter) continue;
      merged.isKnown = true;
      if (!held.contains(name)) merged.names.insert(name);
    }
  }

  // Operators by which exporters copy and transpose, and seldom compute.
  bool isReadAsMatrix(const std::string &name) const {
    const std::vector<Use> &uses = initializers.at(name).uses;
    return isMatrix(name) && (readByProduct(index, uses) || readByGather(index, uses));
  }

  // The one value that the exporter made this initializer from, as when it transposes a weight; "": none, or several.
  std::string renamedFrom(const std::string &name) const {
    const std::vector<std::string> &origins = statementOf(name).foldedFrom;
    return origins.size() == 1 && initializers.at(name).tensor.elements() > 1 ? origins.front() : "";
  }

  const ExporterStatement &statementOf(const std::string &name) const {
    static const ExporterStatement nothing;
    auto found = statements.find(name);
    return found == statements.end() ? nothing : found->second;
  }

  Status classify(const std::string &name, Initializer &initializer) {
    if (aliasOf.count(name)) return Status::ok(); // with its embedding
    std::vector<Use> shapes, others;
    bool hasStatistics = false;
    for (const Use &use : initializer.uses) {
      const std::string &op = opOf(use);
      if (isStatistic(use))
        hasStatistics = true;
      else
        (op == "Shape" || op == "Size" ? shapes : others).push_back(use);
    }
    const bool isMore = !others.empty() || direct.count(name) || (!hasStatistics && !shapes.empty());
    return isMore ? classifyWeights(name, initializer, others, shapes) : Status::ok();
  }

  bool isStatistic(const Use &use) const { return opOf(use) == "BatchNormalization" && use.operand >= 3; }

  // Statistics of one module are one tensor, however often it runs: nodes that read one scale. Once weights are
  // classified.
  void classifyStatistics(const std::string &name, const Initializer &initializer) {
    std::vector<std::pair<std::optional<size_t>, std::vector<Use>>> modules; // by the scale's parameter
    for (const Use &use : initializer.uses) {
      if (!isStatistic(use)) continue;
      auto scale = table.byUse.find({use.node, 1});
      std::optional<size_t> read;
      if (scale != table.byUse.end()) read = scale->second.parameter;
      auto home = std::ranges::find_if(modules, [&](const auto &one) {
        return read && one.first == read && one.second.front().operand == use.operand;
      });
      if (home == modules.end()) home = modules.insert(modules.end(), {read, {}});
      home->second.push_back(use);
    }
    for (auto &[read, uses] : modules) {
      Parameter parameter;
      parameter.role = Role::RunningStatistic;
      parameter.why = uses.front().operand == 3 ? "running mean" : "running variance";
      parameter.uses = uses;
      add(name, initializer, std::move(parameter), taken.count(name) == 0);
    }
  }

  // `shapes` are uses that only ask for the shape: they go with the first parameter.
  Status classifyWeights(const std::string &name, Initializer &initializer, const std::vector<Use> &uses,
                         const std::vector<Use> &shapes) {
    if (options.ties == recipe::Ties::Auto && initializer.tensor.isFloat() && isOfParameters(name))
      if (std::vector<std::vector<Use>> merged = groupByKey(uses, [&](const Use &use) { return keyOf(use); });
          merged.size() > 1)
        return classifyMerged(name, initializer, uses, std::move(merged), shapes);
    Parameter parameter;
    parameter.tensor = initializer.tensor;
    std::vector<std::string> aliases;
    if (std::string origin = renamedFrom(name); !origin.empty()) aliases.push_back(origin);
    decideRole(initializer, uses, {name, nodesOf(uses), aliases}, parameter);
    if (parameter.trainable) CLEAVE_RETURN_IF_ERROR(checkReadable(name, initializer));
    std::vector<std::vector<Use>> groups = {uses};
    if (parameter.trainable) {
      TieDecision decision;
      groups = groupUses(
          index, initializer.tensor, uses, options.ties, [&](const std::string &v) { return isMatrix(v); },
          [&](const std::string &v) {
            return statementOf(v).kind == ExporterStatement::Kind::Parameter && !initializers.contains(v);
          },
          merged, [&](const Use &use) { return isOfParameters(name) ? keyOf(use) : ""; }, decision);
      if (!decision.text.empty()) table.ties.push_back(decision.text);
      if (decision.isGuess) table.sharing.push_back(decision.text);
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      Parameter copy = parameter;
      copy.uses = groups[i];
      if (i == 0) copy.uses.insert(copy.uses.end(), shapes.begin(), shapes.end());
      add(name, initializer, std::move(copy), i == 0);
    }
    return Status::ok();
  }

  // Whether operations may mean this initializer by a parameter: those have constants of their own, too.
  bool isOfParameters(const std::string &name) const {
    const ExporterStatement &stated = statementOf(name);
    return isTorchScript || stated.kind == ExporterStatement::Kind::Parameter || !stated.parameters.empty();
  }

  // An initializer that several of PyTorch's parameters were merged into. Each is frozen or trained by its own name.
  Status classifyMerged(const std::string &name, Initializer &initializer, const std::vector<Use> &uses,
                        std::vector<std::vector<Use>> groups, const std::vector<Use> &shapes) {
    std::vector<Parameter> parameters;
    for (const std::vector<Use> &group : groups) {
      Parameter &parameter = parameters.emplace_back();
      parameter.tensor = initializer.tensor;
      decideRole(initializer, group, {keyOf(group.front()), nodesOf(group), {}}, parameter);
    }
    if (std::ranges::none_of(parameters, &Parameter::trainable)) { // nothing tells them apart
      groups = {uses};
      parameters.resize(1);
    } else {
      CLEAVE_RETURN_IF_ERROR(checkReadable(name, initializer));
      table.ties.push_back(tellMerged(index, name, uses, groups.size()));
      table.sharing.push_back(table.ties.back());
    }
    groups.front().insert(groups.front().end(), shapes.begin(), shapes.end());
    for (size_t i = 0; i < groups.size(); ++i) {
      parameters[i].uses = groups[i];
      add(name, initializer, std::move(parameters[i]), i == 0);
    }
    return Status::ok();
  }

  Status checkReadable(const std::string &name, const Initializer &initializer) const {
    if (initializer.tensor.inFile) return Status::ok();
    return inputError(
        fmt::format("{}: parameter '{}' is stored in unpacked fields, so its bytes cannot be read from the file; "
                    "save the model again with onnx.save, which writes raw data",
                    model.path, name));
  }

  std::vector<std::string> nodesOf(const std::vector<Use> &uses) const {
    std::vector<std::string> nodes;
    nodes.reserve(uses.size());
    for (const Use &use : uses) nodes.push_back(flat.nodes[use.node].name);
    return nodes;
  }

  // PyTorch's name of the parameter that a use reads: `dynamo` says it, TorchScript by an Identity's name.
  std::string keyOf(const Use &use) const {
    const std::string &value = flat.nodes[use.node].node->input(use.operand);
    if (isTorchScript) return isGivenName(value) ? value : "";
    return reads.keyOf(use);
  }

  const std::string &opOf(const Use &use) const { return flat.nodes[use.node].node->op_type(); }

  void decideRole(const Initializer &initializer, const std::vector<Use> &uses, const recipe::ParameterNames &names,
                  Parameter &parameter) const {
    const StoredTensor &tensor = initializer.tensor;
    auto constantUpTo = [&](int64_t bytes, std::string why) {
      parameter.role = tensor.bytes && tensor.length <= bytes ? Role::Constant : Role::Parameter;
      parameter.why = std::move(why);
    };
    auto configuration = [&](const Use &use) { return isConfiguration(opOf(use), use.operand); };
    const int64_t frozenLimit = options.keepsFrozen ? -1 : frozenConstantLimit;
    if (!tensor.isFloat() &&
        std::ranges::any_of(uses, [&](const Use &use) { return isQuantizedOperand(opOf(use), use.operand); }))
      return constantUpTo(frozenLimit, "quantized: its integers do not train");
    if (!tensor.isFloat()) return constantUpTo(integerConstantLimit, "integers do not train");
    if (uses.empty() && !direct.count(names.name)) return constantUpTo(frozenConstantLimit, "only its shape is used");
    if (!uses.empty() && std::all_of(uses.begin(), uses.end(), configuration))
      return constantUpTo(maskConstantLimit, "configures its node");
    auto compared = [&](const Use &use) { return isComparison(opOf(use)); };
    if (!uses.empty() && std::all_of(uses.begin(), uses.end(), compared))
      return constantUpTo(frozenConstantLimit, "only compared: no gradient reaches it");
    // Scalars of Constant nodes are called after their module: a glob over modules does not mean them.
    const bool isScalarOfNode = initializer.fromNode && tensor.elements() <= 1;
    bool named = isScalarOfNode ? isNamedExactly(names.name) : intended.match(names).has_value();
    const ExporterStatement &stated = statementOf(names.name);
    if (!named && stated.kind == ExporterStatement::Kind::Buffer)
      return constantUpTo(frozenConstantLimit,
                          stated.foldedFrom.empty()
                              ? "a buffer, as the exporter says; name it in `trainable` to train it"
                              : "computed from no parameter, as the exporter says");
    // A signature's parameter may be frozen (sinusoids in an nn.Embedding), so what its numbers say counts there too.
    if (!named) {
      const bool isStated = stated.kind == ExporterStatement::Kind::Parameter;
      if (!isStated && std::ranges::any_of(uses, [&](const Use &use) { return isComparedPast(index, use.node); }))
        return constantUpTo(frozenConstantLimit,
                            "compared with: a grid or a limit; name it in `trainable` to train it");
      if (!isStated && tensor.elements() <= 1 && (!isOfModule(names.name) || isMaskNumber(index, tensor, uses)) &&
          !hasWeightUse(index, tensor, uses))
        return constantUpTo(maskConstantLimit, "a single number");
      if (!isStated && initializer.fromNode &&
          !(weightsAreNodes && tensor.elements() > 1 && isReadAsWeight(index, tensor, uses)))
        return constantUpTo(frozenConstantLimit, "folded to a constant by the exporter");
      if (!isLargeWeight(index, tensor, uses) && looksLikeMask(tensor))
        return constantUpTo(maskConstantLimit, "mask: of -inf, NaN or nothing but 0 and -100 or less");
      if (isRotary(index, tensor, uses, isStated) || (!isLargeWeight(index, tensor, uses) && isTableOfAngles(tensor)))
        return constantUpTo(frozenConstantLimit, "a table of rotary positions; name it in `trainable` to train it");
      if (!isLargeWeight(index, tensor, uses) && isSinusoidal(tensor))
        return constantUpTo(frozenConstantLimit, "a table of sinusoidal positions; name it in `trainable` to train it");
      if (!isStated &&
          isNeutral(index, tensor, uses, [&](const std::string &value) { return resolved.contains(value); }))
        return constantUpTo(frozenConstantLimit,
                            "neutral, the layer's own scale and bias follow; name it in `trainable` to train it");
    }
    parameter.isWeight = true;
    if (!named && !isAnyTrained) return constantUpTo(frozenLimit, "not named by `trainable`");
    parameter.trainable = true;
    parameter.why = named ? "named by `trainable`" : "matches `trainable`";
  }

  bool isNamedExactly(const std::string &name) const {
    return std::ranges::any_of(options.trainable, [&](const std::string &pattern) {
      return pattern == name || pattern == recipe::exactly(name);
    });
  }

  // An attribute of a module, not a number that the exporter wrote: "blocks.0.alpha" beside weights of "blocks", and
  // "alpha" where PyTorch exported the model by way of TorchScript, whose nodes are called "/blocks.0/Mul" and its own
  // constants "onnx::Mul_7".
  bool isOfModule(const std::string &name) const {
    bool isPath = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '.';
    }) && !std::isdigit(static_cast<unsigned char>(name.front()));
    if (!isPath) return false;
    if (const size_t dot = name.find('.'); dot != std::string::npos) return modules.contains(name.substr(0, dot));
    return isTorchScript;
  }

  bool isMatrix(const std::string &value) const {
    auto found = resolved.find(value);
    if (found == resolved.end()) return false;
    const StoredTensor &tensor = initializers.at(found->second).tensor;
    return tensor.isFloat() && tensor.shape.size() >= 2 && tensor.elements() > 1;
  }

  // The name of an untied copy: of the Identity it was read through, if there is just one; else "name#2".
  std::string copyName(const std::string &name, const Initializer &initializer, const std::vector<Use> &uses) {
    std::set<std::string> through;
    for (const Use &use : uses) {
      auto found = initializer.identity.find({use.node, use.operand});
      through.insert(found == initializer.identity.end() ? "" : found->second);
    }
    if (through.size() == 1 && !through.begin()->empty() && taken.insert(*through.begin()).second)
      return *through.begin();
    for (int number = 2;; ++number)
      if (std::string copy = fmt::format("{}#{}", name, number); taken.insert(copy).second) return copy;
  }

  void add(const std::string &name, const Initializer &initializer, Parameter parameter, bool keepsName) {
    parameter.tensor = initializer.tensor;
    parameter.foldedFrom = statementOf(name).foldedFrom;
    if (keepsName && isAnyTrained && !isCopyOfOne(name)) addComputed(name, parameter.trainable);
    parameter.name = keepsName ? name : copyName(name, initializer, parameter.uses);
    taken.insert(parameter.name);
    size_t at = table.parameters.size();
    for (const Use &use : parameter.uses) table.byUse[{use.node, use.operand}] = {at, false};
    if (keepsName) {
      for (const std::string &value : valuesOf[name]) table.byValue[value] = {at, false};
      for (const auto &[alias, target] : aliasOf) {
        if (target.first != name) continue;
        (target.second ? parameter.transposedAliases : parameter.aliases).push_back(alias);
        const std::vector<Use> &uses = initializers.at(alias).uses;
        for (const Use &use : uses) table.byUse[{use.node, use.operand}] = {at, target.second};
        parameter.uses.insert(parameter.uses.end(), uses.begin(), uses.end());
        for (const std::string &value : valuesOf[alias]) table.byValue[value] = {at, target.second};
      }
    }
    table.parameters.push_back(std::move(parameter));
  }

  // Parameters that the exporter merged go by the names that PyTorch has for them, as far as these are known.
  void renameCopies() {
    std::map<std::string, int> tensors;
    for (const Parameter &parameter : table.parameters) ++tensors[parameter.tensor.name];
    std::map<size_t, std::string> keys;
    for (const StateEntry &entry : table.state.entries)
      if (entry.source == StateEntry::Source::Parameter && !entry.isCopy &&
          tensors.at(table.parameters[entry.parameter].tensor.name) > 1)
        keys.try_emplace(entry.parameter, entry.key);
    for (const auto &[at, key] : keys) taken.erase(table.parameters[at].name);
    for (const auto &[at, key] : keys) {
      Parameter &parameter = table.parameters[at];
      if (!taken.insert(key).second) {
        taken.insert(parameter.name);
        continue;
      }
      parameter.name = key;
      parameter.foldedFrom.clear(); // another's
    }
  }

  // Was it made of one parameter, and may it be that, only renamed or transposed?
  bool isCopyOfOne(const std::string &name) const {
    const std::string origin = renamedFrom(name);
    if (origin.empty() || apart.contains(name)) return false;
    // Beside matrices, what a dimension was put into: [32, 1, 1].
    const std::vector<int64_t> &shape = initializers.at(name).tensor.shape;
    const bool isUnsqueezed = shape.size() > 1 && std::ranges::count(shape, 1) > 0;
    return initializers.contains(origin) || isReadAsMatrix(name) || isUnsqueezed;
  }

  // For a tensor that was computed from parameters, which the file may have no longer.
  void addComputed(const std::string &computed, bool trains) {
    for (const std::string &origin : statementOf(computed).parameters) {
      const bool isKept = initializers.contains(origin);
      if (trains)
        computations.changed.push_back({origin, computed, isKept});
      else if (!isKept)
        computations.lost.insert("'" + origin + "'");
    }
  }

  // PyTorch's exporter leaves biases out that are zero when it exports (those of a fresh attention's `out_proj`).
  void addBiasesLeftOut() {
    static const std::set<std::string> biased = {"Gemm", "Conv", "ConvTranspose"};
    for (const FlatNode &flatNode : flat.nodes) {
      const ::onnx::NodeProto &node = *flatNode.node;
      if (!biased.count(node.op_type()) || node.input_size() < 2 || (node.input_size() > 2 && !node.input(2).empty()))
        continue;
      const std::string weight = resolvedName(node.input(1));
      if (!initializers.contains(weight)) continue;
      for (std::string name : {weight, renamedFrom(weight)}) {
        constexpr std::string_view ending = "weight";
        if (!name.ends_with(ending)) continue;
        name.replace(name.size() - ending.size(), ending.size(), "bias");
        // One that another constant was computed from is there as that.
        auto isOfIt = [&](const auto &one) { return std::ranges::count(statementOf(one.first).parameters, name) > 0; };
        if (statementOf(name).kind == ExporterStatement::Kind::Parameter && !initializers.contains(name) &&
            std::ranges::none_of(initializers, isOfIt))
          computations.leftOut.insert("'" + name + "'");
      }
    }
  }

  const ModelFile &model;
  const FlatGraph &flat;
  TensorStore &store;
  const ImportOptions &options;
  // A pattern other than "*" is somebody's intention; "*" means what is plausibly a weight.
  const bool isAnyTrained;
  const recipe::ParameterPatterns intended;
  GraphIndex index;
  const ExporterStatements statements;
  const StatedReads reads;
  MergedParameters merged; // known once the initializers are
  ParameterTable table;
  std::map<std::string, Initializer> initializers;
  std::vector<std::string> order;
  std::map<std::string, std::string> resolved;              // value -> initializer, through Identity
  std::map<std::string, std::vector<std::string>> valuesOf; // the inverse
  bool weightsAreNodes = false;  // no initializer is of real numbers: Constant nodes hold them
  bool isTorchScript = false;    // PyTorch's exporter that names nodes after modules
  std::set<std::string> modules; // the first part of weights' dotted names
  std::map<std::string, std::pair<std::string, bool>> aliasOf; // head -> (embedding, transposed)
  std::set<std::string> apart;  // made from one value, with other numbers than another that was made from it
  std::set<std::string> direct; // read without a use: graph outputs, subgraphs
  std::set<std::string> taken;
  Computations computations;
};

} // namespace

ImportOptions ImportOptions::of(const recipe::Recipe &recipe) {
  ImportOptions options{.trainable = recipe.trainable,
                        .ties = recipe.ties,
                        .loss = {},
                        .keepsFrozen = recipe.keepsFrozenWeights(),
                        .init = recipe.init};
  if (recipe.loss.kind == recipe::LossKind::Output) options.loss = recipe.loss.output;
  return options;
}

std::string Parameter::symbol() const {
  static const std::set<std::string> functions = {"model", "accumulate", "final", "evaluate"};
  return functions.contains(name) ? name + "#param" : name;
}

Result<ParameterTable> classifyParameters(const ModelFile &model, const FlatGraph &flat, TensorStore &store,
                                          const ImportOptions &options) {
  return Classifier(model, flat, store, options).run();
}

} // namespace cleave::import_
