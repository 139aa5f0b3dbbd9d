#include "compiler/import/weights/module_statement.h"
#include "dialects/onnx/file_keys.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave::import_ {
namespace {

using Json = nlohmann::json;
using Form = Holding::Form;

constexpr int newestVersion = 1;

Holding readHolding(const Json &json) {
  static const std::map<std::string, Form> forms = {
      {"as_is", Form::AsIs}, {"transposed", Form::Transposed}, {"reshaped", Form::Reshaped}, {"ranges", Form::Ranges}};
  Holding holding{json.at("initializer").get<std::string>(), forms.at(json.at("form").get<std::string>()), {}};
  if (holding.form == Form::Ranges)
    for (const Json &range : json.at("ranges"))
      holding.ranges.push_back({range.at(0).get<int64_t>(), range.at(1).get<int64_t>()});
  return holding;
}

StatedTensor readTensor(const Json &json) {
  StatedTensor tensor;
  tensor.name = json.at("name").get<std::string>();
  tensor.isParameter = json.at("kind").get<std::string>() == "parameter";
  tensor.requiresGrad = tensor.isParameter && json.at("requires_grad").get<bool>();
  tensor.isPersistent = json.value("persistent", true);
  tensor.shape = json.at("shape").get<std::vector<int64_t>>();
  tensor.tiedTo = json.value("tied_to", std::string());
  if (json.contains("padding_idx")) tensor.paddingRow = json["padding_idx"].get<int64_t>();
  if (json.contains("initial")) tensor.initial = json["initial"].get<double>();
  for (const Json &held : json.value("held", Json::array())) tensor.held.push_back(readHolding(held));
  return tensor;
}

// Why this initializer cannot be the tensor in this form; "": it can.
std::string misfit(const StatedTensor &tensor, const Holding &held, const Initializers &initializers) {
  if (!initializers.has(held.initializer)) return "there is no such initializer";
  const StoredTensor &stored = initializers.at(held.initializer).tensor;
  int64_t elements = 1, ranged = 0;
  for (int64_t size : tensor.shape) elements *= size;
  for (const ElementRange &range : held.ranges) {
    if (range.begin < 0 || range.count < 0 || range.begin > stored.elements() - range.count)
      return "a range is outside";
    ranged += range.count;
  }
  const bool fits = held.form == Form::AsIs ? stored.shape == tensor.shape
                    : held.form == Form::Transposed
                        ? tensor.shape.size() == 2 && stored.shape == std::vector{tensor.shape[1], tensor.shape[0]}
                        : (held.form == Form::Ranges ? ranged : stored.elements()) == elements;
  return fits ? "" : fmt::format("it is [{}]", fmt::join(stored.shape, ", "));
}

std::string check(const ModuleStatement &statement, const Initializers &initializers) {
  std::map<std::string, const StatedTensor *> known;
  for (const StatedTensor &tensor : statement.tensors) {
    if (!known.emplace(tensor.name, &tensor).second) return fmt::format("'{}' is there twice", tensor.name);
    if (!tensor.tiedTo.empty() &&
        (!known.contains(tensor.tiedTo) || !known.at(tensor.tiedTo)->tiedTo.empty() || tensor.tiedTo == tensor.name))
      return fmt::format("'{}' is tied to '{}', which does not come before it", tensor.name, tensor.tiedTo);
    for (const Holding &held : tensor.held)
      if (const std::string why = misfit(tensor, held, initializers); !why.empty())
        return fmt::format("'{}' [{}] is said to be in '{}', and {}", tensor.name, fmt::join(tensor.shape, ", "),
                           held.initializer, why);
  }
  return "";
}

} // namespace

bool isRightFor(const ModuleStatement &statement, int64_t batch) {
  return statement.batches.empty() || std::ranges::any_of(statement.batches, [&](const SizeRange &sizes) {
           return batch >= sizes.first && batch <= sizes.last.value_or(batch) && (batch - sizes.first) % sizes.step == 0;
         });
}

Result<std::optional<ModuleStatement>> moduleStatement(const ModelFile &model, const Initializers &initializers) {
  const std::string *text = nullptr;
  for (const ::onnx::StringStringEntryProto &entry : model.proto.metadata_props())
    if (entry.key() == onnx::moduleStatementKey) text = &entry.value();
  if (!text) return std::optional<ModuleStatement>();
  auto fault = [&](const std::string &what) {
    return inputError(fmt::format("{}: what it says of its PyTorch module (metadata 'cleave.module') cannot be used: "
                                  "{}; export the module again",
                                  model.path, what));
  };
  ModuleStatement statement;
  try {
    const Json json = Json::parse(*text);
    if (const int version = json.at("version").get<int>(); version > newestVersion)
      return fault(fmt::format("version {} is newer than this cleave's, {}", version, newestVersion));
    statement.exporter = json.value("exporter", std::string());
    for (const Json &tensor : json.at("tensors")) statement.tensors.push_back(readTensor(tensor));
    for (const Json &norm : json.value("norms", Json::array()))
      if (norm.at("training").get<bool>()) statement.trainingNorms.insert(norm.at("module").get<std::string>());
    statement.lost = json.value("lost", std::vector<std::string>());
    for (const Json &range : json.value("batches", Json::array())) {
      SizeRange sizes{range.at(0).get<int64_t>(), std::nullopt, range.at(2).get<int64_t>()};
      if (!range.at(1).is_null()) sizes.last = range.at(1).get<int64_t>();
      if (sizes.step < 1) return fault("`batches` has a range without a step");
      statement.batches.push_back(sizes);
    }
    statement.remarks = json.value("remarks", std::vector<std::string>());
  } catch (const std::exception &error) {
    return fault(error.what());
  }
  if (const std::string why = check(statement, initializers); !why.empty()) return fault(why);
  return std::optional(std::move(statement));
}

} // namespace cleave::import_
