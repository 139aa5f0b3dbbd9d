// A folder of snapshots is one run's: a lock that the system frees when its process ends, however that ends.
//
//     FolderLock lock;
//     Status s = lock.take("snapshots", 5);    // "snapshots: another run writes here (process 4711 on node3)"
#pragma once
#include "runtime/base/status.h"
#include <string>

namespace cleave::runtime {

class FolderLock {
public:
  static constexpr const char *fileName = ".lock";
  FolderLock() = default;
  FolderLock(const FolderLock &) = delete;
  ~FolderLock();
  // Waits so many seconds for one that is ending. Error: another run's, or the file cannot be made.
  Status take(const std::string &folder, double seconds);
  bool isHeld() const { return held; } // false after take(): the file system has no locks

private:
  int descriptor = -1;
  bool held = false;
};

} // namespace cleave::runtime
