#include "runtime/executor/rank.h"
#include "runtime/device/parallel.h"
#include "runtime/executor/schedule.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {

void Rank::start(Trace *trace, std::function<void(int64_t, int64_t, const Status &)> onFailure) {
  failed = std::move(onFailure);
  int most = 0;
  for (const plan::Fragment &fragment : program().fragments()) most = std::max(most, fragment.outputs_size());
  for (Work &work : works) work.outputs.reserve(static_cast<size_t>(most));
  for (int lane : lanesOf(program())) {
    auto l = static_cast<size_t>(lane);
    if (trace) lanes[l].trace = &trace->lane(id, lane);
    lanes[l].isUsed = true;
  }
  for (int lane = 0; lane < numLanes; ++lane) {
    Lane &own = lanes[static_cast<size_t>(lane)];
    if (own.isUsed && !(computesInFinish && lane == computeLane))
      own.thread = std::thread([this, lane] { laneThread(lane); });
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
  Work &work = works[begun.load(std::memory_order_relaxed) % mostWaiting];
  static_cast<RankWork &>(work) = next;
  work.firstGeneration = nextGeneration;
  nextGeneration += static_cast<uint32_t>(prepared.routines[static_cast<size_t>(next.routine)].actions.size());
  begun.fetch_add(1, std::memory_order_release);
  wakeAll(begun);
}

std::span<const double> Rank::finish() {
  if (computesInFinish) {
    CallersThreads callers;
    prepared.device.enterThread();
    runNext(computeLane, finished);
  }
  const Work &work = works[finished++ % mostWaiting];
  for (int lane = 0; lane < numLanes; ++lane) awaitLane(lane, finished);
  return work.outputs;
}

// Until the lane is done with so many routines.
void Rank::awaitLane(int lane, uint32_t count) {
  Lane &other = lanes[static_cast<size_t>(lane)];
  if (!other.isUsed) return;
  for (uint32_t seen; static_cast<int32_t>((seen = other.done.load(std::memory_order_acquire)) - count) < 0;)
    (void)waitWhile(other.done, seen, never);
}

void Rank::laneThread(int lane) {
  prepared.device.enterThread();
  for (uint32_t count = 0;; ++count) {
    // Where threads are no more than the cores a computing one looks out for the next step; the others sleep.
    auto wait = lane == computeLane ? waitWhile : sleepWhile;
    for (uint32_t seen; (seen = begun.load(std::memory_order_acquire)) == count;) (void)wait(begun, seen, never);
    if (stopping) return;
    runNext(lane, count);
  }
}

// A lane's part of the routine that was begun after `count` others.
void Rank::runNext(int lane, uint32_t count) {
  Work &work = works[count % mostWaiting];
  if (lane != computeLane) awaitLane(computeLane, count);
  Status status = runRoutine(work, lane);
  if (!status) failed(id, work.step, status); // at once: the other lanes may wait for what this one will not do
  if (lane == computeLane) {                  // it ends a routine for all
    for (int other = 0; other < numLanes; ++other)
      if (other != computeLane) awaitLane(other, count + 1);
    if (!prepared.fabric.abortFlag().raised())
      if (Status read = prepared.readOutputs(work.routine, work.outputs); !read) failed(id, work.step, read);
  }
  Lane &own = lanes[static_cast<size_t>(lane)];
  own.done.store(count + 1, std::memory_order_release);
  wakeAll(own.done);
}

Status Rank::runRoutine(const Work &work, int lane) {
  const PreparedRoutine &routine = prepared.routines[static_cast<size_t>(work.routine)];
  Lane &own = lanes[static_cast<size_t>(lane)];
  for (size_t number = 0; number < routine.actions.size(); ++number) {
    const PreparedAction &action = routine.actions[number];
    if (lane == computeLane)
      CLEAVE_RETURN_IF_ERROR(beginAction(work, action, number));
    else if (action.fragment->lanes[static_cast<size_t>(lane)].empty())
      continue;
    CLEAVE_RETURN_IF_ERROR(runAction(work, action, number, lane));
    own.progress.set(work.firstGeneration + 1 + static_cast<uint32_t>(number));
  }
  return Status::ok();
}

Status Rank::waitFor(const Work &work, const ActionWait &wait) {
  uint32_t generation = work.firstGeneration + 1 + static_cast<uint32_t>(wait.action);
  bool done = lanes[static_cast<size_t>(wait.lane)].progress.wait(generation, prepared.fabric.abortFlag());
  return done ? Status::ok() : runError("the run was aborted");
}

// Fills what the host gives: the inputs and scalars of the action's microbatch.
Status Rank::beginAction(const Work &work, const PreparedAction &action, size_t number) {
  for (const ActionWait &wait : action.waits[computeLane])
    if (wait.item < 0) CLEAVE_RETURN_IF_ERROR(waitFor(work, wait));
  const PreparedRoutine &routine = prepared.routines[static_cast<size_t>(work.routine)];
  int64_t microbatch = action.source->microbatch();
  for (const plan::HostScalar &scalar : program().host_scalars()) {
    if (number > 0 && scalar.kind() != plan::HostScalar::STEP) continue; // the same for all microbatches
    CLEAVE_RETURN_IF_ERROR(
        hostScalarBytes(scalar, prepared.plan.training(),
                        scalar.kind() == plan::HostScalar::STEP ? work.stepOf(*action.source) : work.step, work.skipped,
                        microbatch, scalarBytes));
    CLEAVE_RETURN_IF_ERROR(
        prepared.device.write(scalar.buffer().offset(), scalarBytes.data(), static_cast<int64_t>(scalarBytes.size())));
  }
  if (!prepared.device.arena()) return Status::ok();
  const std::byte *const *inputs = work.inputsOf(*action.source) + static_cast<size_t>(microbatch) * routine.inputs;
  for (size_t i = 0; i < action.inputs.size(); ++i) {
    const PreparedFragment::Input &input = action.fragment->inputs[i];
    input.slice.run(inputs[action.inputs[i]] + input.sourceOffset, prepared.device.arena() + input.targetOffset);
  }
  return Status::ok();
}

Status Rank::runAction(const Work &work, const PreparedAction &action, size_t number, int lane) {
  auto l = static_cast<size_t>(lane);
  const AbortFlag &abort = prepared.fabric.abortFlag();
  uint32_t generation = work.firstGeneration + 1 + static_cast<uint32_t>(number);
  const std::vector<ActionWait> &waits = action.waits[l];
  std::vector<LaneItem> &items = action.fragment->lanes[l];
  TraceLane *trace = lanes[l].trace;
  int64_t actionBegin = 0, end = 0;
  auto next = waits.begin();
  for (size_t i = 0; i < items.size(); ++i) {
    LaneItem &item = items[i];
    for (; next != waits.end() && next->item <= static_cast<int>(i); ++next)
      CLEAVE_RETURN_IF_ERROR(waitFor(work, *next));
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
    trace->add({item.source, action.source, action.fragment->source, work.stepOf(*action.source), begin, end});
    if (i == 0) actionBegin = begin;
  }
  if (trace && lane == computeLane && !items.empty())
    trace->add({nullptr, action.source, action.fragment->source, work.stepOf(*action.source), actionBegin, end});
  return Status::ok();
}

} // namespace cleave::runtime
