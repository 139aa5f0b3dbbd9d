#include "runtime/engine/device/cpu/commands.h"
#include "runtime/plan/fault.h"
#include <cstring>

namespace cleave::runtime {

Result<Prepared> prepareEmulated(const plan::Command &command, const CpuContext &context) {
  std::vector<std::shared_ptr<PreparedCommand>> launches;
  for (const plan::Launch &launch : command.launches()) {
    CLEAVE_ASSIGN_OR_RETURN(Prepared prepared, prepareLaunch(launch, context));
    launches.push_back(std::move(prepared));
  }
  // A kernel that may find what must not be has scalars: it leaves the last of them in the fault word, its last buffer.
  const bool mayFail =
      command.has_check_finite() || command.has_gather() || command.has_scatter_add() || command.has_grouped_contract();
  const std::byte *word = nullptr;
  for (const plan::Launch &launch : command.launches())
    if (mayFail && launch.scalars_size() > 0) word = context.at(launch.buffers(launch.buffers_size() - 1));
  if (!word)
    return prepared([launches = std::move(launches)] {
      for (const auto &launch : launches) CLEAVE_RETURN_IF_ERROR(launch->run());
      return Status::ok();
    });
  std::string fault = faultText(command);
  return prepared([launches = std::move(launches), fault, word] {
    for (const auto &launch : launches) CLEAVE_RETURN_IF_ERROR(launch->run());
    int32_t code = 0;
    std::memcpy(&code, word, sizeof code);
    return code == 0 ? Status::ok() : runError(fault);
  });
}

} // namespace cleave::runtime
