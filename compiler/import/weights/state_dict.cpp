#include "compiler/import/weights/state_dict.h"
#include "compiler/import/weights/parameters.h"
#include "compiler/import/weights/role_rules.h"
#include "runtime/base/names/first_few.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::import_ {
namespace {

// A trained tensor without a name in PyTorch, computed by the exporter, goes by its own.
void addUnnamed(const FlatGraph &flat, const ParameterTable &table, StateDict &dict) {
  std::set<size_t> named;
  std::set<std::string> keys;
  for (const StateEntry &entry : dict.entries) {
    keys.insert(entry.key);
    if (entry.source == StateEntry::Source::Parameter) named.insert(entry.parameter);
  }
  std::vector<std::string> unnamed;
  for (size_t i = 0; i < table.parameters.size(); ++i) {
    const Parameter &parameter = table.parameters[i];
    if (named.contains(i) || keys.contains(parameter.name)) continue;
    if (!parameter.trainable && parameter.role != Role::RunningStatistic) continue;
    StateEntry entry;
    entry.key = parameter.name;
    if (parameter.name != parameter.tensor.name && !parameter.uses.empty()) // one of several: with its module
      if (const std::string module = statedModule(*flat.nodes[parameter.uses.front().node].node);
          !module.empty() && keys.insert(module + "." + parameter.tensor.name).second)
        entry.key = module + "." + parameter.tensor.name;
    unnamed.push_back("'" + entry.key + "'");
    entry.parameter = i;
    entry.shape = parameter.tensor.shape;
    entry.isGuess = entry.isReshaped = true;
    dict.entries.push_back(std::move(entry));
  }
  if (!unnamed.empty())
    dict.notes.push_back(fmt::format("`cleave export` writes these under the exporter's names, since nothing tells "
                                     "PyTorch's: {}",
                                     names::firstFew(unnamed, 6)));
}

} // namespace

StateDict fileNames(const ParameterTable &table) {
  StateDict dict;
  dict.isOfFile = true;
  for (size_t i = 0; i < table.parameters.size(); ++i) {
    const Parameter &parameter = table.parameters[i];
    if (parameter.role == Role::Constant) continue;
    StateEntry entry;
    entry.key = parameter.name;
    entry.parameter = i;
    entry.shape = parameter.tensor.shape;
    dict.entries.push_back(std::move(entry));
  }
  return dict;
}

StateEntry entryOf(const ParameterTable &table, size_t parameter, bool isTransposed) {
  StateEntry entry;
  entry.parameter = parameter;
  entry.shape = table.parameters[parameter].tensor.shape;
  entry.isTransposed = isTransposed && entry.shape.size() == 2;
  if (entry.isTransposed) std::swap(entry.shape[0], entry.shape[1]);
  return entry;
}

// ONNX has the gates i, o, f, c of an LSTM and z, r, h of a GRU; PyTorch i, f, g (c), o and r, z, n (h).
std::vector<StateEntry> recurrentEntries(const std::string &op, int operand, const std::vector<int64_t> &shape,
                                         const std::string &module, int layer) {
  static const std::map<std::string, std::vector<int64_t>> orders = {
      {"LSTM", {0, 2, 3, 1}}, {"GRU", {1, 0, 2}}, {"RNN", {0}}};
  const std::vector<int64_t> &order = orders.at(op);
  const auto gates = static_cast<int64_t>(order.size()), parts = int64_t(operand == 3 ? 2 : 1);
  if (shape.size() != (operand == 3 ? 2u : 3u) || shape[0] < 1 || shape[0] > 2 || shape[1] % (gates * parts) != 0)
    return {};
  const int64_t hidden = shape[1] / (gates * parts), columns = operand == 3 ? 1 : shape[2];
  std::vector<StateEntry> entries;
  for (int64_t direction = 0; direction < shape[0]; ++direction)
    for (int64_t part = 0; part < parts; ++part) {
      StateEntry entry;
      entry.key = fmt::format("{}{}{}_{}_l{}{}", module, module.empty() ? "" : ".", operand == 3 ? "bias" : "weight",
                              operand == 2 || part == 1 ? "hh" : "ih", layer, direction == 1 ? "_reverse" : "");
      entry.shape = {gates * hidden};
      if (operand != 3) entry.shape.push_back(columns);
      for (int64_t gate : order)
        entry.ranges.push_back({((direction * parts + part) * gates + gate) * hidden * columns, hidden * columns});
      entries.push_back(std::move(entry));
    }
  return entries;
}

std::vector<int64_t> vectorShape(const std::vector<int64_t> &shape) {
  std::vector<int64_t> real;
  std::ranges::copy_if(shape, std::back_inserter(real), [](int64_t size) { return size != 1; });
  return real.size() == 1 ? real : shape;
}

std::string moduleOfKey(const std::string &key) {
  const size_t end = key.rfind('.');
  return end == std::string::npos ? "" : key.substr(0, end);
}

std::string leafOfKey(const std::string &key) { return key.substr(key.rfind('.') + 1); }

StateDict stateDictOf(const RuleContext &context, const ParameterTable &table) {
  const bool isListed = !context.metadata.state().empty();
  if (!isListed && context.producer != Producer::TorchScript) return fileNames(table);
  StateDict dict = isListed ? listedStateDict(context, table) : tracedStateDict(context, table);
  addUnnamed(context.index.flat, table, dict);
  return dict;
}

void finishState(StateDict &state) {
  std::set<std::pair<size_t, int64_t>> seen; // parameter and its first element
  for (StateEntry &entry : state.entries)
    if (entry.source == StateEntry::Source::Parameter)
      entry.isCopy = !seen.insert({entry.parameter, entry.ranges.empty() ? 0 : entry.ranges.front().begin}).second;
  std::vector<std::string> absent;
  for (const std::string &key : state.absent) absent.push_back("'" + key + "'");
  if (!absent.empty())
    state.notes.push_back(
        fmt::format("`cleave export` cannot write these entries of PyTorch's state_dict, which the file "
                    "has nothing of: {}; `--base` takes them from the original checkpoint",
                    names::firstFew(absent, 6)));
}

} // namespace cleave::import_
