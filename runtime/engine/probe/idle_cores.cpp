#include "runtime/engine/probe/idle_cores.h"
#include <algorithm>
#include <cstdlib>
#include <fmt/core.h>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

std::vector<int> ownCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

double busyNow(const std::vector<int> &cores) {
  std::ifstream statistics("/proc/stat");
  return busySeconds(statistics, cores, double(::sysconf(_SC_CLK_TCK)));
}

double ownSeconds() {
  auto seconds = [](const timeval &time) { return double(time.tv_sec) + 1e-6 * double(time.tv_usec); };
  double sum = 0;
  for (auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) { // compilers of kernels
    rusage used{};
    ::getrusage(who, &used);
    sum += seconds(used.ru_utime) + seconds(used.ru_stime);
  }
  return sum;
}

} // namespace

double busySeconds(std::istream &statistics, const std::vector<int> &cores, double ticksPerSecond) {
  constexpr int idle = 3, waiting = 4, steal = 7; // columns; later ones are in the first two as well
  double ticks = 0;
  size_t found = 0;
  for (std::string line; std::getline(statistics, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name.size() < 4 || !name.starts_with("cpu")) continue;
    if (std::find(cores.begin(), cores.end(), std::atoi(name.c_str() + 3)) == cores.end()) continue;
    ++found;
    double value = 0;
    for (int column = 0; column <= steal && words >> value; ++column)
      if (column != idle && column != waiting) ticks += value;
  }
  return found == cores.size() && found > 0 ? ticks / ticksPerSecond : -1;
}

double partOfOthers(double busy, double own, double seconds, double cores) {
  return seconds > 0 && cores > 0 ? std::clamp((busy - own) / (seconds * cores), 0.0, 1.0) : 0;
}

std::string warningOfOthers(double part) {
  constexpr double disturbed = 0.05; // trials of some milliseconds wait for their turn
  if (part <= disturbed) return "";
  return fmt::format(
      "others kept the cores busy for {:.0f} % of the time: what was measured is not what the machine can "
      "do; measure again when it is idle",
      100 * part);
}

IdleCores::IdleCores()
    : cores(ownCores()), busy(busyNow(cores)), own(ownSeconds()), begin(std::chrono::steady_clock::now()) {}

double IdleCores::busyWithOthers() const {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double now = busyNow(cores);
  return busy < 0 || now < 0 ? 0 : partOfOthers(now - busy, ownSeconds() - own, seconds, double(cores.size()));
}

} // namespace cleave::runtime
