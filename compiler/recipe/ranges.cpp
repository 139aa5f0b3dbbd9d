#include "compiler/recipe/ranges.h"
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::recipe {
namespace {

template <typename Owner> std::string firstFault(const Owner &owner, std::span<const RangedNumber<Owner>> numbers) {
  for (const RangedNumber<Owner> &number : numbers)
    if (std::string fault = faultOf(number.key, owner.*number.member, number.range); !fault.empty()) return fault;
  return "";
}

} // namespace

bool Range::has(double value) const {
  return std::isfinite(value) && value >= least && value > above && value <= most && value < below;
}

std::string describe(const Range &range) {
  std::vector<std::string> parts;
  if (std::isfinite(range.least)) parts.push_back(fmt::format("at least {}", range.least));
  if (std::isfinite(range.above)) parts.push_back(fmt::format("above {}", range.above));
  if (std::isfinite(range.most)) parts.push_back(fmt::format("at most {}", range.most));
  if (std::isfinite(range.below)) parts.push_back(fmt::format("below {}", range.below));
  return fmt::format("{}", fmt::join(parts, " and "));
}

std::span<const RangedNumber<Optimizer>> optimizerNumbers() {
  static const RangedNumber<Optimizer> numbers[] = {
      {"eps", &Optimizer::eps, {.least = 0}},
      {"weight_decay", &Optimizer::weightDecay, {.least = 0}},
      {"momentum", &Optimizer::momentum, {.least = 0, .below = 1}},
      {"dampening", &Optimizer::dampening, {.least = 0, .most = 1}},
      {"initial_accumulator", &Optimizer::initialAccumulator, {.least = 0}},
      {"lr_decay", &Optimizer::lrDecay, {.least = 0}},
      {"eps2", &Optimizer::eps2, {.least = 0}},
      {"beta2_decay", &Optimizer::beta2Decay, {.most = 0}},
      {"d", &Optimizer::clipThreshold, {.above = 0}},
      {"alpha", &Optimizer::alpha, {.least = 0, .below = 1}},
      {"momentum_decay", &Optimizer::momentumDecay, {.least = 0}},
      {"rho", &Optimizer::rho, {.least = 0, .most = 1}},
  };
  return numbers;
}

std::span<const RangedNumber<InitRule>> initNumbers() {
  static const RangedNumber<InitRule> numbers[] = {
      {"mean", &InitRule::mean, {}}, {"std", &InitRule::std, {.least = 0}}, {"low", &InitRule::low, {}},
      {"high", &InitRule::high, {}}, {"value", &InitRule::value, {}},       {"gain", &InitRule::gain, {.above = 0}},
  };
  return numbers;
}

std::string faultOf(const char *key, double value, const Range &range) {
  if (range.has(value)) return "";
  std::string wanted = describe(range);
  return fmt::format("'{}' must be {}, is {}", key, std::isfinite(value) ? wanted : "a number", value);
}

std::string faultOf(const Optimizer &optimizer) {
  for (double beta : {optimizer.beta1, optimizer.beta2})
    if (std::string fault = faultOf("betas", beta, betaRange); !fault.empty()) return fault;
  if (std::string fault = faultOf("lr", optimizer.lr.peak, rateRange); !fault.empty()) return fault;
  return firstFault(optimizer, optimizerNumbers());
}

std::string faultOf(const InitRule &rule) { return firstFault(rule, initNumbers()); }

} // namespace cleave::recipe
