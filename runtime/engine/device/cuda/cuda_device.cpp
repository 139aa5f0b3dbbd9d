#include "runtime/engine/device/cuda/cuda_device.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <thread>

namespace cleave::runtime::cuda {
namespace {

constexpr int64_t stagingBytes = 16 << 20;

// Kernels that follow each other on one stream.
class Launches final : public PreparedCommand {
public:
  struct One {
    const GpuKernel *kernel;
    unsigned blocks;
    std::vector<uint64_t> values; // addresses, scalars, extent
    std::vector<void *> parameters;
  };
  Launches(const Gpu &gpu, Stream stream) : gpu(gpu), stream(stream) {}
  Status run() override {
    for (One &one : launches)
      if (int error = gpu.driver.launchKernel(
              one.kernel->function, one.blocks, 1, 1, static_cast<unsigned>(one.kernel->source->threads()), 1, 1,
              static_cast<unsigned>(one.kernel->source->shared_bytes()), stream, one.parameters.data(), nullptr))
        return gpu.check(error, fmt::format("kernel '{}' does not start", one.kernel->source->symbol()).c_str());
    return Status::ok();
  }
  const Gpu &gpu;
  Stream stream;
  std::vector<One> launches;
};

} // namespace

Result<Prepared> prepareLaunches(std::vector<const plan::Launch *> launches, CudaDevice &device, int lane) {
  auto prepared = std::make_unique<Launches>(device.gpu(), device.stream(lane));
  for (const plan::Launch *launch : launches) {
    if (launch->extent() == 0) continue;
    Launches::One one{&device.gpu().kernel(launch->kernel()), 0, {}, {}};
    one.blocks = static_cast<unsigned>((launch->extent() + launch->grain() - 1) / launch->grain());
    for (const plan::Buffer &buffer : launch->buffers()) one.values.push_back(device.at(buffer));
    for (const plan::AffineOfCoordinate &scalar : launch->scalars())
      one.values.push_back(static_cast<uint64_t>(evaluate(scalar, device.meshOf(), device.deviceId())));
    one.values.push_back(static_cast<uint64_t>(launch->extent()));
    for (uint64_t &value : one.values) one.parameters.push_back(&value);
    prepared->launches.push_back(std::move(one)); // moves keep the values where they are
  }
  return Prepared(std::move(prepared));
}

namespace {
class HostCopy final : public PreparedCommand {
public:
  HostCopy(const Gpu &gpu, Stream stream, Address target, Address source, size_t bytes)
      : gpu(gpu), stream(stream), target(target), source(source), bytes(bytes) {}
  Status run() override {
    return gpu.check(gpu.driver.memcpyAsync(target, source, bytes, stream),
                     "cannot copy between the GPU and the host's memory");
  }

private:
  const Gpu &gpu;
  Stream stream;
  Address target, source;
  size_t bytes;
};
} // namespace

Result<Prepared> prepareHostCopy(const plan::Copy &command, CudaDevice &device, int lane) {
  auto element = static_cast<Address>(byteSize(command.source().dtype()));
  auto begins = [&](const plan::Buffer &buffer, const plan::AffineOfCoordinate &offset) {
    return device.at(buffer) + element * static_cast<Address>(evaluate(offset, device.meshOf(), device.deviceId()));
  };
  return Prepared(std::make_unique<HostCopy>(
      device.gpu(), device.stream(lane), begins(command.target(), command.target_offset()),
      begins(command.source(), command.source_offset()), static_cast<size_t>(command.sizes(0)) * element));
}

CudaDevice::~CudaDevice() {
  if (!shared->enter()) return;
  for (Stream stream : streams)
    if (stream) shared->driver.streamDestroy(stream);
  for (Stream stream : {copyStream, uploadStream})
    if (stream) shared->driver.streamDestroy(stream);
}

Status CudaDevice::allocate(int64_t bytes) {
  CLEAVE_RETURN_IF_ERROR(shared->enter());
  for (Stream &stream : streams)
    CLEAVE_RETURN_IF_ERROR(
        shared->check(shared->driver.streamCreate(&stream, streamNonBlocking), "cannot make a stream"));
  for (Stream *stream : {&copyStream, &uploadStream})
    CLEAVE_RETURN_IF_ERROR(
        shared->check(shared->driver.streamCreate(stream, streamNonBlocking), "cannot make a stream"));
  CLEAVE_RETURN_IF_ERROR(memory.allocate(*shared, bytes, stream(computeLane)));
  CLEAVE_RETURN_IF_ERROR(staging.allocate(*shared, std::min(bytes, stagingBytes)));
  return synchronize();
}

Status CudaDevice::allocateHost(int64_t bytes) {
  if (bytes == 0) return Status::ok();
  CLEAVE_RETURN_IF_ERROR(pinned.allocate(*shared, bytes));
  std::memset(pinned.data(), 0, static_cast<size_t>(bytes));
  return Status::ok();
}

Status CudaDevice::allocateStages(int64_t bytes) {
  if (bytes == 0) return Status::ok();
  for (Stage &stage : stages) {
    CLEAVE_RETURN_IF_ERROR(stage.host.allocate(*shared, bytes));
    CLEAVE_RETURN_IF_ERROR(stage.memory.allocate(*shared, bytes, uploadStream));
  }
  return Status::ok();
}

Result<Prepared> CudaDevice::prepare(const plan::Command &command) {
  int lane = laneOf(command);
  if (command.has_contract()) return prepareContract(command.contract(), *this, lane);
  if (command.has_convolution()) return prepareConvolution(command.convolution(), *this, lane);
  if (command.has_copy() && (command.copy().source().on_host() || command.copy().target().on_host()))
    return prepareHostCopy(command.copy(), *this, lane);
  if (command.has_attention()) return prepareAttention(command.attention(), *this, lane);
  std::vector<const plan::Launch *> launches;
  if (command.has_launch()) launches.push_back(&command.launch());
  for (const plan::Launch &launch : command.launches()) launches.push_back(&launch);
  bool mayBeEmpty = command.has_copy() || command.has_fill() || command.has_grouped_contract(); // of no element
  if (launches.empty() && !mayBeEmpty)
    return inputError("the plan has no GPU kernel for it: it was not compiled for GPUs");
  return prepareLaunches(std::move(launches), *this, lane);
}

Status CudaDevice::finishPreparing() {
  if (workspaceBytes)
    CLEAVE_RETURN_IF_ERROR(workspace.allocate(*shared, static_cast<int64_t>(workspaceBytes), stream(computeLane)));
  return synchronize();
}

Status CudaDevice::synchronize() const {
  CLEAVE_RETURN_IF_ERROR(shared->enter());
  for (Stream stream : streams)
    CLEAVE_RETURN_IF_ERROR(shared->check(shared->driver.streamSynchronize(stream), "the GPU stopped"));
  return Status::ok();
}

void CudaDevice::drain() const {
  if (!shared->enter()) return;
  using Clock = std::chrono::steady_clock;
  Clock::time_point last = Clock::now() + std::chrono::seconds(10);
  std::vector<Stream> all(streams.begin(), streams.end());
  all.push_back(uploadStream);
  for (Stream stream : all)
    while (stream && shared->driver.streamQuery(stream) == errorNotReady && Clock::now() < last)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
}

Status CudaDevice::inside(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > memory.bytes() - bytes) return inputError("an access outside of the arena");
  return Status::ok();
}

Status CudaDevice::transfer(Address device, void *host, int64_t bytes, bool toDevice) const {
  CLEAVE_RETURN_IF_ERROR(shared->enter());
  Stream stream = copyStream;
  for (int64_t done = 0; done < bytes;) {
    int64_t count = std::min(bytes - done, staging.bytes());
    auto *part = static_cast<std::byte *>(host) + done;
    Address place = device + static_cast<Address>(done);
    if (toDevice) std::memcpy(staging.data(), part, static_cast<size_t>(count));
    CLEAVE_RETURN_IF_ERROR(shared->check(shared->driver.memcpyAsync(toDevice ? place : staging.address(),
                                                                    toDevice ? staging.address() : place,
                                                                    static_cast<size_t>(count), stream),
                                         "cannot copy between the host and the GPU"));
    CLEAVE_RETURN_IF_ERROR(
        shared->check(shared->driver.streamSynchronize(stream), "a copy between the host and the GPU failed"));
    if (!toDevice) std::memcpy(part, staging.data(), static_cast<size_t>(count));
    done += count;
  }
  return Status::ok();
}

Status CudaDevice::write(int64_t place, const void *data, int64_t bytes) {
  if (std::byte *target = onHost(place, bytes)) {
    std::memcpy(target, data, static_cast<size_t>(bytes));
    return Status::ok();
  }
  CLEAVE_RETURN_IF_ERROR(inside(place, bytes));
  return transfer(address(place), const_cast<void *>(data), bytes, true);
}
Status CudaDevice::read(int64_t place, void *data, int64_t bytes) const {
  if (const std::byte *source = onHost(place, bytes)) {
    std::memcpy(data, source, static_cast<size_t>(bytes));
    return Status::ok();
  }
  CLEAVE_RETURN_IF_ERROR(inside(place, bytes));
  return transfer(address(place), data, bytes, false);
}

} // namespace cleave::runtime::cuda
