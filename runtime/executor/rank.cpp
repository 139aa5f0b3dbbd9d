#include "runtime/executor/rank.h"
#include "runtime/executor/schedule.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {

void Rank::start(Trace *trace, std::function<void(int64_t, const Status &)> onFailure) {
  failed = std::move(onFailure);
  for (int lane = 0; lane < numLanes; ++lane) {
    auto l = static_cast<size_t>(lane);
    if (lane != computeLane && std::all_of(prepared.fragments.begin(), prepared.fragments.end(),
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
  firstGeneration += static_cast<uint32_t>(prepared.routines[static_cast<size_t>(work.routine)].actions.size());
  work = next;
  begun.fetch_add(1, std::memory_order_release);
  wakeAll(begun);
}

void Rank::finish() {
  uint32_t target = begun.load(std::memory_order_relaxed);
  for (Lane &lane : lanes)
    if (lane.thread.joinable())
      for (uint32_t seen; (seen = lane.done.load(std::memory_order_acquire)) != target;)
        sleepWhile(lane.done, seen, never);
}

void Rank::laneThread(int lane) {
  prepared.device.enterThread();
  Lane &own = lanes[static_cast<size_t>(lane)];
  for (uint32_t count = 0;; ++count) {
    while (begun.load(std::memory_order_acquire) == count) sleepWhile(begun, count, never);
    if (stopping) return;
    if (Status status = runRoutine(lane); !status) failed(id, status);
    own.done.store(count + 1, std::memory_order_release);
    wakeAll(own.done);
  }
}

Status Rank::runRoutine(int lane) {
  const PreparedRoutine &routine = prepared.routines[static_cast<size_t>(work.routine)];
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
  bool done = lanes[static_cast<size_t>(wait.lane)].progress.wait(generation, prepared.fabric.abortFlag());
  return done ? Status::ok() : runError("the run was aborted");
}

// Fills what the host gives: the inputs and scalars of the action's microbatch.
Status Rank::beginAction(const PreparedAction &action, size_t number) {
  for (const ActionWait &wait : action.waits[computeLane])
    if (wait.item < 0) CLEAVE_RETURN_IF_ERROR(waitFor(wait));
  const PreparedRoutine &routine = prepared.routines[static_cast<size_t>(work.routine)];
  int64_t microbatch = action.source->microbatch();
  for (const plan::HostScalar &scalar : program().host_scalars()) {
    if (number > 0 && scalar.kind() != plan::HostScalar::STEP) continue; // the same for all microbatches
    CLEAVE_RETURN_IF_ERROR(
        hostScalarBytes(scalar, prepared.plan.training(), work.step, work.skipped, microbatch, scalarBytes));
    CLEAVE_RETURN_IF_ERROR(
        prepared.device.write(scalar.buffer().offset(), scalarBytes.data(), static_cast<int64_t>(scalarBytes.size())));
  }
  if (!prepared.device.arena()) return Status::ok();
  const std::byte *const *inputs = work.inputs + static_cast<size_t>(microbatch) * routine.inputs;
  for (size_t i = 0; i < action.inputs.size(); ++i) {
    const PreparedFragment::Input &input = action.fragment->inputs[i];
    input.slice.run(inputs[action.inputs[i]] + input.sourceOffset, prepared.device.arena() + input.targetOffset);
  }
  return Status::ok();
}

Status Rank::runAction(const PreparedAction &action, size_t number, int lane) {
  auto l = static_cast<size_t>(lane);
  const AbortFlag &abort = prepared.fabric.abortFlag();
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

} // namespace cleave::runtime
