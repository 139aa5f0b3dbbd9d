#include "compiler/import/weights/stated_parameters.h"
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/role_rules.h"

namespace cleave::import_ {
namespace {

using Form = Holding::Form;

class StatedParameters {
public:
  StatedParameters(const ModuleStatement &statement, const Initializers &initializers, const GraphIndex &index,
                   const ImportOptions &options)
      : statement(statement), initializers(initializers), index(index), options(options), roles(options) {}

  ParameterTable run() {
    table.source = Source::Statement;
    table.dissolved = initializers.dissolved;
    table.notes = statement.remarks;
    for (const std::string &lost : statement.lost) table.doubts.push_back({doubts::detached, lost, "accept"});
    for (int64_t batch : options.batches)
      if (!isRightFor(statement, batch))
        table.doubts.push_back({doubts::otherBatch, std::to_string(batch), "batch"});
    for (const StatedTensor &tensor : statement.tensors) {
      stated[tensor.name] = &tensor;
      groups[rootOf(tensor).name].push_back(&tensor);
      for (const Holding &held : tensor.held) holders[held.initializer].push_back(&tensor);
    }
    for (const std::string &name : initializers.order)
      if (!table.byValue.contains(name)) add(name);
    for (const StatedTensor &tensor : statement.tensors)
      if (tensor.isPersistent) addEntry(tensor);
    return std::move(table);
  }

private:
  // The tensor itself, or the one that it is tied to.
  const StatedTensor &rootOf(const StatedTensor &tensor) const {
    return tensor.tiedTo.empty() ? tensor : *stated.at(tensor.tiedTo);
  }

  void add(const std::string &name) {
    auto found = holders.find(name);
    Parameter parameter;
    parameter.name = name;
    parameter.tensor = initializers.at(name).tensor;
    if (found == holders.end()) {
      if (initializers.at(name).uses.empty() && !initializers.direct.contains(name)) return;
      parameter.why = "a number of the export, no tensor of the module";
      setConstant(parameter, initializers.at(name).uses);
      hold(parameter, name, false);
      table.parameters.push_back(std::move(parameter));
      return;
    }
    const StatedTensor &root = rootOf(*found->second.front());
    if (found->second.size() == 1) parameter.name = root.name;
    decide(root, initializers.at(name).uses, parameter);
    const Form form = formIn(root, name);
    hold(parameter, name, false);
    // Tied tensors that the exporter wrote once more.
    for (const StatedTensor *other : groups.at(root.name))
      for (const Holding &held : other->held) {
        if (table.byValue.contains(held.initializer) || held.initializer == name) continue;
        const bool isTransposed = (held.form == Form::Transposed) != (form == Form::Transposed);
        (isTransposed ? parameter.transposedAliases : parameter.aliases).push_back(held.initializer);
        hold(parameter, held.initializer, isTransposed);
      }
    table.parameters.push_back(std::move(parameter));
  }

  static Form formIn(const StatedTensor &tensor, const std::string &initializer) {
    for (const Holding &held : tensor.held)
      if (held.initializer == initializer) return held.form;
    return Form::AsIs;
  }

  void decide(const StatedTensor &tensor, const std::vector<Use> &uses, Parameter &parameter) const {
    recipe::ParameterNames names{tensor.name, {}, {parameter.tensor.name}};
    for (const StatedTensor *tied : groups.at(tensor.name)) names.aliases.push_back(tied->name);
    for (const Use &use : uses) names.nodes.push_back(index.flat.nodes[use.node].name);
    const std::optional<bool> wanted = parameter.tensor.isFloat() ? roles.trains(names) : std::optional<bool>();
    parameter.isWeight = tensor.isParameter;
    const bool isUsed = !uses.empty() || initializers.direct.contains(parameter.tensor.name);
    parameter.trainable = isUsed && wanted.value_or(tensor.requiresGrad && roles.trainsAll);
    if (parameter.trainable) {
      parameter.why = wanted ? "named by the recipe" : "a parameter of the module";
    } else {
      parameter.why = !isUsed               ? "the graph does not use it"
                      : wanted              ? "frozen by the recipe"
                      : !tensor.isParameter ? "a buffer of the module"
                      : tensor.requiresGrad ? "not named by `trainable`"
                                            : "requires_grad is False in the module";
      if (!tensor.isParameter || !options.keepsFrozen) setConstant(parameter, uses);
    }
  }

  // A tensor that does not train: a constant if it is small, else it stays in its file.
  void setConstant(Parameter &parameter, const std::vector<Use> &uses) const {
    const StoredTensor &tensor = parameter.tensor;
    if (std::ranges::any_of(uses, [&](const Use &use) { return isStatistic(index, use); })) {
      parameter.role = Role::RunningStatistic;
      return;
    }
    const bool mayBeMask = tensor.length > frozenConstantLimit && tensor.length <= maskConstantLimit; // others: unread
    const int64_t limit = !tensor.isFloat()                    ? integerConstantLimit
                          : mayBeMask && looksLikeMask(tensor) ? maskConstantLimit
                                                               : frozenConstantLimit;
    parameter.role = tensor.bytes && tensor.length <= limit ? Role::Constant : Role::Parameter;
  }

  void hold(Parameter &parameter, const std::string &initializer, bool isTransposed) {
    const Reading reading{table.parameters.size(), isTransposed};
    const std::vector<Use> &uses = initializers.at(initializer).uses;
    for (const Use &use : uses) {
      table.byUse[use] = reading;
      auto found = holders.find(initializer);
      if (found == holders.end() || index.op(use) != "Gather" || use.operand != 0) continue;
      if (std::optional<int64_t> row = rootOf(*found->second.front()).paddingRow) table.paddingRows[use.node] = *row;
    }
    parameter.uses.insert(parameter.uses.end(), uses.begin(), uses.end());
    table.byValue[initializer] = reading;
    for (const std::string &value : initializers.valuesOf.at(initializer)) table.byValue[value] = reading;
  }

  void addEntry(const StatedTensor &tensor) {
    const StatedTensor &holder = tensor.held.empty() ? rootOf(tensor) : tensor;
    StateEntry entry;
    entry.key = tensor.name;
    entry.shape = tensor.shape;
    if (leafOfKey(tensor.name) == "num_batches_tracked" && statement.trainingNorms.contains(moduleOfKey(tensor.name))) {
      entry.source = StateEntry::Source::Updates;
      entry.fill = tensor.initial.value_or(0);
    } else if (!holder.held.empty() && table.byValue.contains(holder.held.front().initializer)) {
      const Holding &held = holder.held.front();
      const Reading &reading = table.byValue.at(held.initializer);
      entry.parameter = reading.parameter;
      entry.isTransposed = (held.form == Form::Transposed) != reading.transposed;
      entry.ranges = held.ranges;
    } else if (tensor.initial) {
      entry.source = StateEntry::Source::Fill;
      entry.fill = *tensor.initial;
    } else {
      table.state.absent.push_back(tensor.name);
      return;
    }
    table.state.entries.push_back(std::move(entry));
  }

  const ModuleStatement &statement;
  const Initializers &initializers;
  const GraphIndex &index;
  const ImportOptions &options;
  const RecipeRoles roles;
  std::map<std::string, const StatedTensor *> stated;
  std::map<std::string, std::vector<const StatedTensor *>> groups;  // tied ones, by the first of them
  std::map<std::string, std::vector<const StatedTensor *>> holders; // by initializer
  ParameterTable table;
};

} // namespace

ParameterTable statedParameters(const ModuleStatement &statement, const Initializers &initializers,
                                const GraphIndex &index, const ImportOptions &options) {
  return StatedParameters(statement, initializers, index, options).run();
}

} // namespace cleave::import_
