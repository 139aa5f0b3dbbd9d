#include "compiler/training/parameter_names.h"

using namespace mlir;

namespace cleave::training {

recipe::ParameterNames namesOf(DictionaryAttr param) {
  recipe::ParameterNames names{param.getAs<StringAttr>("sym_name").str(), {}, {}};
  auto append = [&](StringRef attribute, std::vector<std::string> &to) {
    if (auto values = param.getAs<ArrayAttr>(attribute))
      for (StringRef value : values.getAsValueRange<StringAttr>()) to.push_back(value.str());
  };
  if (auto user = param.getAs<StringAttr>("used_by")) names.nodes.push_back(user.str());
  append(onnx::nodesAttr.name(), names.nodes);
  append("aliases", names.aliases);
  append(onnx::transposedAliasesAttr.name(), names.aliases);
  append(onnx::stateKeysAttr.name(), names.aliases);
  // One value: the name that the exporter has changed. Several: what was computed of them has no other name.
  if (onnx::foldedFromAttr.in(param).size() == 1) append(onnx::foldedFromAttr.name(), names.aliases);
  return names;
}

SmallVector<DictionaryAttr> piecesOf(onnx::ParamOp param) {
  auto pieces = onnx::piecesAttr.of(param);
  if (!pieces) return {param->getAttrDictionary()};
  return llvm::to_vector(pieces.getAsRange<DictionaryAttr>());
}

} // namespace cleave::training
