#include "runtime/engine/comm/null.h"
#include "runtime/engine/device/null/null_device.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/routine.h"
#include <ranges>
#include <set>

namespace cleave::runtime {

NullFabric::NullFabric(const plan::Plan &plan, dist::Mesh meshOfPlan) : mesh(std::move(meshOfPlan)) {
  std::set<int> programs;
  for (int64_t device = 0; device < mesh.numDevices(); ++device)
    if (programs.insert(programOf(plan, mesh, device)).second) signals.try_emplace(device);
}

std::vector<int64_t> NullFabric::localDevices() const {
  auto devices = std::views::keys(signals);
  return {devices.begin(), devices.end()};
}

Result<Prepared> NullFabric::prepare(int64_t, int, const plan::Collective &collective) {
  CLEAVE_ASSIGN_OR_RETURN(auto parts, partsOf(collective, mesh.groupSize(axesOf(collective.axes()))));
  return Prepared(std::make_unique<DoNothing>());
}

Result<Prepared> NullFabric::prepareTransfer(int64_t, int, const plan::Transfer &) {
  return Prepared(std::make_unique<DoNothing>());
}

void NullFabric::abort(const std::string &, int) {
  flag.raise();
  for (auto &[device, signal] : signals) signal.notify();
}

} // namespace cleave::runtime
