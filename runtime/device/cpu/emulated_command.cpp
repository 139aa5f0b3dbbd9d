#include "runtime/device/cpu/commands.h"
#include "runtime/plan/fault.h"
#include <cstring>

namespace cleave::runtime {

Result<Prepared> prepareEmulated(const plan::Command &command, const CpuContext &context) {
  std::vector<std::shared_ptr<PreparedCommand>> launches;
  for (const plan::Launch &launch : command.launches()) {
    Result<Prepared> prepared = prepareLaunch(launch, context);
    if (!prepared) return prepared.status();
    launches.push_back(std::move(*prepared));
  }
  // These kernels leave a code in the fault word, their last buffer, when they find what must not be.
  bool mayFail = command.has_check_finite() || command.has_gather() || command.has_scatter_add();
  const plan::Launch &last = command.launches(command.launches_size() - 1);
  if (!mayFail || last.buffers_size() < 2)
    return prepared([launches = std::move(launches)] {
      for (const auto &launch : launches) CLEAVE_RETURN_IF_ERROR(launch->run());
      return Status::ok();
    });
  std::string fault = faultText(command);
  const std::byte *word = context.at(last.buffers(last.buffers_size() - 1));
  return prepared([launches = std::move(launches), fault, word] {
    for (const auto &launch : launches) CLEAVE_RETURN_IF_ERROR(launch->run());
    int32_t code = 0;
    std::memcpy(&code, word, sizeof code);
    return code == 0 ? Status::ok() : runError(fault);
  });
}

} // namespace cleave::runtime
