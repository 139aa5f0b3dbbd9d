// What became of one test.
#pragma once
#include <string>

namespace cleave::conformance {

struct Outcome {
  enum class Kind { Passed, Refused, Wrong, Crashed };
  Kind kind = Kind::Passed;
  std::string why;       // unless passed: one line
  bool constant = false; // nothing was left to compute: the outputs were constants when the model was compiled
};

} // namespace cleave::conformance
