// cleave env: the facts of program and machine that belong in a bug report.
#include "runtime/base/control_groups.h"
#include "runtime/base/threads/thread_count.h"
#include "runtime/engine/probe/gpu_machine.h"
#include "tools/cleave/commands.h"
#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace cleave::tool {
namespace {

struct EnvOptions {
  std::string output;
  bool json = false;
};

constexpr double gib = 1024.0 * 1024 * 1024;

// The value behind `key` in a file of lines such as "PRETTY_NAME="Debian"" or "MemTotal:   1 kB"; "" without one.
std::string valueOf(const char *path, const std::string &key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      std::string value = line.substr(key.size());
      std::erase(value, '"');
      return value.substr(std::min(value.find_first_not_of(" \t"), value.size()));
    }
  return "unknown";
}

std::string firstLine(const char *path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? line : "none";
}

std::string limit(int resource) {
  rlimit bounds{};
  if (getrlimit(resource, &bounds) != 0) return "unknown";
  return bounds.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(bounds.rlim_cur);
}

std::string space(const char *path) {
  struct statvfs info{};
  if (statvfs(path, &info) != 0) return "none";
  return fmt::format("{:.1f} GiB, {:.1f} free", double(info.f_blocks) * double(info.f_frsize) / gib,
                     double(info.f_bavail) * double(info.f_frsize) / gib);
}

std::string cores() {
  const int quota = runtime::coresOfQuota();
  return fmt::format("{} of {}; quota {}", runtime::availableCores(), sysconf(_SC_NPROCESSORS_ONLN),
                     quota > 0 ? std::to_string(quota) : "none");
}

std::string memory() {
  const int64_t limit = runtime::memoryLimit();
  return fmt::format("{}, {} available; limit {}", valueOf("/proc/meminfo", "MemTotal:"),
                     valueOf("/proc/meminfo", "MemAvailable:"),
                     limit < int64_t(1) << 60 ? fmt::format("{:.1f} GiB", double(limit) / gib) : "none");
}

std::string gpus() {
  std::vector<std::string> found;
  for (const runtime::GpuDescription &gpu : runtime::findGpus())
    found.push_back(fmt::format("{} (sm_{}, {:.0f} GiB)", gpu.name, gpu.capability, gpu.memoryBytes / gib));
  return found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", "));
}

// Those that change what Cleave, its libraries or a launcher do. Values that may be secret are not shown.
std::vector<report::Row> variables() {
  std::vector<report::Row> found;
  for (char **entry = environ; *entry; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('='));
    const bool matters =
        std::ranges::any_of(std::initializer_list<const char *>{"CLEAVE_", "OMP_", "CUDA_", "NVIDIA_", "NCCL_",
                                                                "ONEDNN_", "SLURM_", "OMPI_", "PMI_", "KUBERNETES_",
                                                                "TORCHELASTIC_"},
                            [&](const char *start) { return name.starts_with(start); }) ||
        std::ranges::any_of(std::initializer_list<const char *>{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                                                "MASTER_ADDR", "MASTER_PORT", "LD_LIBRARY_PATH",
                                                                "LD_PRELOAD"},
                            [&](const char *whole) { return name == whole; });
    if (!matters) continue;
    const bool isSecret =
        name.find("SECRET") != name.npos || name.find("TOKEN") != name.npos || name.find("KEY") != name.npos;
    found.push_back({name, isSecret ? "(set)" : text.substr(std::min(name.size() + 1, text.size()))});
  }
  std::ranges::sort(found);
  return found;
}

std::vector<report::Row> environment() {
  utsname system{};
  uname(&system);
  std::vector<report::Row> facts = versionFacts();
  facts.insert(facts.end(), {
                                {"system", valueOf("/etc/os-release", "PRETTY_NAME=")},
                                {"kernel", fmt::format("{} {}", system.release, system.machine)},
                                {"cores", cores()},
                                {"memory", memory()},
                                {"shared memory", space("/dev/shm")},
                                {"working folder", space(".")},
                                {"GPUs", gpus()},
                                {"open files", limit(RLIMIT_NOFILE)},
                                {"locked memory", limit(RLIMIT_MEMLOCK)},
                                {"load", firstLine("/proc/loadavg")},
                            });
  for (report::Row &variable : variables()) facts.push_back(std::move(variable));
  return facts;
}

Status env(const EnvOptions &options) {
  const std::vector<report::Row> facts = environment();
  if (!options.json) return writeText(options.output, table(facts));
  nlohmann::ordered_json json;
  for (const report::Row &fact : facts) json[fact[0]] = fact[1];
  return writeJson(options.output, json);
}

} // namespace

void addEnv(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("env", "Show the program, its libraries, the machine and variables, for a bug report");
  auto options = std::make_shared<EnvOptions>();
  command->add_flag("--json", options->json, "for programs");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->callback([options, &status] {
    Status done = env(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
