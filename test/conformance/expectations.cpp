#include "test/conformance/expectations.h"
#include <fmt/format.h>
#include <fnmatch.h>
#include <fstream>
#include <sstream>

namespace cleave::conformance {

bool Expectation::allows(Outcome::Kind outcome) const {
  switch (kind) {
  case Kind::Skip:
    return outcome == Outcome::Kind::Refused;
  case Kind::Differ:
    return outcome == Outcome::Kind::Wrong;
  case Kind::Fail:
    return outcome == Outcome::Kind::Wrong || outcome == Outcome::Kind::Crashed;
  }
  return false;
}

Result<Expectations> Expectations::read(const std::string &path, const std::string &device) {
  std::ifstream file(path);
  if (!file) return inputError(path + ": cannot be read");
  Expectations result;
  std::string line;
  bool applies = false, underHeading = false;
  for (int number = 1; std::getline(file, line); ++number) {
    auto error = [&](const std::string &what) { return inputError(fmt::format("{}:{}: {}", path, number, what)); };
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "on") {
      if (line.back() != ':') return error("a heading ends with a colon");
      applies = false, underHeading = true;
      line.pop_back();
      for (words.str(line.substr(2)), words.clear(); words >> word;) applies |= word == device;
      continue;
    }
    Expectation expectation;
    if (word == "skip")
      expectation.kind = Expectation::Kind::Skip;
    else if (word == "differ")
      expectation.kind = Expectation::Kind::Differ;
    else if (word == "fail")
      expectation.kind = Expectation::Kind::Fail;
    else
      return error("'" + word + "' is none of on, skip, differ, fail");
    words >> expectation.pattern;
    std::getline(words >> std::ws, expectation.why);
    if (!underHeading || expectation.why.empty()) return error("a line has a heading above it, a pattern and a reason");
    expectation.line = number;
    if (applies) result.lines.push_back(std::move(expectation));
  }
  return result;
}

Expectation *Expectations::of(const std::string &test) {
  for (Expectation &line : lines)
    if (fnmatch(line.pattern.c_str(), test.c_str(), 0) == 0) {
      ++line.matches;
      return &line;
    }
  return nullptr;
}

} // namespace cleave::conformance
