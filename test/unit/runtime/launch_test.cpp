// Launch variables as mpirun, torchrun and srun set them (names and formats from their manuals).
#include "runtime/engine/comm/launch.h"
#include <gmock/gmock.h>
#include <map>

namespace cleave::runtime {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Launch> read(const Variables &variables) {
  return readLaunch([&](const char *name) -> const char * {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, NothingSetIsAlone) {
  Result<Launch> launch = read({});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->kind, Launch::Kind::Alone);
  EXPECT_EQ(launch->localSize, 1);
}

TEST(Launch, MpirunSaysHowManyAreHere) {
  Result<Launch> launch = read({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->kind, Launch::Kind::Mpi);
  EXPECT_EQ(launch->size, 8);
  EXPECT_EQ(launch->localSize, 4);
}

TEST(Launch, TorchrunsAgentHoldsThePort) {
  Variables variables = {{"RANK", "3"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "node7"},
                         {"MASTER_PORT", "29500"}};
  Result<Launch> launch = read(variables);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->kind, Launch::Kind::Tcp);
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->localSize, 2);
  EXPECT_EQ(launch->port, 29500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read(variables)->port, 29501);
  variables["RANK"] = "4";
  EXPECT_THAT(read(variables).status().message(), testing::HasSubstr("RANK=4 WORLD_SIZE=4"));
  variables["RANK"] = "0", variables["WORLD_SIZE"] = "1";
  EXPECT_EQ(read(variables)->kind, Launch::Kind::Alone);
}

TEST(Launch, SrunsFirstNodeIsRankZeros) {
  Variables variables = {{"SLURM_PROCID", "9"},
                         {"SLURM_STEP_NUM_TASKS", "11"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                         {"SLURM_STEP_NODELIST", "gpu[007-008,12]"},
                         {"SLURM_JOB_ID", "100"},
                         {"SLURM_STEP_ID", "2"}};
  Result<Launch> launch = read(variables);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->kind, Launch::Kind::Tcp);
  EXPECT_EQ(launch->host, "gpu007");
  EXPECT_EQ(launch->rank, 9);
  EXPECT_EQ(launch->localSize, 3);
  int port = launch->port;
  variables["SLURM_STEP_ID"] = "3";
  EXPECT_NE(read(variables)->port, port); // two steps of a job do not meet
  variables["SLURM_STEP_NODELIST"] = "login-2,gpu7";
  EXPECT_EQ(read(variables)->host, "login-2");
  variables["SLURM_NODEID"] = "1";
  EXPECT_EQ(read(variables)->localSize, 4);
  // With srun --mpi=pmix, MPI finds its own way.
  variables["PMIX_RANK"] = "9", variables["SLURM_NTASKS"] = "11";
  EXPECT_EQ(read(variables)->kind, Launch::Kind::Mpi);
}

// The variables of srun around a shell of an allocation, or of sbatch around its script: one process runs all devices.
TEST(Launch, TheShellOfAnAllocationIsAlone) {
  Result<Launch> launch = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->kind, Launch::Kind::Alone);
}

} // namespace
} // namespace cleave::runtime
