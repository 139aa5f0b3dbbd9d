#include "runtime/probe/idle_cores.h"
#include <algorithm>
#include <fstream>
#include <sched.h>
#include <sstream>
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
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval &time) { return double(time.tv_sec) + 1e-6 * double(time.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
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

IdleCores::IdleCores()
    : cores(ownCores()), busy(busyNow(cores)), own(ownSeconds()), begin(std::chrono::steady_clock::now()) {}

double IdleCores::busyWithOthers() const {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double now = busyNow(cores);
  if (busy < 0 || now < 0 || seconds <= 0) return 0;
  return std::clamp((now - busy - (ownSeconds() - own)) / (seconds * double(cores.size())), 0.0, 1.0);
}

} // namespace cleave::runtime
