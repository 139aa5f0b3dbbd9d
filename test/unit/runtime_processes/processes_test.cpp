#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Outcome {
  int status = -1;
  std::string output; // both streams
  double seconds = 0;
};

Outcome shell(const std::string &command) {
  auto begin = std::chrono::steady_clock::now();
  Outcome out;
  std::FILE *pipe = ::popen(("timeout 180 bash -c '" + command + "' 2>&1 </dev/null").c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.output.append(buffer.data(), count);
  int status = ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return out;
}

bool hasMpi() { return std::system("command -v mpirun >/dev/null 2>&1") == 0; }

std::string underMpi(int processes, const std::string &arguments) {
  return "mpirun --allow-run-as-root --oversubscribe -n " + std::to_string(processes) + " " RUNTIME_RANK " " +
         arguments;
}
// Starts `processes` ranks with torchrun's variables; the exit status is the last non-zero one.
std::string underTorch(int processes, const std::string &arguments) {
  std::string port = std::to_string(20000 + ::getpid() % 12000 + processes);
  return "export WORLD_SIZE=" + std::to_string(processes) + " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
         "; for r in $(seq 0 " + std::to_string(processes - 1) + "); do RANK=$r LOCAL_RANK=$r " RUNTIME_RANK " " +
         arguments + " & pids=\"$pids $!\"; done; s=0; for p in $pids; do wait $p || s=$?; done; exit $s";
}

// Four ranks with torchrun's variables, of which the third is killed: the others say where they were, and end with 4.
void expectSurvivorsToTell(const std::string &arguments) {
  std::string port = std::to_string(20000 + ::getpid() % 12000 + 7);
  Outcome killed = shell("export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
                         "; for r in 0 1 2 3; do RANK=$r LOCAL_RANK=$r " RUNTIME_RANK " " + arguments +
                         " die 2 50 & pids=\"$pids $!\"; done; r=0; for p in $pids; do wait $p; echo ended $r $?; "
                         "r=$((r+1)); done");
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(killed.output, testing::HasSubstr("ended " + std::to_string(rank) + " 4"));
    EXPECT_THAT(killed.output,
                testing::ContainsRegex("error: rank " + std::to_string(rank) + ", step [0-9]+.*: rank [0-3] is gone"));
    EXPECT_THAT(killed.output,
                testing::ContainsRegex("error: rank " + std::to_string(rank) + ", step [0-9]+.*rank 2 is gone"));
  }
  EXPECT_THAT(killed.output, testing::HasSubstr("ended 2 137"));
  EXPECT_LT(killed.seconds, 120);
}

// Four ranks with torchrun's variables and a timeout of five seconds, of which the third keeps the others waiting.
Outcome whileTheThird(const std::string &mode, const std::string &plan) {
  std::string port = std::to_string(20000 + ::getpid() % 12000 + 11);
  return shell(
      "export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
      "; for r in 0 1 2 3; do RANK=$r LOCAL_RANK=$r " RUNTIME_RANK " " + plan + " 1000000 " + mode +
      " 2 50 5 & pids=\"$pids $!\"; done; r=0; for p in $pids; do [ $r = 2 ] || { wait $p; echo ended $r $?; }; "
      "r=$((r+1)); done; set -- $pids; kill -CONT $3; [ " +
      mode + " = sleep ] && kill -9 $3; wait $3; echo ended 2 $?");
}

TEST(Processes, AStoppedRankIsNamedAndEndsTheOthers) {
  for (const char *plan : {"2 2", "interleaved:2 4 1"}) {
    Outcome stopped = whileTheThird("stop", plan);
    for (int rank : {0, 1, 3}) {
      EXPECT_THAT(stopped.output, testing::HasSubstr("ended " + std::to_string(rank) + " 4"));
      EXPECT_THAT(stopped.output,
                  testing::ContainsRegex("error: rank " + std::to_string(rank) +
                                         ", step 51.*rank 2 does not answer for [0-9.]+ s .host [^ ,]+, "
                                         "last heard of .*step"));
    }
    EXPECT_THAT(stopped.output, testing::HasSubstr("ended 2 4")); // when it goes on
    EXPECT_LT(stopped.seconds, 120);
  }
}

TEST(Processes, ARankThatDoesNotBeginItsStepIsNamed) {
  Outcome asleep = whileTheThird("sleep", "2 2");
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(asleep.output, testing::HasSubstr("ended " + std::to_string(rank) + " 4"));
    EXPECT_THAT(asleep.output,
                testing::ContainsRegex("error: rank " + std::to_string(rank) +
                                       ", step 51.*the others wait for rank 2 .host [^ ,]+, after step 50"));
  }
  EXPECT_LT(asleep.seconds, 120);
}

TEST(Processes, UnderMpiAStoppedRankIsNamed) {
  if (!hasMpi()) GTEST_SKIP() << "no mpirun on this machine";
  Outcome mpi = shell(underMpi(4, "2 2 1000000 stop 2 50 5"));
  EXPECT_EQ(mpi.status, 4) << mpi.output;
  EXPECT_THAT(mpi.output, testing::ContainsRegex("rank [013], step 51.*rank 2 does not answer for [0-9.]+ s"));
  EXPECT_LT(mpi.seconds, 120);
}

TEST(Processes, ASlowRankIsTold) {
  Outcome slow = shell(underTorch(4, "2 2 60 slow 2 50"));
  EXPECT_EQ(slow.status, 0) << slow.output;
  EXPECT_THAT(slow.output, testing::ContainsRegex("told: rank 2 .[^)]+. takes [0-9.]+ times the median"));
}

TEST(Processes, MpiGivesTheBitsOfOneProcess) {
  if (!hasMpi()) GTEST_SKIP() << "no mpirun on this machine";
  for (auto [mesh, processes] : {std::pair{"2 1", 2}, std::pair{"2 2", 4}, std::pair{"4 1", 4}}) {
    Outcome one = shell(std::string(RUNTIME_RANK) + " " + mesh + " 10"),
            several = shell(underMpi(processes, std::string(mesh) + " 10"));
    EXPECT_EQ(one.status, 0) << one.output;
    EXPECT_EQ(several.status, 0) << several.output;
    EXPECT_EQ(several.output, one.output);
  }
}

TEST(Processes, TorchVariablesGiveTheBitsOfOneProcess) {
  for (auto [mesh, processes] : {std::pair{"2 1", 2}, std::pair{"2 2", 4}, std::pair{"1 4", 4}}) {
    Outcome one = shell(std::string(RUNTIME_RANK) + " " + mesh + " 10"),
            several = shell(underTorch(processes, std::string(mesh) + " 10"));
    EXPECT_EQ(one.status, 0) << one.output;
    EXPECT_EQ(several.status, 0) << several.output;
    EXPECT_EQ(several.output, one.output);
  }
}

// Rank 0 shares no memory, the others would.
TEST(Processes, OneRankThatSharesNoMemoryGivesTheSameBits) {
  std::string port = std::to_string(20000 + ::getpid() % 12000 + 13);
  Outcome one = shell(std::string(RUNTIME_RANK) + " 4 1 10"),
          mixed = shell("export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
                        "; for r in 0 1 2 3; do CLEAVE_SHARED_MEMORY=$r RANK=$r LOCAL_RANK=$r " RUNTIME_RANK
                        " 4 1 10 & pids=\"$pids $!\"; done; s=0; for p in $pids; do wait $p || s=$?; done; exit $s");
  EXPECT_EQ(mixed.status, 0) << mixed.output;
  EXPECT_EQ(mixed.output, one.output);
}

TEST(Processes, PipelinesGiveTheBitsOfOneProcess) {
  for (auto [arguments, processes] : {std::pair{"1f1b 2 1 10", 2}, std::pair{"interleaved:2 2 2 10", 4},
                                      std::pair{"gpipe 4 1 10", 4}, std::pair{"zb-v 2 1 10", 2}}) {
    Outcome one = shell(std::string(RUNTIME_RANK) + " " + arguments), torch = shell(underTorch(processes, arguments));
    EXPECT_EQ(one.status, 0) << one.output;
    EXPECT_EQ(torch.status, 0) << torch.output;
    EXPECT_EQ(torch.output, one.output) << arguments;
    if (!hasMpi()) continue;
    Outcome mpi = shell(underMpi(processes, arguments));
    EXPECT_EQ(mpi.status, 0) << mpi.output;
    EXPECT_EQ(mpi.output, one.output) << arguments;
  }
}

TEST(Processes, AFailingStageEndsTheOthers) {
  Outcome torch = shell(underTorch(2, "1f1b 2 1 10 nan"));
  EXPECT_EQ(torch.status, 4) << torch.output;
  EXPECT_THAT(torch.output, testing::ContainsRegex("rank [01], step [0-9]+, command .loss. .check_finite."));
  EXPECT_LT(torch.seconds, 120);
  expectSurvivorsToTell("interleaved:2 4 1 1000000");
  if (!hasMpi()) GTEST_SKIP() << "no mpirun on this machine";
  Outcome mpi = shell(underMpi(4, "interleaved:2 4 1 1000000 die 2 50"));
  EXPECT_EQ(mpi.status, 137) << mpi.output; // mpirun's own: it ends the others itself
  EXPECT_LT(mpi.seconds, 120);
}

TEST(Processes, ANonFiniteLossEndsAllWithStatus4) {
  Outcome torch = shell(underTorch(2, "2 1 10 nan"));
  EXPECT_EQ(torch.status, 4) << torch.output;
  EXPECT_THAT(torch.output,
              testing::ContainsRegex("rank [01], step [0-9]+, command .loss. .check_finite.: the loss is not finite"));
  EXPECT_LT(torch.seconds, 120);
  if (!hasMpi()) GTEST_SKIP() << "no mpirun on this machine";
  Outcome mpi = shell(underMpi(2, "2 1 10 nan"));
  EXPECT_EQ(mpi.status, 4) << mpi.output;
  EXPECT_THAT(mpi.output,
              testing::ContainsRegex("rank [01], step [0-9]+, command .loss. .check_finite.: the loss is not finite"));
  EXPECT_LT(mpi.seconds, 120);
}

TEST(Processes, AKilledRankEndsTheOthers) {
  expectSurvivorsToTell("2 2 1000000");
  if (!hasMpi()) GTEST_SKIP() << "no mpirun on this machine";
  Outcome mpi = shell(underMpi(4, "2 2 1000000 die 2 50"));
  EXPECT_EQ(mpi.status, 137) << mpi.output; // mpirun's own: it ends the others itself
  EXPECT_LT(mpi.seconds, 120);
}

// Two hosts as two network namespaces joined by a pair of virtual interfaces; two ranks on each.
TEST(Processes, TwoHostsGiveTheBitsOfOneProcess) {
  std::string id = std::to_string(::getpid() % 10000), a = "clva" + id, b = "clvb" + id;
  std::string setup = "set -e; ip netns add " + a + "; ip netns add " + b + "; ip link add " + a + " netns " + a +
                      " type veth peer name " + b + " netns " + b + "; ip -n " + a + " addr add 10.213.7.1/24 dev " +
                      a + "; ip -n " + b + " addr add 10.213.7.2/24 dev " + b + "; for n in " + a + " " + b +
                      "; do ip -n $n link set lo up; ip -n $n link set $n up; done";
  auto clean = [&] { shell("ip netns del " + a + "; ip netns del " + b); };
  if (Outcome made = shell(setup); made.status != 0) {
    clean();
    GTEST_SKIP() << "no network namespaces here: " << made.output;
  }
  Outcome one = shell(RUNTIME_RANK " 2 2 10");
  Outcome several = shell("export CLEAVE_SECRET=$(printf %032d $RANDOM$RANDOM) WORLD_SIZE=4 MASTER_ADDR=10.213.7.1 "
                          "MASTER_PORT=29500; for r in 0 1 2 3; do n=" +
                          a + "; [ $r -ge 2 ] && n=" + b +
                          "; RANK=$r ip netns exec $n " RUNTIME_RANK
                          " 2 2 10 & pids=\"$pids $!\"; done; s=0; for p in $pids; do wait $p || s=$?; done; exit $s");
  clean();
  EXPECT_EQ(several.status, 0) << several.output;
  EXPECT_EQ(several.output, one.output);
}

TEST(Processes, TheSoftLimitOfFilesIsRaised) {
  Outcome few = shell("ulimit -Sn 32; " + underTorch(8, "8 1 2"));
  EXPECT_EQ(few.status, 0) << few.output;
  Outcome tooFew = shell("ulimit -n 40; " + underTorch(2, "2 1 1"));
  EXPECT_EQ(tooFew.status, 1);
  EXPECT_THAT(tooFew.output, testing::HasSubstr("connections and may open 40 files: raise the hard limit (ulimit -Hn"));
}

TEST(Processes, TheWrongNumberIsSaid) {
  Outcome torch = shell(underTorch(2, "2 2 1"));
  EXPECT_EQ(torch.status, 1);
  EXPECT_THAT(torch.output, testing::HasSubstr("2 processes were started for a plan of 4 devices"));
}

} // namespace
