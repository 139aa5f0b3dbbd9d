// The files of a snapshot: writing them so that a crash leaves the old or the new one, and finding the newest whole
// one.
#include "runtime/base/atomic_file.h"
#include "runtime/base/checksum.h"
#include "runtime/base/folder.h"
#include "runtime/base/url.h"
#include "runtime/plan/dtype.h"
#include "runtime/train/state/folder_lock.h"
#include "runtime/train/state/snapshot.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace cleave::runtime {
namespace {

constexpr int formatVersion = 2;
constexpr unsigned exchange = 2;      // RENAME_EXCHANGE
const std::string runKey = "__run__"; // of a rank file's metadata

Status systemError(const fs::path &path, const char *what, int failure) {
  return runError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(failure)));
}

Status syncFolder(const fs::path &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return systemError(path, "cannot be opened", errno);
  int result = fsync(descriptor), failure = errno;
  ::close(descriptor);
  return result == 0 || failure == EINVAL ? Status::ok() : systemError(path, "cannot be flushed to the disk", failure);
}

// What is said of a snapshot's bytes, without its own checksum.
std::string checksumOf(nlohmann::json manifest) {
  manifest.erase("checksum");
  const std::string text = manifest.dump(-1, ' ', false, Json::error_handler_t::replace);
  return runtime::checksumOf(std::as_bytes(std::span(text)));
}

Json orNull(const std::optional<double> &number) { return number ? Json(*number) : Json(); }
std::optional<double> numberIn(const nlohmann::json &map, const char *key) {
  auto found = map.find(key);
  return found != map.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

Json toJson(const SnapshotManifest &manifest) {
  Json tensors = Json::object();
  for (const auto &[name, tensor] : manifest.tensors) {
    tensors[name] = {{"dtype", runtime::name(tensor.dtype)},
                     {"shape", tensor.shape},
                     {"original_shape", tensor.originalShape},
                     {"aliases", tensor.aliases},
                     {"role", plan::Parameter::Role_Name(tensor.role)}};
    if (tensor.since > 0) tensors[name]["since"] = tensor.since;
    for (const SnapshotManifest::Tensor::Piece &piece : tensor.pieces)
      tensors[name]["pieces"].push_back({{"name", piece.name}, {"original_shape", piece.originalShape}});
  }
  Json files = Json::array();
  for (const SnapshotManifest::File &file : manifest.files)
    files.push_back({{"bytes", file.bytes}, {"checksum", file.checksum}});
  return {{"format", formatVersion},
          {"step", manifest.step},
          {"data",
           {{"epoch", manifest.sampler.epoch},
            {"position", manifest.sampler.position},
            {"batch", manifest.sampler.batch},
            {"taken", manifest.sampler.taken}}},
          {"seed", manifest.seed},
          {"fingerprint", manifest.fingerprint},
          {"model", manifest.modelPath},
          {"model_digest", manifest.modelDigest},
          {"recipe", manifest.recipe},
          {"ranks", manifest.ranks},
          {"run", manifest.run},
          {"files", std::move(files)},
          {"monitor", manifest.best.monitor},
          {"score", orNull(manifest.score)},
          {"best_score", orNull(manifest.best.score)},
          {"evaluations_since_best", manifest.best.since},
          {"tensors", std::move(tensors)}};
}

plan::DType dtypeOf(const std::string &text) {
  for (int type = plan::DType_MIN + 1; type <= plan::DType_MAX; ++type)
    if (plan::DType_IsValid(type) && text == runtime::name(static_cast<plan::DType>(type)))
      return static_cast<plan::DType>(type);
  return plan::DTYPE_INVALID;
}

// Out of sight first, so that a crash never leaves half a snapshot under its name.
void removeSnapshot(const fs::path &path) {
  fs::path hidden = path.parent_path() / ("." + path.filename().string() + ".removed");
  std::error_code failure;
  fs::rename(path, hidden, failure);
  fs::remove_all(failure ? path : hidden, failure);
}

// Removes the remains of crashes: snapshots that were being written or removed.
void removeLeftovers(const fs::path &folder) {
  std::error_code failure;
  Result<std::vector<fs::path>> entries = entriesOf(folder);
  if (!entries) return;
  for (const fs::path &entry : *entries) {
    const std::string file = entry.filename().string();
    if (file.starts_with(".step-") && (file.ends_with(".partial") || file.ends_with(".removed")))
      fs::remove_all(entry, failure);
  }
}

} // namespace

Result<std::vector<std::string>> snapshotsIn(const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(path));
  // One that cannot be read stays: who opens it says why.
  std::erase_if(entries, [&](const fs::path &entry) {
    const Result<fs::file_type> type = fileTypeOf(entry);
    return !entry.filename().string().starts_with("step-") || (type && *type != fs::file_type::directory);
  });
  std::ranges::sort(entries, std::greater(), [](const fs::path &entry) {
    return std::pair(entry.filename().string().size(), entry.filename().string());
  });
  return std::vector<std::string>(entries.begin(), entries.end());
}

std::string rankFileName(int64_t rank) { return fmt::format("rank-{:04}.safetensors", rank); }

Result<SnapshotManifest> readManifest(const std::string &folder, bool checkFiles) {
  const fs::path path = folder;
  const Result<fs::file_type> type = fileTypeOf(path / "manifest.json");
  if (type && *type == fs::file_type::not_found)
    return inputError(path.string() + ": is not a snapshot (it has no manifest.json)");
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open((path / "manifest.json").string()));
  const auto json = nlohmann::json::parse(file->bytes(), nullptr, false);
  if (!json.is_object()) return inputError(path.string() + ": its manifest.json is damaged");
  SnapshotManifest manifest;
  try {
    if (json.at("format").get<int>() != formatVersion)
      return inputError(fmt::format("{}: has snapshot format {}; this program reads {}", path.string(),
                                    json.at("format").dump(), formatVersion));
    manifest.step = json.at("step").get<int64_t>();
    const Json &data = json.at("data");
    manifest.sampler = {data.at("epoch").get<uint64_t>(), data.at("position").get<int64_t>(),
                        data.value("batch", int64_t(0)), data.value("taken", uint64_t(0))};
    manifest.seed = json.at("seed").get<uint64_t>();
    manifest.fingerprint = json.at("fingerprint").get<std::string>();
    manifest.modelPath = json.at("model").get<std::string>();
    manifest.modelDigest = json.at("model_digest").get<std::string>();
    manifest.recipe = json.value("recipe", "");
    manifest.score = numberIn(json, "score");
    manifest.best = {numberIn(json, "best_score"), json.value("evaluations_since_best", int64_t(0)),
                     json.value("monitor", "")};
    manifest.ranks = json.at("ranks").get<int64_t>();
    manifest.run = json.at("run").get<std::string>();
    manifest.checksum = json.at("checksum").get<std::string>();
    if (checksumOf(json) != manifest.checksum)
      return inputError(path.string() + ": its manifest.json is damaged: its checksum is another");
    for (const auto &entry : json.at("files"))
      manifest.files.push_back({entry.at("bytes").get<int64_t>(), entry.at("checksum").get<std::string>()});
    for (const auto &[name, entry] : json.at("tensors").items()) {
      SnapshotManifest::Tensor &tensor = manifest.tensors[name];
      tensor.dtype = dtypeOf(entry.at("dtype").get<std::string>());
      tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
      tensor.originalShape = entry.at("original_shape").get<std::vector<int64_t>>();
      tensor.aliases = entry.at("aliases").get<std::vector<std::string>>();
      tensor.since = entry.value("since", int64_t(0));
      for (const auto &piece : entry.value("pieces", nlohmann::json::array()))
        tensor.pieces.push_back(
            {piece.at("name").get<std::string>(), piece.at("original_shape").get<std::vector<int64_t>>()});
      if (!plan::Parameter::Role_Parse(entry.at("role").get<std::string>(), &tensor.role) ||
          tensor.dtype == plan::DTYPE_INVALID || elementCount(tensor.shape) < 0)
        return inputError(fmt::format("{}: its manifest.json is damaged at tensor '{}'", path.string(), name));
    }
  } catch (const nlohmann::json::exception &error) {
    return inputError(fmt::format("{}: its manifest.json is damaged: {}", path.string(), error.what()));
  }
  if (static_cast<size_t>(manifest.ranks) != manifest.files.size())
    return inputError(path.string() + ": its manifest.json is damaged: files");
  for (int64_t rank = 0; checkFiles && rank < manifest.ranks; ++rank) {
    if (manifest.files[static_cast<size_t>(rank)].bytes < 0) continue;
    std::error_code failure;
    fs::path part = path / rankFileName(rank);
    auto size = fs::file_size(part, failure);
    if (failure && failure != std::errc::no_such_file_or_directory)
      return inputError(fmt::format("{}: cannot be read: {}", part.string(), failure.message()));
    if (failure || static_cast<int64_t>(size) != manifest.files[static_cast<size_t>(rank)].bytes)
      return inputError(fmt::format("{}: is missing or cut off", part.string()));
  }
  return manifest;
}

SnapshotWriter::SnapshotWriter(std::string folder, SnapshotManifest manifest, KeptSnapshots keep)
    : folder(std::move(folder)), name(fmt::format("step-{:08}", manifest.step)), manifest(std::move(manifest)),
      keep(keep) {}

std::string SnapshotWriter::partial() const {
  return (fs::path(folder) / fmt::format(".{}{}{}.partial", name, manifest.run.empty() ? "" : ".", manifest.run))
      .string();
}

Status writeRankFile(const std::string &folder, int64_t rank, std::span<const HeldBox> boxes, const std::string &run) {
  std::vector<TensorView> tensors;
  std::map<std::string, std::string> metadata = {{runKey, run}};
  for (const HeldBox &held : boxes) {
    const std::string &tensor = held.parameter->name();
    tensors.push_back({tensor, held.parameter->dtype(), held.box.size, held.bytes});
    metadata[tensor] = fmt::format("{} {}", fmt::join(held.box.begin, ","), runtime::checksumOf(held.bytes));
  }
  return writeSafetensors((fs::path(folder) / rankFileName(rank)).string(), tensors, metadata);
}

Result<SnapshotManifest::File> describeRankFile(const std::string &folder, int64_t rank, const std::string &run) {
  const fs::path path = fs::path(folder) / rankFileName(rank);
  std::error_code failure;
  const uintmax_t bytes = fs::file_size(path, failure);
  if (failure) return inputError(fmt::format("{}: {}", path.string(), failure.message()));
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::open(path.string()));
  auto of = file->metadata().find(runKey);
  if (of == file->metadata().end() || of->second != run)
    return inputError(path.string() + ": was written by another run");
  return SnapshotManifest::File{static_cast<int64_t>(bytes),
                                runtime::checksumOf(std::as_bytes(std::span(file->header())))};
}

Status writeManifest(const std::string &folder, const SnapshotManifest &manifest) {
  Json json = toJson(manifest);
  json["checksum"] = checksumOf(nlohmann::json(json));
  std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  return writeFileAtomically(text, (fs::path(folder) / "manifest.json").string());
}

Result<SnapshotManifest::File> SnapshotWriter::writeRank(int64_t rank, std::span<const HeldBox> boxes) {
  std::error_code failure;
  fs::create_directories(partial(), failure);
  if (failure) return systemError(partial(), "cannot be made", failure.value());
  CLEAVE_RETURN_IF_ERROR(writeRankFile(partial(), rank, boxes, manifest.run));
  return describeRankFile(partial(), rank, manifest.run);
}

// What another rank has told of its file has to be seen here, too: else folders or moments are mixed.
Status SnapshotWriter::checkRankFile(int64_t rank, const SnapshotManifest::File &told) const {
  constexpr auto showing = std::chrono::seconds(5); // of another host's file in a shared folder
  for (const auto until = std::chrono::steady_clock::now() + showing;;) {
    Result<SnapshotManifest::File> file = describeRankFile(partial(), rank, manifest.run);
    if (file && file->bytes == told.bytes && file->checksum == told.checksum) return Status::ok();
    if (std::chrono::steady_clock::now() > until) {
      if (!file) return file.status();
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return runError(fmt::format("{}/{} is not the file that rank {} has written: all ranks need one folder", partial(),
                              rankFileName(rank), rank));
}

Status SnapshotWriter::commit(std::vector<SnapshotManifest::File> files, std::vector<int64_t> here) {
  std::error_code failure;
  manifest.files = std::move(files);
  Status missing;
  if (std::ssize(manifest.files) != manifest.ranks) missing = runError("a rank has not written its part");
  for (int64_t rank = 0; rank < manifest.ranks && missing; ++rank)
    if (here.empty() || std::ranges::count(here, rank))
      missing = checkRankFile(rank, manifest.files[static_cast<size_t>(rank)]);
  if (missing) missing = writeManifest(partial(), manifest);
  if (missing) missing = syncFolder(partial());
  if (!missing) {
    discard();
    return missing;
  }
  fs::path final = fs::path(folder) / name;
  if (fs::exists(final, failure)) { // the same step again: exchange the two, so that one is always there
    if (syscall(SYS_renameat2, AT_FDCWD, partial().c_str(), AT_FDCWD, final.c_str(), exchange) != 0) {
      removeSnapshot(final);
      fs::rename(partial(), final, failure);
    }
    fs::remove_all(partial(), failure);
  } else {
    fs::rename(partial(), final, failure);
    if (failure) return systemError(final, "cannot be put in place", failure.value());
  }
  CLEAVE_RETURN_IF_ERROR(syncFolder(folder));
  removeOld(final);
  return Status::ok();
}

// Its bytes may be those that the disk lacks.
void SnapshotWriter::discard() const {
  std::error_code failure;
  fs::remove_all(partial(), failure);
}

// All but those that are kept; with the best one its link.
void SnapshotWriter::removeOld(const std::string &own) const {
  Result<std::vector<std::string>> all = snapshotsIn(folder);
  if (!all) return;
  fs::path best;
  if (keep.best) {
    double lowest = 0;
    for (auto path = all->rbegin(); path != all->rend(); ++path)
      if (Result<SnapshotManifest> read = readManifest(*path);
          read && read->score && read->best.monitor == manifest.best.monitor)
        if (best.empty() || *read->score < lowest) best = *path, lowest = *read->score;
    std::error_code failure;
    const fs::path link = fs::path(folder) / "best", made = fs::path(folder) / ".best.partial";
    fs::remove(made, failure);
    if (!best.empty()) fs::create_directory_symlink(best.filename(), made, failure);
    if (!best.empty()) fs::rename(made, link, failure);
  }
  const auto newest = static_cast<size_t>(std::max<int64_t>(1, keep.newest));
  for (size_t i = newest; i < all->size(); ++i)
    if ((*all)[i] != own && (*all)[i] != best) removeSnapshot((*all)[i]);
}

Result<bool> isFreshSnapshotFolder(const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(path));
  return std::ranges::all_of(entries, [](const fs::path &entry) {
    const std::string name = entry.filename().string();
    return name.ends_with(".partial") || name.ends_with(".removed") || name == FolderLock::fileName;
  });
}

Status prepareSnapshotFolder(const std::string &path, const SnapshotFolderUse &use, FolderLock &lock) {
  std::error_code failure;
  CLEAVE_RETURN_IF_ERROR(refuseUrl(path));
  CLEAVE_ASSIGN_OR_RETURN(bool isFresh, isFreshSnapshotFolder(path));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> listed, snapshotsIn(path));
  const std::vector<std::string> &all = listed;
  if (!use.goesOn && !isFresh) {
    if (all.empty())
      return inputError(path + ": holds something else than snapshots; give --snapshot a folder of its own");
    if (!use.overwrite)
      return inputError(fmt::format("{}: holds another run's snapshots, the newest {}: resume from it, overwrite "
                                    "them, or use another folder",
                                    path, fs::path(all.front()).filename().string()));
  }
  fs::create_directories(path, failure);
  if (failure) return systemError(path, "cannot be made", failure.value());
  constexpr double ending = 5; // seconds: of a process of the attempt before
  CLEAVE_RETURN_IF_ERROR(lock.take(path, ending));
  if (!use.goesOn && !all.empty()) {
    for (const std::string &one : all) removeSnapshot(one);
    fs::remove(fs::path(path) / "best", failure);
  }
  removeLeftovers(path);
  const fs::path probe = fs::path(path) / fmt::format(".step-probe-{}.partial", getpid());
  if (!fs::create_directory(probe, failure)) return systemError(path, "cannot be written", failure.value());
  fs::remove(probe, failure);
  const fs::space_info space = fs::space(path, failure);
  // Those that stay, and the new one beside them until it is whole; of a run's first ones no more than two.
  const auto kept = static_cast<size_t>(std::max<int64_t>(1, use.keep.newest)) + (use.keep.best ? 1 : 0);
  const size_t held = std::min(use.goesOn ? all.size() : 0, kept);
  const auto needed = static_cast<uintmax_t>(use.bytes) * std::min<size_t>(2, kept + 1 - held);
  if (!failure && space.available < needed)
    return inputError(fmt::format("{}: {:.1f} GiB are free, and the run's snapshots need {:.1f} GiB ({:.1f} GiB each)",
                                  path, double(space.available) / (1 << 30), double(needed) / (1 << 30),
                                  double(use.bytes) / (1 << 30)));
  return Status::ok();
}

Result<std::unique_ptr<Snapshot>> Snapshot::open(const std::string &path,
                                                 const std::function<void(const std::string &)> &tell) {
  CLEAVE_RETURN_IF_ERROR(refuseUrl(path));
  CLEAVE_ASSIGN_OR_RETURN(const fs::file_type type, fileTypeOf(path));
  if (type == fs::file_type::not_found) return inputError(path + ": there is no such snapshot folder");
  if (type != fs::file_type::directory) return inputError(path + ": is a file, and snapshots are in folders");
  CLEAVE_ASSIGN_OR_RETURN(const fs::file_type found, fileTypeOf(fs::path(path) / "manifest.json"));
  if (found != fs::file_type::not_found) {
    CLEAVE_ASSIGN_OR_RETURN(SnapshotManifest manifest, readManifest(path));
    return load(path, std::move(manifest));
  }
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> all, snapshotsIn(path));
  std::optional<Status> newest;
  for (const std::string &candidate : all) {
    Result<SnapshotManifest> manifest = readManifest(candidate);
    Result<std::unique_ptr<Snapshot>> snapshot =
        manifest ? load(candidate, std::move(*manifest)) : Result<std::unique_ptr<Snapshot>>(manifest.status());
    if (snapshot) return snapshot;
    if (tell) tell(snapshot.status().message() + "; an older snapshot is taken, if there is one");
    if (!newest) newest = snapshot.status();
  }
  return newest ? *newest : inputError(path + ": holds no snapshot");
}

} // namespace cleave::runtime
