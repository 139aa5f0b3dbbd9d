#include "runtime/engine/executor/executor.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/base/threads/thread_count.h"
#include "runtime/engine/comm/cuda/agree_on_products.h"
#include "runtime/engine/comm/cuda/open_stream_fabric.h"
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/device/cpu/cpu_device.h"
#include "runtime/engine/device/cuda/open_gpus.h"
#include "runtime/engine/device/null/null_device.h"
#include "runtime/engine/executor/stream_engine.h"
#include "runtime/engine/health/watch.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <unistd.h>

namespace cleave::runtime {

namespace {
// The run's processes on this host that share this process' cores, itself included.
int64_t processesOnTheseCores() {
  if (boundCores() < ::sysconf(_SC_NPROCESSORS_ONLN)) return 1; // bound to cores of its own
  Result<Launch> launch = readLaunch();
  return launch ? launch->localSize : 1;
}

// A plan for GPUs whose kernels were also made for this CPU runs here when no GPU is.
bool isForGpus(const plan::Plan &plan, const ExecutorOptions &options) {
  return plan.has_cuda() && !options.null && (plan.kernel_object().empty() || cuda::hasGpu());
}

void printWarning(const std::string &text) { fmt::print(stderr, "cleave: warning: {}\n", text); }

void warnOfCommands(const PreparedProgram &program) {
  constexpr size_t most = 8;
  for (const auto &[warning, names] : program.warnings) {
    const size_t named = std::min(names.size(), most);
    std::string of =
        fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(named), ", "));
    if (named < names.size()) of += fmt::format(" and {} more", names.size() - named);
    printWarning(fmt::format("{}: {}", of, warning));
  }
}

} // namespace

Result<std::unique_ptr<Executor>> Executor::create(const plan::Plan &plan, std::unique_ptr<Fabric> fabric,
                                                   ExecutorOptions options) {
  std::unique_ptr<Executor> executor(new Executor(plan));
  executor->connection = std::move(fabric);
  if (Status opened = executor->open(options); !opened) {
    const std::string cause = executor->causeOfLoss();
    if (executor->watch) executor->watch->announce(opened.message());
    return Status(static_cast<ErrorKind>(opened.exitStatus()), opened.message() + cause);
  }
  return executor;
}

Status Executor::open(ExecutorOptions options) {
  CLEAVE_RETURN_IF_ERROR(verifyPlan(source));
  Result<dist::Mesh> mesh = meshOf(source.mesh());
  if (!mesh) return mesh.status();
  meshOfPlan = *mesh;
  std::vector<int64_t> local = connection->localDevices();
  threads = options.threads > 0 ? options.threads : source.threads_per_device();
  if (threads <= 0) threads = threadsOfRank(static_cast<int64_t>(local.size()), processesOnTheseCores());
  // Ranks of several processes have a second busy thread, which communicates.
  int64_t busy = static_cast<int64_t>(local.size()) * (threads + (connection->signal(local.front()) ? 0 : 1));
  setThreadsOutnumberCores(busy * processesOnTheseCores() > availableCores());
  if (!options.null && !isForGpus(source, options)) startWatch(options);
  if (options.trace.recordsPerLane && !options.null) trace = std::make_unique<Trace>(source, options.trace);
  CLEAVE_RETURN_IF_ERROR(openDevices(options));
  for (const plan::Routine &routine : source.programs(0).routines())
    inputCounts[routine.name()] =
        inputsOf(source, routine.name()).size() * static_cast<size_t>(microbatchesOf(source, routine.name()));
  CallersThreads callers;
  std::map<int, std::vector<std::vector<ActionWaits>>> orders; // by program and routine
  for (std::unique_ptr<PreparedProgram> &program : programs) {
    int number = programOf(source, meshOfPlan, program->id);
    auto [order, added] = orders.try_emplace(number);
    if (added)
      for (const plan::Routine &routine : source.programs(number).routines())
        order->second.push_back(orderActions(source, source.programs(number), routine));
    program->device.enterThread(); // primitives are made for the thread count that runs them
    Status status = program->prepare(meshOfPlan, order->second);
    if (!status)
      return {static_cast<ErrorKind>(status.exitStatus()), fmt::format("rank {}, {}", program->id, status.message())};
  }
  CLEAVE_RETURN_IF_ERROR(connection->connect(options.limits.preparation));
  warnOfCommands(*programs.front()); // those of other ranks are alike
  if (streams) return streams->open();
  for (std::unique_ptr<PreparedProgram> &program : programs)
    ranks.push_back(std::make_unique<Rank>(*program, ranks.empty() && !stepsOverlap(source)));
  for (std::unique_ptr<Rank> &rank : ranks)
    rank->start(trace.get(), [this](int64_t id, int64_t step, const Status &status) { noteFailure(id, step, status); });
  areRanksReady = true;
  return Status::ok();
}

void Executor::startWatch(const ExecutorOptions &options) {
  if (meshOfPlan.numDevices() == 1) return;
  WatchOptions of{
      .timeoutSeconds = options.limits.step.seconds, .aborted = &connection->abortFlag(), .tell = options.tell};
  for (int64_t device = 0; device < meshOfPlan.numDevices(); ++device)
    of.groups.push_back(programOf(source, meshOfPlan, device));
  for (int64_t device : connection->localDevices()) of.local.push_back(static_cast<int>(device));
  of.reports = [this] { return reports(); };
  of.onEnd = [this, lost = options.onLost](const std::string &cause) {
    endBecause(cause);
    if (lost) lost(cause, false);
  };
  if (options.onLost) of.onStuck = [lost = options.onLost](const std::string &cause) { lost(cause, true); };
  watch = std::make_unique<Watch>(connection->healthLink(), std::move(of));
}

std::vector<RankReport> Executor::reports() const {
  if (!areRanksReady) return std::vector<RankReport>(connection->localDevices().size());
  std::vector<RankReport> all;
  for (const std::unique_ptr<Rank> &rank : ranks) all.push_back(rank->report());
  return all;
}

// Devices with their arenas, the fabric between them, and their programs, yet to be prepared.
Status Executor::openDevices(const ExecutorOptions &options) {
  std::vector<int64_t> local = connection->localDevices();
  const bool onGpus = isForGpus(source, options);
  std::shared_ptr<const KernelObject> kernels;
  std::vector<std::shared_ptr<cuda::Gpu>> gpus;
  if (onGpus) {
    Result<std::vector<std::shared_ptr<cuda::Gpu>>> found = cuda::openGpus(source, static_cast<int64_t>(local.size()));
    if (!found) return found.status();
    gpus = std::move(*found);
    cuda::ChooseOptions choose{.tell = nullptr, .warn = printWarning};
    if (options.debug) choose.tell = [](const std::string &text) { fmt::print(stderr, "cleave: {}\n", text); };
    CLEAVE_RETURN_IF_ERROR(cuda::agreeOnProducts(source, gpus, *connection, choose, options.limits.preparation));
  } else if (options.null && source.has_cuda()) {
    if (Result<std::map<std::string, cuda::Product>> products = cuda::productsOf(source); !products)
      return products.status();
  } else if (!options.null) {
    Result<std::unique_ptr<KernelObject>> loaded = KernelObject::load(source);
    if (!loaded) return loaded.status();
    kernels = std::move(*loaded);
  }
  cuda::CudaDevices cudaDevices;
  std::vector<cuda::CudaDevice *> inOrder;
  for (int64_t id : local) {
    if (onGpus) {
      auto device = std::make_unique<cuda::CudaDevice>(gpus[opened.size() % gpus.size()], meshOfPlan, id);
      cudaDevices[id] = device.get();
      inOrder.push_back(device.get());
      opened.push_back(std::move(device));
    } else
      opened.push_back(options.null ? openNullDevice() : openCpuDevice(meshOfPlan, {id, threads, kernels}));
    const plan::Program &program = source.programs(programOf(source, meshOfPlan, id));
    if (Status status = opened.back()->allocate(program.arena_bytes()); !status)
      return runError(fmt::format("rank {}: {}", id, status.message()));
    if (Status status = opened.back()->allocateHost(program.host_bytes()); !status)
      return runError(fmt::format("rank {}: {}", id, status.message()));
    connection->attach(id, opened.back()->arena());
  }
  cuda::StreamFabric *fabric = nullptr;
  if (onGpus) {
    // A process that did not get so far (its GPU's memory is taken) has ended; NCCL would wait for it without end.
    CLEAVE_RETURN_IF_ERROR(connection->control().barrier(options.limits.preparation));
    Result<std::unique_ptr<cuda::StreamFabric>> made =
        cuda::openStreamFabric(source, meshOfPlan, std::move(connection), cudaDevices, options.limits.preparation);
    if (!made) return made.status();
    fabric = made->get();
    connection = std::move(*made);
  }
  for (size_t i = 0; i < local.size(); ++i) {
    CLEAVE_RETURN_IF_ERROR(connection->openRoutes(local[i], routesOf(source, meshOfPlan, local[i])));
    programs.push_back(std::make_unique<PreparedProgram>(local[i], source, *opened[i], *connection));
  }
  if (!onGpus) return Status::ok();
  std::vector<PreparedProgram *> prepared;
  for (std::unique_ptr<PreparedProgram> &program : programs) prepared.push_back(program.get());
  bool graphs = options.graphs && !options.debug && fabric->takesGraphs(stepsOverlap(source), trace != nullptr);
  Result<bool> isOfAll =
      fabric->control().allEqual(graphs, options.limits.preparation); // what one process captures the others have to
  if (!isOfAll) return isOfAll.status();
  graphs = graphs && *isOfAll;
  streams = std::make_unique<StreamEngine>(
      std::move(prepared), std::move(inOrder), *fabric,
      StreamOptions{options.debug, graphs, printWarning, options.limits.step, trace.get()});
  return Status::ok();
}

Executor::Executor(const plan::Plan &plan) : source(plan) {}

Executor::~Executor() {
  while (!begun.empty()) (void)finish(); // ranks wait for each other, until all are done or one has failed
  watch.reset();
  ranks.clear(); // their threads end first
  streams.reset();
}

std::vector<int64_t> Executor::devices() const { return connection->localDevices(); }

// "; rank 2 is gone (host b, ...)": a process that has ended because of another one is seen first by its neighbours.
std::string Executor::causeOfLoss() {
  const std::string cause = watch && connection->lostProcess() >= 0 ? watch->awaitCause() : "";
  return cause.empty() ? "" : "; " + cause;
}

void Executor::noteFailure(int64_t rank, int64_t step, const Status &status) {
  const std::string cause = causeOfLoss();
  std::lock_guard guard(failureLock);
  if (!failure || connection->abortFlag().raised()) return; // others only stop because of the first
  failure = runError(fmt::format("rank {}, step {}, {}{}", rank, step + 1, status.message(), cause));
  giveUp(failure);
}

// Another rank ends the run, or keeps it from going on.
void Executor::endBecause(const std::string &cause) {
  std::lock_guard guard(failureLock);
  if (!failure) return;
  std::string where = reports().front().where;
  failure = runError(
      fmt::format("rank {}, {}: {}", devices().front(), where.empty() ? "before its first step" : where, cause));
  connection->abort(failure.message(), failure.exitStatus());
}

void Executor::giveUp(const Status &why) {
  if (watch) watch->announce(why.message());
  connection->abort(why.message(), why.exitStatus());
}

const PreparedProgram *Executor::program(int64_t device) const {
  for (const std::unique_ptr<PreparedProgram> &program : programs)
    if (program->id == device) return program.get();
  return nullptr;
}

bool Executor::holds(int64_t device, const plan::Parameter &parameter) const {
  return offsetIn(parameter, programOf(source, meshOfPlan, device)).has_value();
}

ShardBytes Executor::shard(int64_t device, const plan::Parameter &parameter, ShardAccess access) {
  const PreparedProgram *owner = program(device);
  std::optional<int64_t> offset = offsetIn(parameter, programOf(source, meshOfPlan, device));
  if (!owner || !offset) return {};
  ShardLayout layout{*blockOf(parameter, meshOfPlan), shardShape(device, parameter).size, byteSize(parameter.dtype())};
  return {owner->device, *offset, std::move(layout), access,
          [this, device](const Status &status) { noteFailure(device, currentStep, status); }};
}

Shard Executor::shardShape(int64_t device, const plan::Parameter &parameter) const {
  return *shardOf(parameter, meshOfPlan, device); // the verifier has checked it
}

bool Executor::has(const std::string &routine) const { return inputCounts.contains(routine); }

void Executor::gather(const plan::Parameter &parameter, std::byte *out) {
  const std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
  for (int64_t device : devices()) {
    if (!holds(device, parameter)) continue;
    const Shard box = shardShape(device, parameter);
    const ShardBytes held = shard(device, parameter, ShardAccess::Read);
    copyBox(box.size, {box.size}, held.data(), {shape, box.begin}, out, byteSize(parameter.dtype()));
  }
}

bool Executor::reads(const std::string &name, const std::string &input) const {
  for (const std::unique_ptr<PreparedProgram> &prepared : programs) {
    const plan::Program &program = prepared->program();
    const plan::Routine *routine = findRoutine(program, name);
    for (int a = 0; routine && a < routine->actions_size(); ++a)
      for (const plan::InputBinding &read : program.fragments(routine->actions(a).fragment()).inputs())
        if (read.name() == input) return true;
  }
  return false;
}

Status Executor::begin(const std::string &name, std::span<const std::byte *const> inputs, int64_t step, int64_t skipped,
                       std::span<const std::byte *const> next) {
  {
    std::lock_guard guard(failureLock);
    if (!failure) return failure;
  }
  auto known = inputCounts.find(name);
  if (known == inputCounts.end()) return inputError(fmt::format("the plan has no routine '{}'", name));
  size_t wanted = known->second;
  if (inputs.size() != wanted)
    return inputError(fmt::format("routine '{}' reads {} inputs over all its microbatches, {} are given", name, wanted,
                                  inputs.size()));
  bool isAhead = name == "step" && stepsOverlap(source);
  if (next.size() != (isAhead ? wanted : 0))
    return inputError(fmt::format("routine '{}' reads {} inputs of the next step, {} are given", name,
                                  isAhead ? wanted : 0, next.size()));
  if (begun.size() == Rank::mostWaiting)
    return inputError(fmt::format("routine '{}' is begun before an earlier one is finished", name));
  currentStep = step;
  auto work = [&](const plan::Program &program) {
    RankWork of{0, step, skipped, inputs.data(), isAhead ? next.data() : nullptr};
    while (program.routines(of.routine).name() != name) ++of.routine;
    return of;
  };
  begun.emplace_back(work(programs.front()->program()).routine, step);
  if (streams) streams->begin(name, work(programs.front()->program()));
  for (std::unique_ptr<Rank> &rank : ranks) rank->begin(work(rank->program()));
  return Status::ok();
}

Result<std::map<std::string, double>> Executor::finish() {
  if (begun.empty()) return inputError("no routine is begun");
  Begun ended = std::move(begun.front());
  begun.pop_front();
  std::span<const double> outputs;
  std::vector<double> ofStreams;
  if (streams && lastFailure()) { // else what is enqueued is given up
    if (Status status = streams->finish(ofStreams); !status) noteFailure(streams->failedRank(), ended.step, status);
    outputs = ofStreams;
  }
  for (std::unique_ptr<Rank> &rank : ranks) {
    std::span<const double> own = rank->finish();
    if (rank == ranks.front()) outputs = own;
  }
  std::lock_guard guard(failureLock);
  if (!failure) return failure;
  return programs.front()->named(ended.routine, outputs, tensors);
}

Result<std::map<std::string, double>> Executor::run(const std::string &name, std::span<const std::byte *const> inputs,
                                                    int64_t step, int64_t skipped,
                                                    std::span<const std::byte *const> next) {
  CLEAVE_RETURN_IF_ERROR(begin(name, inputs, step, skipped, next));
  return finish();
}

std::optional<double> Executor::idleSeconds() const { return streams ? streams->idleSeconds() : std::nullopt; }

int64_t Executor::peakBytes() const {
  int64_t most = 0;
  for (const std::unique_ptr<PreparedProgram> &program : programs)
    most = std::max(most, program->device.allocatedBytes() + connection->messageBytes(program->id));
  return most;
}

int64_t Executor::hostBytes() const {
  int64_t most = 0;
  for (const std::unique_ptr<PreparedProgram> &program : programs)
    most = std::max(most, program->program().host_bytes());
  return most;
}

std::vector<Traffic> Executor::traffic(int64_t device) const {
  const PreparedProgram *owner = program(device);
  return owner ? owner->traffic() : std::vector<Traffic>{};
}

Status Executor::writeTrace(const std::string &path) const {
  return trace ? trace->write(path) : inputError("no trace was recorded");
}

} // namespace cleave::runtime
