#include "runtime/engine/comm/launch.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>
#include <vector>

namespace cleave::runtime {
namespace {

constexpr int maxProcesses = 16384, largestPort = 65535;

struct Variables {
  const std::function<const char *(const char *)> &get;
  bool has(const char *name) const { return !text(name).empty(); }
  std::string text(const char *name) const {
    const char *value = get(name);
    return value ? value : "";
  }
  // -1: not set, or not a whole number.
  int number(const char *name) const {
    std::string value = text(name);
    int parsed = -1;
    auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    return failure == std::errc() && end == value.data() + value.size() ? parsed : -1;
  }
};

// The first of Slurm's list of nodes: "gpu[007-009,12],login" is gpu007.
std::string firstNode(std::string_view list) {
  size_t open = list.find_first_of("[,");
  if (open == std::string_view::npos || list[open] == ',') return std::string(list.substr(0, open));
  size_t end = list.find_first_of("-,]", open);
  return std::string(list.substr(0, open)) + std::string(list.substr(open + 1, end - open - 1));
}

// Slurm's tasks of node `node`: "4(x2),3" is 4 for nodes 0 and 1, and 3 for node 2. 1 where the list does not tell.
int tasksOfNode(const std::string &list, int node) {
  const char *at = list.data(), *last = at + list.size();
  while (at < last) {
    int tasks = 1, nodes = 1;
    at = std::from_chars(at, last, tasks).ptr;
    if (last - at > 2 && at[0] == '(' && at[1] == 'x') at = std::from_chars(at + 2, last, nodes).ptr + 1;
    if (node < nodes) return std::max(1, tasks);
    node -= nodes, ++at; // past the comma
  }
  return 1;
}

Result<Launch> ofTorch(const Variables &variables) {
  std::vector<const char *> missing;
  for (const char *name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    if (!variables.has(name)) missing.push_back(name);
  if (!missing.empty())
    return inputError(
        fmt::format("RANK={} WORLD_SIZE={} MASTER_ADDR={} MASTER_PORT={}: {} {} missing: set all four, as "
                    "torchrun does, or none to run all devices in one process",
                    variables.text("RANK"), variables.text("WORLD_SIZE"), variables.text("MASTER_ADDR"),
                    variables.text("MASTER_PORT"), fmt::join(missing, " and "), missing.size() == 1 ? "is" : "are"));
  Launch launch{.kind = Launch::Kind::Tcp,
                .size = variables.number("WORLD_SIZE"),
                .localSize = std::max(1, variables.number("LOCAL_WORLD_SIZE")),
                .rank = variables.number("RANK"),
                .localRank = std::max(0, variables.number("LOCAL_RANK")),
                .host = variables.text("MASTER_ADDR"),
                .port = variables.number("MASTER_PORT"),
                .job = variables.text("TORCHELASTIC_RUN_ID")};
  if (launch.size < 1 || launch.size > maxProcesses || launch.rank < 0 || launch.rank >= launch.size)
    return inputError(fmt::format("RANK={} WORLD_SIZE={}: WORLD_SIZE is 1 to {}, and RANK a whole number below it",
                                  variables.text("RANK"), variables.text("WORLD_SIZE"), maxProcesses));
  if (variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++launch.port; // torchrun holds the port itself
  return launch;
}

Result<Launch> ofSlurm(const Variables &variables) {
  int tasks = variables.number("SLURM_STEP_NUM_TASKS"), port = variables.number("MASTER_PORT");
  if (!variables.has("MASTER_PORT")) // one that other steps on the same nodes are unlikely to have, and that is the
                                     // same on all of this one
    port =
        20000 +
        (std::max(0, variables.number("SLURM_JOB_ID")) * 16 + std::max(0, variables.number("SLURM_STEP_ID"))) % 12000;
  Launch launch{.kind = Launch::Kind::Tcp,
                .size = tasks,
                .localSize = tasksOfNode(variables.text("SLURM_STEP_TASKS_PER_NODE"),
                                         std::max(0, variables.number("SLURM_NODEID"))),
                .rank = variables.number("SLURM_PROCID"),
                .localRank = std::max(0, variables.number("SLURM_LOCALID")),
                .host = variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR")
                                                     : firstNode(variables.text("SLURM_STEP_NODELIST")),
                .port = port,
                .job = variables.text("SLURM_JOB_ID") + "." + variables.text("SLURM_STEP_ID")};
  if (launch.size > maxProcesses || launch.rank < 0 || launch.rank >= launch.size || launch.host.empty())
    return inputError(fmt::format("SLURM_PROCID={} SLURM_STEP_NUM_TASKS={} SLURM_STEP_NODELIST={}: srun sets all "
                                  "three; start the run with srun, mpirun or torchrun",
                                  variables.text("SLURM_PROCID"), tasks, variables.text("SLURM_STEP_NODELIST")));
  return launch;
}

} // namespace

Result<Launch> readLaunch(const std::function<const char *(const char *)> &variable) {
  Variables variables{variable};
  int mpi = std::max(variables.number("OMPI_COMM_WORLD_SIZE"), variables.number("PMI_SIZE"));
  if (mpi < 1 && variables.has("PMIX_RANK")) mpi = variables.number("SLURM_NTASKS");
  if (mpi > 1) {
    int local = std::max(variables.number("OMPI_COMM_WORLD_LOCAL_SIZE"), variables.number("MPI_LOCALNRANKS"));
    int place = std::max({0, variables.number("OMPI_COMM_WORLD_LOCAL_RANK"), variables.number("MPI_LOCALRANKID"),
                          variables.number("SLURM_LOCALID")});
    return Launch{Launch::Kind::Mpi, mpi, std::max(1, local), 0, place, {}, 0, {}};
  }
  const bool slurm = variables.number("SLURM_STEP_NUM_TASKS") > 1;
  const bool several = variables.has("WORLD_SIZE") && variables.number("WORLD_SIZE") != 1;
  const bool torch = (variables.has("RANK") && variables.has("MASTER_ADDR")) || (several && !slurm);
  if (!torch && !slurm) return Launch{};
  Result<Launch> launch = torch ? ofTorch(variables) : ofSlurm(variables);
  if (!launch) return launch;
  if (launch->size == 1) return Launch{};
  if (const int base = variables.number("MASTER_PORT");
      variables.has("MASTER_PORT") && (base < 1 || base > largestPort))
    return inputError(fmt::format("MASTER_PORT={}: a port is a whole number from 1 to {}",
                                  variables.text("MASTER_PORT"), largestPort));
  launch->port += std::max(0, variables.number("CLEAVE_ATTEMPT"));
  CLEAVE_RETURN_IF_ERROR(checkPort(launch->port));
  return launch;
}

Status checkPort(int port) {
  if (port <= largestPort) return Status::ok();
  return inputError(fmt::format("port {} is beyond {}: MASTER_PORT must leave room for the ports behind it, one for "
                                "torchrun's own and two for each restart",
                                port, largestPort));
}

Result<Launch> readLaunch() {
  return readLaunch([](const char *name) -> const char * { return std::getenv(name); });
}

} // namespace cleave::runtime
