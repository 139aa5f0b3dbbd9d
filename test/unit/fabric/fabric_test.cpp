// The same cases on every fabric, as programs of their own (rank/fabric_rank.cpp).
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int ranks = 6, failing = 2;

struct FabricKind {
  const char *name;
  enum Launch { Threads, Processes, Mpi } launch;
  const char *environment = ""; // of every process
  const char *gpu = "";
};
std::ostream &operator<<(std::ostream &out, const FabricKind &kind) { return out << kind.name; }

constexpr const char *fakeGpu =
    "CLEAVE_CUDA_LIBRARIES=" FAKE_LIBRARIES " FAKE_CUDA_GPUS=1 NCCL_MULTI_RANK_GPU_ENABLE=1";
const std::vector<FabricKind> onCpu = {{"Threads", FabricKind::Threads},
                                       {"SharedMemory", FabricKind::Processes},
                                       {"Tcp", FabricKind::Processes, "CLEAVE_SHARED_MEMORY=0"},
                                       {"Mpi", FabricKind::Mpi}},
                              onGpu = {{"FakeCuda", FabricKind::Threads, fakeGpu, "fake"},
                                       {"FakeNccl", FabricKind::Processes, fakeGpu, "fake"},
                                       {"Cuda", FabricKind::Threads, "", "real"},
                                       {"Nccl", FabricKind::Processes, "", "real"}};

struct Outcome {
  int status = -1;
  std::string output; // both streams of all ranks, then "ended RANK STATUS" of each
};

Outcome run(const FabricKind &kind, const std::string &arguments) {
  static int turn = 0;
  const std::string folder = testing::TempDir() + "fabric-" + std::to_string(::getpid()) + "-" + std::to_string(turn);
  std::filesystem::create_directories(folder);
  const std::string call = std::string(FABRIC_RANK) + " " + arguments + (*kind.gpu ? "" : " " + folder),
                    port = std::to_string(10000 + (::getpid() * 16 + turn++) % 20000);
  std::string script = std::string("export X=1 ") + kind.environment + " XDG_CACHE_HOME=" + folder + "; ";
  if (kind.launch == FabricKind::Threads)
    script += call;
  else if (kind.launch == FabricKind::Mpi)
    script += "mpirun --allow-run-as-root --oversubscribe -n " + std::to_string(ranks) + " " + call;
  else // a rank that is stopped ends when the others have
    script += "export WORLD_SIZE=" + std::to_string(ranks) + " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
              "; for r in 0 1 2 3 4 5; do RANK=$r LOCAL_RANK=$r LOCAL_WORLD_SIZE=6 " + call +
              " & pids=\"$pids $!\"; done; s=0; r=0; for p in $pids; do [ $r = 2 ] || "
              "{ wait $p; e=$?; echo ended $r $e; [ $e = 0 ] || s=$e; }; r=$((r+1)); done; set -- $pids; "
              "kill -CONT $3 2>/dev/null; wait $3; e=$?; echo ended 2 $e; [ $e = 0 ] || s=$e; exit $s";
  Outcome out;
  std::FILE *pipe = ::popen(("timeout -k 5 180 bash -c '" + script + "' 2>&1 </dev/null").c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.output.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::filesystem::remove_all(folder);
  return out;
}

int count(const std::string &text, const std::string &what) {
  int times = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++times;
  return times;
}

class Fabrics : public testing::TestWithParam<FabricKind> {
protected:
  void SetUp() override {
    const FabricKind &kind = GetParam();
    if (kind.launch == FabricKind::Mpi && std::system("command -v mpirun >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "no mpirun on this machine";
    int gpus = 0;
    while (::access(("/dev/nvidia" + std::to_string(gpus)).c_str(), F_OK) == 0) ++gpus;
    if (std::string(kind.gpu) == "real" && gpus < (kind.launch == FabricKind::Threads ? 1 : ranks))
      GTEST_SKIP() << "this machine has " << gpus << " GPUs";
  }
  // On all ranks, and all of them say so.
  void expectOk(const std::string &arguments) {
    const Outcome out = run(GetParam(), arguments);
    EXPECT_EQ(out.status, 0) << out.output;
    EXPECT_EQ(count(out.output, "ok\n"), GetParam().launch == FabricKind::Threads ? 1 : ranks) << out.output;
  }
  std::string gpu() const { return *GetParam().gpu ? std::string(" ") + GetParam().gpu : ""; }
};

TEST_P(Fabrics, CollectivesGiveWhatPlainLoopsDo) {
  // NCCL sums in an order of its own: of six values below 4 each sum is wrong by half a unit in the last place of 16.
  const bool isExact = !*GetParam().gpu || GetParam().launch == FabricKind::Threads;
  expectOk("collectives" + (*GetParam().gpu ? gpu() + (isExact ? " 0" : " 1e-5") : " cpu 0"));
}
TEST_P(Fabrics, TransfersArriveWholeAndHoldUpNoOther) { expectOk("transfers" + (*GetParam().gpu ? gpu() : " cpu")); }
INSTANTIATE_TEST_SUITE_P(Cpu, Fabrics, testing::ValuesIn(onCpu), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Gpu, Fabrics, testing::ValuesIn(onGpu), testing::PrintToStringParamName());

class HostFabrics : public Fabrics {
protected:
  // All ranks but the failing one end with an error, and say this.
  void expectSurvivorsToSay(const std::string &mode, const std::string &what) {
    const Outcome out = run(GetParam(), mode);
    EXPECT_NE(out.status, 0) << out.output;
    EXPECT_NE(out.status, 124) << "it hangs: " << out.output;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != failing)
        EXPECT_THAT(out.output, testing::ContainsRegex("rank " + std::to_string(rank) + ": [^\n]*" + what));
  }
  bool isMpi() const { return GetParam().launch == FabricKind::Mpi; }
  bool isThreads() const { return GetParam().launch == FabricKind::Threads; }
};

TEST_P(HostFabrics, ControlReachesAllProcesses) { expectOk("control"); }

TEST_P(HostFabrics, AnAbortEndsAll) {
  const Outcome out = run(GetParam(), "abort");
  EXPECT_NE(out.status, 0) << out.output;
  EXPECT_NE(out.status, 124) << "it hangs: " << out.output;
  if (isMpi()) EXPECT_THAT(out.output, testing::HasSubstr("rank 2 has had enough")); // MPI ends the others
  for (int rank = 0; rank < ranks && !isMpi(); ++rank)
    EXPECT_THAT(out.output, testing::ContainsRegex("rank " + std::to_string(rank) + ": .*(aborted|gone)"));
}

TEST_P(HostFabrics, AKilledRankIsNamed) {
  if (isThreads()) GTEST_SKIP() << "all ranks are one process";
  if (!isMpi()) return expectSurvivorsToSay("killed", "rank 2 is gone");
  const Outcome out = run(GetParam(), "killed");
  EXPECT_NE(out.status, 0) << out.output;
  EXPECT_THAT(out.output, testing::ContainsRegex("rank 2 [^\n]*exited on signal 9")); // mpirun's
}

TEST_P(HostFabrics, AStoppedRankIsNamedAtTheDeadline) {
  if (isThreads()) GTEST_SKIP() << "all ranks are one process";
  expectSurvivorsToSay("stopped", "rank 2 does not answer for 3.0 s");
}

TEST_P(HostFabrics, RanksThatDoNotDoTheSameAreToldBoth) {
  if (isThreads()) GTEST_SKIP() << "one plan of one process, which the verifier has seen";
  const Outcome other = run(GetParam(), "other-collective"), size = run(GetParam(), "other-size");
  for (const Outcome &out : {other, size}) {
    EXPECT_NE(out.status, 0) << out.output;
    EXPECT_NE(out.status, 124) << "it hangs: " << out.output;
  }
  EXPECT_THAT(other.output, testing::ContainsRegex("rank 2 sends [^\n]*all_gather over a, b of 2400 bytes, where "
                                                   "[^\n]*all_reduce over a, b of [0-9]+ bytes"));
  EXPECT_THAT(size.output, testing::ContainsRegex("rank 2 sends [^\n]*all_reduce over a, b of [0-9]+ bytes, where "
                                                  "[^\n]*all_reduce over a, b of [0-9]+ bytes"));
}
INSTANTIATE_TEST_SUITE_P(Cpu, HostFabrics, testing::ValuesIn(onCpu), testing::PrintToStringParamName());

} // namespace
