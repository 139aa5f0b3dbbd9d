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

// Each process would train the whole model.
TEST(Launch, SeveralProcessesWithoutAPlaceToMeetAreAnError) {
  Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "4"}};
  EXPECT_THAT(read(variables).status().message(), testing::HasSubstr("MASTER_ADDR and MASTER_PORT are missing"));
  variables["MASTER_ADDR"] = "node7", variables["MASTER_PORT"] = "";
  EXPECT_THAT(read(variables).status().message(), testing::HasSubstr("MASTER_PORT is missing"));
  variables.erase("RANK"), variables["MASTER_PORT"] = "29500";
  EXPECT_THAT(read(variables).status().message(), testing::HasSubstr("RANK is missing"));
  EXPECT_THAT(read({{"WORLD_SIZE", "two"}}).status().message(), testing::HasSubstr("WORLD_SIZE=two"));
  EXPECT_THAT(read({{"RANK", "1"}, {"MASTER_ADDR", "a"}}).status().message(), testing::HasSubstr("WORLD_SIZE and"));
  EXPECT_EQ(read({{"RANK", "3"}})->kind, Launch::Kind::Alone);
  EXPECT_EQ(read({{"WORLD_SIZE", "1"}})->kind, Launch::Kind::Alone);
  // A batch script often exports these for PyTorch; srun tells the rank.
  variables.insert({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NODELIST", "node7"}});
  EXPECT_EQ(read(variables)->rank, 1);
}

TEST(Launch, APortIsOne) {
  Variables torch = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "70000"}};
  Variables slurm = {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NODELIST", "node7"}};
  for (Variables *variables : {&torch, &slurm})
    for (const char *wrong : {"70000", "0", "-1", "http", "99999999999"}) {
      (*variables)["MASTER_PORT"] = wrong;
      EXPECT_THAT(read(*variables).status().message(), testing::HasSubstr(std::string("MASTER_PORT=") + wrong));
    }
  torch["MASTER_PORT"] = "65535";
  EXPECT_EQ(read(torch)->port, 65535);
  torch["CLEAVE_ATTEMPT"] = "2";
  EXPECT_THAT(read(torch).status().message(), testing::HasSubstr("port 65537 is beyond 65535: MASTER_PORT"));
  torch.erase("CLEAVE_ATTEMPT"), torch["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_THAT(read(torch).status().message(), testing::HasSubstr("port 65536"));
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
