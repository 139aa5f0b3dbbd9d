#include "runtime/train/state/snapshot.h"
#include "runtime/base/checksum.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/loss_scale_names.h"
#include "runtime/plan/master_weights.h"
#include "runtime/plan/routine.h"
#include "runtime/train/state/weights.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fs = std::filesystem;

namespace cleave::runtime {

std::optional<StoredBox> parseStoredBox(const std::string &text, size_t rank) {
  StoredBox box;
  const char *at = text.c_str();
  for (size_t i = 0; i < rank; ++i) {
    char *end = nullptr;
    box.begin.push_back(std::strtoll(at, &end, 10));
    if (end == at) return std::nullopt;
    at = end + (*end == ',');
  }
  if (*at != ' ') return std::nullopt;
  box.checksum = at + 1;
  return box;
}

std::string planFingerprint(const plan::Plan &plan) {
  plan::Plan same = plan;
  same.clear_producer();
  same.clear_report_json();
  same.clear_recipe_yaml();
  same.clear_cluster_yaml();
  same.clear_model_path();
  same.clear_checkpoint_path();
  same.clear_weight_files();
  same.clear_threads_per_device();
  same.mutable_training()->clear_data_yaml();
  same.mutable_training()->clear_eval_yaml();
  uint64_t hashes[2] = {0xcbf29ce484222325, 0x84222325cbf29ce4}; // FNV-1a from two starts
  for (unsigned char byte : same.SerializeAsString())
    for (uint64_t &hash : hashes) hash = (hash ^ byte) * 0x100000001b3;
  return fmt::format("{:016x}{:016x}", hashes[0], hashes[1]);
}

SnapshotManifest manifestOf(const plan::Plan &plan) {
  SnapshotManifest manifest;
  manifest.seed = plan.training().seed();
  manifest.fingerprint = planFingerprint(plan);
  manifest.modelPath = plan.model_path();
  manifest.modelDigest = plan.model_digest();
  manifest.recipe = plan.recipe_yaml();
  manifest.ranks = 1;
  for (const plan::MeshAxis &axis : plan.mesh().axes()) manifest.ranks *= axis.size();
  for (const plan::Parameter &parameter : plan.parameters()) {
    if (!parameter.snapshot()) continue;
    SnapshotManifest::Tensor &tensor = manifest.tensors[parameter.name()];
    tensor.dtype = parameter.dtype();
    tensor.shape.assign(parameter.shape().begin(), parameter.shape().end());
    tensor.originalShape.assign(parameter.original_shape().begin(), parameter.original_shape().end());
    tensor.aliases.assign(parameter.aliases().begin(), parameter.aliases().end());
    tensor.role = parameter.role(), tensor.since = parameter.since();
    for (const plan::Parameter &piece : parameter.pieces())
      tensor.pieces.push_back({piece.name(), {piece.original_shape().begin(), piece.original_shape().end()}});
  }
  return manifest;
}

bool writesBox(const plan::Parameter &parameter, const dist::Mesh &mesh, int64_t device) {
  if (!parameter.snapshot()) return false;
  std::set<std::string> split;
  for (const plan::DimSharding &dim : parameter.dims()) split.insert(dim.axes().begin(), dim.axes().end());
  std::vector<int64_t> coordinate = mesh.coordinate(device);
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    int64_t first = dist::isPipelineAxis(mesh.axes[i].name) ? firstHolder(parameter) : 0;
    if (coordinate[i] != first && !split.count(mesh.axes[i].name)) return false;
  }
  return true;
}

Snapshot::~Snapshot() = default;

void Snapshot::releasePages() const {
  for (const auto &file : files) file->releasePages();
}

Status Snapshot::read(const std::string &name, plan::DType dtype, std::span<const int64_t> shape, const Shard &box,
                      std::span<std::byte> out) const {
  auto fail = [&](const std::string &why) { return inputError(fmt::format("{}: tensor '{}' {}", where, name, why)); };
  auto tensor = content.tensors.find(name);
  if (tensor == content.tensors.end()) return fail("is not in the snapshot");
  bool same = tensor->second.dtype == dtype &&
              std::equal(shape.begin(), shape.end(), tensor->second.shape.begin(), tensor->second.shape.end());
  if (!same)
    return fail(fmt::format("is {} [{}], {} [{}] is wanted", runtime::name(tensor->second.dtype),
                            fmt::join(tensor->second.shape, ", "), runtime::name(dtype), fmt::join(shape, ", ")));
  int64_t unit = byteSize(dtype), wanted = elementCount(box.size), copied = 0;
  if (!isInside(box, shape) || wanted < 0 || static_cast<int64_t>(out.size()) != wanted * unit)
    return fail("was asked for a part that it does not have");
  if (auto found = boxes.find(name); found != boxes.end())
    for (const Stored &stored : found->second)
      if (std::optional<Shard> common = intersection(box, stored.box)) {
        if (!isWhole(stored)) return fail("is damaged: its bytes are not those that were written");
        auto begin = [&](const Shard &held) {
          std::vector<int64_t> within = common->begin;
          for (size_t d = 0; d < within.size(); ++d) within[d] -= held.begin[d];
          return within;
        };
        const std::vector<int64_t> from = begin(stored.box), to = begin(box);
        copyBox(common->size, {stored.box.size, from}, stored.view.bytes.data(), {box.size, to}, out.data(), unit);
        copied += elementCount(common->size);
      }
  if (copied != wanted) return fail(fmt::format("is not whole: {} of {} elements are stored", copied, wanted));
  return Status::ok();
}

Status Snapshot::check() const {
  for (const auto &[name, parts] : boxes)
    for (const Stored &stored : parts)
      if (!isWhole(stored))
        return inputError(
            fmt::format("{}: tensor '{}' is damaged: its bytes are not those that were written", where, name));
  return Status::ok();
}

bool Snapshot::isWhole(const Stored &stored) const {
  {
    const std::lock_guard lock(mutex);
    if (checked.contains(&stored)) return true;
  }
  if (checksumOf(stored.view.bytes) != stored.checksum) return false;
  const std::lock_guard lock(mutex);
  checked.insert(&stored);
  return true;
}

Result<std::unique_ptr<Snapshot>> Snapshot::load(const std::string &path, SnapshotManifest manifest) {
  std::unique_ptr<Snapshot> snapshot(new Snapshot);
  snapshot->where = path;
  snapshot->content = std::move(manifest);
  for (int64_t rank = 0; rank < snapshot->content.ranks; ++rank) {
    const SnapshotManifest::File &told = snapshot->content.files[static_cast<size_t>(rank)];
    if (told.bytes < 0) continue;
    std::string file = (fs::path(path) / rankFileName(rank)).string();
    CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> opened, SafetensorsFile::open(file));
    if (checksumOf(std::as_bytes(std::span(opened->header()))) != told.checksum)
      return inputError(fmt::format("{}: its header is damaged: it is not what the manifest says", file));
    for (const auto &[name, view] : opened->tensors()) {
      auto tensor = snapshot->content.tensors.find(name);
      auto text = opened->metadata().find(name);
      std::optional<StoredBox> box;
      if (text != opened->metadata().end()) box = parseStoredBox(text->second, view.shape.size());
      Stored stored{{box ? box->begin : std::vector<int64_t>(), view.shape}, view, box ? box->checksum : ""};
      bool fits = box && tensor != snapshot->content.tensors.end() && tensor->second.dtype == view.dtype &&
                  isInside(stored.box, tensor->second.shape);
      if (!fits) return inputError(fmt::format("{}: tensor '{}' does not fit the manifest", file, name));
      snapshot->boxes[name].push_back(std::move(stored));
    }
    snapshot->files.push_back(std::move(opened));
  }
  return snapshot;
}

Result<int64_t> skippedBefore(const Snapshot &saved) {
  if (!saved.manifest().tensors.count(skippedName)) return int64_t{0};
  float count = 0;
  CLEAVE_RETURN_IF_ERROR(saved.read(skippedName, plan::F32, {}, Shard{}, std::as_writable_bytes(std::span(&count, 1))));
  return std::llround(count);
}

bool beginsAt(const Snapshot &snapshot, const plan::Parameter &parameter, int64_t skipped) {
  return parameter.since() != 0 && !snapshot.manifest().tensors.contains(parameter.name()) &&
         snapshot.manifest().step - skipped == parameter.since();
}

// How to go on with numbers of another type.
static const char *wayToType(const plan::Parameter &parameter) {
  return parameter.role() == plan::Parameter::OPTIMIZER_STATE
             ? ": a resumed run keeps its 'optimizer.state_dtype'; with another, a new run begins from what `cleave "
               "export` and `cleave export --optimizer` write (`init.path`, `init.optimizer`)"
             : "";
}

Status checkResumes(const Snapshot &snapshot, const plan::Plan &plan) {
  const SnapshotManifest &manifest = snapshot.manifest();
  CLEAVE_ASSIGN_OR_RETURN(const int64_t skipped, skippedBefore(snapshot));
  for (const plan::Parameter &parameter : plan.parameters()) {
    if (!parameter.snapshot()) continue;
    auto found = manifest.tensors.find(parameter.name());
    if (beginsAt(snapshot, parameter, skipped)) {
      if (parameter.name().starts_with(masterName("")))
        return inputError(fmt::format("{}: has no fp32 copy of '{}', which did not train before: in 16 bits parameters "
                                      "cannot begin to train in a resumed run",
                                      snapshot.path(), parameter.name().substr(masterName("").size())));
      if (auto of = manifest.tensors.find(averagedBy(parameter.name()));
          of != manifest.tensors.end() && of->second.dtype != parameter.dtype())
        return inputError(
            fmt::format("{}: keeps '{}' in {}: averages of weights in 16 bits cannot begin in a resumed run",
                        snapshot.path(), of->first, name(of->second.dtype)));
      continue;
    }
    if (found == manifest.tensors.end())
      return inputError(
          fmt::format("{}: has no '{}': it was written with another model, optimizer or list of trained parameters; "
                      "`cleave run --resume --recipe` goes on with another recipe",
                      snapshot.path(), parameter.name()));
    if (found->second.since != parameter.since())
      return inputError(
          fmt::format("{}: '{}' began after {} steps, in the plan after {}: `cleave run --resume --recipe` "
                      "goes on with another recipe",
                      snapshot.path(), parameter.name(), found->second.since, parameter.since()));
    const std::vector<int64_t> &shape = found->second.shape;
    const bool isAlike = std::equal(shape.begin(), shape.end(), parameter.shape().begin(), parameter.shape().end());
    if (found->second.dtype != parameter.dtype() || !isAlike)
      return inputError(fmt::format("{}: '{}' is {} [{}], in the plan it is {} [{}]{}", snapshot.path(),
                                    parameter.name(), name(found->second.dtype), fmt::join(shape, ", "),
                                    name(parameter.dtype()), fmt::join(parameter.shape(), ", "),
                                    isAlike ? wayToType(parameter) : ""));
  }
  std::set<std::string> held;
  for (const plan::Parameter &parameter : plan.parameters()) held.insert(parameter.name());
  for (const auto &[name, tensor] : manifest.tensors)
    if (tensor.role != plan::Parameter::OPTIMIZER_STATE && !held.contains(name))
      return inputError(
          fmt::format("{}: the plan has '{}' as a constant, with the value that the model's file has, and "
                      "the snapshot another; `cleave run --resume --recipe` goes on with another recipe",
                      snapshot.path(), name));
  return Status::ok();
}

} // namespace cleave::runtime
