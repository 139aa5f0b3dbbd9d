// cleave verify --proof: that a plan's devices compute the unsplit step of its reference graph, shown on symbols. No
// weights, data or devices; docs/internals/proof.md has the statement and the rules.
//
//   Result<Proof> proof = prove(plan);
//   proof->outcome == Proof::Proved, or the gaps and differences say what is missing
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include "runtime/check/proof/machine.h"
#include <string>
#include <vector>

namespace cleave::proof {

// A tensor that the devices leave otherwise than the unsplit step does.
struct Difference {
  std::string tensor;          // "0.weight after the step", "loss"
  std::string program;         // "" or "program 1"
  std::string plan, reference; // the two expressions
  std::string command;         // the first that computes what the unsplit step never has; "" where none is found
  std::string numbers;         // where the two differ in value: the counterexample; "" where no such place was found
};

struct Proof {
  enum Outcome { Proved, Refuted, Unknown } outcome = Unknown;
  std::vector<std::string> proved;
  std::vector<Gap> gaps;
  std::vector<Difference> differences;
  int64_t definitions = 0; // different expressions met
  // Proved or refuted with casts to 16 bits taken as the numbers they are made of: partial sums are rounded before they
  // are added, say, and the unsplit step rounds their sum.
  bool roundsElsewhere = false;
  std::string text(bool hasDetails = false) const; // formulas of gaps in full
  std::string json() const;
  std::string firstGap() const; // "Softmax x: why"; "" where there is none
};

// `cleave compile` tries so many by itself, which takes some five seconds: a GPT of twelve layers has 10 to 15 thousand.
inline constexpr size_t fewExpressions = 400'000;

// Where it takes more expressions than `most`, that is the gap. Error: a plan that the static verifier refuses, or
// without a reference graph.
Result<Proof> prove(const plan::Plan &plan, size_t most = mostExpressions);

} // namespace cleave::proof
