// Tasks in processes of their own, so that one that crashes or never ends is one result and not the end of all.
//
//   std::vector<WorkerResult> results = runInProcesses(3, 2, [](size_t i) { return std::to_string(i * i); });
//   results[2].text == "4"
//
// Processes are forked from this one before they do anything: it must have no threads, and no GPU open.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace cleave::conformance {

struct WorkerResult {
  std::string text;
  int signal = 0; // that ended the process in this task (SIGALRM: it took longer than `patience`); 0: none
};

// task(i) for every i below `count`, in up to `jobs` processes at a time. `patience`: seconds for one task.
std::vector<WorkerResult> runInProcesses(size_t count, size_t jobs, const std::function<std::string(size_t)> &task,
                                         unsigned patience = 120);

} // namespace cleave::conformance
