#include "runtime/train/mirror.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/folder.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/packed.h"
#include "runtime/plan/safetensors.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <numeric>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace cleave::runtime {
namespace {

constexpr size_t keptSteps = 2;
constexpr int64_t manifestFile = -1; // among the numbers of ranks whose files a folder has

std::string fileName(int64_t file) { return file == manifestFile ? "manifest.json" : rankFileName(file); }

// [[name, begin, size], ...] of a rank's file.
Json boxesOf(const SafetensorsFile &file) {
  Json boxes = Json::array();
  for (const auto &[name, view] : file.tensors()) {
    std::vector<int64_t> begin;
    if (auto text = file.metadata().find(name); text != file.metadata().end())
      if (std::optional<StoredBox> box = parseStoredBox(text->second, view.shape.size())) begin = box->begin;
    boxes.push_back({name, begin, view.shape});
  }
  return boxes;
}

} // namespace

Mirror::Mirror(const plan::Plan &plan, Executor &executor, std::string folder, TimeLimit limit)
    : source(plan), engine(executor), ofPlan(manifestOf(plan)), folder(std::move(folder)), limit(limit),
      self(static_cast<int>(engine.devices().front())), processes(static_cast<int>(engine.mesh().numDevices())) {}

std::string Mirror::folderOf(const Launch &launch) {
  return fmt::format("/dev/shm/cleave-{}-{}-{}/{}", ::getuid(), launch.host, launch.port, launch.rank);
}

Status Mirror::claim(const std::string &folder) {
  const std::string ofRun = fs::path(folder).parent_path().string();
  if (::mkdir(ofRun.c_str(), 0700) != 0 && errno != EEXIST)
    return runError(fmt::format("{}: cannot be made: {}", ofRun, std::strerror(errno)));
  struct stat found{};
  if (::lstat(ofRun.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() ||
      (found.st_mode & 022) != 0)
    return inputError(fmt::format("{}: is not a folder that only this user can write; states are kept there", ofRun));
  std::error_code failure;
  fs::create_directories(folder, failure);
  return failure ? runError(fmt::format("{}: cannot be made: {}", folder, failure.message())) : Status::ok();
}

void Mirror::remove(const std::string &folder) {
  std::error_code failure;
  fs::remove_all(folder, failure);
}

void Mirror::removeRun(const std::string &folder) {
  std::error_code failure;
  fs::remove_all(fs::path(folder).parent_path(), failure);
}

Status Mirror::noteHosts(const std::string &folder, const std::vector<std::string> &hosts) {
  std::error_code failure;
  const std::string file = folder + "/hosts";
  if (hosts.empty() || fs::exists(file, failure)) return Status::ok();
  CLEAVE_RETURN_IF_ERROR(claim(folder));
  return writeFileAtomically(fmt::format("{}\n", fmt::join(hosts, "\n")), file);
}

std::vector<std::string> Mirror::notedHosts(const std::string &folder) {
  std::vector<std::string> hosts;
  std::ifstream file(folder + "/hosts");
  for (std::string host; std::getline(file, host);) hosts.push_back(host);
  return hosts;
}

std::string Mirror::stepFolder(int64_t step, bool isPartial) const {
  return fmt::format("{}/{}step-{:08}{}", folder, isPartial ? "." : "", step, isPartial ? ".partial" : "");
}

// Whether a process has every box of another's file, too, so that nothing need be sent.
bool Mirror::holdsAllOf(int64_t holder, int64_t owner) const {
  return std::ranges::all_of(source.parameters(), [&](const plan::Parameter &parameter) {
    if (!writesBox(parameter, engine.mesh(), owner)) return true;
    const Shard theirs = engine.shardShape(owner, parameter), own = engine.shardShape(holder, parameter);
    return engine.holds(holder, parameter) && theirs.begin == own.begin && theirs.size == own.size;
  });
}

// A manifest that says which ranks' files are here.
Status noteFiles(const std::string &folder, SnapshotManifest manifest) {
  manifest.files.clear();
  for (int64_t rank = 0; rank < manifest.ranks; ++rank) {
    Result<SnapshotManifest::File> file = describeRankFile(folder, rank, manifest.run);
    manifest.files.push_back(file ? *file : SnapshotManifest::File{});
  }
  return writeManifest(folder, manifest);
}

// The file that a snapshot has of `owner`, from the bytes of this process' device.
Status Mirror::writeFile(const std::string &into, int64_t owner) const {
  std::vector<HeldBox> boxes;
  std::deque<ShardBytes> held;
  for (const plan::Parameter &parameter : source.parameters())
    if (writesBox(parameter, engine.mesh(), owner))
      boxes.push_back({&parameter, engine.shardShape(self, parameter),
                       held.emplace_back(engine.shard(self, parameter, ShardAccess::Read))});
  CLEAVE_RETURN_IF_ERROR(engine.lastFailure());
  return writeRankFile(into, owner, boxes, run);
}

Status Mirror::writeOwn(const std::string &partial) const {
  std::error_code failure;
  fs::remove_all(partial, failure);
  fs::create_directories(partial, failure);
  if (failure) return runError(fmt::format("{}: cannot be made: {}", partial, failure.message()));
  CLEAVE_RETURN_IF_ERROR(writeFile(partial, self));
  const int before = (self + processes - distance) % processes;
  return processes > 1 && holdsAllOf(self, before) ? writeFile(partial, before) : Status::ok();
}

Result<std::string> Mirror::save(int64_t step, const SamplerState &sampler, const BestScore &best) {
  SnapshotManifest manifest = ofPlan;
  manifest.step = step, manifest.sampler = sampler, manifest.best = best, manifest.run = run;
  std::error_code failure;
  const std::string partial = stepFolder(manifest.step, true), whole = stepFolder(manifest.step, false);
  Status kept = writeOwn(partial);
  CLEAVE_RETURN_IF_ERROR(replicate(partial, kept));
  if (kept) kept = noteFiles(partial, std::move(manifest));
  CLEAVE_ASSIGN_OR_RETURN(uint64_t failed, engine.fabric().control().allReduceMax(kept ? 0 : 1, limit));
  if (failed != 0) {
    fs::remove_all(partial, failure);
    return kept.message();
  }
  fs::remove_all(whole, failure);
  fs::rename(partial, whole, failure);
  if (failure) return runError(fmt::format("{}: cannot be put in place: {}", whole, failure.message()));
  std::vector<int64_t> steps = stepsHere();
  for (size_t i = 0; i + keptSteps < steps.size(); ++i) fs::remove_all(stepFolder(steps[i], false), failure);
  return std::string();
}

// This process' file to its neighbour, nothing if it could not be written, and the file of the one whose neighbour this
// is. `kept`: whether all that is to be here is.
Status Mirror::replicate(const std::string &partial, Status &kept) const {
  if (processes == 1) return Status::ok();
  const int next = (self + distance) % processes, before = (self + processes - distance) % processes;
  std::vector<Blob> sends;
  std::vector<int> receives;
  if (!holdsAllOf(next, self)) {
    sends.push_back({next, ""});
    if (kept) {
      Result<std::shared_ptr<MappedFile>> file = MappedFile::open(partial + "/" + rankFileName(self));
      if (file) sends.back().bytes = (*file)->bytes();
      kept = file.status();
    }
  }
  if (!holdsAllOf(self, before)) receives.push_back(before);
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> received, engine.fabric().exchange(sends, receives, limit));
  for (const std::string &bytes : received)
    if (kept && !bytes.empty()) kept = writeFileAtomically(bytes, partial + "/" + rankFileName(before));
  return Status::ok();
}

std::vector<int64_t> Mirror::stepsHere() const {
  std::vector<int64_t> steps;
  Result<std::vector<fs::path>> entries = entriesOf(folder);
  if (!entries) return steps;
  for (const fs::path &entry : *entries) {
    const std::string name = entry.filename().string();
    int64_t step = 0;
    if (name.starts_with("step-") &&
        std::from_chars(name.data() + 5, name.data() + name.size(), step).ec == std::errc())
      steps.push_back(step);
  }
  std::ranges::sort(steps);
  return steps;
}

// By step and run, "40@5f0c": how many ranks' files make it whole, and the boxes of each file that is here.
Json Mirror::inventory() const {
  Json all = Json::object();
  for (int64_t step : stepsHere()) {
    const std::string where = stepFolder(step, false);
    Result<SnapshotManifest> manifest = readManifest(where);
    if (!manifest || (!run.empty() && manifest->run != run)) continue;
    Json &of = all[fmt::format("{}@{}", step, manifest->run)] = {{"ranks", manifest->ranks}, {"files", Json::object()}};
    for (int64_t rank = 0; rank < manifest->ranks; ++rank) {
      std::error_code failure;
      if (!fs::exists(where + "/" + rankFileName(rank), failure)) continue;
      if (auto file = SafetensorsFile::open(where + "/" + rankFileName(rank)); file)
        of["files"][std::to_string(rank)] = boxesOf(**file);
    }
  }
  return all;
}

Result<std::vector<Json>> Mirror::inventories() const {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> received,
                          engine.fabric().control().allGather(inventory().dump(), limit));
  std::vector<Json> all;
  for (const std::string &text : received) all.push_back(Json::parse(text, nullptr, false));
  return all;
}

bool Mirror::needs(const Json &boxes) const {
  return std::ranges::any_of(source.parameters(), [&](const plan::Parameter &parameter) {
    if (!parameter.snapshot() || !engine.holds(self, parameter)) return false;
    return std::ranges::any_of(boxes, [&](const Json &box) {
      return box.at(0) == parameter.name() && intersection(engine.shardShape(self, parameter), {box.at(1), box.at(2)});
    });
  });
}

namespace {

// The newest step of which every rank's file is somewhere, and the first process that has each; "" for none.
std::string newestWhole(const std::vector<Json> &all, std::map<int64_t, int> &providers) {
  std::set<std::pair<int64_t, std::string>> steps;
  for (const Json &one : all)
    for (const auto &[step, of] : one.items()) steps.emplace(std::stoll(step), step);
  for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
    const std::string &step = at->second;
    providers.clear();
    int64_t ranks = 0;
    for (size_t process = 0; process < all.size(); ++process) {
      auto of = all[process].find(step);
      if (of == all[process].end()) continue;
      ranks = of->at("ranks").get<int64_t>();
      providers.emplace(manifestFile, static_cast<int>(process));
      for (const auto &[rank, boxes] : of->at("files").items())
        providers.emplace(std::stoll(rank), static_cast<int>(process));
    }
    if (static_cast<int64_t>(providers.size()) == ranks + 1) return step;
  }
  providers.clear();
  return "";
}

} // namespace

Result<std::string> Mirror::recover() {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<Json> all, inventories());
  std::map<int64_t, int> providers;
  std::string step;
  std::map<int, Json> requests; // to each process: numbers of files
  try {
    step = newestWhole(all, providers);
    if (step.empty()) return step;
    const Json own = all[static_cast<size_t>(self)].value(step, Json{{"files", Json::object()}});
    const bool isHere = own.contains("ranks");
    for (const auto &[file, provider] : providers) {
      if (file == manifestFile ? isHere : own.at("files").contains(std::to_string(file))) continue;
      const Json &at = all[static_cast<size_t>(provider)].at(step);
      if (file == manifestFile || needs(at.at("files").at(std::to_string(file)))) requests[provider].push_back(file);
    }
  } catch (const std::exception &error) {
    return runError(fmt::format("what another process has in memory cannot be read: {}", error.what()));
  }
  const std::string where = stepFolder(std::stoll(step), false);
  CLEAVE_RETURN_IF_ERROR(fetch(where, requests));
  CLEAVE_ASSIGN_OR_RETURN(SnapshotManifest manifest, readManifest(where, false));
  CLEAVE_RETURN_IF_ERROR(noteFiles(where, std::move(manifest)));
  return where;
}

// Asks for files and gives those that others ask for.
Status Mirror::fetch(const std::string &where, const std::map<int, Json> &requests) {
  Json asked = Json::object();
  std::vector<int> providers;
  for (const auto &[process, files] : requests) asked[std::to_string(process)] = files, providers.push_back(process);
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> wanted, engine.fabric().control().allGather(asked.dump(), limit));
  std::vector<Blob> given;
  for (int process = 0; process < processes; ++process) {
    const Json of = Json::parse(wanted[static_cast<size_t>(process)], nullptr, false);
    if (!of.is_object() || !of.contains(std::to_string(self))) continue;
    Blob &blob = given.emplace_back(process, "");
    for (const Json &file : of.at(std::to_string(self))) {
      if (!file.is_number_integer()) continue;
      CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> bytes,
                              MappedFile::open(where + "/" + fileName(file.get<int64_t>())));
      blob.bytes += packed(file.get<int64_t>()) + packed(int64_t(std::ssize(bytes->bytes())));
      blob.bytes += bytes->bytes();
    }
  }
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> received, engine.fabric().exchange(given, providers, limit));
  std::error_code failure;
  fs::create_directories(where, failure);
  for (std::string_view text : received)
    while (!text.empty()) {
      int64_t file = 0, bytes = 0;
      if (!unpack(text, file) || !unpack(text, bytes) || file < manifestFile || bytes < 0 || bytes > std::ssize(text))
        return runError("another process sent files that cannot be read");
      CLEAVE_RETURN_IF_ERROR(
          writeFileAtomically(text.substr(0, static_cast<size_t>(bytes)), where + "/" + fileName(file)));
      text.remove_prefix(static_cast<size_t>(bytes));
    }
  return Status::ok();
}

} // namespace cleave::runtime
