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

Result<std::vector<int64_t>> layersOf(const std::vector<LayerName> &parameters) {
  // The lists that no other list is around, by what is before their numbers: "h." of "h.0.attn.w". A list of blocks has
  // modules within, as "attn"; others are sequences of single layers.
  struct List {
    std::set<int64_t> numbers;
    bool isOfBlocks = false;
  };
  std::map<std::string, List> lists;
  for (const LayerName &one : parameters)
    if (const auto numbers = numbersIn(one.name); !numbers.empty()) {
      List &list = lists[numbers[0].first];
      list.numbers.insert(numbers[0].second);
      const size_t behind = numbers[0].first.size() + std::to_string(numbers[0].second).size() + 1;
      list.isOfBlocks |= behind < one.name.size() && one.name.find('.', behind) != std::string::npos;
    }
  std::erase_if(lists, [](const auto &list) { return list.second.numbers.size() < 2; });
  if (std::ranges::any_of(lists, [](const auto &list) { return list.second.isOfBlocks; }))
    std::erase_if(lists, [](const auto &list) { return !list.second.isOfBlocks; });
  if (lists.empty())
    return inputError(
        "counts layers by the numbers in names such as 'blocks.3.fc.weight', and no two parameters have them");
  if (lists.size() > 1) {
    std::vector<std::string> names;
    for (const auto &[before, list] : lists) names.push_back(fmt::format("'{}{}'", before, *list.numbers.begin()));
    return inputError(fmt::format("finds several lists of layers: those of {}", fmt::join(names, ", ")));
  }
  const auto &[before, list] = *lists.begin();
  const std::vector<int64_t> ranks(list.numbers.begin(), list.numbers.end());
  const int64_t count = list.isOfBlocks ? ranks.back() + 1 : static_cast<int64_t>(ranks.size());
  std::vector<int64_t> layers;
  bool isBehind = false;
  for (const LayerName &one : parameters) {
    if (one.name.find("::") != std::string::npos || one.name.starts_with("val_"))
      return inputError(fmt::format("cannot tell the layer of '{}', whose name is the exporter's", one.name));
    std::optional<int64_t> block;
    if (const auto numbers = numbersIn(one.name); !numbers.empty() && numbers[0].first == before)
      block = list.isOfBlocks ? numbers[0].second + 1
                              : std::ranges::lower_bound(ranks, numbers[0].second) - ranks.begin() + 1;
    isBehind = isBehind || block;
    layers.push_back(block ? *block : isBehind && !one.isTied ? count + 1 : 0);
  }
  return layers;
}

ParameterGroups::ParameterGroups(const recipe::Optimizer &optimizer, ArrayRef<onnx::ParamOp> trained)
    : optimizer(optimizer), noDecay(optimizer.noDecay) {
  for (const recipe::OptimizerGroup &group : optimizer.groups) groups.emplace_back(group.match);
  if (!optimizer.layerDecay) return;
  std::vector<LayerName> names;
  std::vector<std::string> symbols;
  for (onnx::ParamOp param : trained)
    for (DictionaryAttr piece : piecesOf(param)) {
      auto aliases = piece.getAs<ArrayAttr>("aliases");
      names.push_back({moduleName(piece), aliases && !aliases.empty()});
      symbols.push_back(namesOf(piece).name);
    }
  Result<std::vector<int64_t>> found = layersOf(names);
  if (!found) {
    fault = found.status().message();
    return;
  }
  for (size_t i = 0; i < found->size(); ++i) {
    layers[symbols[i]] = (*found)[i];
    last = std::max(last, (*found)[i]);
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
  if (!fault.empty())
    return inputError(fmt::format("{}: 'optimizer.layer_decay' {}; give 'optimizer.groups'", optimizer.where, fault));
  const SmallVector<DictionaryAttr> pieces = piecesOf(param);
  const Place place = placeOf(pieces.front());
  for (DictionaryAttr piece : pieces) {
    const Place other = placeOf(piece);
    const char *key = other.isExempt != place.isExempt         ? "no_decay"
                      : other.group != place.group             ? "groups"
                      : other.layersAfter != place.layersAfter ? "layer_decay"
                                                               : nullptr;
    if (key)
      return inputError(
          fmt::format("optimizer.{} names some of {}, which are one tensor here: name all of them, or none", key,
                      param.getSymName().str()));
  }
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
  }
  if (place.layersAfter > 0) {
    own.rateScale *= std::pow(*optimizer.layerDecay, static_cast<double>(place.layersAfter));
  }
  if (own.rateScale != 1) told.insert(told.begin(), fmt::format("lr x {:.4g}", own.rateScale));
  own.told = fmt::format("{}", fmt::join(told, ", "));
  return own;
}

} // namespace cleave::training
