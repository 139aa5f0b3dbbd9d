#include "runtime/engine/executor/rank.h"
#include "runtime/base/threads/parallel.h"
#include <algorithm>
#include <fmt/format.h>
#include <utility>

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
  int64_t most = 0;
  for (const plan::Fragment &fragment : program().fragments()) {
    int64_t elements = 0;
    for (const plan::OutputBinding &output : fragment.outputs()) elements += elementCount(output.buffer().shape());
    most = std::max(most, elements);
  }
  for (Work &work : works) work.outputs.reserve(static_cast<size_t>(most));
  used = lanesOf(program());
  for (int lane : used) {
    auto l = static_cast<size_t>(lane);
    if (trace) lanes[l].trace = &trace->lane(id, lane);
    lanes[l].isUsed = !signal || lane == computeLane;
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
  for (int l = 0; l < numLanes; ++l)
    if (signal || l == lane) lanes[static_cast<size_t>(l)].cursor = LaneCursor(l);
  bool moved = false;
  Status status = signal ? issueRoutine(work) : advance(work, lane, moved);
  if (!status) failed(id, work.step, status); // at once: the other lanes may wait for what this one will not do
  if (lane == computeLane) {                  // it ends a routine for all
    timed(lane, true, [&] {
      for (int other = 0; other < numLanes; ++other)
        if (other != computeLane) awaitLane(other, count + 1);
    });
    if (!prepared.fabric.abortFlag().raised())
      if (Status read = prepared.readOutputs(work.routine, work.outputs); !read) failed(id, work.step, read);
    state.store(RankReport::Outside, std::memory_order_relaxed);
    countStep(work);
  }
  Lane &own = lanes[static_cast<size_t>(lane)];
  own.done.store(count + 1, std::memory_order_release);
  wakeAll(own.done);
}

// All lanes on this thread: whichever can go on does, the compute lane a command at a time, the others as far as they
// come, so that what others wait for leaves at once.
Status Rank::issueRoutine(const Work &work) {
  const AbortFlag &abort = prepared.fabric.abortFlag();
  const size_t actions = routineOf(work).size();
  for (bool isEnded = false; !isEnded;) {
    uint32_t heard = signal->epoch();
    bool moved = false;
    isEnded = true;
    for (int lane : used) {
      CLEAVE_RETURN_IF_ERROR(advance(work, lane, moved));
      isEnded = isEnded && lanes[static_cast<size_t>(lane)].cursor.action() == actions;
    }
    if (abort.raised() || (!moved && !isEnded && !signal->wait(heard, abort))) return runError("the run was aborted");
  }
  return Status::ok();
}

// Takes a lane to its end, or where others share the thread, to what it has to wait for.
Status Rank::advance(const Work &work, int lane, bool &moved) {
  const PreparedRoutine &routine = routineOf(work);
  Lane &own = lanes[static_cast<size_t>(lane)];
  LaneCursor &at = own.cursor;
  const bool takesTurns = signal && lane == computeLane && used.size() > 1;
  for (LaneStep next; (next = at.next(routine)) != LaneStep::End; at.pass(next)) {
    const PreparedAction &action = routine.actions[at.action()];
    const uint32_t generation = work.generationOf(at.action());
    std::vector<LaneItem> &items = action.fragment->lanes[static_cast<size_t>(lane)];
    bool goesOn = true;
    if (next == LaneStep::AwaitLane) {
      const ActionWait &wait = at.awaited(routine);
      goesOn = hasHappened(lanes[static_cast<size_t>(wait.lane)].progress,
                           work.generationOf(static_cast<size_t>(wait.action)), lane);
    } else if (next == LaneStep::Inputs) {
      CLEAVE_RETURN_IF_ERROR(prepared.fillInputs(routine, at.action(), work, prepared.device.arena(), action.given));
    } else if (next == LaneStep::AwaitEvent) {
      goesOn = hasHappened(*items[at.item()].waits[at.event()], generation, lane);
    } else if (next == LaneStep::Command) {
      Result<bool> isDone = execute(work, lane, action, items[at.item()]);
      if (!isDone) return isDone.status();
      goesOn = *isDone;
      moved = moved || goesOn;
      if (goesOn && takesTurns && at.item() + 1 < items.size()) {
        at.pass(next);
        return Status::ok();
      }
    } else { // EndAction
      if (lane == computeLane || !items.empty()) happens(own.progress, generation);
      moved = true;
    }
    if (!goesOn) return signal ? Status::ok() : runError("the run was aborted");
  }
  return Status::ok();
}

// Waits for it, but where others share the thread. False: it has not happened, without a signal because of an abort.
bool Rank::hasHappened(const Event &event, uint32_t generation, int lane) {
  if (event.has(generation)) return true;
  return !signal && timed(lane, true, [&] { return event.wait(generation, prepared.fabric.abortFlag()); });
}

// Does a command, or where others share the thread, tries to. False: it has to be tried again.
Result<bool> Rank::execute(const Work &work, int lane, const PreparedAction &action, LaneItem &item) {
  const AbortFlag &abort = prepared.fabric.abortFlag();
  if (abort.raised()) return runError("the run was aborted");
  Lane &own = lanes[static_cast<size_t>(lane)];
  if (own.trace && own.commandBegan < 0) own.commandBegan = nowNanoseconds();
  own.fragment.store(action.fragment, std::memory_order_relaxed); // for report()
  own.current.store(&item, std::memory_order_release);
  auto run = [&]() -> Result<bool> {
    if (Status status = item.command->run(); !status) return status;
    return true;
  };
  Result<bool> isDone = signal ? item.command->issue() : timed(lane, isExchange(item), run);
  if (!isDone) return abort.raised() ? runError("the run was aborted") : inCommand(*item.source, isDone.status());
  if (!*isDone) return false;
  own.current.store(nullptr, std::memory_order_relaxed);
  own.commands.store(own.commands.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (item.record) happens(*item.record, work.generationOf(own.cursor.action()));
  if (item.traffic) ++item.traffic->count, item.traffic->bytes += item.sentBytes;
  if (own.trace) note(work, action, lane, item);
  return true;
}

// Writes a command that is done into the trace.
void Rank::note(const Work &work, const PreparedAction &action, int lane, const LaneItem &item) {
  const std::vector<LaneItem> &items = action.fragment->lanes[static_cast<size_t>(lane)];
  Lane &own = lanes[static_cast<size_t>(lane)];
  const int64_t began = std::exchange(own.commandBegan, -1), end = nowNanoseconds();
  if (&item == &items.front()) own.actionBegan = began;
  int64_t step = work.stepOf(*action.source);
  own.trace->add({item.source, action.source, action.fragment->source, step, began, end});
  if (lane == computeLane && &item == &items.back())
    own.trace->add({nullptr, action.source, action.fragment->source, step, own.actionBegan, end});
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
