#include "compiler/recipe/ranges.h"
#include "compiler/recipe/schema.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

namespace cleave::recipe {
namespace {

template <typename Owner> std::string firstFault(const Owner &owner) {
  for (const Key<Owner> &key : Schema<Owner>::of.keys)
    if (key.field.fault)
      if (std::string fault = key.field.fault(key, owner); !fault.empty()) return fault;
  return "";
}

} // namespace

bool Range::has(double value) const {
  return std::isfinite(value) && value >= min && value > above && value <= max && value < below;
}

std::vector<std::string> splitWords(const char *words) {
  std::istringstream stream(words);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool isOneOf(const char *words, std::string_view word) {
  const std::vector<std::string> all = splitWords(words);
  return all.empty() || std::ranges::find(all, word) != all.end();
}

std::string describe(const Range &range) {
  std::vector<std::string> parts;
  if (std::isfinite(range.min)) parts.push_back(fmt::format("at least {}", range.min));
  if (std::isfinite(range.above)) parts.push_back(fmt::format("above {}", range.above));
  if (std::isfinite(range.max)) parts.push_back(fmt::format("at most {}", range.max));
  if (std::isfinite(range.below)) parts.push_back(fmt::format("below {}", range.below));
  return fmt::format("{}", fmt::join(parts, " and "));
}

std::string faultOf(const char *key, double value, const Range &range) {
  if (range.has(value)) return "";
  return fmt::format("'{}' must be {}, is {}", key, std::isfinite(value) ? describe(range) : "a number", value);
}

std::string faultOf(const Optimizer &optimizer) {
  for (double beta : {optimizer.beta1, optimizer.beta2})
    if (std::string fault = faultOf("betas", beta, betaRange); !fault.empty()) return fault;
  if (std::string fault = faultOf("lr", optimizer.lr.peak, rateRange); !fault.empty()) return fault;
  return firstFault(optimizer);
}

std::string faultOf(const InitRule &rule) { return firstFault(rule); }

} // namespace cleave::recipe
