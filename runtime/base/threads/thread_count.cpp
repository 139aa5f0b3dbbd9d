#include "runtime/base/threads/thread_count.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

// The file's first number; 0: none, or no limit ("max", -1).
double numberIn(const std::filesystem::path &file) {
  double number = 0;
  std::ifstream(file) >> number;
  return number > 0 ? number : 0;
}

// The quota of one group, in cores; 0: none. Version 2 writes "200000 100000", version 1 two files.
double quotaOf(const std::filesystem::path &group) {
  double quota = 0, period = 0;
  if (std::ifstream file(group / "cpu.max"); file >> quota >> period)
    return quota > 0 && period > 0 ? quota / period : 0;
  quota = numberIn(group / "cpu.cfs_quota_us"), period = numberIn(group / "cpu.cfs_period_us");
  return quota > 0 && period > 0 ? quota / period : 0;
}

// A positive number at the text's beginning; 0: none.
int firstNumber(const char *text) {
  int number = 0;
  if (text) (void)std::from_chars(text, text + std::strlen(text), number);
  return std::max(number, 0);
}

} // namespace

int coresOfQuota(const std::string &root) {
  double least = 0;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) { // "4:cpu,cpuacct:/docker/1f2e", of version 2 "0::/user.slice"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const std::filesystem::path top = root + "/sys/fs/cgroup" + (controllers.empty() ? "" : "/cpu");
    // Within a container the path may be that of the host, and the group itself is mounted at the top.
    for (std::filesystem::path group = top / line.substr(second + 2);; group = group.parent_path()) {
      if (double quota = quotaOf(group); quota > 0) least = least > 0 ? std::min(least, quota) : quota;
      if (group == top || !group.has_relative_path() || group.string().size() <= top.string().size()) break;
    }
  }
  return static_cast<int>(std::ceil(least));
}

int boundCores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

int availableCores() {
  const int quota = coresOfQuota();
  return quota > 0 ? std::min(boundCores(), quota) : boundCores();
}

int threadsOfProcess() {
  static const int told = firstNumber(std::getenv("OMP_NUM_THREADS"));
  static const int cores = availableCores();
  return told > 0 ? told : cores;
}

int threadsOfRank(int64_t ranks, int64_t processes) {
  const int64_t told = firstNumber(std::getenv("OMP_NUM_THREADS"));
  const int64_t threads = told > 0 ? told : availableCores() / std::max<int64_t>(1, processes);
  return static_cast<int>(std::max<int64_t>(1, threads / std::max<int64_t>(1, ranks)));
}

} // namespace cleave::runtime
