#include "compiler/import/weights/ties.h"
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/exporter_statements.h"
#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <set>
#include <sstream>

namespace cleave::import_ {
namespace {

constexpr size_t searchLimit = 256; // nodes looked at for the nearest product

bool isPassThrough(const std::string &op) { return op == "Transpose" || op == "Cast" || op == "Identity"; }

const ::onnx::NodeProto &nodeOf(const GraphIndex &index, const Use &use) { return *index.flat.nodes[use.node].node; }

bool anyReader(const GraphIndex &index, const std::vector<Use> &uses, const std::set<std::string> &wanted) {
  for (const Use &use : uses)
    for (const std::string &op : readers(index, use))
      if (wanted.count(op)) return true;
  return false;
}

bool isElementwise(const std::string &op) {
  static const std::set<std::string> elementwise = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where"};
  return elementwise.count(op) > 0;
}

// Elementwise nodes may read one parameter twice; elsewhere two operands mean two things (scale and bias).
bool oneMeaning(const ::onnx::NodeProto &node) { return isElementwise(node.op_type()) || node.op_type() == "MatMul"; }

// The node where a parameter meets what it is applied to: past those that only give it another shape.
size_t applyingNode(const GraphIndex &index, size_t node) {
  static const std::set<std::string> shapes = {"Unsqueeze", "Squeeze", "Reshape", "Expand"};
  for (size_t step = 0; step < searchLimit; ++step) {
    const ::onnx::NodeProto &proto = *index.flat.nodes[node].node;
    if ((!shapes.count(proto.op_type()) && !isPassThrough(proto.op_type())) || proto.output_size() == 0) break;
    auto next = index.consumers.find(proto.output(0));
    if (next == index.consumers.end()) break;
    node = next->second.front();
  }
  return node;
}

std::vector<std::vector<Use>> groupByNode(const GraphIndex &index, const std::vector<Use> &uses) {
  std::map<std::pair<size_t, int>, std::vector<Use>> groups;
  for (const Use &use : uses) groups[{use.node, oneMeaning(nodeOf(index, use)) ? 0 : use.operand}].push_back(use);
  std::vector<std::vector<Use>> result;
  for (auto &[key, group] : groups) result.push_back(std::move(group));
  return result;
}

// A constant shared by several nodes is one parameter only where the layer around it is shared too: the same op, behind
// the same matrix, applied by different nodes.
std::vector<std::vector<Use>> groupByLayer(const GraphIndex &index, const std::vector<Use> &uses,
                                           const IsMatrix &isMatrix) {
  struct Group {
    std::string op, matrix;
    int operand;
    std::set<size_t> products;
    std::vector<Use> uses;
  };
  std::vector<Group> groups;
  for (std::vector<Use> &ofNode : groupByNode(index, uses)) {
    const Use &use = ofNode.front();
    std::optional<Product> product = nearestProduct(index, applyingNode(index, use.node), isMatrix);
    Group *home = nullptr;
    if (product)
      for (Group &group : groups)
        if (group.op == nodeOf(index, use).op_type() && group.matrix == product->initializer &&
            group.operand == use.operand && !group.products.count(product->node))
          home = &group;
    if (!home) {
      groups.push_back({nodeOf(index, use).op_type(), product ? product->initializer : "", use.operand, {}, {}});
      home = &groups.back();
    }
    if (product) home->products.insert(product->node);
    home->uses.insert(home->uses.end(), ofNode.begin(), ofNode.end());
  }
  std::vector<std::vector<Use>> result;
  for (Group &group : groups) result.push_back(std::move(group.uses));
  return result;
}

// The module of a node, "layers.1.linear1": of TorchScript's "/layers.1/linear1/MatMul", or as the exporter says.
std::string moduleOf(const FlatNode &node) {
  if (!node.name.starts_with('/')) return statedModule(*node.node);
  std::string module = node.name.substr(1, std::max<size_t>(node.name.rfind('/'), 1) - 1);
  std::replace(module.begin(), module.end(), '/', '.');
  return module;
}

std::vector<std::string> partsOf(const std::string &module) {
  std::vector<std::string> parts;
  std::istringstream path(module);
  for (std::string part; std::getline(path, part, '.');) parts.push_back(part);
  return parts;
}

// A place in a list: "1" of "layers.1.linear1". A module that runs again is "layers.0_1", which is no place.
bool isPlace(const std::string &part) { return part.find_first_not_of("0123456789") == std::string::npos; }

// Where copies stand in their lists, "layers.0" and "layers.1" for "encoder.layers.0.linear1" and its copy: up to the
// last part that differs, from the list's name on. None where these modules are not one another's copies.
std::vector<std::string> placesOfCopies(const std::map<std::string, std::vector<Use>> &byModule) {
  if (byModule.size() == 1) return {};
  std::vector<std::vector<std::string>> modules;
  for (const auto &[module, uses] : byModule) modules.push_back(partsOf(module));
  const std::vector<std::string> &first = modules.front();
  size_t last = 0;
  for (const std::vector<std::string> &parts : modules) {
    if (parts.size() != first.size()) return {};
    for (size_t i = 0; i < parts.size(); ++i) {
      if (isPlace(parts[i]) != isPlace(first[i]) || (!isPlace(parts[i]) && parts[i] != first[i])) return {};
      if (parts[i] != first[i]) last = std::max(last, i);
    }
  }
  size_t list = last;
  while (list > 0 && isPlace(first[list])) --list;
  std::vector<std::string> places;
  for (const std::vector<std::string> &parts : modules)
    places.push_back(fmt::format("{}", fmt::join(parts.begin() + list, parts.begin() + last + 1, ".")));
  return places;
}

// Whether a merged tensor was each copy's own, not one of the module around them that all of them read. It is called
// after the copy that came first, or by TorchScript "onnx::MatMul_12"; PyTorch's other exporter lists what is gone.
bool isOfCopies(const std::string &name, const std::vector<std::string> &places, bool isTorchScript,
                const IsGone &isGone) {
  if (places.empty()) return false;
  if (isTorchScript && name.find("::") != std::string::npos) return true;
  const std::string path = "." + name;
  for (const std::string &place : places) {
    const size_t at = path.find("." + place + ".");
    if (at == std::string::npos) continue;
    auto isOwn = [&](const std::string &other) {
      return other == place || isGone(name.substr(0, at) + other + name.substr(at + place.size()));
    };
    return isTorchScript || std::ranges::all_of(places, isOwn);
  }
  return false;
}

// Uses by module, where these are one another's copies in a list: nn.TransformerEncoder begins with equal layers, whose
// weights exporters merge. One group where they are not. Outside of TorchScript a module that runs again has a place of
// its own, too: there copies have weights of their own beside what was merged.
std::vector<std::vector<Use>> groupByCopy(const GraphIndex &index, const std::string &name,
                                          const std::vector<Use> &uses, const IsMatrix &isMatrix,
                                          const IsGone &isGone) {
  std::map<std::string, std::vector<Use>> byModule;
  bool isTorchScript = true;
  for (const Use &use : uses) {
    const FlatNode &node = index.flat.nodes[use.node];
    isTorchScript &= node.name.starts_with('/');
    byModule[moduleOf(node)].push_back(use);
  }
  if (!isOfCopies(name, placesOfCopies(byModule), isTorchScript, isGone)) return {uses};
  if (!isTorchScript && groupByLayer(index, uses, isMatrix).size() != byModule.size()) return {uses};
  std::vector<std::vector<Use>> copies;
  for (auto &[module, group] : byModule) copies.push_back(std::move(group));
  return copies;
}

// "norm" of "norm.weight"; "" of what stands in no module.
std::string moduleOfParameter(const std::string &name) {
  const size_t end = name.rfind('.');
  return end == std::string::npos ? "" : name.substr(0, end);
}

// TorchScript calls a module that runs again "norm_1", or "layers.0_1" in a list.
bool runsAgain(const std::string &module, const std::string &own) {
  const std::vector<std::string> parts = partsOf(module), names = partsOf(own);
  auto isSame = [](const std::string &part, const std::string &name) {
    return part == name || (part.starts_with(name + "_") && isPlace(part.substr(name.size() + 1)));
  };
  return parts.size() == names.size() && std::ranges::equal(parts, names, isSame);
}

// Are all uses in the module that the parameter is called after?
bool isOfOneModule(const GraphIndex &index, const std::string &name, const std::vector<Use> &uses) {
  const std::string own = moduleOfParameter(name);
  return std::ranges::all_of(uses, [&](const Use &use) {
    const FlatNode &node = index.flat.nodes[use.node];
    return node.name.starts_with('/') && runsAgain(moduleOf(node), own);
  });
}

// Uses by module: one whose parameters were merged away has its own; all others read the initializer's. In a module
// from which several are gone, operands of one operator are one parameter each, and elementwise operators those of
// their layers.
std::vector<std::vector<Use>> groupByModule(const GraphIndex &index, const std::string &name,
                                            const std::vector<Use> &uses, const IsMatrix &isMatrix,
                                            const MergedParameters &merged) {
  const std::string own = moduleOfParameter(name);
  std::vector<std::pair<std::string, std::vector<Use>>> modules = {{own, {}}};
  for (const std::vector<Use> &ofNode : groupByNode(index, uses)) {
    std::string module = moduleOf(index.flat.nodes[ofNode.front().node]);
    if (!merged.isIn(module)) module = own;
    auto home = std::ranges::find(modules, module, &std::pair<std::string, std::vector<Use>>::first);
    if (home == modules.end()) home = modules.insert(modules.end(), {module, {}});
    home->second.insert(home->second.end(), ofNode.begin(), ofNode.end());
  }
  std::vector<std::vector<Use>> result;
  for (const auto &[module, ofModule] : modules) {
    if (ofModule.empty()) continue;
    if (!merged.isIn(module)) {
      result.push_back(ofModule);
      continue;
    }
    std::map<std::pair<std::string, int>, std::vector<Use>> byOperand;
    std::vector<Use> elementwise;
    for (const Use &use : ofModule) {
      const ::onnx::NodeProto &node = nodeOf(index, use);
      (oneMeaning(node) ? elementwise : byOperand[{node.op_type(), use.operand}]).push_back(use);
    }
    for (auto &[operand, group] : byOperand) result.push_back(std::move(group));
    for (std::vector<Use> &group : groupByLayer(index, elementwise, isMatrix)) result.push_back(std::move(group));
  }
  return result;
}

std::string nodeNames(const GraphIndex &index, const std::vector<Use> &uses) {
  std::vector<std::string> names;
  for (const Use &use : uses) {
    const FlatNode &node = index.flat.nodes[use.node];
    if (names.size() == 4) {
      names.push_back("...");
      break;
    }
    names.push_back(fmt::format("{} ({})", node.name, node.node->op_type()));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace

bool MergedParameters::isIn(const std::string &module) const {
  return std::ranges::any_of(names, [&](const std::string &name) { return moduleOfParameter(name) == module; });
}

GraphIndex::GraphIndex(const FlatGraph &flat) : flat(flat) {
  for (size_t i = 0; i < flat.nodes.size(); ++i) {
    for (const std::string &output : flat.nodes[i].node->output()) producer.emplace(output, i);
    for (const std::string &input : flat.nodes[i].node->input())
      if (!input.empty()) consumers[input].push_back(i);
  }
}

std::vector<std::string> readers(const GraphIndex &index, const Use &use) {
  std::vector<std::string> found;
  std::vector<size_t> open = {use.node};
  for (size_t step = 0; step < open.size() && step < searchLimit; ++step) {
    const ::onnx::NodeProto &node = *index.flat.nodes[open[step]].node;
    if (!isPassThrough(node.op_type()) || node.output_size() == 0) {
      found.push_back(node.op_type());
      continue;
    }
    auto next = index.consumers.find(node.output(0));
    if (next != index.consumers.end()) open.insert(open.end(), next->second.begin(), next->second.end());
  }
  return found;
}

bool readByGather(const GraphIndex &index, const std::vector<Use> &uses) { return anyReader(index, uses, {"Gather"}); }
bool readByProduct(const GraphIndex &index, const std::vector<Use> &uses) {
  return anyReader(index, uses, {"MatMul", "Gemm", "Einsum", "Conv"});
}

std::optional<Product> nearestProduct(const GraphIndex &index, size_t node, const IsMatrix &isMatrix) {
  std::deque<size_t> open = {node};
  std::set<size_t> seen = {node};
  for (size_t step = 0; !open.empty() && step < searchLimit; ++step) {
    size_t at = open.front();
    open.pop_front();
    const ::onnx::NodeProto &proto = *index.flat.nodes[at].node;
    for (const std::string &input : proto.input())
      if (isMatrix(input) && !isPassThrough(proto.op_type()) && !isElementwise(proto.op_type()))
        return Product{at, input};
    for (const std::string &input : proto.input()) {
      auto from = index.producer.find(input);
      if (from == index.producer.end()) continue;
      const ::onnx::NodeProto &before = *index.flat.nodes[from->second].node;
      if (before.op_type() == "Transpose" && before.input_size() == 1 && isMatrix(before.input(0)))
        return Product{at, before.input(0)}; // Transpose(weight) -> MatMul
      if (seen.insert(from->second).second) open.push_back(from->second);
    }
  }
  return std::nullopt;
}

std::vector<std::vector<Use>> groupByKey(const std::vector<Use> &uses, const KeyOfUse &keyOf) {
  std::vector<std::pair<std::string, std::vector<Use>>> groups;
  for (const Use &use : uses) {
    const std::string key = keyOf(use);
    if (key.empty()) return {};
    auto home = std::ranges::find(groups, key, &std::pair<std::string, std::vector<Use>>::first);
    if (home == groups.end()) home = groups.insert(groups.end(), {key, {}});
    home->second.push_back(use);
  }
  std::vector<std::vector<Use>> result;
  for (auto &[key, group] : groups) result.push_back(std::move(group));
  return result;
}

std::string tellMerged(const GraphIndex &index, const std::string &name, const std::vector<Use> &uses, size_t number) {
  return fmt::format("'{}' is shared by {}: {} parameters (of other names in PyTorch: merged by the exporter); `ties: "
                     "as_exported` keeps one",
                     name, nodeNames(index, uses), number);
}

std::vector<std::vector<Use>> groupUses(const GraphIndex &index, const StoredTensor &tensor,
                                        const std::vector<Use> &uses, recipe::Ties ties, const IsMatrix &isMatrix,
                                        const IsGone &isGone, const MergedParameters &merged, const KeyOfUse &keyOf,
                                        TieDecision &decision) {
  decision = {};
  std::vector<std::vector<Use>> byNode = groupByNode(index, uses);
  if (byNode.size() <= 1) return {uses};
  const std::string of = fmt::format("'{}' is shared by {}: ", tensor.name, nodeNames(index, uses));
  auto one = [&](const std::string &why, bool isGuess = false) {
    decision = {of + fmt::format("one parameter ({}); `ties: none` separates them", why), isGuess};
    return std::vector<std::vector<Use>>{uses};
  };
  auto several = [&](std::vector<std::vector<Use>> groups, const std::string &why) {
    if (groups.size() == 1) return one("the layer around it is shared too");
    decision = {of + fmt::format("{} parameters ({}); `ties: as_exported` keeps one", groups.size(), why), true};
    return groups;
  };
  if (ties == recipe::Ties::AsExported) {
    decision.text = of + "one parameter (ties: as_exported)";
    return {uses};
  }
  if (ties == recipe::Ties::None) {
    decision.text = of + fmt::format("{} parameters (ties: none)", byNode.size());
    return byNode;
  }
  if (groupByKey(uses, keyOf).size() == 1)
    return one("the exporter says that it is '" + keyOf(uses.front()) + "' everywhere");
  if (readByGather(index, uses) && readByProduct(index, uses)) return one("an embedding and its head");
  if (std::vector<std::vector<Use>> copies = groupByCopy(index, tensor.name, uses, isMatrix, isGone); copies.size() > 1)
    return several(std::move(copies), "of modules that are copies of one another: merged by the exporter");
  if (!allEqual(tensor) && (tensor.bytes || tensor.shape.size() > 1)) return one("its values are not a constant's");
  if (merged.isKnown && merged.names.empty()) return one("the file has every parameter that its exporter lists");
  std::vector<std::vector<Use>> layers = groupByLayer(index, uses, isMatrix);
  if (merged.isKnown && layers.size() > 1)
    return several(groupByModule(index, tensor.name, uses, isMatrix, merged),
                   "of modules whose own ones the file lacks: merged by the exporter");
  if (isOfOneModule(index, tensor.name, uses)) return one("one module reads it each time");
  if (tensor.elements() == 1) return one("a single number, and nothing tells that the exporter merged it", true);
  return several(std::move(layers), tensor.bytes ? "all elements are equal: merged by the exporter"
                                                 : "one-dimensional: merged by the exporter");
}

} // namespace cleave::import_
