#include "compiler/export/trained_model.h"
#include "compiler/import/import.h"
#include "compiler/import/tensor_values.h"
#include "compiler/import/types.h"
#include "compiler/training/adapters.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/master_weights.h"
#include "runtime/train/state/weights.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

using import_::planType;
using runtime::Shard;
using runtime::SnapshotManifest;

Result<std::unique_ptr<TrainedModel>> TrainedModel::open(const ExportRequest &request,
                                                         std::vector<std::string> &notes) {
  const std::string &model = request.model;
  auto snapshot = runtime::Snapshot::open(request.snapshot, [&](const std::string &text) { notes.push_back(text); });
  if (!snapshot) return snapshot.status();
  std::unique_ptr<TrainedModel> trained(new TrainedModel);
  trained->snapshot = std::move(*snapshot);
  import_::ImportOptions options;
  if (const std::string &text = trained->manifest().recipe; !text.empty()) {
    auto recipe = recipe::parseRecipeText(text, "the snapshot's recipe");
    if (!recipe) return recipe.status();
    options = import_::ImportOptions::of(*recipe);
    options.init = {}; // the snapshot has all that it gave
    const auto isLater = [](const auto &tensor) { return tensor.second.since > 0; };
    if (std::ranges::any_of(trained->manifest().tensors, isLater)) options.keepsFrozen = true; // --resume --recipe
    trained->trainedBy = std::move(*recipe);
  }
  if (request.ema) trained->kind = runtime::averageKind;
  if (request.ema && !trained->trainedBy.ema)
    return inputError(
        fmt::format("{}: has no averages of weights: its recipe has no 'ema'", trained->snapshot->path()));
  const std::string &file = model.empty() ? trained->manifest().modelPath : model;
  auto tables = import_::readTables(file, options);
  if (!tables)
    return inputError(
        tables.status().message() +
        (model.empty()
             ? "; --model gives another place of the model that was trained (cleave.compile keeps the file of a "
               "module if `path` names the plan)"
             : ""));
  trained->source = std::move(*tables);
  if (trained->trainedBy.lora) CLEAVE_RETURN_IF_ERROR(trained->findAdapters(file, options));
  CLEAVE_RETURN_IF_ERROR(trained->place());
  if (request.merge) CLEAVE_RETURN_IF_ERROR(trained->readMerged());
  return trained;
}

std::vector<double> numbersOf(plan::DType type, std::span<const std::byte> bytes) {
  const auto width = static_cast<size_t>(runtime::byteSize(type));
  std::vector<double> numbers(bytes.size() / width);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = runtime::loadFloat(type, bytes.data() + i * width);
  return numbers;
}

Status TrainedModel::readMerged() {
  for (const TrainedAdapter &adapter : found) {
    if (adapter.isQuantized)
      return inputError(
          fmt::format("'{}' is quantized, and an adapter cannot be added to it: export the adapters alone",
                      parameter(adapter.parameter).name));
    auto a = readAdapter(adapter.a), b = readAdapter(adapter.b);
    if (!a) return a.status();
    if (!b) return b.status();
    merged[adapter.parameter] = {&adapter, std::move(*a), std::move(*b)};
  }
  return Status::ok();
}

// As the compiler found them, as far as the snapshot has them.
Status TrainedModel::findAdapters(const std::string &path, const import_::ImportOptions &options) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  std::string faults;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    faults += (faults.empty() ? "" : "\n") + diagnostic.str();
    return mlir::success();
  });
  auto module = import_::importModel(context, path, options);
  if (failed(module)) return inputError(faults);
  auto adapters = training::findAdapters(**module, trainedBy);
  if (failed(adapters)) return inputError(faults);
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < source->parameters.parameters.size(); ++i) known[parameter(i).symbol()] = i;
  for (training::Adapter &one : *adapters)
    found.push_back({known.at(one.weight.getSymName().str()), one.module, one.a, one.b, one.in, trainedBy.lora->rank,
                     one.out, one.isInputMajor, one.isQuantized});
  return Status::ok();
}

Status TrainedModel::place() {
  std::map<std::string, const import_::Parameter *> known;
  for (const import_::Parameter &one : source->parameters.parameters) known[one.symbol()] = &one;
  std::map<std::string, std::vector<int64_t>> shapes; // of the adapters
  for (const TrainedAdapter &one : found) shapes[one.a] = {one.in, one.rank}, shapes[one.b] = {one.rank, one.out};
  for (const auto &[name, tensor] : manifest().tensors) {
    if (tensor.role != plan::Parameter::PARAMETER && tensor.role != plan::Parameter::RUNNING_STATISTIC) continue;
    auto add = [&](const std::string &symbol, int64_t piece, const std::vector<int64_t> &shape) {
      auto weight = known.find(symbol);
      auto adapter = shapes.find(symbol);
      // Elements of less than a byte do not train: the model's file has them.
      if (weight != known.end() && planType(weight->second->tensor.dataType) == plan::DTYPE_INVALID)
        return Status::ok();
      if (weight != known.end() ? weight->second->tensor.shape != shape
                                : adapter == shapes.end() || adapter->second != shape)
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
  std::erase_if(found, [&](const TrainedAdapter &one) { return !places.contains(one.a) || !places.contains(one.b); });
  return Status::ok();
}

// As exported, statistics move where the node says that it trains.
int64_t TrainedModel::statisticUpdates() const {
  const bool isTraining =
      !source->parameters.trainingNorms.empty() ||
      std::ranges::any_of(source->flat.nodes, [](const import_::FlatNode &node) {
        return node.node->op_type() == "BatchNormalization" &&
               (import_::number(*node.node, "training_mode", 0) != 0 || node.node->output_size() >= 3);
      });
  const bool moves = trainedBy.batchNorm == recipe::BatchNorm::Training ||
                     (trainedBy.batchNorm == recipe::BatchNorm::AsExported && isTraining);
  return moves ? manifest().step : 0;
}

plan::DType TrainedModel::dtype(size_t at) const {
  const std::string symbol = parameter(at).symbol();
  if (!places.contains(symbol)) return planType(parameter(at).tensor.dataType);
  return scalesOf(symbol) ? plan::F32 : storedType(symbol);
}

const runtime::SnapshotManifest::Tensor *TrainedModel::scalesOf(const std::string &symbol) const {
  const auto found = manifest().tensors.find(runtime::rowScalesName(storedName(places.at(symbol))));
  return isState() && found != manifest().tensors.end() ? &found->second : nullptr;
}

std::string TrainedModel::storedName(const Place &place) const {
  const auto &tensors = manifest().tensors;
  const std::string beside = kind + "/" + place.tensor, master = runtime::masterName(place.tensor);
  if (!kind.empty() && tensors.contains(beside)) return beside;
  return tensors.contains(master) ? master : place.tensor;
}

std::vector<std::string> TrainedModel::stateKinds() const {
  std::set<std::string> kinds;
  for (const auto &[name, tensor] : manifest().tensors) {
    const size_t slash = name.find('/');
    if (tensor.role != plan::Parameter::OPTIMIZER_STATE || slash == std::string::npos) continue;
    const std::string own = name.substr(0, slash);
    const auto of = manifest().tensors.find(name.substr(slash + 1));
    const bool isKept = of != manifest().tensors.end() && of->second.role == plan::Parameter::PARAMETER;
    if (isKept && own != runtime::averageKind && name != runtime::masterName(of->first) &&
        !own.ends_with(runtime::scaleSuffix))
      kinds.insert(own);
  }
  return {kinds.begin(), kinds.end()};
}

bool TrainedModel::hasState(size_t at) const {
  const auto found = places.find(parameter(at).symbol());
  return found != places.end() && manifest().tensors.contains(kind + "/" + found->second.tensor);
}

plan::DType TrainedModel::storedType(const std::string &symbol) const {
  return manifest().tensors.at(storedName(places.at(symbol))).dtype;
}

bool TrainedModel::hasBoxes(size_t at) const {
  auto found = places.find(parameter(at).symbol());
  if (found == places.end()) return true;
  const std::vector<int64_t> &stored = found->second.shape, &own = parameter(at).tensor.shape;
  return std::equal(stored.begin() + (found->second.piece >= 0), stored.end(), own.begin(), own.end());
}

Status TrainedModel::read(size_t at, const Shard &box, std::span<std::byte> out) const {
  const import_::Parameter &one = parameter(at);
  if (!isTrained(at)) {
    if (!one.tensor.bytes)
      return inputError(fmt::format("{}: the file with the values of '{}' is missing", source->model.path, one.name));
    return runtime::copyBox(reinterpret_cast<const std::byte *>(one.tensor.bytes), dtype(at), one.tensor.shape, box,
                            out.data(), dtype(at));
  }
  CLEAVE_RETURN_IF_ERROR(readStored(one.symbol(), dtype(at), hasBoxes(at) ? box : storedWhole(one.symbol()), out));
  if (auto adapter = merged.find(at); adapter != merged.end()) addAdapter(adapter->second, box, out);
  return Status::ok();
}

Shard TrainedModel::storedWhole(const std::string &symbol) const {
  const Place &place = places.at(symbol);
  std::vector<int64_t> shape(place.shape.begin() + (place.piece >= 0), place.shape.end());
  return {std::vector<int64_t>(shape.size(), 0), std::move(shape)};
}

Status TrainedModel::readStored(const std::string &symbol, plan::DType dtype, const Shard &box,
                                std::span<std::byte> out) const {
  const Place &place = places.at(symbol);
  Shard stored = box;
  if (place.piece >= 0) {
    stored.begin.insert(stored.begin.begin(), place.piece);
    stored.size.insert(stored.size.begin(), 1);
  }
  const runtime::SnapshotManifest::Tensor *scales = scalesOf(symbol);
  Status status = scales ? readScaled(place, *scales, stored, out)
                         : snapshot->read(storedName(place), dtype, place.shape, stored, out);
  snapshot->releasePages();
  return status;
}

// Codes times the scales of their rows, in f32.
Status TrainedModel::readScaled(const Place &place, const runtime::SnapshotManifest::Tensor &scales, const Shard &box,
                                std::span<std::byte> out) const {
  const plan::DType type = manifest().tensors.at(storedName(place)).dtype;
  const int64_t width = runtime::byteSize(type);
  std::vector<std::byte> codes(static_cast<size_t>(runtime::elementCount(box.size) * width));
  CLEAVE_RETURN_IF_ERROR(snapshot->read(storedName(place), type, place.shape, box, codes));
  Shard rows = box;
  for (size_t d = 0; d < rows.size.size(); ++d)
    if (scales.shape[d] == 1) rows.begin[d] = 0, rows.size[d] = 1;
  std::vector<float> ofRows(static_cast<size_t>(runtime::elementCount(rows.size)));
  CLEAVE_RETURN_IF_ERROR(snapshot->read(runtime::rowScalesName(storedName(place)), plan::F32, scales.shape, rows,
                                        std::as_writable_bytes(std::span(ofRows))));
  const int64_t count = runtime::elementCount(box.size);
  const int64_t row = ofRows.empty() ? 1 : count / static_cast<int64_t>(ofRows.size());
  for (int64_t i = 0; i < count; ++i)
    runtime::storeFloat(plan::F32, runtime::loadFloat(type, codes.data() + i * width) * ofRows[size_t(i / row)],
                        out.data() + i * runtime::byteSize(plan::F32));
  return Status::ok();
}

Result<std::vector<double>> TrainedModel::readAdapter(const std::string &name) const {
  const plan::DType type = storedType(name);
  const Shard box = storedWhole(name);
  const auto width = static_cast<size_t>(runtime::byteSize(type));
  std::vector<std::byte> bytes(static_cast<size_t>(runtime::elementCount(box.size)) * width);
  CLEAVE_RETURN_IF_ERROR(readStored(name, type, box, bytes));
  return numbersOf(type, bytes);
}

// weight += alpha / rank A B, where the weight lies as [in, out] or as [out, in].
void TrainedModel::addAdapter(const MergedAdapter &merged, const Shard &box, std::span<std::byte> out) const {
  const TrainedAdapter &adapter = *merged.adapter;
  const plan::DType type = dtype(adapter.parameter);
  const double scale = trainedBy.lora->alpha / static_cast<double>(adapter.rank);
  for (int64_t i = 0; i < box.size[0] * box.size[1]; ++i) {
    int64_t row = box.begin[0] + i / box.size[1], column = box.begin[1] + i % box.size[1];
    if (!adapter.isInputMajor) std::swap(row, column);
    double sum = 0;
    for (int64_t k = 0; k < adapter.rank; ++k)
      sum += merged.a[size_t(row * adapter.rank + k)] * merged.b[size_t(k * adapter.out + column)];
    std::byte *element = out.data() + i * runtime::byteSize(type);
    runtime::storeFloat(type, runtime::loadFloat(type, element) + scale * sum, element);
  }
}

const std::byte *TrainedModel::initial(size_t at) const {
  return reinterpret_cast<const std::byte *>(parameter(at).tensor.bytes);
}

} // namespace cleave
