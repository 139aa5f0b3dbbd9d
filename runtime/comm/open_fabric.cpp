#include "runtime/comm/open_fabric.h"
#include "runtime/comm/local.h"
#include "runtime/comm/process.h"
#include <cstdlib>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// A variable's number; 0 when it is not set.
int64_t number(const char *name) {
  const char *value = std::getenv(name);
  return value ? std::atoll(value) : 0;
}
bool isSet(const char *name) { return std::getenv(name) != nullptr; }

} // namespace

Result<std::unique_ptr<Fabric>> openFabric(const dist::Mesh &mesh) {
  int64_t mpi = std::max(number("OMPI_COMM_WORLD_SIZE"), number("PMI_SIZE"));
  if (mpi == 0 && isSet("PMIX_RANK")) mpi = number("SLURM_NTASKS");
  int64_t torch = isSet("RANK") && isSet("MASTER_ADDR") ? number("WORLD_SIZE") : 0;
  int64_t processes = mpi > 1 ? mpi : torch;
  if (processes <= 1) return std::unique_ptr<Fabric>(std::make_unique<LocalFabric>(mesh));
  if (processes != mesh.numDevices())
    return inputError(fmt::format("{} processes were started for a plan of {} devices: start {}, one a device, or a "
                                  "single one that runs them all",
                                  processes, mesh.numDevices(), mesh.numDevices()));
  Result<std::unique_ptr<Transport>> transport = mpi > 1 ? openMpiTransport() : openTcpTransport();
  if (!transport) return transport.status();
  if ((*transport)->size() != mesh.numDevices())
    return inputError(
        fmt::format("{} processes met for a plan of {} devices", (*transport)->size(), mesh.numDevices()));
  return std::unique_ptr<Fabric>(std::make_unique<ProcessFabric>(mesh, std::move(*transport)));
}

} // namespace cleave::runtime
