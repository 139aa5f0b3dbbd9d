#include "runtime/engine/executor/rank.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/plan/lr_schedule.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {

namespace {
bool isExchange(const LaneItem &item) { return item.source->has_collective() || item.source->has_transfer(); }
} // namespace

// Counts what the compute lane waits for others; ranks in one process share its cores, which tells nothing.
template <typename Wait> auto Rank::timed(int lane, bool waits, Wait wait) {
  struct Timer {
    int64_t *into, began;
    ~Timer() {
      if (into) *into += nowNanoseconds() - began;
    }
  };
  bool counts = waits && lane == computeLane && !signal;
  Timer timer{counts ? &waited : nullptr, counts ? nowNanoseconds() : 0};
  return wait();
}

void Rank::start(Trace *trace, std::function<void(int64_t, int64_t, const Status &)> onFailure) {
  failed = std::move(onFailure);
  int most = 0;
  for (const plan::Fragment &fragment : program().fragments()) most = std::max(most, fragment.outputs_size());
  for (Work &work : works) work.outputs.reserve(static_cast<size_t>(most));
  for (int lane : lanesOf(program())) {
    auto l = static_cast<size_t>(lane);
    if (trace) lanes[l].trace = &trace->lane(id, lane);
    lanes[l].isUsed = !signal || lane == computeLane;
    if (lane != computeLane) others.push_back(lane);
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
  auto wait = signal ? yieldWhile : waitWhile;
  for (uint32_t seen; static_cast<int32_t>((seen = other.done.load(std::memory_order_acquire)) - count) < 0;)
    (void)wait(other.done, seen, never);
}

void Rank::laneThread(int lane) {
  prepared.device.enterThread();
  for (uint32_t count = 0;; ++count) {
    // The thread that computes looks out for the next step; the others sleep.
    auto wait = lane == computeLane ? yieldWhile : sleepWhile;
    for (uint32_t seen; (seen = begun.load(std::memory_order_acquire)) == count;) (void)wait(begun, seen, never);
    if (stopping) return;
    runNext(lane, count);
  }
}

// A lane's part of the routine that was begun after `count` others.
void Rank::runNext(int lane, uint32_t count) {
  Work &work = works[count % mostWaiting];
  if (lane != computeLane) awaitLane(computeLane, count);
  if (lane == computeLane) {
    stepNow.store(work.step, std::memory_order_relaxed);
    state.store(RankReport::Waiting, std::memory_order_relaxed);
  }
  Status status = signal ? issueRoutine(work) : runRoutine(work, lane);
  if (!status) failed(id, work.step, status); // at once: the other lanes may wait for what this one will not do
  if (lane == computeLane) {                  // it ends a routine for all
    timed(lane, true, [&] {
      for (int other = 0; other < numLanes; ++other)
        if (other != computeLane) awaitLane(other, count + 1);
    });
    if (!prepared.fabric.abortFlag().raised())
      if (Status read = prepared.readOutputs(work.routine, work.outputs); !read) failed(id, work.step, read);
  }
  if (lane == computeLane) {
    state.store(RankReport::Outside, std::memory_order_relaxed);
    countStep(work);
  }
  Lane &own = lanes[static_cast<size_t>(lane)];
  own.done.store(count + 1, std::memory_order_release);
  wakeAll(own.done);
}

Status Rank::runRoutine(const Work &work, int lane) {
  const PreparedRoutine &routine = prepared.routines[static_cast<size_t>(work.routine)];
  auto l = static_cast<size_t>(lane);
  for (size_t number = 0; number < routine.actions.size(); ++number) {
    const PreparedAction &action = routine.actions[number];
    auto wait = action.waits[l].begin(), end = action.waits[l].end();
    if (lane == computeLane) {
      for (; wait != end && wait->item < 0; ++wait) CLEAVE_RETURN_IF_ERROR(waitFor(work, lane, *wait));
      CLEAVE_RETURN_IF_ERROR(fillInputs(work, action, number));
    }
    std::vector<LaneItem> &items = action.fragment->lanes[l];
    for (size_t i = 0; i < items.size(); ++i) {
      for (; wait != end && wait->item <= static_cast<int>(i); ++wait)
        CLEAVE_RETURN_IF_ERROR(waitFor(work, lane, *wait));
      for (Event *event : items[i].waits) {
        uint32_t generation = work.generationOf(number);
        bool isThere = event->has(generation) ||
                       timed(lane, true, [&] { return event->wait(generation, prepared.fabric.abortFlag()); });
        if (!isThere) return runError("the run was aborted");
      }
      if (prepared.fabric.abortFlag().raised()) return runError("the run was aborted");
      int64_t began = timeOf(lane);
      enter(lane, action, items[i]);
      CLEAVE_RETURN_IF_ERROR(
          done(items[i], timed(lane, isExchange(items[i]), [&] { return items[i].command->run(); })));
      leave(lane);
      if (items[i].record) items[i].record->set(work.generationOf(number));
      note(work, action, lane, i, began);
    }
    if (lane == computeLane || !items.empty()) lanes[l].progress.set(work.generationOf(number));
  }
  return Status::ok();
}

Status Rank::waitFor(const Work &work, int lane, const ActionWait &wait) {
  uint32_t generation = work.generationOf(static_cast<size_t>(wait.action));
  const Event &progress = lanes[static_cast<size_t>(wait.lane)].progress;
  bool isDone = progress.has(generation) ||
                timed(lane, true, [&] { return progress.wait(generation, prepared.fabric.abortFlag()); });
  return isDone ? Status::ok() : runError("the run was aborted");
}

// All lanes on this thread: whichever can go on does, the compute lane a command at a time, the others as far as they
// come, so that what others wait for leaves at once.
Status Rank::issueRoutine(const Work &work) {
  cursors = {};
  const size_t actions = prepared.routines[static_cast<size_t>(work.routine)].actions.size();
  const AbortFlag &abort = prepared.fabric.abortFlag();
  for (bool isEnded = false; !isEnded;) {
    uint32_t heard = signal->epoch();
    bool moved = false;
    CLEAVE_RETURN_IF_ERROR(advance(work, computeLane, moved));
    isEnded = cursors[computeLane].action == actions;
    for (int lane : others) {
      CLEAVE_RETURN_IF_ERROR(advance(work, lane, moved));
      isEnded = isEnded && cursors[static_cast<size_t>(lane)].action == actions;
    }
    if (abort.raised() || (!moved && !isEnded && !signal->wait(heard, abort))) return runError("the run was aborted");
  }
  return Status::ok();
}

Status Rank::advance(const Work &work, int lane, bool &moved) {
  auto l = static_cast<size_t>(lane);
  Cursor &own = cursors[l];
  const std::vector<PreparedAction> &actions = prepared.routines[static_cast<size_t>(work.routine)].actions;
  for (; own.action < actions.size(); own = {.action = own.action + 1}, moved = true) {
    const PreparedAction &action = actions[own.action];
    std::vector<LaneItem> &items = action.fragment->lanes[l];
    if (lane != computeLane && items.empty()) continue;
    // May go on before its item, -1 for the inputs.
    auto isFree = [&](int item) {
      for (const std::vector<ActionWait> &waits = action.waits[l];
           own.wait < waits.size() && waits[own.wait].item <= item; ++own.wait)
        if (cursors[static_cast<size_t>(waits[own.wait].lane)].action <= static_cast<size_t>(waits[own.wait].action))
          return false;
      return true;
    };
    if (lane == computeLane && !own.isFilled) {
      if (!isFree(-1)) return Status::ok();
      CLEAVE_RETURN_IF_ERROR(fillInputs(work, action, own.action));
      own.isFilled = true;
    }
    for (; own.item < items.size(); ++own.item) {
      LaneItem &item = items[own.item];
      if (!isFree(static_cast<int>(own.item))) return Status::ok();
      for (const Event *event : item.waits)
        if (!event->has(work.generationOf(own.action))) return Status::ok();
      if (prepared.fabric.abortFlag().raised()) return runError("the run was aborted");
      if (own.began < 0) own.began = timeOf(lane);
      enter(lane, action, item);
      Result<bool> isDone = item.command->issue();
      CLEAVE_RETURN_IF_ERROR(done(item, isDone.status()));
      if (!*isDone) return Status::ok();
      leave(lane);
      if (item.record) item.record->mark(work.generationOf(own.action));
      note(work, action, lane, own.item, own.began);
      own.began = -1;
      moved = true;
      if (lane == computeLane && own.item + 1 < items.size()) {
        ++own.item;
        return Status::ok();
      }
    }
  }
  return Status::ok();
}

// Fills what the host gives: the inputs and scalars of the action's microbatch.
Status Rank::fillInputs(const Work &work, const PreparedAction &action, size_t number) {
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

// The status of a command's run, as the rank's.
Status Rank::done(const LaneItem &item, const Status &status) const {
  if (status) return status;
  return prepared.fabric.abortFlag().raised() ? runError("the run was aborted") : inCommand(*item.source, status);
}

int64_t Rank::timeOf(int lane) const { return lanes[static_cast<size_t>(lane)].trace ? nowNanoseconds() : 0; }

// Counts what a command that is done has sent, and writes it into the trace.
void Rank::note(const Work &work, const PreparedAction &action, int lane, size_t number, int64_t began) {
  const std::vector<LaneItem> &items = action.fragment->lanes[static_cast<size_t>(lane)];
  const LaneItem &item = items[number];
  if (item.traffic) ++item.traffic->count, item.traffic->bytes += item.sentBytes;
  Lane &own = lanes[static_cast<size_t>(lane)];
  if (!own.trace) return;
  if (number == 0) own.actionBegan = began;
  int64_t end = nowNanoseconds();
  int64_t step = work.stepOf(*action.source);
  own.trace->add({item.source, action.source, action.fragment->source, step, began, end});
  if (lane == computeLane && number + 1 == items.size())
    own.trace->add({nullptr, action.source, action.fragment->source, step, own.actionBegan, end});
}

void Rank::enter(int lane, const PreparedAction &action, const LaneItem &item) {
  Lane &own = lanes[static_cast<size_t>(lane)];
  own.fragment.store(action.fragment, std::memory_order_relaxed);
  own.current.store(&item, std::memory_order_release);
}

void Rank::leave(int lane) {
  Lane &own = lanes[static_cast<size_t>(lane)];
  own.current.store(nullptr, std::memory_order_relaxed);
  own.commands.store(own.commands.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// The first step, which touches memory and makes code, is in no window.
void Rank::countStep(const Work &work) {
  const std::string &name = program().routines(work.routine).name();
  if (signal || (!name.starts_with("step") && name != "drain")) return;
  int64_t now = nowNanoseconds();
  if (stepsSeen > 0 && stepsSeen % stepsOfWindow == 0) {
    ownSeconds.store(static_cast<double>(now - windowBegan - waited) / 1e9 / stepsOfWindow, std::memory_order_relaxed);
    window.store(stepsSeen / stepsOfWindow, std::memory_order_release);
  }
  if (stepsSeen++ % stepsOfWindow == 0) windowBegan = now, waited = 0;
}

RankReport Rank::report() const {
  RankReport report{.state = state.load(std::memory_order_relaxed), .window = window.load(std::memory_order_acquire)};
  report.ownSeconds = ownSeconds.load(std::memory_order_relaxed);
  const LaneItem *shown = nullptr;
  const PreparedFragment *fragment = nullptr;
  for (const Lane &lane : lanes) {
    report.progress += lane.commands.load(std::memory_order_relaxed);
    const LaneItem *item = lane.current.load(std::memory_order_acquire);
    if (!item) continue;
    bool isBusy = report.state != RankReport::Outside && !isExchange(*item);
    if (isBusy) report.state = RankReport::Busy;
    if (!shown || isBusy) shown = item, fragment = lane.fragment.load(std::memory_order_relaxed);
  }
  if (report.state == RankReport::Starting) return report;
  report.where = fmt::format("step {}", stepNow.load(std::memory_order_relaxed) + 1);
  if (shown && fragment)
    report.where += fmt::format(", command '{}' ({}) of {}", shown->source->name(), kindName(*shown->source),
                                fragment->source->name());
  return report;
}

} // namespace cleave::runtime
