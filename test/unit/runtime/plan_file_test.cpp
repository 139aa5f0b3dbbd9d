#include "runtime/plan/plan_file.h"
#include "test/unit/runtime/mlp_plan.h"
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
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
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp" + std::to_string(::getpid())));
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

TEST(PlanFile, MissingFilesAndFolders) {
  EXPECT_THAT(readPlanFile("/nowhere/x.plan").status().message(), HasSubstr("/nowhere/x.plan: cannot be opened"));
  EXPECT_THAT(readPlanFile(testing::TempDir()).status().message(), HasSubstr("not a regular file"));
  EXPECT_THAT(writePlanFile(smallPlan(), "/nowhere/x.plan").message(), HasSubstr("cannot create /nowhere/x.plan"));
  // A path that is no file is written to, not replaced.
  const std::string full = ::testing::TempDir() + "cleave_full";
  std::filesystem::remove(full);
  std::filesystem::create_symlink("/dev/full", full);
  EXPECT_THAT(writePlanFile(smallPlan(), full).message(), HasSubstr("cannot write"));
  EXPECT_TRUE(std::filesystem::is_symlink(full));
  std::filesystem::remove(full);
}

} // namespace
} // namespace cleave::runtime::test
