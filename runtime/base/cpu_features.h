// The instruction sets that kernels may use on an x86-64 CPU, by LLVM's names; a plan lists those it was compiled for.
//
//   cpuFeatures(3)          // {"cx16", .., "sse4.2", "avx", "avx2", .., "movbe"}: of x86-64-v3 and below
//   cpuHas("avx512f")       // this machine, and its system keeps the registers
//   cpuLevel()              // 4: it has all of x86-64-v4
//
// Source: the x86-64 psABI's micro-architecture levels, and the CPU manuals' CPUID leaves 1, 7 and 0x80000001.
#pragma once
#include <string>
#include <vector>

namespace cleave::runtime {

// The features of levels 2 to `level`, at most 4; none for 1.
std::vector<std::string> cpuFeatures(int level = 4);
// False for a name that is not among them.
bool cpuHas(const std::string &feature);
// The largest level all of whose instruction sets this CPU has: 1 to 4.
int cpuLevel();
// "AMD EPYC 7B13 64-Core Processor", as the CPU calls itself.
std::string cpuName();

} // namespace cleave::runtime
