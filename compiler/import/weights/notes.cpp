#include "compiler/import/weights/notes.h"
#include "compiler/import/tensor_values.h"
#include "compiler/names/first_few.h"
#include <algorithm>

namespace cleave::import_ {
namespace {

// Only its elements lie otherwise, as those of an LSTM do.
bool isWholeIn(const ParameterTable &table, const Computed &one) {
  return std::ranges::any_of(table.state.entries, [&](const StateEntry &entry) {
    return entry.source == StateEntry::Source::Parameter && entry.key == one.origin && !entry.isPart &&
           table.parameters[entry.parameter].tensor.name == one.computed;
  });
}

} // namespace

void noteBiasesAlone(ParameterTable &table) {
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
  if (told.empty()) return;
  table.notes.push_back(fmt::format("weights that do not train, though the biases beside them do: {}; `trainable` "
                                    "names parameters as `cleave inspect` shows them",
                                    names::firstFew(told, 4)));
}

void noteAnonymous(const FlatGraph &flat, ParameterTable &table) {
  static const std::set<std::string> elementwise = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where"};
  std::vector<std::string> told;
  std::set<size_t> known; // what PyTorch calls them
  for (const StateEntry &entry : table.state.entries)
    if (entry.source == StateEntry::Source::Parameter && entry.key != table.parameters[entry.parameter].name)
      known.insert(entry.parameter);
  for (size_t at = 0; at < table.parameters.size(); ++at) {
    const Parameter &parameter = table.parameters[at];
    auto isElementwise = [&](const Use &use) { return elementwise.contains(flat.nodes[use.node].node->op_type()); };
    if (parameter.trainable && parameter.name.starts_with("onnx::") && !known.contains(at) && !parameter.uses.empty() &&
        std::ranges::all_of(parameter.uses, isElementwise))
      told.push_back(fmt::format("'{}' [{}]{}", parameter.name, fmt::join(parameter.tensor.shape, ", "),
                                 allEqual(parameter.tensor) ? ", all equal" : ""));
  }
  if (told.empty()) return;
  table.notes.push_back(fmt::format("these train, though their names do not tell that they are weights, and the "
                                    "exporter tells no buffers from parameters: {}; `trainable` can leave them out",
                                    names::firstFew(told, 4, "; ")));
}

void noteComputed(const Computations &all, ParameterTable &table) {
  const std::string advice = "; torch.onnx.export(..., optimize=False) leaves them as they are";
  std::vector<std::string> told;
  for (const Computed &one : all.changed)
    if (!isWholeIn(table, one))
      told.push_back(fmt::format("'{}' as '{}'{}", one.origin, one.computed,
                                 one.isKept ? " (apart from what else reads it)" : ""));
  if (!told.empty())
    table.notes.push_back(fmt::format("parameters that train as what the exporter computed from them: {}{}",
                                      names::firstFew(told, 4), advice));
  if (!all.lost.empty())
    table.notes.push_back(fmt::format("parameters that do not train, since the exporter computed constants from them: "
                                      "{}{}",
                                      fmt::join(all.lost, ", "), advice));
  if (!all.leftOut.empty())
    table.notes.push_back(fmt::format("parameters that do not train, since the exporter left them out, being zero: "
                                      "{}{}",
                                      fmt::join(all.leftOut, ", "), advice));
}

} // namespace cleave::import_
