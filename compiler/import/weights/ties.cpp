#include "compiler/import/weights/ties.h"
#include "compiler/import/tensor_values.h"
#include "runtime/base/names/module_scope.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <sstream>

namespace cleave::import_ {
namespace {

// Elementwise nodes may read one parameter twice; elsewhere two operands mean two things (scale and bias).
bool oneMeaning(const ::onnx::NodeProto &node) { return isElementwise(node.op_type()) || node.op_type() == "MatMul"; }

std::vector<std::vector<Use>> groupByNode(const RuleContext &all, const std::vector<Use> &uses) {
  std::map<std::pair<size_t, int>, std::vector<Use>> groups;
  for (const Use &use : uses) groups[{use.node, oneMeaning(all.index.node(use)) ? 0 : use.operand}].push_back(use);
  std::vector<std::vector<Use>> result;
  for (auto &[key, group] : groups) result.push_back(std::move(group));
  return result;
}

std::vector<std::string> partsOf(const std::string &module) {
  std::vector<std::string> parts;
  std::istringstream path(module);
  for (std::string part; std::getline(path, part, '.');) parts.push_back(part);
  return parts;
}

bool isNumber(const std::string &part) { return part.find_first_not_of("0123456789") == std::string::npos; }

// TorchScript calls a module that runs again "norm_1", or "layers.0_1" in a list.
bool runsAgain(const std::string &module, const std::string &own) {
  return std::ranges::equal(partsOf(module), partsOf(own), [](const std::string &part, const std::string &name) {
    return part == name || (part.starts_with(name + "_") && isNumber(part.substr(name.size() + 1)));
  });
}

// Entries of one list, "layers.0.fc" and "layers.1.fc".
bool areCopies(const std::string &a, const std::string &b) {
  return std::ranges::equal(partsOf(a), partsOf(b), [](const std::string &part, const std::string &other) {
    return part == other || (isNumber(part) && isNumber(other));
  });
}

// Uses by TorchScript's modules. nn.TransformerEncoder begins with equal layers, whose weights the exporter merges: the
// merged one is called after the first of them, or "onnx::MatMul_12". A parameter of the module around them is not.
struct Modules {
  Modules(const RuleContext &all, const std::string &name, const std::vector<Use> &uses) : own(moduleOfKey(name)) {
    for (const Use &use : uses) byModule[names::moduleOf(all.index.flat.nodes[use.node].name)].push_back(use);
    isGiven = isGivenName(name);
  }
  bool isOne() const { // that the parameter is called after
    return isGiven && !own.empty() &&
           std::ranges::all_of(byModule, [&](const auto &m) { return runsAgain(m.first, own); });
  }
  bool areList() const {
    const std::string &first = byModule.begin()->first;
    return byModule.size() > 1 && !first.empty() && (!isGiven || byModule.contains(own)) &&
           std::ranges::all_of(byModule, [&](const auto &module) { return areCopies(module.first, first); });
  }
  std::vector<std::vector<Use>> groups() const {
    std::vector<std::vector<Use>> all;
    for (const auto &[module, uses] : byModule) all.push_back(uses);
    return all;
  }

  std::string own;
  bool isGiven = false;
  std::map<std::string, std::vector<Use>> byModule;
};

std::string nodeNames(const RuleContext &all, const std::vector<Use> &uses) {
  std::vector<std::string> names;
  for (const Use &use : uses) {
    const FlatNode &node = all.index.flat.nodes[use.node];
    if (names.size() == 4) {
      names.push_back("...");
      break;
    }
    names.push_back(fmt::format("{} ({})", node.name, node.node->op_type()));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace

std::string tellMerged(const RuleContext &context, const std::string &name, const std::vector<Use> &uses,
                       size_t number) {
  return fmt::format("'{}' is shared by {}: {} tensors (of other names in PyTorch: merged by the exporter); `ties: "
                     "as_exported` keeps one",
                     name, nodeNames(context, uses), number);
}

TieDecision groupUses(const RuleContext &context, const std::string &name, const std::vector<Use> &uses,
                      recipe::Ties ties, const std::string &key) {
  const StoredTensor &tensor = context.initializers.at(name).tensor;
  std::vector<std::vector<Use>> byNode = groupByNode(context, uses);
  if (byNode.size() <= 1) return {{uses}};
  const std::string of = fmt::format("'{}' is shared by {}: ", name, nodeNames(context, uses));
  auto one = [&](const std::string &why) {
    return TieDecision{{uses}, of + fmt::format("one parameter ({}); `ties: none` separates them", why)};
  };
  if (ties == recipe::Ties::AsExported) return {{uses}, of + "one parameter (ties: as_exported)"};
  if (ties == recipe::Ties::None) return {byNode, of + fmt::format("{} parameters (ties: none)", byNode.size())};
  if (!key.empty()) return one("the exporter says that it is '" + key + "' everywhere");
  if (context.index.isGathered(uses) && context.index.isMultiplied(uses)) return one("an embedding and its head");
  const Modules modules(context, name, uses);
  if (modules.areList())
    return {modules.groups(),
            of + fmt::format("{} parameters (of modules that are copies of one another: merged by the exporter); "
                             "`ties: as_exported` keeps one",
                             modules.byModule.size()),
            true};
  if (!allEqual(tensor) && (tensor.bytes || tensor.shape.size() > 1)) return one("its values are not a constant's");
  if (context.metadata.isSigned() && context.missing.empty())
    return one("the file has every parameter that its exporter lists");
  if (modules.isOne()) return one("one module reads it each time");
  TieDecision doubtful = one("as the file has it, and nothing tells whether an exporter merged equal ones");
  doubtful.isDoubtful = true;
  return doubtful;
}

} // namespace cleave::import_
