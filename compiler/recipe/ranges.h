// What a number may be: the same for a recipe's text and for a model that says how it trains.
//
//     faultOf(Optimizer{.eps = -1}) == "'eps' must be at least 0, is -1"
#pragma once
#include "compiler/recipe/recipe.h"
#include <limits>
#include <string_view>

namespace cleave::recipe {

struct Range {
  double min = -std::numeric_limits<double>::infinity();   // allowed
  double above = -std::numeric_limits<double>::infinity(); // not allowed itself
  double max = std::numeric_limits<double>::infinity();    // allowed
  double below = std::numeric_limits<double>::infinity();  // not allowed itself

  bool has(double value) const;
};
std::string describe(const Range &range); // "at least 0 and below 1"; "" of all numbers

// What a row of the table of keys (schema.h) says of a value.
struct Rule {
  Range range = {};          // of numbers
  const char *words = "";    // that a text may be: "pytorch file"; "": any
  const char *kinds = "";    // of losses, optimizers, ... that use the key: "sgd muon"; "": all
  bool isQuiet = false;      // a resolved recipe lacks it where it has its default
  bool takesOne = false;     // a value alone is a list of one
  const char *required = ""; // the error where it is left out; "": it may be
  const char *example = "";  // of a list of maps: an entry, for messages
};
std::vector<std::string> splitWords(const char *words);
bool isOneOf(const char *words, std::string_view word); // also if there are none

inline constexpr Range betaRange{.min = 0, .below = 1}, rateRange{.min = 0}, clipNormRange{.above = 0};

// The value of theirs that no recipe could have, with its key; "" if all is well.
std::string faultOf(const Optimizer &optimizer);
std::string faultOf(const InitRule &rule);
std::string faultOf(const char *key, double value, const Range &range);

} // namespace cleave::recipe
