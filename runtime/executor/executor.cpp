#include "runtime/executor/executor.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/null/null_device.h"
#include "runtime/executor/schedule.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/verify.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

namespace cleave::runtime {

int availableCores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

namespace {
// Threads for one device when `here` devices run in this process.
int defaultThreads(int64_t here) {
  int64_t processes = 1;
  for (const char *name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"})
    if (const char *value = std::getenv(name)) {
      processes = std::max(1, std::atoi(value));
      break;
    }
  int cores = availableCores();
  if (cores < ::sysconf(_SC_NPROCESSORS_ONLN)) processes = 1; // bound to cores of its own
  return static_cast<int>(std::max<int64_t>(1, cores / (processes * here)));
}

double number(const std::byte *bytes, plan::DType dtype) {
  auto as = [&](auto zero) {
    std::memcpy(&zero, bytes, sizeof zero);
    return static_cast<double>(zero);
  };
  switch (dtype) {
  case plan::F32:
    return as(float{});
  case plan::F64:
    return as(double{});
  case plan::I32:
    return as(int32_t{});
  case plan::I64:
    return as(int64_t{});
  case plan::BOOL:
    return as(uint8_t{});
  default:
    return std::nan("");
  }
}
} // namespace

Result<std::unique_ptr<Executor>> Executor::create(const plan::Plan &plan, std::unique_ptr<Fabric> fabric,
                                                   ExecutorOptions options) {
  std::unique_ptr<Executor> executor(new Executor(plan));
  executor->connection = std::move(fabric);
  CLEAVE_RETURN_IF_ERROR(executor->open(options));
  return executor;
}

Status Executor::open(ExecutorOptions options) {
  CLEAVE_RETURN_IF_ERROR(verifyPlan(source));
  Result<dist::Mesh> mesh = meshOf(source.mesh());
  if (!mesh) return mesh.status();
  meshOfPlan = *mesh;
  std::vector<int64_t> local = connection->localDevices();
  threads = options.threads > 0 ? options.threads : source.threads_per_device();
  if (threads <= 0) threads = defaultThreads(static_cast<int64_t>(local.size()));
  setSpinTurns(static_cast<int64_t>(local.size()) * threads > availableCores() ? 50 : 2000);
  std::shared_ptr<const KernelObject> kernels;
  if (!options.null) {
    Result<std::unique_ptr<KernelObject>> loaded = KernelObject::load(source);
    if (!loaded) return loaded.status();
    kernels = std::move(*loaded);
  }
  const plan::Program &program = source.programs(0);
  for (int64_t id : local) {
    std::unique_ptr<Device> device =
        options.null ? openNullDevice() : openCpuDevice(meshOfPlan, {id, threads, kernels});
    if (Status status = device->allocate(program.arena_bytes()); !status)
      return runError(fmt::format("rank {}: {}", id, status.message()));
    connection->attach(id, device->arena());
    ranks.push_back(std::make_unique<Rank>(id, std::move(device), *connection));
  }
  for (std::unique_ptr<Rank> &rank : ranks) {
    rank->device->enterThread(); // primitives are made for the thread count that runs them
    Status status = rank->prepare(program, meshOfPlan);
    if (!status)
      return {static_cast<ErrorKind>(status.exitStatus()), fmt::format("rank {}, {}", rank->id, status.message())};
  }
  if (options.traceRecords) trace = std::make_unique<Trace>(options.traceRecords);
  for (std::unique_ptr<Rank> &rank : ranks)
    rank->start(trace.get(), [this](int64_t id, const Status &status) { noteFailure(id, status); });
  return Status::ok();
}

Executor::~Executor() { ranks.clear(); }

std::vector<int64_t> Executor::devices() const { return connection->localDevices(); }

void Executor::noteFailure(int64_t rank, const Status &status) {
  std::lock_guard guard(failureLock);
  if (!failure || connection->abortFlag().raised()) return; // others only stop because of the first
  std::string message = fmt::format("rank {}, step {}, {}", rank, currentStep.load() + 1, status.message());
  failure = runError(message);
  connection->abort(message, failure.exitStatus());
}

std::span<std::byte> Executor::shard(int64_t device, const plan::Parameter &parameter) {
  for (std::unique_ptr<Rank> &rank : ranks) {
    if (rank->id != device || !rank->device->arena()) continue;
    auto bytes = static_cast<size_t>(elementCount(shardShape(device, parameter).size) * byteSize(parameter.dtype()));
    return {rank->device->arena() + parameter.offset(), bytes};
  }
  return {};
}

Shard Executor::shardShape(int64_t device, const plan::Parameter &parameter) const {
  return *shardOf(parameter.shape(), parameter.dims(), meshOfPlan, device); // the verifier has checked it
}

const plan::Fragment *Executor::fragment(const std::string &name) const {
  for (const plan::Fragment &fragment : source.programs(0).fragments())
    if (fragment.name() == name) return &fragment;
  return nullptr;
}

Status Executor::writeHostScalars(int64_t step, int64_t microbatch) {
  for (const plan::HostScalar &scalar : source.programs(0).host_scalars()) {
    CLEAVE_RETURN_IF_ERROR(hostScalarBytes(scalar, source.training(), step, microbatch, scalarBytes));
    for (std::unique_ptr<Rank> &rank : ranks)
      CLEAVE_RETURN_IF_ERROR(
          rank->device->write(scalar.buffer().offset(), scalarBytes.data(), static_cast<int64_t>(scalarBytes.size())));
  }
  return Status::ok();
}

Result<std::map<std::string, double>> Executor::run(const std::string &name, std::span<const std::byte *const> inputs,
                                                    int64_t step, int64_t microbatch) {
  if (!failure) return failure;
  const plan::Fragment *fragment = this->fragment(name);
  if (!fragment) return inputError(fmt::format("the plan has no fragment '{}'", name));
  if (inputs.size() != static_cast<size_t>(fragment->inputs_size()))
    return inputError(
        fmt::format("fragment '{}' has {} inputs, {} are given", name, fragment->inputs_size(), inputs.size()));
  CLEAVE_RETURN_IF_ERROR(writeHostScalars(step, microbatch));
  currentStep = step;
  RankWork work{0, step, inputs.data()};
  for (int f = 0; f < source.programs(0).fragments_size(); ++f)
    if (&source.programs(0).fragments(f) == fragment) work.fragment = f;
  for (std::unique_ptr<Rank> &rank : ranks) rank->begin(work);
  for (std::unique_ptr<Rank> &rank : ranks) rank->finish();
  {
    std::lock_guard guard(failureLock);
    if (!failure) return failure;
  }
  std::map<std::string, double> outputs;
  for (const plan::OutputBinding &output : fragment->outputs()) {
    std::byte bytes[8] = {};
    if (elementCount(output.buffer().shape()) != 1) continue;
    CLEAVE_RETURN_IF_ERROR(
        ranks.front()->device->read(output.buffer().offset(), bytes, byteSize(output.buffer().dtype())));
    outputs[output.name()] = number(bytes, output.buffer().dtype());
  }
  return outputs;
}

int64_t Executor::peakBytes() const {
  int64_t most = 0;
  for (const std::unique_ptr<Rank> &rank : ranks) most = std::max(most, rank->device->allocatedBytes());
  return most;
}

Status Executor::writeTrace(const std::string &path) const {
  if (!trace) return inputError("no trace was recorded");
  return trace->write(path, [](const void *item) {
    const plan::Command &command = *static_cast<const LaneItem *>(item)->source;
    return TraceName{command.name(), kindName(command), command.phase()};
  });
}

} // namespace cleave::runtime
