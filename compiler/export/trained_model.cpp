#include "compiler/export/trained_model.h"
#include "compiler/import/tensor_values.h"
#include "compiler/recipe/recipe.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/master_weights.h"
#include "runtime/state/weights.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

using runtime::Shard;
using runtime::SnapshotManifest;

plan::DType planType(int32_t onnxType) {
  using Proto = ::onnx::TensorProto;
  static const std::map<int32_t, plan::DType> types = {
      {Proto::FLOAT, plan::F32}, {Proto::DOUBLE, plan::F64}, {Proto::FLOAT16, plan::F16}, {Proto::BFLOAT16, plan::BF16},
      {Proto::INT8, plan::I8},   {Proto::INT16, plan::I16},  {Proto::INT32, plan::I32},   {Proto::INT64, plan::I64},
      {Proto::UINT8, plan::U8},  {Proto::UINT16, plan::U16}, {Proto::UINT32, plan::U32},  {Proto::UINT64, plan::U64},
      {Proto::BOOL, plan::BOOL}};
  auto found = types.find(onnxType);
  return found == types.end() ? plan::DTYPE_INVALID : found->second;
}

Result<std::unique_ptr<TrainedModel>> TrainedModel::open(const std::string &path, const std::string &model) {
  auto snapshot = runtime::Snapshot::open(path);
  if (!snapshot) return snapshot.status();
  std::unique_ptr<TrainedModel> trained(new TrainedModel);
  trained->snapshot = std::move(*snapshot);
  import_::ImportOptions options;
  if (const std::string &text = trained->manifest().recipe; !text.empty()) {
    auto recipe = recipe::parseRecipeText(text, "the snapshot's recipe");
    if (!recipe) return recipe.status();
    options = import_::ImportOptions::of(*recipe);
    trained->batchNorm = recipe->batchNorm;
  }
  auto tables = import_::readTables(model.empty() ? trained->manifest().modelPath : model, options);
  if (!tables)
    return inputError(tables.status().message() +
                      (model.empty() ? "; --model gives another place of the model that was trained" : ""));
  trained->source = std::move(*tables);
  CLEAVE_RETURN_IF_ERROR(trained->place());
  return trained;
}

Status TrainedModel::place() {
  std::map<std::string, const import_::Parameter *> known;
  for (const import_::Parameter &one : source->parameters.parameters) known[one.symbol()] = &one;
  for (const auto &[name, tensor] : manifest().tensors) {
    if (tensor.role != plan::Parameter::PARAMETER && tensor.role != plan::Parameter::RUNNING_STATISTIC) continue;
    auto add = [&](const std::string &symbol, int64_t piece, const std::vector<int64_t> &shape) {
      auto found = known.find(symbol);
      if (found == known.end() || found->second->tensor.shape != shape)
        return inputError(fmt::format("{}: has no parameter '{}' [{}], which {} has: it is not the model that was "
                                      "trained; --model names that",
                                      source->model.path, symbol, fmt::join(shape, ", "), snapshot->path()));
      places[symbol] = {name, piece, tensor.shape};
      return Status::ok();
    };
    if (tensor.pieces.empty())
      CLEAVE_RETURN_IF_ERROR(add(name, -1, tensor.originalShape.empty() ? tensor.shape : tensor.originalShape));
    for (size_t i = 0; i < tensor.pieces.size(); ++i)
      CLEAVE_RETURN_IF_ERROR(add(tensor.pieces[i].name, int64_t(i), tensor.pieces[i].originalShape));
  }
  return Status::ok();
}

// As exported, statistics move where the node says that it trains.
int64_t TrainedModel::statisticUpdates() const {
  const bool isTraining = std::ranges::any_of(source->flat.nodes, [](const import_::FlatNode &node) {
    return node.node->op_type() == "BatchNormalization" &&
           (import_::number(*node.node, "training_mode", 0) != 0 || node.node->output_size() >= 3);
  });
  const bool moves =
      batchNorm == recipe::BatchNorm::Training || (batchNorm == recipe::BatchNorm::AsExported && isTraining);
  return moves ? manifest().step : 0;
}

plan::DType TrainedModel::dtype(size_t at) const {
  auto found = places.find(parameter(at).symbol());
  if (found == places.end()) return planType(parameter(at).tensor.dataType);
  auto master = manifest().tensors.find(runtime::masterName(found->second.tensor));
  return master == manifest().tensors.end() ? manifest().tensors.at(found->second.tensor).dtype : master->second.dtype;
}

bool TrainedModel::hasBoxes(size_t at) const {
  auto found = places.find(parameter(at).symbol());
  if (found == places.end()) return true;
  const std::vector<int64_t> &stored = found->second.shape, &own = parameter(at).tensor.shape;
  return std::equal(stored.begin() + (found->second.piece >= 0), stored.end(), own.begin(), own.end());
}

Status TrainedModel::read(size_t at, const Shard &box, std::span<std::byte> out) const {
  const import_::Parameter &one = parameter(at);
  auto found = places.find(one.symbol());
  if (found == places.end()) {
    if (!one.tensor.bytes)
      return inputError(fmt::format("{}: the file with the values of '{}' is missing", source->model.path, one.name));
    return runtime::copyBox(reinterpret_cast<const std::byte *>(one.tensor.bytes), dtype(at), one.tensor.shape, box,
                            out.data(), dtype(at));
  }
  const Place &place = found->second;
  const std::string master = runtime::masterName(place.tensor);
  Shard stored = hasBoxes(at) ? box
                              : Shard{std::vector<int64_t>(place.shape.size() - (place.piece >= 0), 0),
                                      {place.shape.begin() + (place.piece >= 0), place.shape.end()}};
  if (place.piece >= 0) {
    stored.begin.insert(stored.begin.begin(), place.piece);
    stored.size.insert(stored.size.begin(), 1);
  }
  Status status =
      snapshot->read(manifest().tensors.contains(master) ? master : place.tensor, dtype(at), place.shape, stored, out);
  snapshot->releasePages();
  return status;
}

const std::byte *TrainedModel::initial(size_t at) const {
  return reinterpret_cast<const std::byte *>(parameter(at).tensor.bytes);
}

} // namespace cleave
