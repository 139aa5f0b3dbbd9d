// The work of others on this process' cores meanwhile, which a measurement should know.
//
//   IdleCores cores;
//   measure();
//   cores.busyWithOthers()     // 0.4: other processes had 40 % of the cores' time
#pragma once
#include <chrono>
#include <istream>
#include <string>
#include <vector>

namespace cleave::runtime {

// Seconds for which these cores worked since the machine started, by the lines "cpuN" of /proc/stat (proc(5)): all but
// idle and waiting for I/O, time stolen by a hypervisor included. Negative where a core has no such line.
double busySeconds(std::istream &statistics, const std::vector<int> &cores, double ticksPerSecond);

// The part of `seconds` of `cores` that others used: the cores were busy for `busy`, `own` of it with this process.
double partOfOthers(double busy, double own, double seconds, double cores);

// "others kept the cores busy for 40 % of the time: ..."; "": they used so little that nothing had to wait for its turn.
std::string warningOfOthers(double part);

class IdleCores {
public:
  IdleCores();
  // The part of the cores' time since then that was neither idle nor this process'; 0 where the system does not tell.
  double busyWithOthers() const;

private:
  const std::vector<int> cores;
  const double busy, own;
  const std::chrono::steady_clock::time_point begin;
};

} // namespace cleave::runtime
