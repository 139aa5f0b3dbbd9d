#include "runtime/plan/plan_file.h"
#include "test/unit/runtime/mlp_plan.h"
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cleave::runtime::test {
namespace {

std::string shell(const std::string &command, int &status) {
  std::FILE *pipe = ::popen((command + " 2>&1 </dev/null").c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer;
  while (size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), count);
  status = WEXITSTATUS(::pclose(pipe));
  return out;
}

class RuntimeC : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::path(testing::TempDir()) / ("cleave_c_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    plan::Plan plan = mlpPlan({.dp = 2, .tp = 2});
    for (int i = 0; i < plan.parameters_size(); ++i) {
      plan::RandomInit &init = *plan.mutable_parameters(i)->mutable_random();
      init.set_kind("normal");
      init.set_std(0.3);
      init.set_stream(static_cast<uint64_t>(i));
    }
    ASSERT_TRUE(writePlanFile(plan, path()).isOk());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string path() const { return (folder / "mlp.plan").string(); }
  std::string example(const std::string &snapshots, const std::string &rest, int &status) {
    return shell(std::string(RUNTIME_C_EXAMPLE) + " " + path() + " " + (folder / snapshots).string() + " " + rest,
                 status);
  }
  std::filesystem::path folder;
};

TEST_F(RuntimeC, TrainsSnapshotsAndResumesBitForBit) {
  int status = 0;
  std::string whole = example("a", "8", status);
  ASSERT_EQ(status, 0) << whole;
  example("b", "5", status);
  ASSERT_EQ(status, 0);
  std::string rest = example("b", "8 resume", status);
  ASSERT_EQ(status, 0) << rest;
  EXPECT_EQ(whole.substr(whole.find("step 6")), rest);
}

TEST_F(RuntimeC, LeavesTheOpenMpOfItsHostAlone) {
  int status = 0;
  // ThreadSanitizer does not see how the threads of libgomp, which is not built for it, wait for each other.
  std::string out = shell("TSAN_OPTIONS=$TSAN_OPTIONS:ignore_noninstrumented_modules=1 " +
                              std::string(RUNTIME_C_OPENMP) + " " + path() + " 4",
                          status);
  EXPECT_EQ(status, 0) << out;
}

// The program itself ends, after its call has failed.
TEST_F(RuntimeC, IsToldOfALostRank) {
  int status = 0;
  std::ofstream(folder / "ranks.sh") << R"(export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1
for try in 1 2 3; do # the port may be another program's
  export MASTER_PORT=$((20000 + RANDOM % 12000))
  for rank in 0 1 2 3; do RANK=$rank "$@" >out$rank 2>&1 & pid[$rank]=$!; done
  until grep -q 'step 3 ' out2 || ! kill -0 ${pid[2]} 2>/dev/null; do sleep 0.05; done
  grep -q 'step 3 ' out2 && break
  kill -9 ${pid[*]}
done
kill -STOP ${pid[1]}
for rank in 0 2 3; do wait ${pid[$rank]}; echo "rank $rank: $?"; grep -v ^step out$rank; done
kill -9 ${pid[1]}
)";
  const std::string out = shell("cd " + folder.string() + " && bash ranks.sh " + RUNTIME_C_EXAMPLE + " " + path() +
                                    " snapshots 100000000 impatient",
                                status);
  for (const char *rank : {"0", "2", "3"}) {
    const std::string why = "rank 1 does not answer for [^\n]*";
    EXPECT_THAT(out,
                testing::ContainsRegex(std::string("rank ") + rank + ": 4\nlost: " + why + "\nerror: [^\n]*" + why));
  }
}

TEST_F(RuntimeC, SaysWhatIsWrong) {
  int status = 0;
  std::filesystem::resize_file(path(), 1000);
  std::string out = example("a", "1", status);
  EXPECT_EQ(status, 1);
  EXPECT_THAT(out, testing::HasSubstr("truncated: 1000 of "));
}

} // namespace
} // namespace cleave::runtime::test
