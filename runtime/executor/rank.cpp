#include "runtime/executor/rank.h"
#include "runtime/executor/schedule.h"
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

Status Rank::prepare(const dist::Mesh &mesh, std::span<const std::vector<ActionWaits>> orders) {
  source = &plan.programs(programOf(plan, mesh, id));
  for (const plan::Fragment &fragment : source->fragments()) CLEAVE_RETURN_IF_ERROR(loadConstants(fragment, mesh));
  routines.resize(static_cast<size_t>(source->routines_size()));
  for (int r = 0; r < source->routines_size(); ++r) {
    const plan::Routine &routine = source->routines(r);
    PreparedRoutine &out = routines[static_cast<size_t>(r)];
    std::vector<const plan::InputBinding *> inputs = inputsOf(plan, routine.name());
    out.inputs = inputs.size();
    for (int a = 0; a < routine.actions_size(); ++a) {
      const plan::Action &action = routine.actions(a);
      const plan::Fragment &fragment = source->fragments(action.fragment());
      auto [found, added] = fragments.try_emplace({action.fragment(), action.slot()});
      if (added) CLEAVE_RETURN_IF_ERROR(prepareFragment(fragment, action.slot(), mesh, found->second));
      PreparedAction &prepared = out.actions.emplace_back();
      prepared.fragment = &found->second;
      prepared.source = &action;
      prepared.waits = orders[static_cast<size_t>(r)][static_cast<size_t>(a)];
      for (const plan::InputBinding &input : fragment.inputs())
        for (size_t i = 0; i < inputs.size(); ++i)
          if (inputs[i]->name() == input.name()) prepared.inputs.push_back(i);
    }
  }
  return device->finishPreparing();
}

Status Rank::loadConstants(const plan::Fragment &fragment, const dist::Mesh &mesh) {
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
  return Status::ok();
}

Status Rank::prepareFragment(const plan::Fragment &fragment, int32_t slot, const dist::Mesh &mesh,
                             PreparedFragment &out) {
  out.source = &fragment;
  for (const plan::InputBinding &input : fragment.inputs()) {
    Result<Shard> shard = shardOf(input.global_shape(), input.dims(), mesh, id);
    if (!shard) return shard.status();
    PreparedFragment::Input prepared;
    prepared.slice = sliceCopy({input.global_shape().begin(), input.global_shape().end()}, *shard,
                               byteSize(input.buffer().dtype()), prepared.sourceOffset);
    prepared.targetOffset = placeOf(input.buffer(), *source, fragment, slot);
    out.inputs.push_back(std::move(prepared));
  }
  std::map<int32_t, std::pair<Event *, int>> events; // by number: where, and on which lane
  for (const plan::Command &command : fragment.commands()) {
    int lane = laneOf(command);
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
    plan::Command placed = inSlot(command, *source, fragment, slot);
    bool isNull = !device->arena(); // nothing is sent: collectives are only checked
    if (isNull && placed.has_collective())
      if (Result<Prepared> sound = fabric.prepare(id, lane, placed.collective()); !sound)
        return inCommand(command, sound.status());
    Result<Prepared> prepared = isNull                    ? device->prepare(placed)
                                : placed.has_collective() ? fabric.prepare(id, lane, placed.collective())
                                : placed.has_transfer()   ? fabric.prepareTransfer(id, placed.transfer())
                                                          : device->prepare(placed);
    if (!prepared) return inCommand(command, prepared.status());
    item.command = std::move(*prepared);
    item.sentBytes = item.command->sentBytes();
    bool sends = command.has_transfer() && command.transfer().direction() == plan::Transfer::SEND &&
                 evaluate(command.transfer().peer(), mesh, id) != id;
    if (command.has_collective() || sends) item.traffic = &trafficOf(fragment, command);
    out.lanes[static_cast<size_t>(lane)].push_back(std::move(item));
  }
  return Status::ok();
}

void Rank::start(Trace *trace, std::function<void(int64_t, const Status &)> onFailure) {
  failed = std::move(onFailure);
  for (int lane = 0; lane < numLanes; ++lane) {
    auto l = static_cast<size_t>(lane);
    if (lane != computeLane && std::all_of(fragments.begin(), fragments.end(),
                                           [&](const auto &entry) { return entry.second.lanes[l].empty(); }))
      continue;
    if (trace) lanes[l].trace = &trace->lane(id, lane);
    lanes[l].thread = std::thread([this, lane] { laneThread(lane); });
  }
}

Rank::~Rank() {
  stopping = true;
  begun.fetch_add(1, std::memory_order_release);
  wakeAll(begun);
  for (Lane &lane : lanes)
    if (lane.thread.joinable()) lane.thread.join();
}

void Rank::begin(const RankWork &next) {
  firstGeneration += static_cast<uint32_t>(routines[static_cast<size_t>(work.routine)].actions.size());
  work = next;
  begun.fetch_add(1, std::memory_order_release);
  wakeAll(begun);
}

void Rank::finish() {
  uint32_t target = begun.load(std::memory_order_relaxed);
  for (Lane &lane : lanes)
    if (lane.thread.joinable())
      for (uint32_t seen; (seen = lane.done.load(std::memory_order_acquire)) != target;)
        waitWhile(lane.done, seen, never);
}

void Rank::laneThread(int lane) {
  device->enterThread();
  Lane &own = lanes[static_cast<size_t>(lane)];
  for (uint32_t count = 0;; ++count) {
    while (begun.load(std::memory_order_acquire) == count) waitWhile(begun, count, never);
    if (stopping) return;
    if (Status status = runRoutine(lane); !status) failed(id, status);
    own.done.store(count + 1, std::memory_order_release);
    wakeAll(own.done);
  }
}

Status Rank::runRoutine(int lane) {
  const PreparedRoutine &routine = routines[static_cast<size_t>(work.routine)];
  Lane &own = lanes[static_cast<size_t>(lane)];
  for (size_t number = 0; number < routine.actions.size(); ++number) {
    const PreparedAction &action = routine.actions[number];
    if (lane == computeLane)
      CLEAVE_RETURN_IF_ERROR(beginAction(action, number));
    else if (action.fragment->lanes[static_cast<size_t>(lane)].empty())
      continue;
    CLEAVE_RETURN_IF_ERROR(runAction(action, number, lane));
    own.progress.set(firstGeneration + 1 + static_cast<uint32_t>(number));
  }
  return Status::ok();
}

Status Rank::waitFor(const ActionWait &wait) {
  uint32_t generation = firstGeneration + 1 + static_cast<uint32_t>(wait.action);
  bool done = lanes[static_cast<size_t>(wait.lane)].progress.wait(generation, fabric.abortFlag());
  return done ? Status::ok() : runError("the run was aborted");
}

// Fills what the host gives: the inputs and scalars of the action's microbatch.
Status Rank::beginAction(const PreparedAction &action, size_t number) {
  for (const ActionWait &wait : action.waits[computeLane])
    if (wait.item < 0) CLEAVE_RETURN_IF_ERROR(waitFor(wait));
  const PreparedRoutine &routine = routines[static_cast<size_t>(work.routine)];
  int64_t microbatch = action.source->microbatch();
  for (const plan::HostScalar &scalar : source->host_scalars()) {
    if (number > 0 && scalar.kind() != plan::HostScalar::STEP) continue; // the same for all microbatches
    CLEAVE_RETURN_IF_ERROR(hostScalarBytes(scalar, plan.training(), work.step, work.skipped, microbatch, scalarBytes));
    CLEAVE_RETURN_IF_ERROR(
        device->write(scalar.buffer().offset(), scalarBytes.data(), static_cast<int64_t>(scalarBytes.size())));
  }
  if (!device->arena()) return Status::ok();
  const std::byte *const *inputs = work.inputs + static_cast<size_t>(microbatch) * routine.inputs;
  for (size_t i = 0; i < action.inputs.size(); ++i) {
    const PreparedFragment::Input &input = action.fragment->inputs[i];
    input.slice.run(inputs[action.inputs[i]] + input.sourceOffset, device->arena() + input.targetOffset);
  }
  return Status::ok();
}

Status Rank::runAction(const PreparedAction &action, size_t number, int lane) {
  auto l = static_cast<size_t>(lane);
  const AbortFlag &abort = fabric.abortFlag();
  uint32_t generation = firstGeneration + 1 + static_cast<uint32_t>(number);
  const std::vector<ActionWait> &waits = action.waits[l];
  std::vector<LaneItem> &items = action.fragment->lanes[l];
  TraceLane *trace = lanes[l].trace;
  int64_t actionBegin = 0, end = 0;
  auto next = waits.begin();
  for (size_t i = 0; i < items.size(); ++i) {
    LaneItem &item = items[i];
    for (; next != waits.end() && next->item <= static_cast<int>(i); ++next) CLEAVE_RETURN_IF_ERROR(waitFor(*next));
    for (Event *event : item.waits)
      if (!event->wait(generation, abort)) return runError("the run was aborted");
    if (abort.raised()) return runError("the run was aborted");
    int64_t begin = trace ? nowNanoseconds() : 0;
    Status status = item.command->run();
    if (!status) return abort.raised() ? runError("the run was aborted") : inCommand(*item.source, status);
    if (item.record) item.record->set(generation);
    if (item.traffic) ++item.traffic->count, item.traffic->bytes += item.sentBytes;
    if (!trace) continue;
    end = nowNanoseconds();
    trace->add({item.source, action.source, action.fragment->source, work.step, begin, end});
    if (i == 0) actionBegin = begin;
  }
  if (trace && lane == computeLane && !items.empty())
    trace->add({nullptr, action.source, action.fragment->source, work.step, actionBegin, end});
  return Status::ok();
}

Traffic &Rank::trafficOf(const plan::Fragment &fragment, const plan::Command &command) {
  Traffic kind{fragment.name(), command.has_transfer() ? "send" : kindName(command), {}, command.phase()};
  if (command.has_collective()) kind.axes = {command.collective().axes().begin(), command.collective().axes().end()};
  std::deque<Traffic> &known = sent[static_cast<size_t>(laneOf(command))];
  for (Traffic &traffic : known)
    if (traffic.isAlike(kind)) return traffic;
  return known.emplace_back(kind);
}

std::vector<Traffic> Rank::traffic() const {
  std::vector<Traffic> all;
  for (const std::deque<Traffic> &lane : sent)
    for (const Traffic &one : lane) {
      auto found = std::find_if(all.begin(), all.end(), [&](const Traffic &seen) { return seen.isAlike(one); });
      if (found == all.end())
        all.push_back(one);
      else
        found->count += one.count, found->bytes += one.bytes;
    }
  return all;
}

} // namespace cleave::runtime
