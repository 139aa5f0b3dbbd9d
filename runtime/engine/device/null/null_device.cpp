#include "runtime/engine/device/null/null_device.h"
#include "runtime/plan/routine.h"
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

class NullDevice final : public Device {
public:
  Status allocate(int64_t size) override {
    if (size < 0) return runError(fmt::format("an arena of {} bytes is not possible", size));
    bytes = size;
    return Status::ok();
  }
  Status allocateHost(int64_t size) override {
    if (size < 0) return runError(fmt::format("a host memory of {} bytes is not possible", size));
    hostBytes = size;
    return Status::ok();
  }
  std::byte *arena() override { return nullptr; }
  std::byte *host() override { return nullptr; }
  Result<Prepared> prepare(const plan::Command &command) override {
    if (command.kind_case() == plan::Command::KIND_NOT_SET) return inputError("the command has no kind");
    return Prepared(std::make_unique<DoNothing>());
  }
  Status finishPreparing() override { return Status::ok(); }
  Status write(int64_t place, const void *, int64_t count) override { return inside(place, count); }
  Status read(int64_t place, void *data, int64_t count) const override {
    CLEAVE_RETURN_IF_ERROR(inside(place, count));
    std::memset(data, 0, static_cast<size_t>(count));
    return Status::ok();
  }
  int64_t allocatedBytes() const override { return bytes; }
  void enterThread() override {}

private:
  Status inside(int64_t place, int64_t count) const {
    int64_t room = place < hostMemory ? bytes : hostBytes;
    int64_t offset = place < hostMemory ? place : place - hostMemory;
    if (offset < 0 || count < 0 || offset > room - count) return inputError("an access outside of the arena");
    return Status::ok();
  }
  int64_t bytes = 0, hostBytes = 0;
};

} // namespace

std::unique_ptr<Device> openNullDevice() { return std::make_unique<NullDevice>(); }

} // namespace cleave::runtime
