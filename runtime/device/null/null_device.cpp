#include "runtime/device/null/null_device.h"
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

class DoNothing final : public PreparedCommand {
public:
  Status run() override { return Status::ok(); }
};

class NullDevice final : public Device {
public:
  Status allocate(int64_t size) override {
    if (size < 0) return runError(fmt::format("an arena of {} bytes is not possible", size));
    bytes = size;
    return Status::ok();
  }
  std::byte *arena() override { return nullptr; }
  bool executes() const override { return false; }
  Result<Prepared> prepare(const plan::Command &command) override {
    if (command.kind_case() == plan::Command::KIND_NOT_SET) return inputError("the command has no kind");
    return Prepared(std::make_unique<DoNothing>());
  }
  Status finishPreparing() override { return Status::ok(); }
  Status write(int64_t offset, const void *, int64_t count) override { return inside(offset, count); }
  Status read(int64_t offset, void *data, int64_t count) const override {
    CLEAVE_RETURN_IF_ERROR(inside(offset, count));
    std::memset(data, 0, static_cast<size_t>(count));
    return Status::ok();
  }
  int64_t allocatedBytes() const override { return bytes; }
  void enterThread() override {}

private:
  Status inside(int64_t offset, int64_t count) const {
    if (offset < 0 || count < 0 || offset > bytes - count) return inputError("an access outside of the arena");
    return Status::ok();
  }
  int64_t bytes = 0;
};

} // namespace

std::unique_ptr<Device> openNullDevice() { return std::make_unique<NullDevice>(); }

} // namespace cleave::runtime
