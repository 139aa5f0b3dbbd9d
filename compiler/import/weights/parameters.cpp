#include "compiler/import/weights/parameters.h"
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/role_rules.h"
#include "compiler/import/weights/stated_parameters.h"
#include "compiler/import/weights/ties.h"
#include "runtime/base/names/first_few.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::import_ {
namespace {

// Uses of one initializer that are one tensor in PyTorch.
struct UseGroup {
  std::string key;       // its name there; "": not told, or the only one
  bool isNumber = false; // of an operation's own, or computed: never one with a parameter
  std::vector<Use> uses = {};
};

// The parameters of a model without a statement: by what its exporter says, and by rules.
class Classifier {
public:
  Classifier(const ModelFile &model, const Initializers &initializers, const GraphIndex &index,
             const ImportOptions &options)
      : model(model), initializers(initializers), index(index), options(options), roles(options),
        metadata(model.proto.graph(), index), context{initializers, index, metadata} {
    context.producer = producerOf(model, index, metadata);
    context.weightsAreNodes = std::ranges::none_of(initializers.byName, [](const auto &one) {
      return !one.second.fromNode && one.second.tensor.isFloat() && one.second.tensor.elements() > 1;
    });
    for (const auto &[name, initializer] : initializers.byName)
      if (initializer.tensor.isFloat() && initializer.tensor.elements() > 1 && isReadAsWeight(index, initializer.uses))
        context.modules.insert(name.substr(0, name.find('.')));
  }

  Result<ParameterTable> run() {
    table.source = metadata.isSigned() ? Source::Metadata : Source::Rules;
    table.dissolved = initializers.dissolved;
    collectMissing();
    if (options.ties == recipe::Ties::Auto) {
      mergeEqualMatrices();
      mergeFoldedCopies();
    }
    for (const std::string &name : initializers.order) CLEAVE_RETURN_IF_ERROR(classify(name));
    for (const std::string &name : initializers.order) classifyStatistics(name);
    table.state = stateDictOf(context, table);
    renameCopies();
    readNodes();
    findAbsent();
    noteBiasesAlone();
    return std::move(table);
  }

private:
  bool isTorchScript() const { return context.producer == Producer::TorchScript; }

  void collectMissing() {
    std::set<std::string> held;
    for (const auto &[name, initializer] : initializers.byName) {
      held.insert(name);
      held.insert(metadata.foldedFrom(name).begin(), metadata.foldedFrom(name).end());
    }
    for (const ListedTensor &tensor : metadata.state())
      if (tensor.isParameter && !held.contains(tensor.key)) context.missing.insert(tensor.key);
  }

  void tie(const std::string &alias, const std::string &to, bool isTransposed, const std::string &why) {
    aliasOf[alias] = {to, isTransposed};
    table.ties.push_back(why + "; `ties: as_exported` separates them");
    table.sharing.push_back(table.ties.back());
  }

  // An embedding that the exporter wrote a second time, usually transposed, for the head.
  void mergeEqualMatrices() {
    for (const std::string &tableName : initializers.order) {
      const Initializer &embedding = initializers.at(tableName);
      const StoredTensor &rows = embedding.tensor;
      if (rows.shape.size() != 2 || !rows.isFloat() || !rows.bytes || !index.isGathered(embedding.uses) ||
          allEqual(rows))
        continue;
      for (const std::string &headName : initializers.order) {
        if (headName == tableName || aliasOf.contains(headName)) continue;
        const Initializer &head = initializers.at(headName);
        if (head.tensor.length != rows.length || !index.isMultiplied(head.uses) || index.isGathered(head.uses))
          continue;
        const bool same = sameContent(rows, head.tensor);
        if (same || transposedContent(rows, head.tensor))
          tie(headName, tableName, !same,
              fmt::format("'{}' holds the same numbers as '{}'{}: one parameter (an embedding and its head)", headName,
                          tableName, same ? "" : " transposed"));
      }
    }
  }

  // A weight that several nodes read, which the exporter wrote for each of them anew.
  void mergeFoldedCopies() {
    std::map<std::string, std::string> firstOf; // by origin
    for (const std::string &name : initializers.order) {
      const std::string origin = context.madeFrom(name);
      if (origin.empty() || aliasOf.contains(name)) continue;
      auto [first, isFirst] = firstOf.try_emplace(origin, initializers.has(origin) ? origin : name);
      if (first->second == name) continue;
      std::string target = first->second;
      for (auto tied = aliasOf.find(target); tied != aliasOf.end(); tied = aliasOf.find(target))
        target = tied->second.first;
      auto isOfName = [&](const auto &alias) { return alias.second.first == name; };
      if (target == name || std::ranges::any_of(aliasOf, isOfName)) continue; // others are one with it already
      const StoredTensor &kept = initializers.at(target).tensor, &copy = initializers.at(name).tensor;
      if (!copy.isFloat()) continue;
      const bool isKnown = kept.bytes && copy.bytes;
      const bool same = isKnown ? sameContent(kept, copy) : kept.dataType == copy.dataType && kept.shape == copy.shape;
      const bool isTransposed = !same && (isKnown ? transposedContent(kept, copy) : isTransposedShape(kept, copy));
      // Without the weights' file nothing tells a computation from a copy but where it is read.
      if (!same && !isTransposed && isKnown) context.notCopies.insert({target, name});
      if ((!same && !isTransposed) || (!isKnown && !(context.isReadAsMatrix(target) && context.isReadAsMatrix(name))))
        continue;
      tie(name, target, isTransposed,
          fmt::format("'{}' was made from '{}'{}: one parameter with '{}'", name, origin,
                      same || target != origin ? "" : ", transposed", target));
    }
  }

  static bool isTransposedShape(const StoredTensor &a, const StoredTensor &b) {
    return a.dataType == b.dataType && a.shape.size() == 2 && b.shape == std::vector{a.shape[1], a.shape[0]};
  }

  Status classify(const std::string &name) {
    if (aliasOf.contains(name)) return Status::ok(); // with its embedding
    std::vector<Use> shapes, others;
    bool hasStatistics = false;
    for (const Use &use : initializers.at(name).uses) {
      const std::string &op = index.op(use);
      if (isStatistic(index, use))
        hasStatistics = true;
      else
        (op == "Shape" || op == "Size" ? shapes : others).push_back(use);
    }
    if (others.empty() && !initializers.direct.contains(name) && (hasStatistics || shapes.empty())) return Status::ok();
    std::vector<UseGroup> groups = groupsOf(name, others);
    groups.front().uses.insert(groups.front().uses.end(), shapes.begin(), shapes.end());
    if (groups.size() > 1) {
      table.ties.push_back(tellMerged(context, name, others, groups.size()));
      table.sharing.push_back(table.ties.back());
    }
    const bool isOfSeveral = std::ranges::count(groups, false, &UseGroup::isNumber) > 1;
    for (size_t i = 0; i < groups.size(); ++i) {
      CLEAVE_RETURN_IF_ERROR(classifyGroup(name, groups[i], i == 0));
      if (isOfSeveral && groups[i].key.empty() && !groups[i].isNumber && table.parameters.back().trainable)
        table.doubts.push_back({doubts::shared, name, "ties"});
    }
    return Status::ok();
  }

  // In the order of their first uses, numbers last. An initializer of integers, or of numbers alone, is one group.
  std::vector<UseGroup> groupsOf(const std::string &name, const std::vector<Use> &uses) {
    std::vector<UseGroup> groups;
    for (const Use &use : uses) {
      const bool isNumber = isNumberAt(name, use);
      const std::string key = isNumber || options.ties != recipe::Ties::Auto ? "" : keyOf(name, use);
      auto home = std::ranges::find_if(
          groups, [&](const UseGroup &group) { return group.key == key && group.isNumber == isNumber; });
      if (home == groups.end()) home = groups.insert(groups.end(), {key, isNumber});
      home->uses.push_back(use);
    }
    const bool isNumbers = std::ranges::all_of(groups, &UseGroup::isNumber);
    auto isUntold = [](const UseGroup &group) { return !group.isNumber && group.key.empty(); };
    if (isNumbers || !initializers.at(name).tensor.isFloat() ||
        (groups.size() > 1 && std::ranges::any_of(groups, isUntold) && !metadata.isSigned()))
      return {{"", false, uses}};
    std::ranges::stable_partition(groups, [](const UseGroup &group) { return !group.isNumber; });
    return groups;
  }

  // Whether a use reads a number of its operation, though the initializer is called after a parameter of that number.
  bool isNumberAt(const std::string &name, const Use &use) {
    if (!metadata.isSigned()) return false;
    if (metadata.isLiteral(use)) return true;
    if (!metadata.isParameter(name) || metadata.isOfFoldedNorm(index.applying(use).node) ||
        !metadata.keyOf(use).empty())
      return false;
    const std::string value = metadata.computedOperand(use);
    if (!value.empty()) table.doubts.push_back({doubts::computedOperand, value, ""});
    return !value.empty();
  }

  // PyTorch's name of the parameter that a use reads: `dynamo` says it, TorchScript by an Identity's name.
  std::string keyOf(const std::string &name, const Use &use) const {
    if (isTorchScript()) return isGivenName(index.value(use)) ? index.value(use) : "";
    const std::string key = metadata.keyOf(use);
    if (metadata.isParameter(name) && key.empty() && metadata.hasOperations() && !metadata.readsState(use.node) &&
        !metadata.isOfFoldedNorm(index.applying(use).node))
      return name; // by a view or copy of it that is gone
    if (metadata.isParameter(name)) return key;
    const bool isOfIt = context.missing.contains(key) || std::ranges::count(metadata.parametersOf(name), key) > 0;
    return isOfIt ? key : "";
  }

  Status classifyGroup(const std::string &name, const UseGroup &group, bool keepsName) {
    const Initializer &initializer = initializers.at(name);
    const auto &[key, isNumber, uses] = group;
    Parameter parameter;
    parameter.tensor = initializer.tensor;
    if (isNumber)
      setConstant(parameter, frozenConstantLimit, "a number of the operation's own, as the exporter says");
    else
      decide(name, isTorchScript() ? "" : key, uses, parameter);
    if (parameter.trainable && !initializer.tensor.inFile)
      return inputError(
          fmt::format("{}: parameter '{}' is stored in unpacked fields, so its bytes cannot be read from the file; "
                      "save the model again with onnx.save, which writes raw data",
                      model.path, name));
    std::vector<std::vector<Use>> parts = {uses};
    if (parameter.trainable) {
      const TieDecision decision = groupUses(context, name, uses, options.ties, key);
      parts = decision.groups;
      if (!decision.text.empty()) table.ties.push_back(decision.text);
      if (decision.isTold) table.sharing.push_back(decision.text);
      if (decision.isDoubtful) table.doubts.push_back({doubts::shared, name, "ties"});
    }
    for (const std::vector<Use> &part : parts) {
      parameter.uses = part;
      add(name, parameter, keepsName);
      keepsName = false;
    }
    return Status::ok();
  }

  int64_t frozenLimit() const { return options.keepsFrozen ? -1 : frozenConstantLimit; }

  static void setConstant(Parameter &parameter, int64_t limit, std::string why) {
    const StoredTensor &tensor = parameter.tensor;
    parameter.role = tensor.bytes && tensor.length <= limit ? Role::Constant : Role::Parameter;
    parameter.why = std::move(why);
  }

  // The recipe's word comes first, then the rules'.
  void decide(const std::string &name, const std::string &key, const std::vector<Use> &uses, Parameter &parameter) {
    const StoredTensor &tensor = parameter.tensor;
    recipe::ParameterNames names{key.empty() ? name : key, {}, {}};
    if (uses.size() == initializers.at(name).uses.size()) names.aliases.push_back(name); // it is that as a whole
    if (const std::string origin = context.madeFrom(name); !origin.empty()) names.aliases.push_back(origin);
    if (metadata.parametersOf(name).size() == 1) names.aliases.push_back(metadata.parametersOf(name).front());
    for (const Use &use : uses) names.nodes.push_back(index.flat.nodes[use.node].name);
    Decision decision = decideRole(context, name, key, uses);
    if (decision.conclusion == Conclusion::Frozen) return setConstant(parameter, frozenLimit(), decision.why);
    const bool isNumber = initializers.at(name).fromNode && tensor.elements() <= 1;
    std::optional<bool> wanted = decision.isFree ? roles.trains(names, isNumber) : std::nullopt;
    // A glob that names a parameter does not mean what the exporter computed from it.
    const bool isComputed = decision.doubt == doubts::lost || decision.doubt == doubts::computed;
    const bool isNamed = roles.says(names) || roles.trains({name, {}, {}}, /*isNumber=*/true);
    if (isComputed && wanted == std::optional(true) && !isNamed) {
      doubt(name, decision);
      if (decision.conclusion == Conclusion::Constant) wanted = std::nullopt, decision.doubt = nullptr;
    }
    if (!wanted && decision.doubt && roles.trainsAll) doubt(name, decision);
    if (!wanted && decision.conclusion == Conclusion::Constant)
      return setConstant(parameter, decision.limit, decision.why);
    parameter.isWeight = true;
    if (!wanted.value_or(roles.trainsAll))
      return setConstant(parameter, frozenLimit(), wanted ? "frozen by the recipe" : "not named by `trainable`");
    parameter.trainable = true;
    parameter.why = wanted ? "named by the recipe" : decision.why;
  }

  void doubt(const std::string &name, const Decision &decision) {
    const bool isLost = decision.doubt == doubts::lost;
    if (isLost || decision.doubt == doubts::computed) {
      for (const std::string &origin : metadata.parametersOf(name))
        if (isLost && initializers.has(origin))
          table.doubts.push_back({doubts::partial, origin, ""});
        else
          table.doubts.push_back({decision.doubt, origin, isLost ? "frozen" : "computed"});
      return;
    }
    table.doubts.push_back(
        {decision.doubt, name, decision.conclusion == Conclusion::Constant ? "buffer" : "parameter"});
  }

  // Statistics of one module are one tensor, however often it runs: nodes that read one scale. Once weights are
  // classified.
  void classifyStatistics(const std::string &name) {
    std::vector<std::pair<std::optional<size_t>, std::vector<Use>>> modules; // by the scale's parameter
    for (const Use &use : initializers.at(name).uses) {
      if (!isStatistic(index, use)) continue;
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
      parameter.tensor = initializers.at(name).tensor;
      parameter.role = Role::RunningStatistic;
      parameter.why = uses.front().operand == 3 ? "running mean" : "running variance";
      parameter.uses = uses;
      add(name, std::move(parameter), !taken.contains(name));
    }
  }

  // The name of an untied copy: of the Identity it was read through, if there is just one; else "name#2".
  std::string copyName(const std::string &name, const std::vector<Use> &uses) {
    const Initializer &initializer = initializers.at(name);
    std::set<std::string> through;
    for (const Use &use : uses) {
      auto found = initializer.identity.find(use);
      through.insert(found == initializer.identity.end() ? "" : found->second);
    }
    if (through.size() == 1 && !through.begin()->empty() && taken.insert(*through.begin()).second)
      return *through.begin();
    for (int number = 2;; ++number)
      if (std::string copy = fmt::format("{}#{}", name, number); taken.insert(copy).second) return copy;
  }

  void add(const std::string &name, Parameter parameter, bool keepsName) {
    parameter.foldedFrom = metadata.foldedFrom(name);
    parameter.name = keepsName ? name : copyName(name, parameter.uses);
    taken.insert(parameter.name);
    const size_t at = table.parameters.size();
    for (const Use &use : parameter.uses) table.byUse[use] = {at, false};
    if (keepsName) {
      for (const std::string &value : initializers.valuesOf.at(name)) table.byValue[value] = {at, false};
      for (const auto &[alias, target] : aliasOf) {
        if (target.first != name) continue;
        (target.second ? parameter.transposedAliases : parameter.aliases).push_back(alias);
        const std::vector<Use> &uses = initializers.at(alias).uses;
        for (const Use &use : uses) table.byUse[use] = {at, target.second};
        parameter.uses.insert(parameter.uses.end(), uses.begin(), uses.end());
        for (const std::string &value : initializers.valuesOf.at(alias)) table.byValue[value] = {at, target.second};
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

  // What the exporter says of single nodes.
  void readNodes() {
    std::vector<std::string> folded;
    const bool isInit = !options.init.checkpoint.empty();
    for (const std::string &module : table.state.folded) // by TorchScript, which tells no more
      table.doubts.push_back({isInit ? doubts::foldedInit : doubts::foldedUnknown, module, ""});
    for (size_t i : table.state.computed) {
      const Parameter &parameter = table.parameters[i];
      if (parameter.trainable && !roles.says({parameter.name, {}, {parameter.tensor.name}}))
        table.doubts.push_back({doubts::computed, parameter.name, "computed"});
    }
    for (size_t i = 0; i < index.flat.nodes.size(); ++i) {
      const std::string &op = index.flat.nodes[i].node->op_type();
      if (std::optional<int64_t> row = metadata.paddingRow(i); row && op == "Gather") table.paddingRows[i] = *row;
      if (op == "BatchNormalization" && metadata.trainsNorm(i)) table.trainingNorms.insert(i);
      if (!metadata.isOfFoldedNorm(i)) continue;
      const std::string module = moduleOfKey(metadata.keyAt(i, Place::Weight));
      if (metadata.trainsNorm(i))
        table.doubts.push_back({doubts::foldedNorm, module, ""});
      else if (isInit)
        table.doubts.push_back({doubts::foldedInit, module, ""});
      else
        folded.push_back("'" + module + "'");
    }
    if (!folded.empty())
      table.notes.push_back(fmt::format("the exporter folded BatchNorms into the layers before them, so that neither "
                                        "their scales nor their statistics train: {}",
                                        names::firstFew(folded, 4)));
  }

  // What the exporter lists or names, and nothing of the file stands for.
  void findAbsent() {
    std::set<std::string> there;
    for (const StateEntry &entry : table.state.entries)
      if (entry.source != StateEntry::Source::Fill) there.insert(entry.key);
    for (const Parameter &parameter : table.parameters)
      there.insert(parameter.foldedFrom.begin(), parameter.foldedFrom.end());
    if (const std::string detach = metadata.lostDetach(); !detach.empty())
      table.doubts.push_back({doubts::detached, detach, "accept"});
    const bool isMerged = metadata.hasMergedOperations();
    const std::vector<std::string> lost = metadata.lostOperations();
    for (const std::string &operation : lost) table.doubts.push_back({doubts::lostOperation, operation, ""});
    for (const ListedTensor &tensor : metadata.state()) {
      if (!tensor.isParameter || there.contains(tensor.key)) continue;
      table.absent.push_back(tensor.key);
      if (roles.freezes(tensor.key)) continue;
      const bool isFolded = std::ranges::any_of(
          table.state.norms, [&](const std::string &module) { return moduleOfKey(tensor.key) == module; });
      if (isFolded) continue; // told as a norm
      const bool isWanted = roles.trainsAll || roles.trains({tensor.key, {}, {}}) == std::optional(true);
      if (!isWanted && !isMerged) continue;
      if (metadata.isRead(tensor.key) || !metadata.hasOperations() || !lost.empty())
        table.doubts.push_back({doubts::leftOut, tensor.key, "frozen"});
      else if (isMerged)
        table.doubts.push_back({doubts::merged, tensor.key, ""});
    }
  }

  // A glob over modules may name a layer's bias and miss its weight, which the exporter called otherwise.
  void noteBiasesAlone() {
    std::map<std::string, size_t> weights;
    for (const StateEntry &entry : table.state.entries)
      if (entry.source == StateEntry::Source::Parameter && leafOfKey(entry.key) == "weight")
        weights.emplace(moduleOfKey(entry.key), entry.parameter);
    std::vector<std::string> told;
    for (const StateEntry &entry : table.state.entries) {
      if (entry.source != StateEntry::Source::Parameter || leafOfKey(entry.key) != "bias") continue;
      auto weight = weights.find(moduleOfKey(entry.key));
      if (table.parameters[entry.parameter].trainable && weight != weights.end() &&
          !table.parameters[weight->second].trainable)
        told.push_back(fmt::format("'{}' of '{}'", table.parameters[weight->second].name, moduleOfKey(entry.key)));
    }
    if (!told.empty())
      table.notes.push_back(fmt::format("weights that do not train, though the biases beside them do: {}; `trainable` "
                                        "names parameters as `cleave inspect` shows them",
                                        names::firstFew(told, 4)));
  }

  const ModelFile &model;
  const Initializers &initializers;
  const GraphIndex &index;
  const ImportOptions &options;
  const RecipeRoles roles;
  const ExporterMetadata metadata;
  RuleContext context;
  ParameterTable table;
  std::map<std::string, std::pair<std::string, bool>> aliasOf; // head -> (embedding, transposed)
  std::set<std::string> taken;
};

std::vector<std::string> without(std::vector<std::string> patterns, const std::string &one) {
  std::erase(patterns, one);
  return patterns;
}

// A module that runs twice a step moves its running statistics twice.
void countUpdates(ParameterTable &table) {
  std::map<std::string, int64_t> runs; // by module
  for (const StateEntry &entry : table.state.entries)
    if (entry.source == StateEntry::Source::Parameter && leafOfKey(entry.key) == "running_mean")
      runs[moduleOfKey(entry.key)] = std::ssize(table.parameters[entry.parameter].uses);
  for (StateEntry &entry : table.state.entries)
    if (auto module = runs.find(moduleOfKey(entry.key));
        entry.source == StateEntry::Source::Updates && module != runs.end())
      entry.updates = std::max<int64_t>(1, module->second);
}

} // namespace

// The batch sizes of the recipe's steps.
static std::set<int64_t> batchesOf(const recipe::Recipe &recipe) {
  std::set<int64_t> batches;
  if (auto batch = recipe.dims.find("batch"); batch != recipe.dims.end()) batches.insert(batch->second);
  for (const recipe::RampStage &stage : recipe.ramp)
    if (auto batch = stage.dims.find("batch"); batch != stage.dims.end()) batches.insert(batch->second);
  return batches;
}

ImportOptions ImportOptions::of(const recipe::Recipe &recipe) {
  ImportOptions options{.trainable = recipe.trainable,
                        .ties = recipe.ties,
                        .loss = {},
                        .keepsFrozen = recipe.keepsFrozenWeights(),
                        .init = recipe.init,
                        .frozen = recipe.frozen,
                        .roles = recipe.roles,
                        .batches = batchesOf(recipe)};
  for (const recipe::Loss &loss : recipe.losses)
    if (loss.kind == recipe::LossKind::Output && !loss.outputs.empty()) options.loss = loss.outputs.front();
  return options;
}

RecipeRoles::RecipeRoles(const ImportOptions &options)
    : trainsAll(std::ranges::count(options.trainable, "*") > 0), options(options),
      named(without(options.trainable, "*")), frozen(options.frozen) {}

std::optional<recipe::TensorRole> RecipeRoles::says(const recipe::ParameterNames &names) const {
  std::vector<std::string> all = names.aliases;
  all.push_back(names.name);
  for (const std::string &name : all)
    if (auto role = options.roles.find(name); role != options.roles.end()) return role->second;
  return std::nullopt;
}

std::optional<bool> RecipeRoles::trains(const recipe::ParameterNames &names, bool isNumber) const {
  if (std::optional<recipe::TensorRole> role = says(names)) return *role == recipe::TensorRole::Parameter;
  if (isNumber) {
    auto isNamed = [&](const std::string &pattern) {
      return pattern == names.name || pattern == recipe::exactly(names.name);
    };
    return std::ranges::any_of(options.trainable, isNamed) ? std::optional(true) : std::nullopt;
  }
  if (frozen.match(names)) return false;
  return named.match(names) ? std::optional(true) : std::nullopt;
}

bool RecipeRoles::freezes(const std::string &name) const { return trains({name, {}, {}}) == std::optional(false); }

std::string Parameter::kind() const {
  if (role == Role::RunningStatistic) return "running statistic";
  if (trainable) return "trained";
  return isWeight ? "frozen" : why.starts_with("a buffer") ? "buffer" : "constant";
}

std::string Parameter::symbol() const {
  static const std::set<std::string> functions = {"model", "accumulate", "final", "evaluate"};
  return functions.contains(name) ? name + "#param" : name;
}

Result<ParameterTable> classifyParameters(const ModelFile &model, const FlatGraph &flat, TensorStore &store,
                                          const ImportOptions &options) {
  Result<Initializers> initializers = Initializers::of(model, flat, store);
  if (!initializers) return initializers.status();
  const GraphIndex index(flat);
  Result<std::optional<ModuleStatement>> statement = moduleStatement(model, *initializers);
  if (!statement) return statement.status();
  Result<ParameterTable> table = *statement ? statedParameters(**statement, *initializers, index, options)
                                            : Classifier(model, *initializers, index, options).run();
  if (table) countUpdates(*table);
  if (table) finishState(table->state);
  return table;
}

} // namespace cleave::import_
