#include "compiler/export/state_tensors.h"
#include "compiler/import/types.h"
#include "runtime/base/names/first_few.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {
namespace {

using import_::StateEntry;
using runtime::Shard;
using runtime::TensorHeader;
using runtime::TensorView;
using Bytes = std::vector<std::byte>;

constexpr int64_t pieceBytes = int64_t(64) << 20;

// Passes floats on in another type.
Sink converting(plan::DType from, plan::DType to, const Sink &sink) {
  if (from == to || !runtime::isFloat(from)) return sink;
  return [=](std::span<const std::byte> bytes) {
    const auto width = static_cast<size_t>(runtime::byteSize(from)),
               target = static_cast<size_t>(runtime::byteSize(to));
    Bytes out(bytes.size() / width * target);
    for (size_t i = 0; i < bytes.size() / width; ++i)
      runtime::storeFloat(to, runtime::loadFloat(from, bytes.data() + i * width), out.data() + i * target);
    return sink(out);
  };
}

// [columns, rows] of dense [rows, columns].
Bytes transposed(std::span<const std::byte> bytes, int64_t rows, int64_t columns, size_t width) {
  Bytes out(bytes.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(out.data() + size_t(c * rows + r) * width, bytes.data() + size_t(r * columns + c) * width, width);
  return out;
}

Shard whole(const std::vector<int64_t> &shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }

std::string shapeText(const std::vector<int64_t> &shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

plan::DType typeOf(const TrainedModel &model, const StateEntry &entry) {
  switch (entry.source) {
  case StateEntry::Source::Parameter:
    return model.dtype(entry.parameter);
  case StateEntry::Source::Fill:
    return plan::F32;
  case StateEntry::Source::Updates:
    return plan::I64;
  }
  return plan::DTYPE_INVALID;
}

} // namespace

Result<StateTensors> StateTensors::of(const TrainedModel &model, const ExportRequest &request,
                                      std::vector<std::string> &notes) {
  const import_::ParameterTable &table = model.tables().parameters;
  StateTensors state(model, request.fileNames ? import_::fileNames(table) : table.state);
  CLEAVE_RETURN_IF_ERROR(state.openBase(request.base));
  CLEAVE_RETURN_IF_ERROR(state.addEntries(request, notes));
  CLEAVE_RETURN_IF_ERROR(state.checkNamed());
  state.addBase(request);
  return state;
}

Status StateTensors::openBase(const std::string &path) {
  if (path.empty()) return Status::ok();
  if (const std::vector<std::string> &folded = dict.folded; !folded.empty())
    return inputError(
        fmt::format("--base cannot be used: the exporter folded BatchNorms into {}, so that their weights "
                    "in the base no longer fit; export the model with "
                    "training=TrainingMode.TRAINING and do_constant_folding=False",
                    fmt::join(folded, ", ")));
  auto opened = runtime::SafetensorsSet::open(path);
  if (!opened) return opened.status();
  baseSet = std::move(*opened);
  return Status::ok();
}

Status StateTensors::checkBase(const TensorHeader &tensor, bool isPart) const {
  const TensorView *base = ofBase(tensor.name);
  if (!base || base->shape == tensor.shape) return Status::ok();
  if (isPart && base->shape.size() == 2 && base->shape[1] == tensor.shape[1] && base->shape[0] >= tensor.shape[0])
    return Status::ok();
  return inputError(fmt::format("'{}' is {} in the base and {} here: it is another model's", tensor.name,
                                shapeText(base->shape), shapeText(tensor.shape)));
}

Status StateTensors::addEntries(const ExportRequest &request, std::vector<std::string> &notes) {
  auto stripped = [&](const std::string &key) {
    return key.starts_with(request.stripPrefix) ? key.substr(request.stripPrefix.size()) : key;
  };
  bool isStripped = request.stripPrefix.empty();
  for (const StateEntry &entry : dict.entries) {
    names.insert(stripped(entry.key));
    isStripped |= entry.key.starts_with(request.stripPrefix);
  }
  for (const StateEntry &entry : dict.entries) {
    if (entry.isCopy && !request.tiedCopies) continue;
    if (model->isState() && (entry.source != StateEntry::Source::Parameter || !model->hasState(entry.parameter)))
      continue;
    TensorHeader tensor{stripped(entry.key), typeOf(*model, entry), entry.shape};
    if (entry.isGuess && baseSet && !ofBase(tensor.name))
      if (const std::string name = nameInBase(entry); !name.empty()) tensor.name = name;
    if (const TensorView *base = ofBase(tensor.name);
        base && entry.isReshaped && runtime::elementCount(base->shape) == runtime::elementCount(tensor.shape))
      tensor.shape = base->shape;
    if (tensor.dtype == plan::DTYPE_INVALID) return inputError("'" + entry.key + "' has an unsupported type");
    if (runtime::isFloat(tensor.dtype) && request.dtype != plan::DTYPE_INVALID) tensor.dtype = request.dtype;
    CLEAVE_RETURN_IF_ERROR(checkBase(tensor, entry.isPart));
    if (const TensorView *base = entry.isPart ? ofBase(tensor.name) : nullptr)
      tensor.shape = base->shape;
    else if (entry.isPart)
      notes.push_back(fmt::format("'{}' has the {} rows that the model was exported with; --base gives the others",
                                  tensor.name, tensor.shape[0]));
    tensors.push_back(std::move(tensor));
    entries.push_back(&entry);
  }
  if (!isStripped)
    return inputError(fmt::format("no name begins with --strip-prefix '{}'; the first is '{}'", request.stripPrefix,
                                  dict.entries.empty() ? "" : dict.entries.front().key));
  std::vector<std::string> absent;
  for (const std::string &key : dict.absent)
    if (!ofBase(stripped(key))) absent.push_back("'" + key + "'");
  if (!absent.empty())
    notes.push_back(fmt::format("the model's file has nothing of {}: --base takes them from the original checkpoint, "
                                "or load with strict=False",
                                names::firstFew(absent, 6)));
  return Status::ok();
}

// A trained tensor must have a name in the base: else the base's first values would stand beside it.
Status StateTensors::checkNamed() const {
  std::set<size_t> named;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (ofBase(tensors[i].name)) named.insert(entries[i]->parameter);
  std::vector<std::string> unnamed;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (entries[i]->source == StateEntry::Source::Parameter && model->isTrained(entries[i]->parameter) &&
        !named.contains(entries[i]->parameter))
      unnamed.push_back("'" + tensors[i].name + "'");
  if (!baseSet || unnamed.empty()) return Status::ok();
  return inputError(fmt::format("the base has no {}: it is another model's, or has its names without a prefix that "
                                "--strip-prefix takes away, or the exporter computed these from what the base has",
                                names::firstFew(unnamed, 6)));
}

// Whether a tensor of the base is what this entry's parameter began with.
bool StateTensors::isInBase(const StateEntry &entry, const TensorView &view) const {
  if (entry.source != StateEntry::Source::Parameter || entry.isPart || !entry.ranges.empty()) return false;
  const import_::StoredTensor &tensor = model->parameter(entry.parameter).tensor;
  if (!tensor.bytes || view.dtype != import_::planType(tensor.dataType) || view.bytes.size() != size_t(tensor.length))
    return false;
  const std::span initial(model->initial(entry.parameter), view.bytes.size());
  if (!entry.isTransposed) return std::ranges::equal(initial, view.bytes);
  return view.shape == entry.shape &&
         std::ranges::equal(
             transposed(initial, tensor.shape[0], tensor.shape[1], size_t(runtime::byteSize(view.dtype))), view.bytes);
}

// The one tensor of the base with its first values that no other entry is called after; "": none, or several.
std::string StateTensors::nameInBase(const StateEntry &entry) const {
  std::string only;
  if (!baseSet) return "";
  for (const auto &[name, tensor] : baseSet->tensors()) {
    if (names.contains(name) || !isInBase(entry, *tensor.view)) continue;
    if (!only.empty()) return "";
    only = name;
  }
  return only;
}

// The entry that this tensor of the base is another name of: it began with the same values, which are not all one.
const StateEntry *StateTensors::tiedTo(const TensorView &view) const {
  const auto width = size_t(runtime::byteSize(view.dtype));
  if (view.bytes.size() <= width ||
      std::memcmp(view.bytes.data(), view.bytes.data() + width, view.bytes.size() - width) == 0)
    return nullptr;
  for (const StateEntry &entry : dict.entries)
    if (entry.shape == view.shape && isInBase(entry, view)) return &entry;
  return nullptr;
}

// Entries that only the base has: other names of tied weights, and tensors that the model does not use.
void StateTensors::addBase(const ExportRequest &request) {
  std::set<std::string> have;
  for (const TensorHeader &tensor : tensors) have.insert(tensor.name);
  if (!baseSet) return;
  for (const auto &[name, tensor] : baseSet->tensors()) {
    if (!have.insert(name).second) continue;
    const StateEntry *tied = tiedTo(*tensor.view);
    if (tied && !request.tiedCopies) continue;
    plan::DType type = tied ? typeOf(*model, *tied) : tensor.view->dtype;
    if (runtime::isFloat(type) && request.dtype != plan::DTYPE_INVALID) type = request.dtype;
    tensors.push_back({name, type, tensor.view->shape});
    entries.push_back(tied);
  }
}

Status StateTensors::write(size_t at, const Sink &sink) const {
  const TensorHeader &tensor = tensors[at];
  const StateEntry *entry = entries[at];
  const TensorView *base = ofBase(tensor.name);
  if (!entry) return converting(base->dtype, tensor.dtype, sink)(base->bytes);
  const plan::DType type = typeOf(*model, *entry);
  const Sink out = converting(type, tensor.dtype, sink);
  switch (entry->source) {
  case StateEntry::Source::Parameter:
    return entry->isPart && base ? writeRowsOfTable(*entry, *base, out) : writeParameter(*entry, out);
  case StateEntry::Source::Fill: {
    std::vector<float> values(static_cast<size_t>(runtime::elementCount(entry->shape)), float(entry->fill));
    return out(std::as_bytes(std::span(values)));
  }
  case StateEntry::Source::Updates: {
    int64_t count = model->statisticUpdates() * entry->updates, before = static_cast<int64_t>(entry->fill);
    if (base && base->bytes.size() == sizeof(before)) std::memcpy(&before, base->bytes.data(), sizeof(before));
    count += before;
    return out(std::as_bytes(std::span(&count, 1)));
  }
  }
  return Status::ok();
}

Status StateTensors::writeParameter(const StateEntry &entry, const Sink &sink) const {
  const std::vector<int64_t> &shape = model->parameter(entry.parameter).tensor.shape;
  const auto width = runtime::byteSize(model->dtype(entry.parameter));
  const int64_t bytes = runtime::elementCount(shape) * width;
  const size_t along = entry.isTransposed ? 1 : 0; // the dimension that pieces are cut of
  int64_t step = shape.empty() ? 1 : shape[along];
  const bool isCut = entry.ranges.empty() && model->hasBoxes(entry.parameter) && bytes > pieceBytes && !shape.empty();
  if (isCut) step = std::max<int64_t>(1, pieceBytes / std::max<int64_t>(1, bytes / shape[along]));
  Bytes data;
  for (int64_t from = 0; from < (isCut ? shape[along] : 1); from += step) {
    Shard box = whole(shape);
    if (isCut) box.begin[along] = from, box.size[along] = std::min(step, shape[along] - from);
    data.resize(static_cast<size_t>(runtime::elementCount(box.size) * width));
    CLEAVE_RETURN_IF_ERROR(model->read(entry.parameter, box, data));
    if (entry.isTransposed) data = transposed(data, box.size[0], box.size[1], size_t(width));
    if (entry.ranges.empty()) CLEAVE_RETURN_IF_ERROR(sink(data));
    for (const import_::ElementRange &range : entry.ranges)
      CLEAVE_RETURN_IF_ERROR(sink(std::span(data).subspan(size_t(range.begin * width), size_t(range.count * width))));
  }
  return Status::ok();
}

// Where the base has the rows that the model began with, those it has now; else the base's.
Status StateTensors::writeRowsOfTable(const StateEntry &entry, const TensorView &table, const Sink &sink) const {
  const plan::DType type = model->dtype(entry.parameter);
  const std::byte *initial = model->initial(entry.parameter);
  const auto width = static_cast<size_t>(runtime::byteSize(type));
  if (table.dtype != import_::planType(model->parameter(entry.parameter).tensor.dataType) || type != table.dtype ||
      !initial)
    return inputError(
        fmt::format("'{}' of the base has another type than the model: its rows cannot be told", entry.key));
  const size_t part = size_t(runtime::elementCount(entry.shape)) * width, row = size_t(entry.shape[1]) * width;
  size_t at = 0;
  while (at + part <= table.bytes.size() && std::memcmp(table.bytes.data() + at, initial, part) != 0) at += row;
  if (at + part > table.bytes.size())
    return inputError(
        fmt::format("'{}' of the base does not have the rows that the model was exported with", entry.key));
  CLEAVE_RETURN_IF_ERROR(sink(table.bytes.first(at)));
  CLEAVE_RETURN_IF_ERROR(writeParameter(entry, sink));
  return sink(table.bytes.subspan(at + part));
}

} // namespace cleave
