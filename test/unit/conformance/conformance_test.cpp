#include "test/conformance/expectations.h"
#include "test/conformance/workers.h"
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace cleave::conformance {
namespace {

TEST(Workers, ResultsStandInTheOrderOfTheTasks) {
  std::vector<WorkerResult> results = runInProcesses(20, 3, [](size_t i) { return std::string(i * 1000, 'x'); });
  ASSERT_EQ(results.size(), 20u);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].text, std::string(i * 1000, 'x'));
    EXPECT_EQ(results[i].signal, 0);
  }
  EXPECT_TRUE(runInProcesses(0, 3, [](size_t) { return std::string(); }).empty());
}

TEST(Workers, ACrashIsOneResult) {
  std::vector<WorkerResult> results = runInProcesses(6, 2, [](size_t i) {
    if (i == 2) ::raise(SIGKILL); // which no sanitizer catches
    if (i == 5) ::_exit(0);       // a library that ends the process
    return std::to_string(i);
  });
  for (size_t i : {0, 1, 3, 4}) EXPECT_EQ(results[i].text, std::to_string(i));
  EXPECT_EQ(results[2].signal, SIGKILL);
  EXPECT_NE(results[5].signal, 0);
}

TEST(Workers, ATaskThatDoesNotEndIsOneResult) {
  auto task = [](size_t i) {
    while (i == 0) ::pause();
    return std::to_string(i);
  };
  std::vector<WorkerResult> results = runInProcesses(2, 1, task, {.told = {}, .patience = 1});
  EXPECT_EQ(results[0].signal, SIGALRM);
  EXPECT_EQ(results[1].text, "1");
}

TEST(Workers, ResultsAreToldAsTheyComeAndATaskMayLeaveItsProcess) {
  std::vector<size_t> order;
  auto task = [](size_t i) { return TaskResult(std::to_string(::getpid()), i == 1 || i == 3); };
  auto told = [&](size_t i, const WorkerResult &) { order.push_back(i); };
  std::vector<WorkerResult> results = runInProcesses(4, 1, task, {.told = told});
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(results[0].text, results[1].text);
  EXPECT_NE(results[1].text, results[2].text); // the third task has a process of its own
  EXPECT_EQ(results[2].text, results[3].text);
  for (const WorkerResult &result : results) EXPECT_EQ(result.signal, 0);
}

class ExpectationsFile : public testing::Test {
protected:
  ~ExpectationsFile() override { ::unlink(path.c_str()); }
  Result<Expectations> read(const std::string &text, const std::string &device) {
    std::ofstream(path) << text;
    return Expectations::read(path, device);
  }
  std::string path = testing::TempDir() + "cleave-expectations-" + std::to_string(::getpid());
};

TEST_F(ExpectationsFile, LinesAreOfTheDevicesAboveThem) {
  const char *text = "# text\non reference cpu:\nskip test_a*  one\n\non cpu:\nfail test_b  two\n";
  Result<Expectations> cpu = read(text, "cpu"), reference = read(text, "reference"), cuda = read(text, "cuda");
  ASSERT_TRUE(cpu && reference && cuda);
  EXPECT_EQ(cpu->all().size(), 2u);
  ASSERT_EQ(reference->all().size(), 1u);
  EXPECT_TRUE(cuda->all().empty());
  EXPECT_EQ(reference->of("test_b"), nullptr);
  Expectation *found = reference->of("test_abs");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->why, "one");
  EXPECT_EQ(found->line, 3);
  EXPECT_EQ(found->matches, 1);
}

TEST_F(ExpectationsFile, ASkipIsARefusalAndNothingElse) {
  Result<Expectations> lines = read("on cpu:\nskip a  x\ndiffer b  x\nfail c  x\n", "cpu");
  ASSERT_TRUE(lines);
  using Kind = Outcome::Kind;
  auto allowed = [&](const char *test) {
    std::vector<Kind> kinds;
    for (Kind kind : {Kind::Passed, Kind::Refused, Kind::Wrong, Kind::Crashed})
      if (lines->of(test)->allows(kind)) kinds.push_back(kind);
    return kinds;
  };
  EXPECT_EQ(allowed("a"), std::vector{Kind::Refused});
  EXPECT_EQ(allowed("b"), std::vector{Kind::Wrong});
  EXPECT_EQ(allowed("c"), (std::vector{Kind::Wrong, Kind::Crashed}));
}

TEST_F(ExpectationsFile, ErrorsNameTheLine) {
  for (const char *text : {"skip a  x\n", "on cpu:\nskip a\n", "on cpu:\nskips a  x\n", "on cpu\nskip a  x\n"}) {
    Result<Expectations> lines = read(text, "cpu");
    ASSERT_FALSE(lines) << text;
    EXPECT_NE(lines.status().message().find(path + ":"), std::string::npos) << lines.status().message();
  }
}

} // namespace
} // namespace cleave::conformance
