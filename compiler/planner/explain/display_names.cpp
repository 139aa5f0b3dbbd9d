#include "compiler/planner/explain/display_names.h"
#include "runtime/base/names/folded_names.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

std::string moduleOfParameter(const std::string &name) {
  return name.substr(0, std::min(name.rfind('.'), name.size()));
}

} // namespace

DisplayNames::DisplayNames(const Problem &problem) : repeats(problem.findRepeats()) {
  std::map<std::string, int> heaviest; // of the operations that read a module's parameter: most FLOP
  for (int i = 0; i < int(problem.nodes.size()); ++i) {
    const Node &node = problem.nodes[size_t(i)];
    places.try_emplace(node.name, Place{i, -1});
    nodeNames.push_back(node.name);
    std::string &module = modules.emplace_back(node.module);
    std::vector<std::string> &read = operands.emplace_back();
    for (int operand : node.operands) {
      const Tensor &tensor = problem.tensors[size_t(operand)];
      const bool isParameter = tensor.kind == TensorKind::Parameter;
      read.push_back(isParameter ? tensor.name : "");
      if (!isParameter) continue;
      places.try_emplace(tensor.name, Place{i, int(read.size()) - 1});
      if (module.empty() && tensor.name.find('.') != std::string::npos) module = moduleOfParameter(tensor.name);
      if (tensor.name.find('.') != std::string::npos && module != moduleOfParameter(tensor.name)) continue;
      const auto [known, isNew] = heaviest.try_emplace(module, i);
      if (!isNew && problem.nodes[size_t(known->second)].flops < node.flops) known->second = i;
    }
  }
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const auto main = heaviest.find(modules[i]);
    if (modules[i].empty())
      nodes.push_back(problem.nodes[i].name);
    else if (main != heaviest.end() && main->second == int(i))
      nodes.push_back(modules[i]);
    else
      nodes.push_back(fmt::format("{} ({})", modules[i], problem.nodes[i].op));
  }
}

std::vector<int> DisplayNames::repetitionsOf(int node) const {
  for (const Repeat &repeat : repeats)
    if (repeat.first <= node && node < repeat.end()) {
      std::vector<int> all;
      for (int i = repeat.first + (node - repeat.first) % repeat.period; i < repeat.end(); i += repeat.period)
        all.push_back(i);
      return all;
    }
  return {node};
}

const std::string &DisplayNames::shown(const Place &place, const std::string &name) const {
  if (place.operand < 0) return nodes[size_t(place.node)];
  const std::vector<std::string> &read = operands[size_t(place.node)];
  return size_t(place.operand) < read.size() ? read[size_t(place.operand)] : name;
}

std::string DisplayNames::ofSingleName(const std::string &name, int64_t alike) const {
  const auto found = places.find(name);
  const std::string own = found == places.end() ? name : shown(found->second, name);
  if (alike == 1) return own;
  const std::vector<int> repetitions = found == places.end() ? std::vector<int>() : repetitionsOf(found->second.node);
  if (int64_t(repetitions.size()) != alike) return fmt::format("{} ({} x)", own, alike);
  std::vector<std::string> names;
  for (int node : repetitions) names.push_back(shown({node, found->second.operand}, name));
  return names::foldedNames(names);
}

std::string DisplayNames::of(const std::string &name, int64_t alike) const {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('+', begin), name.size());
    std::string one = ofSingleName(name.substr(begin, end - begin), alike);
    if (std::ranges::find(names, one) == names.end()) names.push_back(std::move(one));
    begin = end + 1;
  }
  return fmt::format("{}", fmt::join(names, " + "));
}

std::string DisplayNames::moduleOf(const std::string &node) const {
  const auto found = places.find(node);
  return found == places.end() || found->second.operand >= 0 ? "" : modules[size_t(found->second.node)];
}

int64_t DisplayNames::repetitions(const std::string &name) const {
  const auto found = places.find(name);
  return found == places.end() ? 1 : int64_t(repetitionsOf(found->second.node).size());
}

std::string DisplayNames::replaced(const std::string &text,
                                   const std::function<std::string(const std::string &)> &shown) const {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t first = std::min(text.find_first_not_of(" (),", begin), text.size());
    const size_t end = std::min(text.find_first_of(" (),", first), text.size());
    const std::string word = text.substr(first, end - first);
    out += text.substr(begin, first - begin) + (places.contains(word) ? shown(word) : word);
    begin = end;
  }
  return out;
}

std::string DisplayNames::firstOf(const std::string &name) const {
  const auto found = places.find(name);
  if (found == places.end()) return name;
  const int first = repetitionsOf(found->second.node).front();
  if (found->second.operand < 0) return nodeNames[size_t(first)];
  return shown({first, found->second.operand}, name);
}

} // namespace cleave::planner
