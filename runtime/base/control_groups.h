// The limits of the control groups that this process is in: of its own group and all around it, of versions 1 and 2.
//
//   coresOfQuota();       // 3: a group around this one may use 2.5 cores
//   memoryLeft();         // bytes until a group is full; what the system can take back counts as free
//
// `root`: what lies in front of /proc/self and of the mount points that it names.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace cleave::runtime {

constexpr int64_t unlimitedMemory = std::numeric_limits<int64_t>::max();

// The least CPU quota in cores, rounded up; 0: none.
int coresOfQuota(const std::string &root = "");
// The least limit of memory; unlimitedMemory: none.
int64_t memoryLimit(const std::string &root = "");
int64_t memoryLeft(const std::string &root = "");

} // namespace cleave::runtime
