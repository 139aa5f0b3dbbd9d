// Bounds of numbers on the command line. CLI11's own print the largest double, in 309 digits.
//
//     command->add_option("--steps", steps)->check(positiveNumber);      // --steps: must be more than 0, not 0
#pragma once
#include <CLI/CLI.hpp>

namespace cleave::tool {

inline CLI::Validator numberCheck(const char *description, const char *bound, bool (*holds)(double)) {
  return CLI::Validator(
      [bound, holds](const std::string &text) -> std::string {
        double value = 0;
        const bool isNumber = CLI::detail::lexical_cast(text, value);
        if (isNumber && holds(value)) return "";
        return std::string("must be ") + (isNumber ? bound : "a number") + ", not " + text;
      },
      description);
}
inline const CLI::Validator positiveNumber =
    numberCheck("POSITIVE", "more than 0", [](double value) { return value > 0; });
inline const CLI::Validator nonNegativeNumber =
    numberCheck("NONNEGATIVE", "0 or more", [](double value) { return value >= 0; });

} // namespace cleave::tool
