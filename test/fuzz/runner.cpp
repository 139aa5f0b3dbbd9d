#include "test/fuzz/runner.h"
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <map>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace cleave::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int secondsOfCase = 10;
constexpr rlim_t bytesOfCase = rlim_t(4) << 30; // of private memory
constexpr size_t mostInput = 1 << 20, mostWords = 1000;

// A child's report to its parent, in shared memory: it outlives a crash.
struct Board {
  std::atomic<uint64_t> seed, done, taken;
  std::atomic<int64_t> began; // milliseconds of the steady clock; 0: between cases
  char fault[mostWords];
  char input[mostInput];
  std::atomic<size_t> inputBytes;
};

Board *board = nullptr; // of this process, if it is a child

int64_t now() { return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count(); }

// The end of a child's output: whoever aborts says why on standard error.
std::string lastWords(int memory) {
  std::string text(400, '\0');
  off_t size = lseek(memory, 0, SEEK_END);
  ssize_t count = pread(memory, text.data(), text.size(), std::max<off_t>(0, size - off_t(text.size())));
  text.resize(count > 0 ? size_t(count) : 0);
  return text;
}

struct Job {
  pid_t child = 0;
  Board *board = nullptr;
  int errors = -1;
  uint64_t next = 0; // seed
};

struct Options {
  uint64_t cases = 2000, first = 1;
  unsigned jobs = 2;
  double seconds = 0;
  std::string keep;
};

class Runner {
public:
  Runner(const std::string &name, const Options &options, const std::function<std::string(uint64_t)> &run)
      : name(name), options(options), run(run), began(Clock::now()) {}

  int all() {
    std::vector<Job> jobs(options.jobs);
    for (size_t j = 0; j < jobs.size(); ++j) {
      jobs[j].next = options.first + j;
      jobs[j].board =
          static_cast<Board *>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
      jobs[j].errors = memfd_create("errors", MFD_CLOEXEC);
      start(jobs[j]);
    }
    while (true) {
      bool isRunning = false;
      for (Job &job : jobs) {
        watch(job);
        isRunning |= job.child != 0;
      }
      if (!isRunning) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    uint64_t done = 0, taken = 0;
    for (Job &job : jobs) {
      done += job.board->done;
      taken += job.board->taken;
    }
    for (const auto &[fault, seeds] : faults) {
      std::string list;
      for (size_t i = 0; i < seeds.size() && i < 8; ++i) list += (i ? ", " : "") + std::to_string(seeds[i]);
      fmt::print("{} cases, seeds {}: {}\n", seeds.size(), list, fault);
    }
    double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    fmt::print("{}: {} cases in {:.1f} s ({:.0f} a second), input taken in {}\n", name, done, seconds,
               double(done) / seconds, taken);
    fmt::print("{} passed, {} failed, 0 skipped\n", done - failed, failed);
    return failed ? 1 : 0;
  }

private:
  bool isOver(uint64_t seed) const {
    bool isLate = options.seconds > 0 && std::chrono::duration<double>(Clock::now() - began).count() > options.seconds;
    return isLate || (options.seconds <= 0 && seed >= options.first + options.cases);
  }

  void start(Job &job) {
    job.board->began = 0;
    if (isOver(job.next)) return;
    fflush(stdout);
    job.child = fork();
    if (job.child != 0) return;
    dup2(job.errors, STDERR_FILENO);
    dup2(job.errors, STDOUT_FILENO);
    rlimit data{bytesOfCase, bytesOfCase}, core{0, 0};
    setrlimit(RLIMIT_DATA, &data);
    setrlimit(RLIMIT_CORE, &core);
    board = job.board;
    for (uint64_t seed = job.next; !isOver(seed); seed += options.jobs) {
      board->seed = seed;
      board->inputBytes = 0;
      board->began = now();
      std::string fault;
      try {
        fault = run(seed);
      } catch (const std::exception &error) {
        fault = std::string("exception: ") + error.what();
      }
      board->began = 0;
      ++board->done;
      if (fault.empty()) continue;
      std::strncpy(board->fault, fault.c_str(), mostWords - 1);
      _exit(2);
    }
    _exit(0);
  }

  void watch(Job &job) {
    if (job.child == 0) return;
    int64_t since = job.board->began;
    bool hangs = since != 0 && now() - since > secondsOfCase * 1000;
    if (hangs) kill(job.child, SIGKILL);
    int status = 0;
    if (waitpid(job.child, &status, hangs ? 0 : WNOHANG) == 0) return;
    job.child = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    std::string fault;
    if (hangs)
      fault = fmt::format("takes more than {} s", secondsOfCase);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
      fault = job.board->fault;
    else
      fault = fmt::format("ends by {}: {}", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit",
                          lastWords(job.errors));
    if (job.board->began != 0) ++job.board->done;
    uint64_t seed = job.board->seed;
    faults[fault].push_back(seed);
    ++failed;
    if (!options.keep.empty()) {
      std::filesystem::create_directories(options.keep);
      std::ofstream(std::filesystem::path(options.keep) / fmt::format("{}-{}", name, seed), std::ios::binary)
          .write(job.board->input, std::streamsize(job.board->inputBytes));
    }
    if (ftruncate(job.errors, 0) != 0) return;
    lseek(job.errors, 0, SEEK_SET);
    job.next = seed + options.jobs;
    start(job);
  }

  std::string name;
  Options options;
  std::function<std::string(uint64_t)> run;
  Clock::time_point began;
  std::map<std::string, std::vector<uint64_t>> faults;
  uint64_t failed = 0;
};

} // namespace

void setInput(const std::string &bytes) {
  if (!board || bytes.size() > mostInput) return;
  std::memcpy(board->input, bytes.data(), bytes.size());
  board->inputBytes = bytes.size();
}

void countTaken() {
  if (board) ++board->taken;
}

std::string fileOf(const std::string &bytes) {
  static const int memory = memfd_create("input", MFD_CLOEXEC);
  setInput(bytes);
  if (ftruncate(memory, 0) != 0 || pwrite(memory, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    throw std::runtime_error("the input cannot be written into memory");
  return fmt::format("/proc/self/fd/{}", memory);
}

int main(int argc, char **argv, const std::string &name, const std::function<std::string(uint64_t seed)> &run) {
  CLI::App app{"Feeds random input to Cleave; fails on a signal, an exception, a hang, too much memory"};
  Options options;
  options.jobs = std::max(1U, std::thread::hardware_concurrency());
  app.add_option("--cases", options.cases, "how many");
  app.add_option("--first", options.first, "the first seed; case i has the seed first + i");
  app.add_option("--jobs", options.jobs, "processes at a time")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "as many cases as fit, instead of --cases");
  app.add_option("--keep", options.keep, "folder for the inputs of failing cases");
  CLI11_PARSE(app, argc, argv);
  return Runner(name, options, run).all();
}

} // namespace cleave::fuzz
