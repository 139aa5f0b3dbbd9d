#include "runtime/executor/rank.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {

std::string kindName(const plan::Command &command) {
  std::string name;
  if (command.has_collective())
    name = plan::Collective::Op_Name(command.collective().op());
  else if (const auto *field = plan::Command::descriptor()->FindFieldByNumber(command.kind_case()))
    name = field->name();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.empty() ? "command without a kind" : name;
}

namespace {
Status inCommand(const plan::Command &command, const Status &status) {
  return {static_cast<ErrorKind>(status.exitStatus()),
          fmt::format("command '{}' ({}): {}", command.name(), kindName(command), status.message())};
}

// Where a slice of a dense global array begins, and the copy of it into a dense local one.
StridedCopy sliceCopy(const std::vector<int64_t> &global, const Shard &shard, int64_t element, int64_t &sourceOffset) {
  std::vector<int64_t> strides = denseStrides(global);
  sourceOffset = 0;
  for (size_t d = 0; d < global.size(); ++d) sourceOffset += shard.begin[d] * strides[d] * element;
  return {shard.size, strides, denseStrides(shard.size), element};
}
} // namespace

Status Rank::prepare(const plan::Program &program, const dist::Mesh &mesh) {
  fragments.resize(static_cast<size_t>(program.fragments_size()));
  for (int f = 0; f < program.fragments_size(); ++f)
    CLEAVE_RETURN_IF_ERROR(prepareFragment(program.fragments(f), mesh, fragments[static_cast<size_t>(f)]));
  return device->finishPreparing();
}

Status Rank::prepareFragment(const plan::Fragment &fragment, const dist::Mesh &mesh, PreparedFragment &out) {
  for (const plan::ConstantData &constant : fragment.constants()) {
    int64_t element = byteSize(constant.buffer().dtype());
    if (constant.dims_size() == 0) {
      CLEAVE_RETURN_IF_ERROR(device->write(constant.buffer().offset(), constant.data().data(),
                                           static_cast<int64_t>(constant.data().size())));
      continue;
    }
    Result<Shard> shard = shardOf(constant.global_shape(), constant.dims(), mesh, id);
    if (!shard) return shard.status();
    int64_t from = 0;
    StridedCopy copy =
        sliceCopy({constant.global_shape().begin(), constant.global_shape().end()}, *shard, element, from);
    std::vector<std::byte> local(static_cast<size_t>(copy.bytes()));
    copy.run(reinterpret_cast<const std::byte *>(constant.data().data()) + from, local.data());
    CLEAVE_RETURN_IF_ERROR(device->write(constant.buffer().offset(), local.data(), copy.bytes()));
  }
  for (const plan::InputBinding &input : fragment.inputs()) {
    Result<Shard> shard = shardOf(input.global_shape(), input.dims(), mesh, id);
    if (!shard) return shard.status();
    PreparedFragment::Input prepared;
    prepared.slice = sliceCopy({input.global_shape().begin(), input.global_shape().end()}, *shard,
                               byteSize(input.buffer().dtype()), prepared.sourceOffset);
    prepared.targetOffset = input.buffer().offset();
    out.inputs.push_back(std::move(prepared));
  }
  std::map<int32_t, std::pair<Event *, int>> events; // by number: where, and on which lane
  for (const plan::Command &command : fragment.commands()) {
    int lane = command.stream() == 0 ? 0 : 1;
    LaneItem item;
    item.source = &command;
    for (int32_t event : command.wait_events()) {
      auto found = events.find(event);
      if (found == events.end())
        return inCommand(command,
                         inputError(fmt::format("waits for event {}, which nothing before it records", event)));
      if (found->second.second != lane) item.waits.push_back(found->second.first);
    }
    if (command.record_event()) {
      item.record = &out.events.emplace_back();
      events[command.record_event()] = {item.record, lane};
    }
    Result<Prepared> prepared =
        command.has_collective() ? fabric.prepare(id, lane, command.collective()) : device->prepare(command);
    if (!prepared) return inCommand(command, prepared.status());
    item.command = std::move(*prepared);
    out.lanes[lane].push_back(std::move(item));
  }
  return Status::ok();
}

void Rank::start(Trace *trace, std::function<void(int64_t, const Status &)> onFailure) {
  failed = std::move(onFailure);
  bool communicates =
      std::any_of(fragments.begin(), fragments.end(), [](const PreparedFragment &f) { return !f.lanes[1].empty(); });
  if (trace) {
    traces[0] = &trace->lane(id, 0);
    if (communicates) traces[1] = &trace->lane(id, 1);
  }
  threads[0] = std::thread([this] { computeThread(); });
  if (communicates) threads[1] = std::thread([this] { communicationThread(); });
}

Rank::~Rank() {
  stopping = true;
  for (std::atomic<uint32_t> *word : {&begun, &communicationBegun}) {
    word->fetch_add(1, std::memory_order_release);
    wakeAll(*word);
  }
  for (std::thread &thread : threads)
    if (thread.joinable()) thread.join();
}

void Rank::begin(const RankWork &next) {
  work = next;
  begun.fetch_add(1, std::memory_order_release);
  wakeAll(begun);
}

void Rank::finish() {
  uint32_t target = begun.load(std::memory_order_relaxed);
  for (uint32_t seen; (seen = done.load(std::memory_order_acquire)) != target;) waitWhile(done, seen, never);
}

void Rank::computeThread() {
  device->enterThread();
  for (uint32_t count = 0;; ++count) {
    while (begun.load(std::memory_order_acquire) == count) waitWhile(begun, count, never);
    if (stopping) return;
    PreparedFragment &fragment = fragments[static_cast<size_t>(work.fragment)];
    ++fragment.generation;
    bool communicates = !fragment.lanes[1].empty();
    if (communicates) {
      communicationBegun.fetch_add(1, std::memory_order_release);
      wakeAll(communicationBegun);
    }
    if (device->arena())
      for (size_t i = 0; i < fragment.inputs.size(); ++i) {
        const PreparedFragment::Input &input = fragment.inputs[i];
        input.slice.run(work.inputs[i] + input.sourceOffset, device->arena() + input.targetOffset);
      }
    if (Status status = runLane(fragment, 0); !status) report(status);
    if (communicates) {
      uint32_t target = communicationBegun.load(std::memory_order_relaxed);
      for (uint32_t seen; (seen = communicationDone.load(std::memory_order_acquire)) != target;)
        waitWhile(communicationDone, seen, never);
    }
    done.store(count + 1, std::memory_order_release);
    wakeAll(done);
  }
}

void Rank::communicationThread() {
  device->enterThread();
  for (uint32_t count = 0;; ++count) {
    while (communicationBegun.load(std::memory_order_acquire) == count) waitWhile(communicationBegun, count, never);
    if (stopping) return;
    if (Status status = runLane(fragments[static_cast<size_t>(work.fragment)], 1); !status) report(status);
    communicationDone.store(count + 1, std::memory_order_release);
    wakeAll(communicationDone);
  }
}

Status Rank::runLane(PreparedFragment &fragment, int lane) {
  const AbortFlag &abort = fabric.abortFlag();
  TraceLane *trace = traces[lane];
  for (LaneItem &item : fragment.lanes[lane]) {
    for (Event *event : item.waits)
      if (!event->wait(fragment.generation, abort)) return runError("the run was aborted");
    if (abort.raised()) return runError("the run was aborted");
    int64_t begin = trace ? nowNanoseconds() : 0;
    Status status = item.command->run();
    if (!status) return abort.raised() ? runError("the run was aborted") : inCommand(*item.source, status);
    if (trace) trace->add(&item, work.step, begin, nowNanoseconds());
    if (item.record) item.record->set(fragment.generation);
  }
  return Status::ok();
}

} // namespace cleave::runtime
