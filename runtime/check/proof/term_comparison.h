// Two terms beside each other: equal, or how they differ. What it finds goes into the proof.
#pragma once
#include "runtime/check/proof/prove.h"
#include <functional>
#include <map>

namespace cleave::proof {

class TermComparison {
public:
  // `left`: whose terms are shown to be the unsplit step's, "the plan".
  TermComparison(Store &store, Proof &proof, std::string left) : store(store), proof(proof), left(std::move(left)) {}

  // `where`: "program 1", or "". `parting` is called for terms that differ.
  void same(const std::string &tensor, const std::string &where, Term found, Term wanted,
            const std::function<std::string(Term)> &parting);
  void isProved(const std::string &tensor);

  bool stops = false; // at the first gap, which another comparison will tell of

private:
  struct Parts {
    std::vector<Term> left, right;
    bool isOrdered;
  };
  bool sameOnEachDevice(Term a, Term b, int64_t devices);
  int likeness(Term a, Term b) const;
  std::optional<Parts> partsOf(Term a, Term b);
  bool haveEqualParts(Term a, Term b);
  std::pair<Term, Term> narrowed(Term a, Term b);

  Store &store;
  Proof &proof;
  const std::string left;
  size_t compared = 0; // in numbers
  std::map<std::pair<Term, Term>, bool> haveEqual;
  size_t partsCompared = 0;
};

} // namespace cleave::proof
