#include "runtime/base/atomic_file.h"
#include "runtime/plan/plan_file.h"
#include "test/unit/runtime/mlp_plan.h"
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

namespace cleave::runtime::test {
namespace {

using testing::HasSubstr;

plan::Plan smallPlan() {
  plan::Plan plan = mlpPlan({.dp = 2});
  plan.clear_kernel_object();
  return plan;
}

// Writes a field of the header and makes its checksum right again.
template <typename T> std::string withHeader(std::string bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  auto *data = reinterpret_cast<const Bytef *>(bytes.data());
  auto checksum = static_cast<uint32_t>(crc32(crc32(0, data + 16, 24), data, 12));
  std::memcpy(bytes.data() + 12, &checksum, 4);
  return bytes;
}

TEST(PlanFile, RoundTrip) {
  plan::Plan plan = smallPlan();
  std::string path = testing::TempDir() + "round.plan";
  ASSERT_TRUE(writePlanFile(plan, path).isOk());
  Result<plan::Plan> read = readPlanFile(path);
  ASSERT_TRUE(read.isOk()) << read.status().message();
  EXPECT_EQ(read->SerializeAsString(), plan.SerializeAsString());
}

TEST(PlanFile, EveryTruncationIsRefused) {
  std::string whole = *encodePlan(smallPlan());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    Result<plan::Plan> read = decodePlan(std::string_view(whole).substr(0, bytes), "x.plan");
    ASSERT_FALSE(read.isOk()) << bytes;
    EXPECT_EQ(read.status().exitStatus(), 1);
    EXPECT_THAT(read.status().message(), testing::StartsWith("x.plan: "));
  }
  EXPECT_THAT(decodePlan(std::string_view(whole).substr(0, whole.size() - 1), "x").status().message(),
              HasSubstr("truncated"));
}

TEST(PlanFile, EveryFlippedBitIsRefused) {
  std::string whole = *encodePlan(smallPlan());
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ASSERT_FALSE(decodePlan(damaged, "x.plan").isOk()) << "bit " << bit;
  }
}

TEST(PlanFile, NewerOrUnknownIsSaid) {
  std::string whole = *encodePlan(smallPlan());
  auto message = [](const std::string &bytes) { return decodePlan(bytes, "x").status().message(); };
  EXPECT_THAT(message(withHeader<uint32_t>(whole, 8, planFormatVersion + 1)), HasSubstr("newer than this runtime's"));
  EXPECT_THAT(message(withHeader<uint64_t>(whole, 16, 1ull << 40)), HasSubstr("features this runtime does not have"));
  EXPECT_THAT(message(withHeader<uint32_t>(whole, 8, 0)), HasSubstr("corrupt"));
  EXPECT_THAT(message(whole + "more"), HasSubstr("4 bytes follow"));
  EXPECT_THAT(message("hello, world, this is no plan but long enough to have a header"), HasSubstr("not a plan"));
  EXPECT_THAT(message(withHeader<uint64_t>(whole, 24, ~0ull)), HasSubstr("truncated"));
  // A right checksum over bytes that are no message.
  std::string garbage = whole.substr(0, planHeaderBytes) + std::string(64, '\xff');
  auto checksum =
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef *>(garbage.data()) + planHeaderBytes, 64));
  EXPECT_THAT(message(withHeader<uint32_t>(withHeader<uint64_t>(garbage, 24, 64), 32, checksum)),
              HasSubstr("not a valid plan message"));
}

// Protocol Buffers keep what they do not know, and a run without it is another one than was compiled.
TEST(PlanFile, FieldsOfANewerCleaveAreRefused) {
  auto message = [](const plan::Plan &plan) { return decodePlan(*encodePlan(plan), "x.plan").status().message(); };
  auto addTo = [](google::protobuf::Message &to) { to.GetReflection()->MutableUnknownFields(&to)->AddVarint(9999, 1); };
  plan::Plan plan = smallPlan();
  addTo(plan);
  EXPECT_THAT(message(plan), HasSubstr("x.plan: a newer cleave wrote it: Plan has fields that this runtime does not"));
  plan = smallPlan();
  addTo(*plan.mutable_training()->mutable_lr());
  EXPECT_THAT(message(plan), HasSubstr("wrote it: Plan.training.lr has fields"));
  plan = smallPlan();
  addTo(*plan.mutable_programs(0)->mutable_fragments(0)->mutable_commands(0));
  EXPECT_THAT(message(plan), HasSubstr("wrote it: Plan.programs.fragments.commands has fields"));
  EXPECT_EQ(message(smallPlan()), "");
}

// Protocol Buffers write a string that is not UTF-8, and do not read it again.
TEST(PlanFile, TextThatIsNotUtf8IsNamed) {
  plan::Plan plan = smallPlan();
  plan.set_model_path("/tmp/\xff/model.onnx");
  EXPECT_THAT(encodePlan(plan).status().message(), HasSubstr("Plan.model_path is '/tmp/\\xff/model.onnx': rename it"));
  plan = smallPlan();
  plan.mutable_parameters(0)->set_name("w\xc3");
  EXPECT_THAT(encodePlan(plan).status().message(), HasSubstr("Plan.parameters.name is 'w\\xc3'"));
  plan = smallPlan();
  plan.set_model_path("/tmp/\xc3\xa9/model.onnx");
  EXPECT_TRUE(decodePlan(*encodePlan(plan), "x").isOk());
}

TEST(PlanFile, MissingFilesAndFolders) {
  EXPECT_THAT(readPlanFile("/nowhere/x.plan").status().message(), HasSubstr("/nowhere/x.plan: cannot be opened"));
  EXPECT_THAT(readPlanFile(testing::TempDir()).status().message(), HasSubstr("not a regular file"));
  EXPECT_THAT(writePlanFile(smallPlan(), "/nowhere/x.plan").message(),
              HasSubstr("/nowhere/x.plan: cannot be written: No such file"));
  // A path that is no file is written to, not replaced.
  const std::string full = ::testing::TempDir() + "cleave_full";
  std::filesystem::remove(full);
  std::filesystem::create_symlink("/dev/full", full);
  EXPECT_THAT(writePlanFile(smallPlan(), full).message(), HasSubstr(full + ": cannot be written: No space left"));
  EXPECT_TRUE(std::filesystem::is_symlink(full));
  std::filesystem::remove(full);
}

class AtomicFileTest : public testing::Test {
protected:
  AtomicFileTest() { std::filesystem::create_directories(folder); }
  ~AtomicFileTest() override { std::filesystem::remove_all(folder); }
  static std::string contentOf(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  }
  const std::string folder = testing::TempDir() + "atomic" + std::to_string(::getpid()), path = folder + "/file";
};

TEST_F(AtomicFileTest, AFullDiskLeavesTheOldFileAndNothingBeside) {
  ASSERT_TRUE(writeFileAtomically("old", path).isOk());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before, small = {100, 0}; // files may not grow beyond 100 bytes: writes fail as on a full disk
  getrlimit(RLIMIT_FSIZE, &before);
  small.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status = writeFileAtomically(std::string(1000, 'x'), path);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.message(), path + ": cannot be written: File too large");
  EXPECT_EQ(contentOf(path), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFileTest, WritersOfOnePathDoNotMix) {
  ASSERT_TRUE(writeFileAtomically("old", path).isOk());
  {
    Result<AtomicFile> first = AtomicFile::create(path), second = AtomicFile::create(path),
                       third = AtomicFile::create(path);
    ASSERT_TRUE(first && second && third);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(first->write("aaaa") && second->write("bb") && third->write("c"));
    EXPECT_EQ(contentOf(path), "old");
    EXPECT_TRUE(first->commit().isOk());
    EXPECT_EQ(contentOf(path), "aaaaaaaaaaaa");
    EXPECT_TRUE(second->commit().isOk());
    EXPECT_EQ(files(), 2);
  }
  EXPECT_EQ(contentOf(path), "bbbbbb");
  EXPECT_EQ(files(), 1); // the third was not committed
}

TEST_F(AtomicFileTest, LinksPermissionsAndLongNamesStay) {
  namespace fs = std::filesystem;
  ASSERT_TRUE(writeFileAtomically("old", path).isOk());
  fs::permissions(path, fs::perms(0640));
  fs::create_symlink("file", folder + "/link");
  ASSERT_TRUE(writeFileAtomically("new", folder + "/link").isOk());
  EXPECT_TRUE(fs::is_symlink(folder + "/link"));
  EXPECT_EQ(contentOf(path), "new");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
  const std::string longest = folder + "/" + std::string(255, 'n');
  EXPECT_TRUE(writeFileAtomically("long", longest).isOk());
  EXPECT_EQ(contentOf(longest), "long");
  EXPECT_THAT(writeFileAtomically("x", folder).message(), HasSubstr("cannot be written: Is a directory"));
}

} // namespace
} // namespace cleave::runtime::test
