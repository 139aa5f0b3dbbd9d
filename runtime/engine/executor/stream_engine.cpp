#include "runtime/engine/executor/stream_engine.h"
#include "runtime/base/threads/wait.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/fault.h"
#include "runtime/plan/staged_inputs.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <unordered_set>
#include <utility>

namespace cleave::runtime {

using cuda::CudaDevice;
using cuda::StreamEvent;

namespace {
constexpr int64_t wordBytes = 8; // of a fault in pinned memory, where outputs follow in whole words
int64_t resultBytes(const PreparedProgram::Output &output) {
  return (output.bytes + wordBytes - 1) / wordBytes * wordBytes;
}
} // namespace

StreamEngine::StreamEngine(std::vector<PreparedProgram *> programs, std::vector<CudaDevice *> devices,
                           cuda::StreamFabric &fabric, StreamOptions options)
    : programs(std::move(programs)), devices(std::move(devices)), fabric(fabric), options(options) {
  if (!options.trace) return;
  std::vector<const cuda::Gpu *> gpus;
  for (CudaDevice *device : this->devices) gpus.push_back(&device->gpu());
  timing = std::make_unique<StreamTrace>(*options.trace, std::move(gpus));
}

StreamEngine::~StreamEngine() {
  for (CudaDevice *device : devices) device->drain(); // ranks use each other's memory
  dropGraphs();
}

void StreamEngine::dropGraphs() {
  const cuda::Gpu &gpu = devices.front()->gpu();
  (void)gpu.enter();
  for (auto &[name, routine] : routines)
    for (cuda::GraphExec &graph : routine.graphs)
      if (cuda::GraphExec dropped = std::exchange(graph, nullptr)) gpu.driver.graphExecDestroy(dropped);
}

Status StreamEngine::open() {
  cuda::Gpu &first = devices.front()->gpu();
  for (Turn &one : turns)
    for (StreamEvent *event : {&one.begin, &one.end})
      CLEAVE_RETURN_IF_ERROR(event->make(first, StreamEvent::Keeps::Time));
  CLEAVE_RETURN_IF_ERROR(notice.make(first));
  CLEAVE_RETURN_IF_ERROR(recorder.open(devices, programs.front()->plan.mesh()));
  int64_t outputs = 0; // bytes
  for (int number = 0; number < programs.front()->program().routines_size(); ++number) {
    int64_t bytes = 0;
    for (const PreparedProgram::Output &output : programs.front()->outputsOf(number)) bytes += resultBytes(output);
    outputs = std::max(outputs, bytes);
  }
  for (cuda::PinnedMemory &result : results) {
    CLEAVE_RETURN_IF_ERROR(result.allocate(first, static_cast<int64_t>(programs.size()) * wordBytes + outputs));
    std::memset(result.data(), 0, static_cast<size_t>(result.bytes()));
  }
  for (size_t r = 0; r < programs.size(); ++r) {
    lanes.push_back(lanesOf(programs[r]->program()));
    CLEAVE_RETURN_IF_ERROR(devices[r]->allocateStages(stageBytes(programs[r]->program())));
    for (StreamEvent &event : copied.emplace_back()) CLEAVE_RETURN_IF_ERROR(event.make(devices[r]->gpu()));
    CLEAVE_RETURN_IF_ERROR(begins.emplace_back().make(devices[r]->gpu()));
    CLEAVE_RETURN_IF_ERROR(commandEnds.emplace_back().make(devices[r]->gpu()));
    for (StreamEvent &laneEnd : laneEnds.emplace_back()) CLEAVE_RETURN_IF_ERROR(laneEnd.make(devices[r]->gpu()));
    for (const auto &[key, fragment] : programs[r]->fragments)
      for (const Event &event : fragment.events) {
        auto made = std::make_unique<StreamEvent>();
        CLEAVE_RETURN_IF_ERROR(made->make(devices[r]->gpu()));
        events.emplace(&event, std::move(made));
      }
  }
  for (const plan::Routine &routine : programs.front()->program().routines())
    CLEAVE_RETURN_IF_ERROR(openRoutine(routine.name(), routines[routine.name()]));
  return fabric.waitsInKernels() ? loadLibraryKernels() : Status::ok();
}

// Libraries load a kernel at its first launch, for which the driver may wait until the GPU is idle (CUDA C++
// Programming Guide, "Lazy Loading: Concurrent Execution"): never, if an exchange waits for what this launch is to
// compute. So each of their commands runs once before the first exchange. The arena is zeros then, but for constants:
// so is what they add up.
Status StreamEngine::loadLibraryKernels() {
  for (size_t r = 0; r < programs.size(); ++r) {
    CLEAVE_RETURN_IF_ERROR(devices[r]->gpu().enter());
    std::unordered_set<const plan::Command *> done; // once for all slots
    for (auto &[key, fragment] : programs[r]->fragments)
      for (std::vector<LaneItem> &items : fragment.lanes)
        for (LaneItem &item : items) {
          const plan::Command &command = *item.source;
          bool isOfLibrary = command.has_contract() || command.has_convolution() || command.has_attention();
          if (isOfLibrary && done.insert(&command).second)
            if (Status status = item.command->run(); !status) return inCommand(command, status);
        }
    CLEAVE_RETURN_IF_ERROR(devices[r]->synchronize());
  }
  return Status::ok();
}

Status StreamEngine::openRoutine(const std::string &name, Routine &routine) {
  for (size_t r = 0; r < programs.size(); ++r) {
    const PreparedProgram &program = *programs[r];
    int number = 0;
    while (program.program().routines(number).name() != name) ++number;
    routine.numbers.push_back(number);
    Rank &rank = routine.ranks.emplace_back();
    const PreparedRoutine &prepared = program.routines[static_cast<size_t>(number)];
    rank.uploads.resize(prepared.size());
    rank.inStage.resize(prepared.size());
    rank.staged = forEachStaged(program.program(), program.program().routines(number), [&](const StagedInput &input) {
      const auto action = static_cast<size_t>(input.action);
      std::vector<int64_t> &inStage = rank.inStage[action];
      const int64_t to = prepared.actions[action].given[inStage.size()];
      rank.uploads[action].push_back({input.offset, devices[r]->address(to), input.bytes});
      inStage.push_back(input.offset);
    });
    for (const PreparedAction &action : prepared.actions) {
      for (const std::vector<ActionWait> &waits : action.waits)
        for (const ActionWait &wait : waits) {
          auto [event, added] = rank.ends.try_emplace({wait.lane, wait.action});
          if (added) CLEAVE_RETURN_IF_ERROR(event->second.make(devices[r]->gpu()));
        }
    }
  }
  return Status::ok();
}

// Copies the host's values into pinned memory, which the run before the last one has left.
Status StreamEngine::fill(Routine &routine, const RankWork &work) {
  for (size_t r = 0; r < programs.size(); ++r)
    for (size_t a = 0; a < chainOf(routine, r).size(); ++a)
      CLEAVE_RETURN_IF_ERROR(programs[r]->fillInputs(chainOf(routine, r), a, work, devices[r]->stage(turn).host.data(),
                                                     routine.ranks[r].inStage[a]));
  return Status::ok();
}

// Beside the run before this one.
Status StreamEngine::copyToStages(Routine &routine) {
  for (size_t r = 0; r < programs.size(); ++r) {
    const CudaDevice &device = *devices[r];
    const cuda::Gpu &gpu = device.gpu();
    CLEAVE_RETURN_IF_ERROR(gpu.enter());
    const CudaDevice::Stage &stage = device.stage(turn);
    if (routine.ranks[r].staged)
      CLEAVE_RETURN_IF_ERROR(
          gpu.check(gpu.driver.memcpyAsync(stage.memory.address(), stage.host.address(),
                                           static_cast<size_t>(routine.ranks[r].staged), device.uploads()),
                    "cannot copy the inputs to the GPU"));
    CLEAVE_RETURN_IF_ERROR(copied[r][stageOf(turn)].record(device.uploads(), runNumber));
  }
  return Status::ok();
}

// The first stream goes on when the inputs of all ranks are there.
Status StreamEngine::awaitStages() {
  CLEAVE_RETURN_IF_ERROR(devices.front()->gpu().enter());
  cuda::Stream first = devices.front()->stream(computeLane);
  for (const std::array<StreamEvent, 2> &events : copied)
    CLEAVE_RETURN_IF_ERROR(events[stageOf(turn)].waitOn(first, runNumber));
  return turnOf(turn).begin.record(first, runNumber);
}

void StreamEngine::begin(const std::string &name, const RankWork &work) {
  const bool isSound = running.empty() || running.back().failure.isOk(); // else nothing comes behind it
  Run &run = running.emplace_back(&routines.at(name), ++turn);
  failed = programs.front()->id;
  if (isSound) run.failure = beginRoutine(run, work);
  run.failedRank = failed;
}

Status StreamEngine::finish(std::vector<double> &outputs) {
  Status status = finishRoutine(running.front(), outputs);
  running.pop_front();
  if (!status) dropGraphs(); // communicators do not end, not even aborted, as long as a graph has calls of theirs
  return status;
}

// A run that is timed, or waited for command by command, is alone. One that is enqueued command by command begins when
// the one before has ended, and so does what comes behind it: a stream takes so many commands, then the driver holds
// the host up without a limit.
Status StreamEngine::beginRoutine(Run &run, const RankWork &work) {
  Routine &routine = *run.routine;
  run.isTraced = timing && timing->takes(work.step);
  if (run.isTraced || options.debug) CLEAVE_RETURN_IF_ERROR(awaitEarlier());
  ++runNumber;
  CLEAVE_RETURN_IF_ERROR(fill(routine, work));
  CLEAVE_RETURN_IF_ERROR(copyToStages(routine));
  if (std::ranges::any_of(running, [&](const Run &one) { return &one != &run && !one.isGraph; }))
    CLEAVE_RETURN_IF_ERROR(awaitEarlier());
  CLEAVE_RETURN_IF_ERROR(awaitStages());
  CLEAVE_RETURN_IF_ERROR(fabric.beginRun(runNumber));
  const cuda::Gpu &gpu = devices.front()->gpu();
  cuda::GraphExec &graph = routine.graphs[stageOf(turn)];
  // The first time, libraries load what they need, which a capture forbids.
  if (run.isTraced) {
    std::vector<cuda::Stream> streams;
    for (CudaDevice *device : devices) streams.push_back(device->stream(computeLane));
    CLEAVE_RETURN_IF_ERROR(timing->beginRun(work.step, streams));
  } else if (options.graphs && routine.runs >= 1 && !graph && (!timing || timing->isDone(work.step))) {
    timing.reset();
    CLEAVE_RETURN_IF_ERROR(captureOrGoOn(routine));
  }
  cuda::Stream first = devices.front()->stream(computeLane);
  run.isGraph = graph;
  if (graph) {
    CLEAVE_RETURN_IF_ERROR(gpu.enter());
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.graphLaunch(graph, first), "cannot launch the step's graph"));
  } else {
    CLEAVE_RETURN_IF_ERROR(awaitEarlier());
    CLEAVE_RETURN_IF_ERROR(enqueue(routine));
  }
  ++routine.runs;
  for (const auto &[traffic, sent] : routine.sent) traffic->count += sent.first, traffic->bytes += sent.second;
  CLEAVE_RETURN_IF_ERROR(gpu.enter());
  CLEAVE_RETURN_IF_ERROR(turnOf(turn).end.record(first, runNumber));
  if (run.isTraced || options.debug) CLEAVE_RETURN_IF_ERROR(awaitEnd(run));
  if (run.isTraced) CLEAVE_RETURN_IF_ERROR(timing->endRun());
  return Status::ok();
}

// The runs before the last one have ended.
Status StreamEngine::awaitEarlier() {
  for (size_t i = 0; i + 1 < running.size(); ++i) CLEAVE_RETURN_IF_ERROR(awaitEnd(running[i]));
  return Status::ok();
}

Status StreamEngine::finishRoutine(Run &run, std::vector<double> &outputs) {
  failed = run.failedRank;
  if (!run.failure) return run.failure;
  failed = programs.front()->id;
  Status ended = awaitEnd(run);
  // The GPU may have stopped in the next run, because of what this one computed.
  CLEAVE_RETURN_IF_ERROR(faults(run));
  failed = programs.front()->id;
  CLEAVE_RETURN_IF_ERROR(ended);
  const std::byte *result = results[stageOf(run.turn)].data() + static_cast<int64_t>(programs.size()) * wordBytes;
  outputs.clear();
  for (const PreparedProgram::Output &output : programs.front()->outputsOf(run.routine->numbers.front())) {
    output.appendTo(outputs, result);
    result += resultBytes(output);
  }
  idle.reset();
  if (running.size() == 1 || !running[1].failure) return Status::ok();
  Run &next = running[1];
  next.failure = awaitNext(run, next);
  next.failedRank = programs.front()->id;
  return Status::ok();
}

// The inputs of the run behind this one are there, whose commands wait for them.
Status StreamEngine::awaitNext(const Run &run, const Run &next) {
  const StreamEvent &begin = turnOf(next.turn).begin;
  CLEAVE_RETURN_IF_ERROR(await(*next.routine, begin, "the GPU stopped"));
  CLEAVE_ASSIGN_OR_RETURN(double seconds, begin.secondsSince(turnOf(run.turn).end));
  idle = std::max(0.0, seconds);
  return Status::ok();
}

Status StreamEngine::faults(const Run &run) {
  for (size_t r = 0; r < programs.size(); ++r) {
    failed = programs[r]->id;
    CLEAVE_RETURN_IF_ERROR(fault(r, run.turn));
  }
  return Status::ok();
}

Status StreamEngine::capture(Routine &routine) {
  const cuda::Gpu &gpu = devices.front()->gpu();
  CLEAVE_RETURN_IF_ERROR(gpu.enter());
  cuda::Stream stream = devices.front()->stream(computeLane);
  CLEAVE_RETURN_IF_ERROR(
      gpu.check(gpu.driver.streamBeginCapture(stream, cuda::captureRelaxed), "cannot begin to capture the step"));
  Status enqueued = enqueue(routine);
  CLEAVE_RETURN_IF_ERROR(gpu.enter());
  cuda::Graph graph = nullptr;
  int error = gpu.driver.streamEndCapture(stream, &graph);
  const char *what = error ? "cannot capture the step as a graph" : "cannot make the step's graph ready";
  if (enqueued && !error) error = gpu.driver.graphInstantiate(&routine.graphs[stageOf(turn)], graph, 0);
  if (graph) gpu.driver.graphDestroy(graph);
  CLEAVE_RETURN_IF_ERROR(enqueued);
  return gpu.check(error, what);
}

// Both ends of an exchange are in a graph or neither is: where one process cannot capture a routine, none has graphs.
Status StreamEngine::captureOrGoOn(Routine &routine) {
  Status captured = capture(routine);
  CLEAVE_ASSIGN_OR_RETURN(uint64_t refused, fabric.control().allReduceMax(!captured, options.limit));
  if (refused == 0) return Status::ok();
  if (options.warn)
    options.warn(fmt::format("{}; steps go on without CUDA graphs, command by command",
                             captured ? "another process cannot capture the step as a graph" : captured.message()));
  options.graphs = false;
  dropGraphs();
  fabric.giveUpRun();
  return fabric.beginRun(++runNumber);
}

// All other streams begin after what the first one has done; marks and faults of earlier runs are cleared. A rank's
// other lanes begin after its marks are: one that is held up before its first command has no mark of the run before
// then.
Status StreamEngine::fork(Routine &routine) {
  for (size_t r = 0; r < programs.size(); ++r) {
    const cuda::Gpu &gpu = devices[r]->gpu();
    CLEAVE_RETURN_IF_ERROR(gpu.enter());
    cuda::Stream compute = devices[r]->stream(computeLane);
    if (r > 0) CLEAVE_RETURN_IF_ERROR(begins.front().waitOn(compute, runNumber));
    CLEAVE_RETURN_IF_ERROR(recorder.clear(r));
    CLEAVE_RETURN_IF_ERROR(begins[r].record(compute, runNumber));
    for (int lane : lanes[r])
      if (lane != computeLane) CLEAVE_RETURN_IF_ERROR(begins[r].waitOn(devices[r]->stream(lane), runNumber));
    if (int64_t place = programs[r]->program().fault_offset())
      CLEAVE_RETURN_IF_ERROR(
          gpu.check(gpu.driver.memsetD32Async(devices[r]->address(place), 0, 1, devices[r]->stream(computeLane)),
                    "cannot clear the fault"));
  }
  return Status::ok();
}

// The first stream ends after all others, with the first rank's outputs.
Status StreamEngine::join(const Routine &routine) {
  cuda::Stream first = devices.front()->stream(computeLane);
  for (size_t r = 0; r < programs.size(); ++r) {
    const cuda::Gpu &gpu = devices[r]->gpu();
    CLEAVE_RETURN_IF_ERROR(gpu.enter());
    if (int64_t place = programs[r]->program().fault_offset()) {
      cuda::Address word = results[stageOf(turn)].address() + static_cast<cuda::Address>(r) * wordBytes;
      CLEAVE_RETURN_IF_ERROR(
          gpu.check(gpu.driver.memcpyAsync(word, devices[r]->address(place), 4, devices[r]->stream(computeLane)),
                    "cannot read the fault"));
    }
    for (int lane : lanes[r]) {
      StreamEvent &done = laneEnds[r][static_cast<size_t>(lane)];
      if (r == 0 && lane == 0) continue;
      CLEAVE_RETURN_IF_ERROR(gpu.enter());
      CLEAVE_RETURN_IF_ERROR(done.record(devices[r]->stream(lane), runNumber));
      CLEAVE_RETURN_IF_ERROR(devices.front()->gpu().enter());
      CLEAVE_RETURN_IF_ERROR(done.waitOn(first, runNumber));
    }
  }
  const cuda::Gpu &gpu = devices.front()->gpu();
  CLEAVE_RETURN_IF_ERROR(gpu.enter());
  CLEAVE_RETURN_IF_ERROR(fabric.endRun(first));
  cuda::Address to = results[stageOf(turn)].address() + static_cast<cuda::Address>(programs.size()) * wordBytes;
  for (const PreparedProgram::Output &output : programs.front()->outputsOf(routine.numbers.front())) {
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.memcpyAsync(to, devices.front()->addressOf(output.place),
                                                            static_cast<size_t>(output.bytes), first),
                                     "cannot read the outputs"));
    to += static_cast<cuda::Address>(resultBytes(output));
  }
  return Status::ok();
}

Status StreamEngine::enqueue(Routine &routine) {
  cursors.assign(programs.size(), {});
  recordedIn.clear();
  routine.sent.clear();
  routine.log = recorder.begin();
  for (Cursors &rank : cursors)
    for (int lane = 0; lane < numLanes; ++lane) rank[static_cast<size_t>(lane)] = Cursor(lane);
  CLEAVE_RETURN_IF_ERROR(fork(routine));
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < programs.size(); ++r) {
      CLEAVE_RETURN_IF_ERROR(devices[r]->gpu().enter());
      for (int lane : lanes[r])
        if (Status status = advance(routine, r, lane, moved); !status) {
          failed = programs[r]->id;
          return status;
        }
    }
  }
  for (size_t r = 0; r < programs.size(); ++r)
    for (int lane : lanes[r])
      if (cursors[r][static_cast<size_t>(lane)].next(chainOf(routine, r)) != LaneStep::End) {
        failed = programs[r]->id;
        return runError(fmt::format("the {} stream waits for what no rank of this process enqueues",
                                    laneName(lane, programs[r]->plan.mesh())));
      }
  return join(routine);
}

// Enqueues commands of a lane until one must wait for what is yet to be enqueued.
Status StreamEngine::advance(Routine &routine, size_t r, int lane, bool &moved) {
  Cursor &cursor = cursors[r][static_cast<size_t>(lane)];
  Rank &rank = routine.ranks[r];
  const PreparedRoutine &chain = chainOf(routine, r);
  const cuda::Gpu &gpu = devices[r]->gpu();
  const cuda::Stream stream = devices[r]->stream(lane);
  for (LaneStep next; (next = cursor.next(chain)) != LaneStep::End; cursor.pass(next)) {
    const PreparedAction &action = chain.actions[cursor.action()];
    const std::vector<LaneItem> &items = chain.items(cursor.action(), lane);
    if (next == LaneStep::AwaitLane) {
      const ActionWait &wait = cursor.awaited(chain);
      CLEAVE_RETURN_IF_ERROR(recorder.waits(routine.log, r, lane, [&] {
        return fmt::format("what waits in {} for {} of an earlier action",
                           actionName(*action.fragment->source, action.source->microbatch()),
                           laneName(wait.lane, programs[r]->plan.mesh()));
      }));
      if (!cursors[r][static_cast<size_t>(wait.lane)].isPast(wait.action)) return Status::ok();
      CLEAVE_RETURN_IF_ERROR(rank.ends.at({wait.lane, wait.action}).waitOn(stream, runNumber));
    } else if (next == LaneStep::Inputs) {
      const cuda::Address stage = devices[r]->stage(turn).memory.address();
      for (const Upload &upload : rank.uploads[cursor.action()])
        CLEAVE_RETURN_IF_ERROR(
            gpu.check(gpu.driver.memcpyAsync(upload.target, stage + static_cast<cuda::Address>(upload.staged),
                                             static_cast<size_t>(upload.bytes), stream),
                      "cannot copy the inputs from their stage"));
      moved = true;
    } else if (next == LaneStep::AwaitEvent) { // of this action, or when the other lane is ahead, of a later one
      const LaneItem &item = items[cursor.item()];
      const Event *event = item.waits[cursor.event()];
      auto point = recordedIn.find(event);
      if (point == recordedIn.end() || point->second < cursor.action()) return Status::ok();
      CLEAVE_RETURN_IF_ERROR(recorder.waits(routine.log, r, lane, [&] { return nameOf(item, action); }));
      CLEAVE_RETURN_IF_ERROR(eventOf(event).waitOn(stream, runNumber));
    } else if (next == LaneStep::Command) {
      Result<bool> issued = enqueueCommand(routine, r, lane, action, items[cursor.item()]);
      if (!issued) return issued.status();
      if (!*issued) return Status::ok();
      moved = true;
      // It was waited for, and so will be the next one, perhaps for what a peer sends only when it has what the other
      // lanes are to send now.
      if (options.debug && lane == computeLane) {
        cursor.pass(next);
        return Status::ok();
      }
    } else { // EndAction
      auto ended = rank.ends.find({lane, static_cast<int>(cursor.action())});
      if (ended != rank.ends.end()) CLEAVE_RETURN_IF_ERROR(ended->second.record(stream, runNumber));
      if (cursor.action() + 1 == chain.size()) CLEAVE_RETURN_IF_ERROR(recorder.finished(routine.log, r, lane));
      moved = true;
    }
  }
  return Status::ok();
}

std::string StreamEngine::nameOf(const LaneItem &item, const PreparedAction &action) {
  return fmt::format("{} '{}' of {}", kindName(*item.source), item.source->name(),
                     actionName(*action.fragment->source, action.source->microbatch()));
}

// False: another rank must come first.
Result<bool> StreamEngine::enqueueCommand(Routine &routine, size_t r, int lane, const PreparedAction &action,
                                          const LaneItem &item) {
  Cursor &cursor = cursors[r][static_cast<size_t>(lane)];
  const cuda::Stream stream = devices[r]->stream(lane);
  const bool meets = item.source->has_collective() || item.source->has_transfer();
  const bool isTraced = running.back().isTraced;
  const FlightRecorder::Name name = [&] { return nameOf(item, action); };
  const StreamTrace::Place place{r, programs[r]->id, lane};
  if (!std::exchange(cursor.isMarked, true)) CLEAVE_RETURN_IF_ERROR(recorder.begins(routine.log, r, lane, name, meets));
  if (isTraced) CLEAVE_RETURN_IF_ERROR(timing->begin(place, stream));
  Result<bool> issued = item.command->issue();
  if (!issued) return inCommand(*item.source, issued.status());
  if (!*issued) return false;
  cursor.isMarked = false;
  if (isTraced)
    CLEAVE_RETURN_IF_ERROR(timing->end(place, *item.source, *action.source, *action.fragment->source, stream));
  CLEAVE_RETURN_IF_ERROR(recorder.ended(routine.log, r, lane, name, meets));
  CLEAVE_RETURN_IF_ERROR(afterCommand(routine, r, lane, *item.source));
  if (item.record) {
    CLEAVE_RETURN_IF_ERROR(eventOf(item.record).record(stream, runNumber));
    recordedIn[item.record] = cursor.action();
  }
  if (item.traffic) {
    auto &[count, bytes] = routine.sent[item.traffic];
    ++count, bytes += item.sentBytes;
  }
  return true;
}

// With --debug: the command is done, and did what it should.
Status StreamEngine::afterCommand(const Routine &routine, size_t rank, int lane, const plan::Command &command) {
  if (!options.debug) return Status::ok();
  // An exchange ends when the other members have come.
  if (command.has_collective() || command.has_transfer()) return Status::ok();
  std::string kernels;
  auto name = [&](const plan::Launch &launch) {
    kernels += fmt::format("{}'{}'", kernels.empty() ? ", kernel " : " or ",
                           programs[rank]->plan.kernels(launch.kernel()).symbol());
  };
  if (command.has_launch()) name(command.launch());
  for (const plan::Launch &launch : command.launches()) name(launch);
  const std::string stopped = "the GPU stopped" + kernels;
  StreamEvent &done = commandEnds[rank];
  Status ended = done.record(devices[rank]->stream(lane), runNumber, stopped.c_str());
  if (ended) ended = await(routine, done, stopped); // it may wait for what another rank sends
  if (!ended) return inCommand(command, ended);
  CLEAVE_RETURN_IF_ERROR(devices[rank]->gpu().enter());
  int64_t place = programs[rank]->program().fault_offset();
  int32_t code = 0;
  if (place) CLEAVE_RETURN_IF_ERROR(devices[rank]->read(place, &code, sizeof code));
  return code ? inCommand(command, runError(faultText(command) + kernels)) : Status::ok();
}

Status StreamEngine::fault(size_t rank, int64_t turn) const {
  const plan::Program &program = programs[rank]->program();
  int32_t code = 0;
  if (!program.fault_offset()) return Status::ok();
  std::memcpy(&code, results[stageOf(turn)].data() + static_cast<int64_t>(rank) * wordBytes, sizeof code);
  if (code == 0) return Status::ok();
  const plan::Command *source = faultyCommand(program, code);
  return source ? inCommand(*source, runError(faultText(*source)))
                : runError(fmt::format("a kernel left the unknown fault {}", code));
}

// Until the GPU is there; error: it stopped, another rank is gone, or it does not come there. The host looks for as
// long as a short step takes, then sleeps until it is told.
Status StreamEngine::await(const Routine &routine, const StreamEvent &event, const std::string &stopped) {
  constexpr double looks = 100e-6, sleeps = 0.05; // seconds
  AwakeTime awake;
  bool isAsked = false;
  for (;;) {
    Result<bool> done = event.query(stopped.c_str());
    if (!done) return done.status();
    if (*done) return Status::ok();
    const double waited = awake.seconds();
    if (waited < looks) continue;
    if (!isAsked) {
      isAsked = true;
      if (Status asked = notice.expect(++notices, event); !asked) { // perhaps the GPU has stopped since
        done = event.query(stopped.c_str());
        return done ? asked : done.status();
      }
    }
    if (notice.await(notices, sleeps)) continue;
    Status sound = fabric.health();
    if (sound && waited > options.limit.seconds)
      sound = runError(fmt::format("the step did not finish within {:.1f} s (--step-timeout)", waited));
    if (!sound)
      return runError(
          fmt::format("{}; how far the ranks of this process came:{}", sound.message(), recorder.text(routine.log)));
  }
}

Status StreamEngine::awaitEnd(Run &run) {
  if (run.ended) return *run.ended;
  Status entered = devices.front()->gpu().enter();
  run.ended = !entered
                  ? entered
                  : await(*run.routine, turnOf(run.turn).end,
                          options.debug ? "the GPU stopped" : "the GPU stopped (--debug tells which command did it)");
  return *run.ended;
}

} // namespace cleave::runtime
