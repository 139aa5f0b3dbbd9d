#include "compiler/training/parameter_groups.h"
#include "compiler/training/parameter_names.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

using namespace mlir;

namespace cleave::training {
namespace {

// The name that the module gave a parameter, where the file has it.
std::string moduleName(DictionaryAttr param) {
  recipe::ParameterNames names = namesOf(param);
  return names.aliases.empty() ? names.name : names.aliases.back();
}

// The dictionaries of the parameters that an onnx.param is made of: its own, or those of its pieces.
SmallVector<DictionaryAttr> piecesOf(onnx::ParamOp param) {
  auto pieces = param->getAttrOfType<ArrayAttr>("onnx.pieces");
  if (!pieces) return {param->getAttrDictionary()};
  return llvm::to_vector(pieces.getAsRange<DictionaryAttr>());
}

// "h.11.mlp" is {"h.", 11} and {"h.11.mlp", none}: numbers between dots, with what is before them.
std::vector<std::pair<std::string, int64_t>> numbersIn(const std::string &name) {
  std::vector<std::pair<std::string, int64_t>> numbers;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() < 10 && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); }))
      numbers.emplace_back(name.substr(0, begin), std::stoll(part));
    begin = end + 1;
  }
  return numbers;
}

} // namespace

std::vector<int64_t> layersOf(const std::vector<std::string> &names) {
  std::map<std::string, std::set<int64_t>> numbered; // by what is before the number
  for (const std::string &name : names)
    for (const auto &[before, number] : numbersIn(name)) numbered[before].insert(number);
  const auto most = std::ranges::max_element(numbered, {}, [](const auto &one) { return one.second.size(); });
  if (most == numbered.end() || most->second.size() < 2) return {};
  const std::vector<int64_t> blocks(most->second.begin(), most->second.end());
  std::vector<int64_t> layers;
  bool isBehind = false;
  for (const std::string &name : names) {
    std::optional<int64_t> block;
    for (const auto &[before, number] : numbersIn(name))
      if (before == most->first) block = std::ranges::lower_bound(blocks, number) - blocks.begin() + 1;
    isBehind = isBehind || block;
    layers.push_back(block ? *block : isBehind ? static_cast<int64_t>(blocks.size()) + 1 : 0);
  }
  return layers;
}

ParameterGroups::ParameterGroups(const recipe::Optimizer &optimizer, ArrayRef<onnx::ParamOp> trained)
    : optimizer(optimizer), noDecay(optimizer.noDecay) {
  for (const recipe::OptimizerGroup &group : optimizer.groups) groups.emplace_back(group.match);
  if (!optimizer.layerDecay) return;
  std::vector<std::string> names, symbols;
  for (onnx::ParamOp param : trained)
    for (DictionaryAttr piece : piecesOf(param)) {
      names.push_back(moduleName(piece));
      symbols.push_back(namesOf(piece).name);
    }
  const std::vector<int64_t> found = layersOf(names);
  for (size_t i = 0; i < found.size(); ++i) {
    layers[symbols[i]] = found[i];
    last = std::max(last, found[i]);
  }
}

ParameterGroups::Place ParameterGroups::placeOf(DictionaryAttr param) const {
  const recipe::ParameterNames names = namesOf(param);
  Place place;
  place.isExempt = noDecay.match(names).has_value();
  for (size_t i = 0; i < groups.size() && !place.group; ++i)
    if (groups[i].match(names)) place.group = i;
  if (auto layer = layers.find(names.name); layer != layers.end()) place.layersAfter = last - layer->second;
  return place;
}

Result<ParameterGroup> ParameterGroups::of(onnx::ParamOp param) const {
  if (optimizer.layerDecay && layers.empty())
    return inputError(fmt::format("{}: 'optimizer.layer_decay' counts layers by the numbers in names such as "
                                  "'blocks.3.fc.weight', and no parameter has one; give 'optimizer.groups'",
                                  optimizer.where));
  const SmallVector<DictionaryAttr> pieces = piecesOf(param);
  const Place place = placeOf(pieces.front());
  for (DictionaryAttr piece : pieces)
    if (!(placeOf(piece) == place))
      return inputError(fmt::format("optimizer.no_decay, groups or layer_decay name some of {}, which are one tensor "
                                    "here: name all of them, or none",
                                    param.getSymName().str()));
  ParameterGroup own;
  own.spec = optimizer;
  std::vector<std::string> told;
  if (place.isExempt) own.spec.weightDecay = 0;
  if (place.group) {
    const recipe::OptimizerGroup &group = optimizer.groups[*place.group];
    auto take = [&](const char *what, const std::optional<double> &given, double &value) {
      if (!given) return;
      value = *given;
      told.push_back(fmt::format("{} {}", what, value));
    };
    own.rateScale = group.rateScale;
    if (group.kind && *group.kind != optimizer.kind) told.push_back(toString(*group.kind));
    own.spec.kind = group.kind.value_or(own.spec.kind);
    take("weight decay", group.weightDecay, own.spec.weightDecay);
    take("beta1", group.beta1, own.spec.beta1);
    take("beta2", group.beta2, own.spec.beta2);
    take("eps", group.eps, own.spec.eps);
    take("momentum", group.momentum, own.spec.momentum);
    own.name = fmt::format("group {}", *place.group);
  }
  if (place.layersAfter > 0) {
    own.rateScale *= std::pow(*optimizer.layerDecay, static_cast<double>(place.layersAfter));
    own.name += fmt::format(" layer {}", last - place.layersAfter);
  }
  if (own.rateScale != 1) told.insert(told.begin(), fmt::format("lr x {:.4g}", own.rateScale));
  own.told = fmt::format("{}", fmt::join(told, ", "));
  return own;
}

} // namespace cleave::training
