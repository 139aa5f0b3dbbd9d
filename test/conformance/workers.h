// Tasks in processes of their own, so that one that crashes or never ends is one result and not the end of all.
//
//   std::vector<WorkerResult> results = runInProcesses(3, 2, [](size_t i) { return std::to_string(i * i); });
//   results[2].text == "4"
//   runInProcesses(3, 2, task, {.told = [](size_t i, const WorkerResult &result) { ... }});   as they come
//
// Processes are forked from this one before they do anything: it must have no threads, and no GPU open.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cleave::conformance {

struct WorkerResult {
  std::string text;
  int signal = 0; // that ended the process in this task (SIGALRM: it took longer than `patience`); 0: none
};

// A task's text. With `leave` its process ends, and the next task has a new one: what the task has left behind, such as
// a GPU after an illegal access, would fail the others too.
struct TaskResult {
  TaskResult(std::string text, bool leave = false) : text(std::move(text)), leave(leave) {}
  std::string text;
  bool leave;
};

struct WorkerOptions {
  std::function<void(size_t, const WorkerResult &)> told; // in the caller's process, when a result has come
  unsigned patience = 120;                                // seconds for one task
};

// task(i) for every i below `count`, in up to `jobs` processes at a time.
std::vector<WorkerResult> runInProcesses(size_t count, size_t jobs, const std::function<TaskResult(size_t)> &task,
                                         const WorkerOptions &options = {});

} // namespace cleave::conformance
