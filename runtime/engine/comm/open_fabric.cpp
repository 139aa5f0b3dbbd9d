#include "runtime/engine/comm/open_fabric.h"
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/comm/local.h"
#include "runtime/engine/comm/process.h"
#include <fmt/format.h>

namespace cleave::runtime {
Result<std::unique_ptr<Fabric>> openFabric(const dist::Mesh &mesh, const std::string &plan,
                                           const NetworkOptions &options) {
  CLEAVE_ASSIGN_OR_RETURN(Launch launch, readLaunch());
  if (launch.kind == Launch::Kind::Alone) return std::unique_ptr<Fabric>(std::make_unique<LocalFabric>(mesh));
  if (launch.size != mesh.numDevices())
    return inputError(fmt::format("{} processes were started for a plan of {} devices: start {}, one per device, or a "
                                  "single one that runs them all",
                                  launch.size, mesh.numDevices(), mesh.numDevices()));
  CLEAVE_ASSIGN_OR_RETURN(Network network, readNetwork(options));
  auto fabric = std::make_unique<ProcessFabric>(mesh);
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                          launch.kind == Launch::Kind::Mpi
                              ? openMpiTransport(fabric->abortFlag())
                              : openTcpTransport(launch, network, plan, fabric->abortFlag()));
  if (transport->size() != mesh.numDevices())
    return inputError(fmt::format("{} processes met for a plan of {} devices", transport->size(), mesh.numDevices()));
  if (const std::string risk = exposure(network, transport->hosts()); !risk.empty() && launch.rank == 0)
    fmt::print(stderr, "cleave: warning: {}\n", risk);
  fabric->open(std::move(transport));
  return std::unique_ptr<Fabric>(std::move(fabric));
}

} // namespace cleave::runtime
