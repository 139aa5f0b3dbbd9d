// A device that executes nothing: its arena has a size and no memory. `cleave verify --static` prepares a whole plan on
// it, so that everything `prepare` finds wrong is found without the memory or the time of a run.
#pragma once
#include "runtime/engine/device/device.h"

namespace cleave::runtime {

class DoNothing final : public PreparedCommand {
public:
  Status run() override { return Status::ok(); }
};

std::unique_ptr<Device> openNullDevice();

} // namespace cleave::runtime
