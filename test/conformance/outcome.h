// The outcome of one test.
#pragma once
#include <string>

namespace cleave::conformance {

struct Outcome {
  enum class Kind { Passed, Refused, Wrong, Crashed };
  Kind kind = Kind::Passed;
  std::string why;        // unless passed: one line
  bool isTrivial = false; // nothing was left to compute: the outputs were constants or inputs of the compiled model
};

} // namespace cleave::conformance
