// The numbers of an optimizer and of an initial distribution with what they may be: the same for a recipe's text and
// for a model that says how it trains.
//
//     faultOf(Optimizer{.eps = -1}) == "'eps' must be at least 0, is -1"
#pragma once
#include "compiler/recipe/recipe.h"
#include <limits>
#include <span>

namespace cleave::recipe {

struct Range {
  double least = -std::numeric_limits<double>::infinity(); // allowed
  double above = -std::numeric_limits<double>::infinity(); // not allowed itself
  double most = std::numeric_limits<double>::infinity();   // allowed
  double below = std::numeric_limits<double>::infinity();  // not allowed itself

  bool has(double value) const;
};
std::string describe(const Range &range); // "at least 0 and below 1"; "" of all numbers

template <typename Owner> struct RangedNumber {
  const char *key;
  double Owner::*member;
  Range range;
};
// All but the betas and the learning rate, which a recipe writes otherwise.
std::span<const RangedNumber<Optimizer>> optimizerNumbers();
std::span<const RangedNumber<InitRule>> initNumbers();
// A dimension; above 2^40 products of a few are no 64-bit numbers.
inline constexpr Range dimRange{.least = 1, .most = 1099511627776};
inline constexpr Range betaRange{.least = 0, .below = 1}, rateRange{.least = 0}, clipNormRange{.above = 0};

// The value of theirs that no recipe could have, with its key; "" if all is well.
std::string faultOf(const Optimizer &optimizer);
std::string faultOf(const InitRule &rule);
std::string faultOf(const char *key, double value, const Range &range);

} // namespace cleave::recipe
