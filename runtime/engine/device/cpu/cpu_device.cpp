#include "runtime/engine/device/cpu/cpu_device.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/arena.h"
#include "runtime/engine/device/cpu/commands.h"
#include "runtime/plan/routine.h"
#include <cstring>
#include <dnnl_debug.h>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

class CpuDevice final : public Device {
public:
  CpuDevice(const dist::Mesh &mesh, CpuDeviceOptions options) : options(std::move(options)) {
    context.mesh = mesh;
    context.device = this->options.device;
    context.kernels = this->options.kernels.get();
    context.scratch = std::make_shared<Scratch>();
    context.stream = dnnl::stream(cpuEngine());
  }

  Status allocate(int64_t bytes) override {
    CLEAVE_RETURN_IF_ERROR(openOneDnn());
    CLEAVE_RETURN_IF_ERROR(memory.allocate(bytes));
    context.arena = memory.data();
    return Status::ok();
  }
  Status allocateHost(int64_t bytes) override {
    CLEAVE_RETURN_IF_ERROR(hostPart.allocate(bytes));
    context.host = hostPart.data();
    return Status::ok();
  }
  std::byte *arena() override { return memory.data(); }
  std::byte *host() override { return hostPart.data(); }
  int64_t allocatedBytes() const override { return memory.bytes() + scratchMemory.bytes(); }
  void enterThread() override { setThreads(options.threads); }

  Result<Prepared> prepare(const plan::Command &command) override {
    try {
      Result<Prepared> made = build(command);
      if (made)
        if (auto *user = dynamic_cast<ScratchCommand *>(made->get())) users.push_back(user);
      return made;
    } catch (const dnnl::error &error) {
      return runError(fmt::format("oneDNN cannot prepare it: {} ({})", error.what(), dnnl_status2str(error.status)));
    }
  }

  Status finishPreparing() override {
    CLEAVE_RETURN_IF_ERROR(scratchMemory.allocate(static_cast<int64_t>(context.scratch->bytes)));
    context.scratch->base = scratchMemory.data();
    for (ScratchCommand *user : users) user->place(*context.scratch);
    users.clear();
    return Status::ok();
  }

  Status write(int64_t place, const void *data, int64_t bytes) override {
    std::byte *target = inside(place, bytes);
    if (!target) return inputError("a write outside of the device's memory");
    std::memcpy(target, data, static_cast<size_t>(bytes));
    return Status::ok();
  }
  Status read(int64_t place, void *data, int64_t bytes) const override {
    const std::byte *source = inside(place, bytes);
    if (!source) return inputError("a read outside of the device's memory");
    std::memcpy(data, source, static_cast<size_t>(bytes));
    return Status::ok();
  }

private:
  // Null: not all of it is there.
  std::byte *inside(int64_t place, int64_t bytes) const {
    const Arena &part = place < hostMemory ? memory : hostPart;
    int64_t offset = place < hostMemory ? place : place - hostMemory;
    return offset < 0 || bytes < 0 || offset > part.bytes() - bytes ? nullptr : part.data() + offset;
  }
  Result<Prepared> build(const plan::Command &command) {
    if (command.launches_size() > 0) return prepareEmulated(command, context);
    switch (command.kind_case()) {
    case plan::Command::kLaunch:
      return prepareLaunch(command.launch(), context);
    case plan::Command::kContract:
      return prepareContract(command.contract(), context);
    case plan::Command::kGroupedContract:
      return prepareGroupedContract(command.grouped_contract(), context);
    case plan::Command::kConvolution:
      return prepareConvolution(command.convolution(), context);
    case plan::Command::kAttention:
      return prepareAttention(command.attention(), context);
    case plan::Command::kPool:
      return preparePool(command.pool(), context);
    case plan::Command::kGather:
      return prepareGather(command.gather(), context);
    case plan::Command::kScatterAdd:
      return prepareScatterAdd(command.scatter_add(), context);
    case plan::Command::kCopy:
      return prepareCopy(command.copy(), context);
    case plan::Command::kFill:
      return prepareFill(command.fill(), context);
    case plan::Command::kCumsum:
      return prepareCumSum(command.cumsum(), context);
    case plan::Command::kCheckFinite:
      return prepareCheckFinite(command.check_finite(), context);
    default:
      return inputError("not a command of this device");
    }
  }

  CpuDeviceOptions options;
  Arena memory, hostPart, scratchMemory;
  CpuContext context;
  std::vector<ScratchCommand *> users; // owned by the caller of prepare
};

} // namespace

std::unique_ptr<Device> openCpuDevice(const dist::Mesh &mesh, CpuDeviceOptions options) {
  return std::make_unique<CpuDevice>(mesh, std::move(options));
}

} // namespace cleave::runtime
