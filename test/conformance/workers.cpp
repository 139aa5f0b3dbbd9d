#include "test/conformance/workers.h"
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cleave::conformance {
namespace {

// A process and the tasks that it does one after the other. It writes each result as its length, its text, and whether
// the process ends with it.
struct Worker {
  std::vector<size_t> tasks;
  size_t done = 0;
  pid_t process = 0;
  int results = -1;
  std::string read;    // what has come of the next result
  bool leaves = false; // after its last result
};

[[noreturn]] void die(const char *what) {
  std::perror(what);
  std::exit(1);
}

void writeAll(int file, const void *data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t written = ::write(file, static_cast<const char *>(data) + at, bytes - at);
    if (written <= 0) ::_exit(1);
    at += static_cast<size_t>(written);
  }
}

void start(Worker &worker, const std::function<TaskResult(size_t)> &task, unsigned patience) {
  int ends[2];
  if (::pipe(ends) != 0) die("pipe");
  std::fflush(nullptr); // else the child would write it again
  worker.process = ::fork();
  if (worker.process < 0) die("fork");
  if (worker.process == 0) {
    ::close(ends[0]);
    for (size_t i = worker.done; i < worker.tasks.size(); ++i) {
      ::alarm(patience);
      auto [text, leave] = task(worker.tasks[i]);
      uint64_t bytes = text.size();
      text.push_back(static_cast<char>(leave));
      writeAll(ends[1], &bytes, sizeof bytes);
      writeAll(ends[1], text.data(), text.size());
      if (leave) break;
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  worker.results = ends[0];
  worker.read.clear();
  worker.leaves = false;
}

void finish(Worker &worker, WorkerResult result, std::vector<WorkerResult> &results, const WorkerOptions &options) {
  size_t number = worker.tasks[worker.done++];
  results[number] = std::move(result);
  if (options.told) options.told(number, results[number]);
}

// Takes what the worker has written. False: it has ended.
bool receive(Worker &worker, std::vector<WorkerResult> &results, const WorkerOptions &options) {
  char piece[4096];
  ssize_t bytes = ::read(worker.results, piece, sizeof piece);
  if (bytes <= 0) return false;
  worker.read.append(piece, static_cast<size_t>(bytes));
  uint64_t length = 0;
  while (worker.read.size() >= sizeof length) {
    std::memcpy(&length, worker.read.data(), sizeof length);
    size_t end = sizeof length + length;
    if (worker.read.size() <= end) break;
    worker.leaves = worker.read[end] != 0;
    finish(worker, {worker.read.substr(sizeof length, length)}, results, options);
    worker.read.erase(0, end + 1);
  }
  return true;
}

} // namespace

std::vector<WorkerResult> runInProcesses(size_t count, size_t jobs, const std::function<TaskResult(size_t)> &task,
                                         const WorkerOptions &options) {
  std::vector<WorkerResult> results(count);
  std::vector<Worker> workers(std::max<size_t>(1, std::min(jobs, count)));
  for (size_t i = 0; i < count; ++i) workers[i % workers.size()].tasks.push_back(i);
  for (Worker &worker : workers) start(worker, task, options.patience);
  for (size_t running = workers.size(); running > 0;) {
    std::vector<pollfd> files(workers.size());
    for (size_t i = 0; i < files.size(); ++i) files[i] = {workers[i].results, POLLIN, 0}; // poll passes over -1
    if (::poll(files.data(), files.size(), -1) < 0) die("poll");
    for (size_t i = 0; i < workers.size(); ++i) {
      Worker &worker = workers[i];
      if (files[i].revents == 0 || receive(worker, results, options)) continue;
      int status = 0;
      ::waitpid(worker.process, &status, 0);
      ::close(worker.results);
      worker.results = -1;
      if (worker.done < worker.tasks.size() && !worker.leaves) // it ended in this one
        finish(worker, {"", WIFSIGNALED(status) ? WTERMSIG(status) : SIGABRT}, results, options);
      if (worker.done < worker.tasks.size())
        start(worker, task, options.patience);
      else
        --running;
    }
  }
  return results;
}

} // namespace cleave::conformance
