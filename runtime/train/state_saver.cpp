#include "runtime/train/state_saver.h"
#include "runtime/base/available_memory.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

StateSaver::StateSaver(const plan::Plan &plan, Executor &executor, SaveOptions options)
    : source(plan), engine(executor), ofPlan(manifestOf(plan)), options(std::move(options)) {
  for (const plan::Parameter &parameter : source.parameters()) {
    if (!parameter.snapshot()) continue;
    bytes += elementCount(parameter.shape()) * byteSize(parameter.dtype());
    for (int64_t device : engine.devices())
      if (writesBox(parameter, engine.mesh(), device))
        ownBytes += elementCount(engine.shardShape(device, parameter).size) * byteSize(parameter.dtype());
  }
}

StateSaver::~StateSaver() {
  if (writing.valid()) writing.wait();
}

Status StateSaver::prepare(bool goesOn, bool overwrite) {
  CLEAVE_RETURN_IF_ERROR(prepareSnapshotFolder(
      options.folder,
      {.goesOn = goesOn, .overwrite = overwrite, .bytes = options.isOwn ? ownBytes : bytes, .keep = options.keep},
      lock));
  if (!lock.isHeld() && options.onWarning)
    options.onWarning(options.folder + ": its file system has no locks: another run that writes there is not noticed");
  return Status::ok();
}

Status StateSaver::begin(const std::string &run) {
  ofPlan.run = run;
  Result<ControlPlane *> opened = engine.fabric().openControl(options.limit);
  if (opened) control = *opened;
  return opened.status();
}

// A process takes at most this long to write its devices' parameters, another one's too: disks are seldom as slow as
// 16 MiB a second.
double StateSaver::writingSeconds() const { return static_cast<double>(bytes) / (16 << 20); }

// Waits for all ranks; one that stays away is given up like one that is stuck in a step.
Status StateSaver::meet(TimeLimit limit) {
  Status met = control->state(); // the thread that writes may have lost a rank already
  if (met) met = engine.fabric().control().barrier(limit);
  if (met) return met;
  return runError(fmt::format("rank {}, step {}, snapshot: {}", engine.devices().front(), begunStep, met.message()));
}

bool StateSaver::hasRoomForCopy() {
  if (copy.bytes() >= ownBytes) return true;
  return availableMemory() > ownBytes + ownBytes / 8 && copy.allocate(ownBytes);
}

// This process' part of the state: in the copy, or, where `held` takes them, the devices' own bytes.
Result<StateSaver::Boxes> StateSaver::boxes(std::deque<ShardBytes> *held) {
  Boxes found;
  std::byte *to = copy.data();
  for (int64_t device : engine.devices()) {
    std::vector<HeldBox> &own = found.emplace_back();
    for (const plan::Parameter &parameter : source.parameters()) {
      if (!writesBox(parameter, engine.mesh(), device)) continue;
      ShardBytes shard = engine.shard(device, parameter, ShardAccess::Read);
      CLEAVE_RETURN_IF_ERROR(engine.lastFailure());
      std::span<std::byte> bytes = shard;
      if (held) {
        bytes = held->emplace_back(std::move(shard));
      } else {
        std::memcpy(to, shard.data(), shard.size());
        bytes = {to, shard.size()};
        to += shard.size();
      }
      own.push_back({&parameter, engine.shardShape(device, parameter), bytes});
    }
  }
  return found;
}

// The snapshot is whole, or all processes know why it is not; where a rank is lost while they are told, it may be whole
// all the same.
Status StateSaver::writeAll(SnapshotWriter &writer, const Boxes &boxes) {
  const std::vector<int64_t> devices = engine.devices();
  nlohmann::json own = nlohmann::json::array();
  Status status;
  for (size_t i = 0; i < devices.size() && status; ++i) {
    Result<SnapshotManifest::File> file = writer.writeRank(devices[i], boxes[i]);
    status = file.status();
    if (file) own.push_back({file->bytes, file->checksum});
  }
  const TimeLimit limit = options.limit.plus(writingSeconds());
  status = control->outcome(status, limit);
  if (status) status = commit(writer, own.dump(), limit);
  if (!status && keepsFolder()) writer.discard();
  if (!status && options.onWarning) options.onWarning(status.message() + "; earlier snapshots stay as they are");
  return status;
}

Status StateSaver::commit(SnapshotWriter &writer, const std::string &own, TimeLimit limit) {
  Result<std::vector<std::string>> all = control->allGather(own, limit);
  if (!all) return all.status();
  Status status;
  if (keepsFolder()) {
    std::vector<SnapshotManifest::File> files;
    for (const std::string &text : *all)
      for (const nlohmann::json &file : nlohmann::json::parse(text, nullptr, false))
        files.push_back({file.at(0).get<int64_t>(), file.at(1).get<std::string>()});
    status = writer.commit(std::move(files), options.isOwn ? engine.devices() : std::vector<int64_t>());
  }
  return control->outcome(status, limit);
}

Status StateSaver::save(const State &state) {
  begunStep = state.step;
  if (writing.valid()) (void)writing.get(); // onWarning has told why it failed
  CLEAVE_RETURN_IF_ERROR(meet(options.limit));
  SnapshotManifest manifest = ofPlan;
  manifest.step = state.step, manifest.sampler = state.sampler, manifest.score = state.score, manifest.best = state.best;
  auto writer = std::make_shared<SnapshotWriter>(options.folder, std::move(manifest), options.keep);
  std::deque<ShardBytes> held;
  const bool isCopied = hasRoomForCopy();
  Result<Boxes> own = boxes(isCopied ? nullptr : &held);
  if (!own) return own.status();
  if (!isCopied) {
    std::promise<Status> written;
    writing = written.get_future();
    written.set_value(writeAll(*writer, *own));
    return Status::ok();
  }
  writing = std::async(std::launch::async, [this, writer, own = std::move(*own)] { return writeAll(*writer, own); });
  return Status::ok();
}

Status StateSaver::finish() {
  if (!writing.valid()) return Status::ok();
  const Status written = writing.get();
  if (written) return Status::ok();
  return runError(fmt::format("the snapshot of step {} was not written: {}", begunStep, written.message()));
}

} // namespace cleave::runtime
