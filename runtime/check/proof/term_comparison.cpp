#include "runtime/check/proof/term_comparison.h"
#include "runtime/check/proof/evaluate.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::proof {
namespace {
constexpr int64_t mostDevices = 16;   // that are looked at one by one
constexpr size_t mostParts = 20'000;  // that are compared
constexpr size_t mostDifferences = 3; // that are looked for in numbers, too
} // namespace

// Settled terms that are equal, or equal for every coordinate by itself: where devices read what different writes
// left.
bool TermComparison::sameOnEachDevice(Term a, Term b, int64_t devices) {
  if (a == b) return true;
  for (Term one : {a, b})
    for (Atom c : std::vector<Atom>(store.term(one).variables)) {
      const AtomNode &axis = store.atom(c);
      if (axis.variable != Variable::Coordinate) continue;
      if (devices * axis.size > mostDevices) return false;
      for (int64_t at = 0; at < axis.size; ++at) {
        const Replacement here = {{c, store.constant(at)}};
        if (!sameOnEachDevice(store.replace(a, here), store.replace(b, here), devices * axis.size)) return false;
      }
      return true;
    }
  return devices > 1 && store.settled(a) == store.settled(b);
}

// How much two terms are built alike: 0 not at all.
int TermComparison::likeness(Term a, Term b) const {
  if (store.term(a).definition == store.term(b).definition) return store.kindOf(a) == Kind::Leaf ? 1 : 3;
  const DefinitionNode &left = store.definitionOf(a), &right = store.definitionOf(b);
  if (left.kind != right.kind || left.name != right.name) return 0;
  return left.sizes == right.sizes && left.children.size() == right.children.size() ? 2 : 1;
}

// The parts of two terms that are built alike, with the same names for what both run over. Nothing: they are not.
std::optional<TermComparison::Parts> TermComparison::partsOf(Term a, Term b) {
  const DefinitionNode &left = store.definitionOf(a), &right = store.definitionOf(b);
  if (left.kind != right.kind || left.name != right.name || left.sizes != right.sizes) return std::nullopt;
  std::vector<Atom> over, other;
  Parts parts{store.open(a, &over), store.open(b, &other), !Store::isUnordered(left)};
  std::vector<Atom> taken = store.term(a).variables;
  taken.insert(taken.end(), store.term(b).variables.begin(), store.term(b).variables.end());
  Replacement byLeft, by;
  for (size_t i = 0; i < over.size(); ++i) {
    taken.push_back(store.fresh(taken, store.atom(over[i]).size));
    byLeft.add(over[i], store.of(taken.back()));
    by.add(other[i], store.of(taken.back()));
  }
  for (Term &child : parts.left) child = store.replace(child, byLeft);
  for (Term &child : parts.right) child = store.replace(child, by);
  return parts;
}

// Whether they are the same operation on parts that are equal, or that have equal parts themselves.
bool TermComparison::haveEqualParts(Term a, Term b) {
  if (a == b) return true;
  auto [known, isNew] = haveEqual.try_emplace({a, b}, false);
  if (!isNew) return known->second;
  if (++partsCompared > mostParts) return false;
  const DefinitionNode &left = store.definitionOf(a), &right = store.definitionOf(b);
  if (left.children.empty() || left.children.size() != right.children.size() || left.reduce != right.reduce ||
      left.low != right.low || left.high != right.high)
    return false;
  const std::optional<Parts> parts = partsOf(a, b);
  if (!parts) return false;
  std::vector<bool> isTaken(parts->right.size());
  auto factor = [](const DefinitionNode &made, size_t i) { return made.factors.empty() ? 1 : made.factors[i]; };
  auto hasPartner = [&](size_t i, auto areEqual) {
    for (size_t j = parts->isOrdered ? i : 0; j < (parts->isOrdered ? i + 1 : isTaken.size()); ++j)
      if (!isTaken[j] && factor(left, i) == factor(right, j) && areEqual(parts->left[i], parts->right[j])) {
        isTaken[j] = true;
        return true;
      }
    return false;
  };
  std::vector<size_t> others;
  for (size_t i = 0; i < parts->left.size(); ++i)
    if (!hasPartner(i, std::equal_to<Term>())) others.push_back(i);
  const bool isEqual = std::ranges::all_of(
      others, [&](size_t i) { return hasPartner(i, [&](Term x, Term y) { return haveEqualParts(x, y); }); });
  return haveEqual[{a, b}] = isEqual;
}

// The smallest parts in which two terms differ, as long as they are built alike.
std::pair<Term, Term> TermComparison::narrowed(Term a, Term b) {
  while (true) {
    const std::optional<Parts> parts = partsOf(a, b);
    if (!parts) return {a, b};
    const auto &[x, y, isOrdered] = *parts;
    if (isOrdered && x.size() != y.size()) return {a, b};
    std::vector<Term> onlyX, onlyY;
    for (size_t i = 0; i < x.size(); ++i)
      if (isOrdered ? x[i] != y[i] : std::find(y.begin(), y.end(), x[i]) == y.end()) onlyX.push_back(x[i]);
    for (size_t i = 0; i < y.size(); ++i)
      if (isOrdered ? x[i] != y[i] : std::find(x.begin(), x.end(), y[i]) == x.end()) onlyY.push_back(y[i]);
    if (onlyX.empty() || onlyX.size() != onlyY.size()) return {a, b};
    int best = 0;
    Term nextA{}, nextB{};
    for (size_t i = 0; i < onlyX.size(); ++i)
      for (size_t j = isOrdered ? i : 0; j < (isOrdered ? i + 1 : onlyY.size()); ++j)
        if (const int alike = likeness(onlyX[i], onlyY[j]); alike > best)
          best = alike, nextA = onlyX[i], nextB = onlyY[j];
    if (best == 0) return {a, b};
    a = nextA, b = nextB;
  }
}

void TermComparison::isProved(const std::string &tensor) {
  if (proof.proved.empty() || proof.proved.back() != tensor) proof.proved.push_back(tensor);
}

void TermComparison::same(const std::string &tensor, const std::string &where, Term found, Term wanted,
                          const std::function<std::string(Term)> &parting) {
  if (found != wanted) {
    found = store.settled(found);
    wanted = store.settled(wanted);
  }
  if (sameOnEachDevice(found, wanted, 1) || haveEqualParts(found, wanted)) return isProved(tensor);
  if (stops) {
    proof.gaps.push_back({"tensor", tensor, left + " has another expression than the unsplit step"});
    return;
  }
  const auto [ofLeft, ofReference] = narrowed(found, wanted);
  Difference difference{.tensor = tensor,
                        .program = where,
                        .plan = store.show(ofLeft),
                        .reference = store.show(ofReference),
                        .command = parting(found),
                        .numbers = {}};
  if (compared++ < mostDifferences) difference.numbers = differ(store, found, wanted);
  if (difference.numbers.empty())
    proof.gaps.push_back(
        {"tensor", tensor,
         fmt::format("{} has {}, the unsplit step {}{}, and neither is brought to the other", left, difference.plan,
                     difference.reference, difference.command.empty() ? "" : "; they part at " + difference.command)});
  else
    proof.differences.push_back(difference);
}

} // namespace cleave::proof
