// Conditions: sums whose terms hold in parts of the indices, and what a condition says of the factors beside it.
#include "runtime/proof/store.h"
#include <algorithm>

namespace cleave::proof {

// Every term of the sum stands under a condition.
bool Store::isConcatenation(Term t) const {
  if (kindOf(t) != Kind::Sum) return false;
  auto isInside = [&](Term child) { return kindOf(child) == Kind::Inside; };
  for (Term child : definitionOf(t).children) {
    const std::vector<Term> &factors = definitionOf(child).children;
    if (!isInside(child) && !(kindOf(child) == Kind::Product && std::any_of(factors.begin(), factors.end(), isInside)))
      return false;
  }
  return true;
}

// The terms of a sum that is one of the factors. In a square those with the same conditions stay together:
// ([q] a + [k] b + [q] c) squared is [q] (a + c) (a + c) + [k] b b.
std::vector<Term> Store::piecesOf(Term t, const std::vector<Term> &factors) {
  const std::vector<double> times = definitionOf(t).factors;
  const std::vector<Term> children = open(t);
  std::vector<std::vector<Term>> others; // of each child: its factors that are no conditions
  std::vector<std::pair<std::vector<Term>, std::vector<size_t>>> groups; // children by their conditions
  for (size_t i = 0; i < children.size(); ++i) {
    std::vector<Term> conditions;
    others.emplace_back();
    for (Term factor : kindOf(children[i]) == Kind::Product ? open(children[i]) : std::vector{children[i]})
      (kindOf(factor) == Kind::Inside ? conditions : others.back()).push_back(factor);
    std::ranges::sort(conditions);
    auto known = std::ranges::find(groups, conditions, [](const auto &group) { return group.first; });
    if (known == groups.end()) known = groups.insert(groups.end(), {conditions, {}});
    known->second.push_back(i);
  }
  auto valueOf = [&](const std::vector<size_t> &group) {
    std::vector<std::pair<double, Term>> terms;
    for (size_t i : group) terms.emplace_back(times[i], product(others[i]));
    return sum(terms);
  };
  bool isSquare = std::ranges::count(factors, t) > 1;
  for (const auto &[conditions, group] : groups)
    isSquare = isSquare || (group.size() > 1 && std::ranges::find(factors, valueOf(group)) != factors.end());
  std::vector<Term> pieces;
  if (isSquare)
    for (auto &[conditions, group] : groups) {
      conditions.push_back(valueOf(group));
      pieces.push_back(product(conditions));
    }
  else
    for (size_t i = 0; i < children.size(); ++i)
      pieces.push_back(times[i] == 1 ? children[i] : sum({{times[i], children[i]}}));
  return pieces;
}

// [v = 2] f(v) = [v = 2] f(2), [v < 8] f(v % 8) = [v < 8] f(v), and a condition times a sum of pieces is a sum of
// pieces. True: `result` is their product.
bool Store::useConditions(std::vector<Term> &factors, Term &result) {
  bool hasCondition = false;
  for (size_t i = 0; i < factors.size(); ++i) {
    if (kindOf(factors[i]) != Kind::Inside) continue;
    const DefinitionNode &made = definitionOf(factors[i]);
    const IndexNode &index = node(term(factors[i]).arguments[0]);
    const AtomNode &first = atom(index.terms[0].first);
    if (index.terms.size() == 1 && index.terms[0].second == 1 && first.kind == AtomNode::Var && first.size > 0) {
      const int64_t low = std::max<int64_t>(made.low, 0), high = std::min(made.high, first.size);
      const Atom v = index.terms[0].first;
      bool changed = false;
      for (size_t j = 0; j < factors.size(); ++j) {
        if (i == j || !dependsOn(factors[j], v)) continue;
        const int64_t divisions = divisionsOf(factors[j], {v});
        if (high - low > 1 && divisions == 0) continue;
        const Atom within = fresh(term(factors[j]).variables, high - low);
        const Term moved = replace(factors[j], {{v, add(of(within), constant(low))}});
        const Term back = replace(moved, {{within, subtract(of(v), constant(low))}});
        if (high - low > 1 && divisionsOf(back, {v}) >= divisions) continue;
        factors[j] = back;
        changed = true;
      }
      if (changed) {
        result = product(factors);
        return true;
      }
    }
    hasCondition = true;
  }
  for (size_t j = 0; j < factors.size() && hasCondition; ++j) {
    const bool isPieces = kindOf(factors[j]) == Kind::Sum && definitionOf(factors[j]).fragility >= mostFragile - 1;
    if (!isPieces) continue;
    std::vector<std::pair<double, Term>> pieces;
    for (Term piece : piecesOf(factors[j], factors)) {
      std::vector<Term> changed = factors;
      changed[j] = piece;
      pieces.emplace_back(1.0, product(changed));
    }
    result = sum(pieces);
    return true;
  }
  return false;
}

} // namespace cleave::proof
