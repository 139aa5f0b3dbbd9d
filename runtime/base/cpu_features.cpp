#include "runtime/base/cpu_features.h"
#include <algorithm>
#include <array>
#include <cpuid.h>
#include <cstdint>

namespace cleave::runtime {
namespace {

enum Register { Eax, Ebx, Ecx, Edx };

struct Feature {
  const char *name;
  int level;
  uint32_t leaf;
  Register in;
  int bit;
};

constexpr Feature features[] = {
    {"cx16", 2, 1, Ecx, 13},     {"sahf", 2, 0x80000001, Ecx, 0},  {"popcnt", 2, 1, Ecx, 23},
    {"sse3", 2, 1, Ecx, 0},      {"ssse3", 2, 1, Ecx, 9},          {"sse4.1", 2, 1, Ecx, 19},
    {"sse4.2", 2, 1, Ecx, 20},   {"avx", 3, 1, Ecx, 28},           {"avx2", 3, 7, Ebx, 5},
    {"bmi", 3, 7, Ebx, 3},       {"bmi2", 3, 7, Ebx, 8},           {"f16c", 3, 1, Ecx, 29},
    {"fma", 3, 1, Ecx, 12},      {"lzcnt", 3, 0x80000001, Ecx, 5}, {"movbe", 3, 1, Ecx, 22},
    {"avx512f", 4, 7, Ebx, 16},  {"avx512bw", 4, 7, Ebx, 30},      {"avx512cd", 4, 7, Ebx, 28},
    {"avx512dq", 4, 7, Ebx, 17}, {"avx512vl", 4, 7, Ebx, 31},
};

bool bitOf(const Feature &feature) {
  uint32_t registers[4] = {};
  if (!__get_cpuid_count(feature.leaf, 0, &registers[Eax], &registers[Ebx], &registers[Ecx], &registers[Edx]))
    return false;
  return (registers[feature.in] >> feature.bit & 1) != 0;
}

// Bits of XCR0: the registers that the system saves when it switches threads.
uint64_t savedRegisters() {
  constexpr Feature osxsave{"osxsave", 1, 1, Ecx, 27};
  if (!bitOf(osxsave)) return 0;
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

bool isHere(const Feature &feature) {
  constexpr uint64_t halves = 0x6, wholes = 0xe6; // of AVX and of AVX-512
  static const uint64_t saved = savedRegisters();
  const uint64_t needed = feature.level == 4 ? wholes : feature.level == 3 ? halves : 0;
  return bitOf(feature) && (saved & needed) == needed;
}

} // namespace

std::vector<std::string> cpuFeatures(int level) {
  std::vector<std::string> names;
  for (const Feature &feature : features)
    if (feature.level <= level) names.push_back(feature.name);
  return names;
}

bool cpuHas(const std::string &name) {
  for (const Feature &feature : features)
    if (name == feature.name) return isHere(feature);
  return false;
}

int cpuLevel() {
  int level = 4;
  for (const Feature &feature : features)
    if (feature.level <= level && !isHere(feature)) level = feature.level - 1;
  return level;
}

std::string cpuName() {
  std::array<uint32_t, 12> words = {}; // 16 characters of each of three leaves
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    uint32_t *four = words.data() + 4 * leaf;
    if (!__get_cpuid(0x80000002 + leaf, &four[Eax], &four[Ebx], &four[Ecx], &four[Edx])) return "of unknown name";
  }
  std::string name(reinterpret_cast<const char *>(words.data()), sizeof words);
  name.resize(std::min(name.find('\0'), name.size()));
  name.erase(name.find_last_not_of(' ') + 1);
  return name.substr(std::min(name.find_first_not_of(' '), name.size()));
}

} // namespace cleave::runtime
