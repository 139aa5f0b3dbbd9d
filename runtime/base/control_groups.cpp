#include "runtime/base/control_groups.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace cleave::runtime {
namespace {

namespace fs = std::filesystem;

// No number: no limit ("max"), or no such file.
std::optional<int64_t> numberIn(const fs::path &file) {
  std::ifstream stream(file);
  int64_t number = 0;
  return stream >> number && number >= 0 ? std::optional(number) : std::nullopt;
}

int64_t entryIn(const fs::path &file, const std::string &key) { // of lines "key number"; 0: none
  std::ifstream stream(file);
  int64_t number = 0;
  for (std::string found; stream >> found >> number;)
    if (found == key) return number;
  return 0;
}

bool lists(const std::string &all, const std::string &one) {
  return ("," + all + ",").find("," + one + ",") != std::string::npos;
}

// Where the controller's hierarchy is mounted, and which group that is: "/docker/1f2e" within some containers.
struct Mount {
  fs::path point;
  std::string group;
  bool isVersion2;
};

// Lines of /proc/self/mountinfo: "35 31 0:32 /docker/1f2e /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory".
std::vector<Mount> mountsOf(const std::string &controller, const std::string &root) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skipped, group, point, type, options;
    before >> skipped >> skipped >> skipped >> group >> point;
    after >> type >> skipped >> options;
    if (type == "cgroup2" || (type == "cgroup" && lists(options, controller)))
      mounts.push_back({root + point, group == "/" ? "" : group, type == "cgroup2"});
  }
  return mounts;
}

// This process's group of the controller and all around it. A container may see the path that the host sees, where
// only the mount point is there.
std::vector<fs::path> groupsOf(const std::string &controller, const std::string &root) {
  std::vector<fs::path> groups;
  const std::vector<Mount> mounts = mountsOf(controller, root);
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) { // "4:cpu,cpuacct:/docker/1f2e", of version 2 "0::/user.slice"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (!controllers.empty() && !lists(controllers, controller)) continue;
    for (const Mount &mount : mounts) {
      if (mount.isVersion2 != controllers.empty()) continue;
      const bool isWithin = (path + "/").starts_with(mount.group + "/");
      const fs::path within = fs::path(isWithin ? path.substr(mount.group.size()) : path).relative_path();
      for (fs::path at = within; !at.empty(); at = at.parent_path()) groups.push_back(mount.point / at);
      groups.push_back(mount.point);
    }
  }
  return groups;
}

double quotaOf(const fs::path &group) { // in cores; 0: none
  double quota = 0, period = 0;
  if (std::ifstream file(group / "cpu.max"); !(file >> quota >> period)) {
    quota = double(numberIn(group / "cpu.cfs_quota_us").value_or(0));
    period = double(numberIn(group / "cpu.cfs_period_us").value_or(0));
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

struct Memory {
  int64_t limit, left;
};

Memory memoryOf(const fs::path &group) {
  struct Files {
    const char *limit, *used, *cached;
  };
  for (const Files &files : {Files{"memory.max", "memory.current", "inactive_file"},
                             Files{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}})
    if (const std::optional<int64_t> limit = numberIn(group / files.limit)) {
      const int64_t used = numberIn(group / files.used).value_or(0) - entryIn(group / "memory.stat", files.cached);
      return {*limit, std::max<int64_t>(0, *limit - std::max<int64_t>(0, used))};
    }
  return {unlimitedMemory, unlimitedMemory};
}

} // namespace

int coresOfQuota(const std::string &root) {
  double least = 0;
  for (const fs::path &group : groupsOf("cpu", root))
    if (double quota = quotaOf(group); quota > 0) least = least > 0 ? std::min(least, quota) : quota;
  return static_cast<int>(std::ceil(least));
}

int64_t memoryLimit(const std::string &root) {
  int64_t least = unlimitedMemory;
  for (const fs::path &group : groupsOf("memory", root)) least = std::min(least, memoryOf(group).limit);
  return least;
}

int64_t memoryLeft(const std::string &root) {
  int64_t least = unlimitedMemory;
  for (const fs::path &group : groupsOf("memory", root)) least = std::min(least, memoryOf(group).left);
  return least;
}

} // namespace cleave::runtime
