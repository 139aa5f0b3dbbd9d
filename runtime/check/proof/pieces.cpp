// Conditions on indices in one form, sums whose terms hold in parts of the indices, and what a condition says of the
// factors beside it.
#include "runtime/check/proof/store.h"
#include <algorithm>

namespace cleave::proof {
namespace {
constexpr int64_t mostDecided = 64; // values of a variable that are looked at one by one
}

Term Store::inside(Index index, int64_t low, int64_t high) {
  for (bool changed = true; changed;) {
    changed = false;
    const IndexNode &from = node(index);
    if (from.constant != 0) {
      if (low > -unbounded) low -= from.constant;
      if (high < unbounded) high -= from.constant;
      index = add(index, constant(-from.constant));
      changed = true;
      continue;
    }
    if (low <= from.range.low) low = -unbounded;
    if (high > from.range.high) high = unbounded;
    if (low == -unbounded && high == unbounded) return number(1);
    if (low >= high || low > from.range.high || high <= from.range.low) return number(0);
    auto rank = [&](Atom a) {
      const AtomNode &part = atom(a);
      return std::tuple(part.kind, part.variable, part.number, a);
    };
    auto first = std::min_element(from.terms.begin(), from.terms.end(),
                                  [&](const auto &a, const auto &b) { return rank(a.first) < rank(b.first); });
    if (first->second < 0) {
      index = scale(index, -1);
      std::swap(low, high);
      low = low == unbounded ? -unbounded : 1 - low;
      high = high == -unbounded ? unbounded : 1 - high;
      changed = true;
      continue;
    }
    // low <= x / n < high where n low <= x < n high
    if (const AtomNode &whole = atom(first->first); from.terms.size() == 1 && whole.kind == AtomNode::Quotient) {
      if (low > -unbounded) low *= whole.size;
      if (high < unbounded) high *= whole.size;
      index = whole.of;
      changed = true;
      continue;
    }
    // step * upper + rest, 0 <= rest < step, and bounds that the rest does not reach from a multiple of the step: upper
    // alone decides
    for (auto [part, factor] : from.terms) {
      const int64_t step = std::abs(factor);
      if (step == 1) continue;
      std::map<Atom, int64_t> upper, small;
      for (auto [other, times] : from.terms) (times % step == 0 ? upper[other] = times / step : small[other] = times);
      const Range rest = node(intern(0, small)).range;
      const int64_t least = std::max(low, from.range.low), most = std::min(high - 1, from.range.high);
      // One value, from which one value of the rest leaves a multiple: both have a condition of their own.
      if (least == most && rest.isFinite() && !small.empty()) {
        const int64_t left = rest.low + ((least - rest.low) % step + step) % step;
        if (left > rest.high) return number(0);
        if (left + step > rest.high)
          return product({inside(intern(0, upper), (least - left) / step, (least - left) / step + 1),
                          inside(intern(0, small), left, left + 1)});
      }
      if (rest.low < 0 || rest.high >= step) continue;
      // All of it with one value of upper: both have a condition of their own.
      if (from.range.isFinite() && !small.empty()) {
        auto floorOf = [&](int64_t x) { return x / step - (x % step < 0); };
        if (const int64_t above = floorOf(least); above == floorOf(most))
          return product({inside(intern(0, upper), above, above + 1),
                          inside(intern(0, small), least - above * step, most - above * step + 1)});
      }
      auto isKept = [&](int64_t bound) {
        if (bound == -unbounded || bound == unbounded || small.empty()) return true;
        const int64_t above = (bound % step + step) % step; // the multiple below it
        return above == 0 || above > rest.high;
      };
      if (!isKept(low) || !isKept(high)) continue;
      auto roundUp = [&](int64_t bound) {
        return bound == -unbounded || bound == unbounded ? bound : bound / step + (bound % step > 0);
      };
      low = roundUp(low), high = roundUp(high);
      index = intern(0, upper);
      changed = true;
      break;
    }
  }
  if (const std::optional<Term> range = insideOne(index, low, high)) return *range;
  return intern(intern(DefinitionNode{.kind = Kind::Inside, .low = low, .high = high}), {index});
}

// A condition on one variable that is divided, as one on the variable: [0 <= (v + 1) % 4 < 1] is [3 <= v < 4]. Nothing
// where it holds in several ranges, or the variable has many values.
std::optional<Term> Store::insideOne(Index index, int64_t low, int64_t high) {
  const IndexNode &from = node(index);
  const bool isPlain = from.terms.size() == 1 && atom(from.terms[0].first).kind == AtomNode::Var;
  if (from.variables.size() != 1 || isPlain) return std::nullopt;
  const Atom v = from.variables[0];
  const int64_t size = atom(v).size;
  if (size <= 0 || size > mostDecided) return std::nullopt;
  std::optional<std::pair<int64_t, int64_t>> holds; // from, to below
  for (int64_t at = 0; at < size; ++at) {
    const Index value = replace(index, {{v, constant(at)}});
    if (!isConstant(value)) return std::nullopt;
    if (const int64_t is = node(value).constant; is < low || is >= high) continue;
    if (holds && holds->second != at) return std::nullopt;
    holds = {holds ? holds->first : at, at + 1};
  }
  return holds ? inside(of(v), holds->first, holds->second) : number(0);
}

// Conditions on one index become one.
void Store::mergeInside(std::vector<Term> &factors) {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (kindOf(factors[i]) != Kind::Inside) continue;
    for (size_t j = i + 1; j < factors.size();) {
      if (kindOf(factors[j]) != Kind::Inside || term(factors[i]).arguments != term(factors[j]).arguments) {
        ++j;
        continue;
      }
      const DefinitionNode &a = definitionOf(factors[i]), &b = definitionOf(factors[j]);
      factors[i] = inside(term(factors[i]).arguments[0], std::max(a.low, b.low), std::min(a.high, b.high));
      factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(j));
      if (kindOf(factors[i]) != Kind::Inside) break;
    }
  }
}

// Every term of the sum stands under a condition.
bool Store::isConcatenation(Term t) const {
  return kindOf(t) == Kind::Sum &&
         std::ranges::all_of(definitionOf(t).children, [&](Term child) { return isUnderCondition(child); });
}

bool Store::isUnderCondition(Term t) const {
  auto isInside = [&](Term child) { return kindOf(child) == Kind::Inside; };
  return isInside(t) || (kindOf(t) == Kind::Product && std::ranges::any_of(definitionOf(t).children, isInside));
}

// The conditions among a term's factors, in order, and the others.
struct Store::Conditional {
  std::vector<Term> conditions, others;
};
Store::Conditional Store::conditional(Term t) {
  Conditional parts;
  for (Term factor : kindOf(t) == Kind::Product ? open(t) : std::vector{t})
    (kindOf(factor) == Kind::Inside ? parts.conditions : parts.others).push_back(factor);
  std::ranges::sort(parts.conditions);
  return parts;
}

// No place has both: a condition of the one ends before one of the other begins.
bool Store::excludeEachOther(Term a, Term b) {
  const Conditional first = conditional(a), second = conditional(b);
  for (Term left : first.conditions)
    for (Term right : second.conditions) {
      const DefinitionNode &one = definitionOf(left), &other = definitionOf(right);
      if (term(left).arguments == term(right).arguments && (one.high <= other.low || other.high <= one.low))
        return true;
    }
  return false;
}

// [v < 8] a + [v >= 8] b in 16 bits is [v < 8] (a in 16 bits) + [v >= 8] (b in 16 bits).
Term Store::rounded(Term x, const std::string &type) {
  const std::string cast = "Cast to " + type;
  const bool isRounded =
      isNumber(x, 0) || isNumber(x, 1) || (kindOf(x) == Kind::Function && definitionOf(x).name == cast);
  if (!roundings || isRounded) return x;
  if (const auto of = hasPadding ? masked(x) : std::nullopt) return masked(of->condition, rounded(of->value, type));
  const bool isSum = isConcatenation(x);
  if (!isSum && !isUnderCondition(x)) return function(cast, {x});
  const std::vector<Term> pieces = isSum ? open(x) : std::vector{x};
  const std::vector<double> factors = isSum ? definitionOf(x).factors : std::vector{1.0};
  for (size_t i = 0; i < pieces.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (!excludeEachOther(pieces[i], pieces[j])) return function(cast, {x});
  std::vector<Term> each;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Conditional parts = conditional(pieces[i]);
    parts.conditions.push_back(rounded(times(factors[i], product(parts.others)), type));
    each.push_back(product(parts.conditions));
  }
  std::vector<std::pair<double, Term>> terms;
  for (Term piece : each) terms.emplace_back(1.0, piece);
  return sum(terms);
}

// The terms of a sum, with their factors; [v < 8] (a + b) is [v < 8] a and [v < 8] b. Nothing: it is neither.
std::optional<std::vector<std::pair<double, Term>>> Store::termsOf(Term t) {
  std::vector<Term> conditions;
  Term whole = t;
  if (kindOf(t) == Kind::Product && isUnderCondition(t))
    if (const Conditional parts = conditional(t); parts.others.size() == 1)
      conditions = parts.conditions, whole = parts.others[0];
  if (kindOf(whole) != Kind::Sum) return std::nullopt;
  const std::vector<double> &factors = definitionOf(whole).factors;
  std::vector<std::pair<double, Term>> terms;
  for (Term child : open(whole)) {
    std::vector<Term> both = conditions;
    both.push_back(child);
    terms.emplace_back(factors[terms.size()], conditions.empty() ? child : product(both));
  }
  return terms;
}

// Terms of a sum with the same conditions become one: [v < 8] a + [v < 8] b is [v < 8] (a + b).
void Store::joinConditions(std::vector<std::pair<double, Term>> &sum_) {
  std::map<std::vector<Term>, std::vector<size_t>> alike; // by conditions
  std::vector<Term> others(sum_.size());
  for (size_t i = 0; i < sum_.size(); ++i) {
    const Term t = sum_[i].second;
    if (!isUnderCondition(t)) continue;
    const Conditional parts = conditional(t);
    alike[parts.conditions].push_back(i);
    others[i] = product(parts.others);
  }
  for (auto &[conditions, group] : alike) {
    if (group.size() < 2) continue;
    std::vector<std::pair<double, Term>> terms;
    for (size_t i : group) terms.emplace_back(sum_[i].first, others[i]);
    std::vector<Term> factors = conditions;
    factors.push_back(sum(terms));
    const Term joined = product(factors);
    if (kindOf(joined) != Kind::Product) continue; // a condition says more of them together
    for (size_t i : group) sum_[i].first = 0;
    sum_[group[0]] = {1.0, joined};
  }
  std::erase_if(sum_, [](const auto &part) { return part.first == 0; });
}

// Two terms that are the same but for conditions on one index, side by side, become one.
bool Store::mergePieces(std::vector<std::pair<double, Term>> &sum_) {
  struct Piece {
    size_t at;
    std::vector<Term> factors;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < sum_.size(); ++i) {
    const Term t = sum_[i].second;
    if (isUnderCondition(t)) pieces.push_back({i, kindOf(t) == Kind::Product ? open(t) : std::vector{t}});
  }
  for (size_t a = 0; a < pieces.size(); ++a)
    for (size_t b = 0; b < pieces.size(); ++b) {
      if (a == b || sum_[pieces[a].at].first != sum_[pieces[b].at].first) continue;
      std::vector<Term> left = pieces[a].factors, right = pieces[b].factors;
      for (Term f : pieces[a].factors)
        if (auto found = std::find(right.begin(), right.end(), f); found != right.end()) {
          right.erase(found);
          left.erase(std::find(left.begin(), left.end(), f));
        }
      if (left.size() != 1 || right.size() != 1 || kindOf(left[0]) != Kind::Inside || kindOf(right[0]) != Kind::Inside)
        continue;
      const DefinitionNode &first = definitionOf(left[0]), &second = definitionOf(right[0]);
      if (term(left[0]).arguments != term(right[0]).arguments || first.high != second.low) continue;
      std::vector<Term> joined = pieces[a].factors;
      *std::find(joined.begin(), joined.end(), left[0]) = inside(term(left[0]).arguments[0], first.low, second.high);
      sum_[pieces[a].at].second = product(joined);
      sum_.erase(sum_.begin() + static_cast<std::ptrdiff_t>(pieces[b].at));
      return true;
    }
  return false;
}

int64_t Store::conditionsIn(Term t) const { return definitionOf(t).conditions + (kindOf(t) == Kind::Inside); }

// [v = r] [v < 8] is [v = r] where r < 8.
void Store::dropImplied(std::vector<Term> &factors) {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (kindOf(factors[i]) != Kind::Inside || definitionOf(factors[i]).high - definitionOf(factors[i]).low != 1)
      continue;
    const Index index = term(factors[i]).arguments[0];
    for (auto [part, factor] : node(index).terms) {
      if (std::abs(factor) != 1 || atom(part).kind != AtomNode::Var) continue;
      const Index rest = subtract(index, scale(of(part), factor));
      if (dependsOn(rest, part)) continue;
      const Index value = scale(subtract(constant(definitionOf(factors[i]).low), rest), factor);
      for (size_t j = 0; j < factors.size(); ++j)
        if (j != i && kindOf(factors[j]) == Kind::Inside && isNumber(replace(factors[j], {{part, value}}), 1))
          factors[j] = number(1);
    }
  }
}

// The conditions that all terms of a sum have, and the rest: [v < 8] a + [v < 8] [w < 2] b is [v < 8] (a + [w < 2] b).
std::optional<std::pair<std::vector<Term>, Term>> Store::commonConditions(Term t) {
  const bool isSum = kindOf(t) == Kind::Sum;
  const std::vector<Term> children = isSum ? open(t) : std::vector{t};
  std::vector<Term> common = conditional(children[0]).conditions;
  for (size_t i = 1; i < children.size() && !common.empty(); ++i) {
    const std::vector<Term> own = conditional(children[i]).conditions;
    std::erase_if(common, [&](Term one) { return std::ranges::find(own, one) == own.end(); });
  }
  if (common.empty()) return std::nullopt;
  std::vector<std::pair<double, Term>> rest;
  for (size_t i = 0; i < children.size(); ++i) {
    std::vector<Term> factors = kindOf(children[i]) == Kind::Product ? open(children[i]) : std::vector{children[i]};
    std::erase_if(factors, [&](Term one) { return std::ranges::find(common, one) != common.end(); });
    rest.emplace_back(isSum ? definitionOf(t).factors[i] : 1.0, product(factors));
  }
  return std::pair(common, sum(rest));
}

bool Store::isMinusInfinity(Term t) const { return kindOf(t) == Kind::Leaf && definitionOf(t).name == "-infinity"; }

std::optional<Store::Masked> Store::masked(Term t) {
  if (kindOf(t) != Kind::Function || definitionOf(t).name != "Where") return std::nullopt;
  const std::vector<Term> where = open(t);
  if (!isMinusInfinity(where[2])) return std::nullopt;
  return Masked{where[0], where[1]};
}
Term Store::masked(Term condition, Term value) {
  return function("Where", {condition, value, number(-std::numeric_limits<double>::infinity())});
}

// e^((a where v < 8, else -infinity) + b) is [v < 8] e^(a + b). Conditions on several variables stay, since they may hold
// nowhere: then b, less the maximum of all, is no number.
std::optional<Term> Store::withoutMinusInfinity(Term exponent) {
  const bool isSum = kindOf(exponent) == Kind::Sum;
  const std::vector<Term> children = isSum ? open(exponent) : std::vector{exponent};
  for (size_t i = 0; i < children.size(); ++i) {
    const std::optional<Masked> of = masked(children[i]);
    if (!of || (isSum && definitionOf(exponent).factors[i] <= 0)) continue;
    std::vector<Term> outside, within;
    for (Term one : kindOf(of->condition) == Kind::Product ? open(of->condition) : std::vector{of->condition}) {
      const bool isOnOne = kindOf(one) == Kind::Inside && node(term(one).arguments[0]).variables.size() == 1;
      (isOnOne ? outside : within).push_back(one);
    }
    if (outside.empty()) continue;
    std::vector<std::pair<double, Term>> terms;
    for (size_t j = 0; j < children.size(); ++j)
      terms.emplace_back(isSum ? definitionOf(exponent).factors[j] : 1,
                         j == i ? masked(product(within), of->value) : children[j]);
    outside.push_back(function("Exp", {sum(terms)}));
    return product(outside);
  }
  return std::nullopt;
}

// The terms of a sum that is one of the factors. In a square those with the same conditions stay together:
// ([q] (a + c) + [k] b) squared is [q] (a + c) (a + c) + [k] b b.
std::vector<Term> Store::piecesOf(Term t, const std::vector<Term> &factors) {
  const std::vector<double> times = definitionOf(t).factors;
  const std::vector<Term> children = open(t);
  bool isSquare = std::ranges::count(factors, t) > 1;
  for (size_t i = 0; i < children.size() && !isSquare; ++i)
    isSquare = std::ranges::count(factors, sum({{times[i], product(conditional(children[i]).others)}})) > 0;
  std::vector<Term> pieces;
  for (size_t i = 0; i < children.size(); ++i) {
    const auto each = isSquare ? std::nullopt : termsOf(children[i]);
    for (auto [factor, child] : each ? *each : std::vector{std::pair(1.0, children[i])})
      pieces.push_back(times[i] * factor == 1 ? child : sum({{times[i], sum({{factor, child}})}}));
  }
  return pieces;
}

// Whether a condition among the factors is on a variable that a condition in the sum is on.
bool Store::meets(Term sum, const std::vector<Term> &factors) {
  for (Term child : open(sum))
    for (Term own : conditional(child).conditions)
      for (Term factor : factors)
        if (kindOf(factor) == Kind::Inside &&
            std::ranges::any_of(term(own).variables, [&](Atom v) { return dependsOn(factor, v); }))
          return true;
  return false;
}

// [v = 2] f(v) = [v = 2] f(2), [v < 8] f(v % 8) = [v < 8] f(v), the same for a condition on v within f, and a condition
// times a sum of pieces is a sum of pieces. True: `result` is their product.
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
        const int64_t conditions = hasPadding ? conditionsIn(factors[j]) : 0;
        if (high - low > 1 && divisions == 0 && conditions == 0) continue;
        const Atom within = fresh(term(factors[j]).variables, high - low);
        const Term narrower = replace(factors[j], {{v, add(of(within), constant(low))}});
        const Term moved = hasPadding ? settled(narrower) : narrower;
        const Term back = replace(moved, {{within, subtract(of(v), constant(low))}});
        if (high - low > 1 && divisionsOf(back, {v}) >= divisions && (!hasPadding || conditionsIn(back) >= conditions))
          continue;
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
    if (!isPieces || (hasPadding && !meets(factors[j], factors))) continue;
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
