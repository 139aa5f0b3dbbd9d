#include "test/unit/fabric/rank/values.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime::test {
namespace {

// To the nearest of the two neighbours, of even bits where both are as near.
uint16_t brainBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t below = bits >> 16, rest = bits & 0xffff;
  return static_cast<uint16_t>(below + (rest > 0x8000 || (rest == 0x8000 && (below & 1))));
}

float ofBrain(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

} // namespace

double valueOf(plan::DType dtype, int64_t device, int64_t part, int64_t step, int64_t element) {
  uint64_t hash = static_cast<uint64_t>((device * 1009 + part) * 31 + step) * 0x9e3779b97f4a7c15 +
                  static_cast<uint64_t>(element) * 0xbf58476d1ce4e5b9;
  hash ^= hash >> 29, hash *= 0x94d049bb133111eb, hash ^= hash >> 32;
  const auto whole = static_cast<double>(hash & 0xffffff) - 0x800000; // 24 bits with the sign
  if (dtype == plan::I32) return whole;
  const double value = whole / 0x200000; // -4 to 4
  return dtype == plan::BF16 ? ofBrain(brainBits(static_cast<float>(value))) : value;
}

double reduceInOrder(plan::DType dtype, plan::Collective::Reduce reduce, const std::vector<double> &values) {
  double result = values[0];
  for (size_t m = 1; m < values.size(); ++m) switch (reduce) {
    case plan::Collective::MAX:
      result = std::max(result, values[m]);
      break;
    case plan::Collective::MIN:
      result = std::min(result, values[m]);
      break;
    default:
      result = dtype == plan::I32 ? result + values[m]
                                  : static_cast<double>(static_cast<float>(result) + static_cast<float>(values[m]));
    }
  return dtype == plan::BF16 ? ofBrain(brainBits(static_cast<float>(result))) : result;
}

void store(plan::DType dtype, double value, std::byte *to) {
  const auto single = static_cast<float>(value);
  const auto whole = static_cast<int32_t>(value);
  const uint16_t brain = brainBits(single);
  if (dtype == plan::BF16)
    std::memcpy(to, &brain, sizeof brain);
  else if (dtype == plan::I32)
    std::memcpy(to, &whole, sizeof whole);
  else
    std::memcpy(to, &single, sizeof single);
}

double load(plan::DType dtype, const std::byte *from) {
  float single;
  int32_t whole;
  uint16_t brain;
  if (dtype == plan::BF16) return std::memcpy(&brain, from, sizeof brain), ofBrain(brain);
  if (dtype == plan::I32) return std::memcpy(&whole, from, sizeof whole), whole;
  return std::memcpy(&single, from, sizeof single), single;
}

std::string compare(plan::DType dtype, const std::byte *bytes, const std::vector<double> &expected, double tolerance) {
  const size_t width = dtype == plan::BF16 ? 2 : 4;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double found = load(dtype, bytes + i * width);
    if (!(std::abs(found - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))))
      return fmt::format("element {} is {}, {} is expected", i, found, expected[i]);
  }
  return "";
}

} // namespace cleave::runtime::test
