// Limits of control groups, in trees as hosts and containers of both versions show them.
#include "runtime/base/available_memory.h"
#include "runtime/base/control_groups.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

constexpr int64_t gib = int64_t(1) << 30;

class ControlGroups : public ::testing::Test {
protected:
  void SetUp() override { std::filesystem::remove_all(root); }
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const std::string &path, const std::string &text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << "\n";
  }
  void isIn(const std::string &groups, const std::string &mounts) {
    write("/proc/self/cgroup", groups);
    write("/proc/self/mountinfo", "23 1 0:20 / / rw - overlay overlay rw\n" + mounts);
  }
  void fill(const std::string &group, int64_t limit, int64_t used, int64_t cached = 0) {
    write(group + "/memory.max", limit < 0 ? "max" : std::to_string(limit));
    write(group + "/memory.current", std::to_string(used));
    write(group + "/memory.stat", "anon 5\ninactive_file " + std::to_string(cached));
  }
  const std::string root = ::testing::TempDir() + "cleave-groups-" + std::to_string(::getpid());
};

constexpr const char *version2 = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw";

TEST_F(ControlGroups, TheTightestOfAllGroupsHolds) {
  isIn("0::/outer/inner", version2);
  EXPECT_EQ(coresOfQuota(root), 0);
  write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000");
  EXPECT_EQ(coresOfQuota(root), 0);
  write("/sys/fs/cgroup/outer/cpu.max", "250000 100000");
  EXPECT_EQ(coresOfQuota(root), 3); // 2.5 cores are worth three threads
  write("/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000");
  EXPECT_EQ(coresOfQuota(root), 1);
}

TEST_F(ControlGroups, MemoryIsWhatTheFullestGroupLeaves) {
  isIn("0::/outer/inner", version2);
  EXPECT_EQ(memoryLeft(root), unlimitedMemory);
  fill("/sys/fs/cgroup/outer/inner", -1, gib);
  EXPECT_EQ(memoryLeft(root), unlimitedMemory);
  fill("/sys/fs/cgroup/outer", 8 * gib, 7 * gib, 2 * gib);
  EXPECT_EQ(memoryLeft(root), 3 * gib);
  EXPECT_EQ(memoryLimit(root), 8 * gib);
  fill("/sys/fs/cgroup/outer/inner", 4 * gib, 3 * gib);
  EXPECT_EQ(memoryLeft(root), gib);
  fill("/sys/fs/cgroup/outer/inner", 4 * gib, 5 * gib);
  EXPECT_EQ(memoryLeft(root), 0);
  fill("/sys/fs/cgroup/elsewhere", gib, gib);
  EXPECT_EQ(memoryLimit(root), 4 * gib);
}

TEST_F(ControlGroups, AvailableMemoryIsTheLeastOfSystemAndGroups) {
  isIn("0::/job", version2);
  write("/proc/meminfo", "MemTotal: 99 kB\nMemAvailable: 2097152 kB");
  EXPECT_EQ(availableMemory(root), 2 * gib);
  fill("/sys/fs/cgroup/job", 8 * gib, 7 * gib);
  EXPECT_EQ(availableMemory(root), gib);
}

// The host's path, and only the group itself is mounted.
TEST_F(ControlGroups, AContainersGroupIsAtTheTop) {
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  fill("/sys/fs/cgroup", gib, 0);
  for (const char *groups : {"0::/docker/0123", "0::/"})
    for (const char *mounted : {"/docker/0123", "/"}) {
      isIn(groups, std::string("30 23 0:26 ") + mounted + " /sys/fs/cgroup ro - cgroup2 cgroup2 rw");
      EXPECT_EQ(coresOfQuota(root), 2);
      EXPECT_EQ(memoryLeft(root), gib);
    }
}

TEST_F(ControlGroups, Version1HasAHierarchyForEachController) {
  isIn("5:memory:/a/b\n4:cpu,cpuacct:/a\n1:name=systemd:/\n0::/",
       "31 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
       "32 23 0:27 / /groups/of-memory rw - cgroup cgroup rw,memory\n"
       "33 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
  write("/groups/of-memory/a/b/memory.limit_in_bytes", "9223372036854771712"); // as the kernel says "none"
  write("/groups/of-memory/a/b/memory.usage_in_bytes", "4096");
  EXPECT_EQ(coresOfQuota(root), 0);
  EXPECT_GT(memoryLeft(root), int64_t(1) << 60);
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000");
  write("/groups/of-memory/a/memory.limit_in_bytes", std::to_string(2 * gib));
  write("/groups/of-memory/a/memory.usage_in_bytes", std::to_string(gib));
  write("/groups/of-memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 4096");
  EXPECT_EQ(coresOfQuota(root), 4);
  EXPECT_EQ(memoryLeft(root), gib + 4096);
  EXPECT_EQ(memoryLimit(root), 2 * gib);
}

TEST_F(ControlGroups, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(coresOfQuota(root), 0);
  EXPECT_EQ(memoryLeft(root), unlimitedMemory);
  isIn("0\n0:\n0::\n5:memory:relative", "30 23\n - \n31 23 0:26 / /x rw - cgroup cgroup rw,memory");
  write("/x/memory.limit_in_bytes", "much");
  EXPECT_EQ(memoryLeft(root), unlimitedMemory);
}

} // namespace
} // namespace cleave::runtime
