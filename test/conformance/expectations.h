// The tests that do not pass, where, and why: a file of lines under headings.
//
//   on reference cpu:                                           the devices that the lines below are about
//   skip test_acos*  Acos is not supported                      Cleave refuses it, with an error
//   differ test_training_dropout  another generator by design   other numbers than the recorded ones, and meant to
//   fail test_x  a defect, described                            wrong numbers, or a crash
//
// A test that no line names has to pass. A line must be true of every test it names: one that passes, or does not pass
// in the way that the line says, is an error, and so is a line that names none.
#pragma once
#include "runtime/base/status.h"
#include "test/conformance/outcome.h"
#include <string>
#include <vector>

namespace cleave::conformance {

struct Expectation {
  enum class Kind { Skip, Differ, Fail };
  Kind kind = Kind::Skip;
  std::string pattern, why; // the pattern is a glob
  int line = 0, matches = 0;

  bool allows(Outcome::Kind outcome) const;
};

class Expectations {
public:
  // The expectations of one device.
  static Result<Expectations> read(const std::string &path, const std::string &device);
  // The first line that names the test, whose matches are then one more; null: it has to pass.
  Expectation *of(const std::string &test);
  const std::vector<Expectation> &all() const { return lines; }

private:
  std::vector<Expectation> lines;
};

} // namespace cleave::conformance
