// Reductions: what runs over several indices in one form.
//
//   sum over c < 2, k < 8 of x[i, 8 c + k] w[8 c + k, j]      ->  sum over k < 16 of x[i, k] w[k, j]
//   sum over c < 2 of a[i] (sum over k < 8 of x[8 c + k])     ->  a[i] (sum over k < 16 of x[k])
//   sum over i < 4, k < 8 of a[i] x[i, k]                     ->  sum over i < 4 of a[i] (sum over k < 8 of x[i, k])
//   sum over c < 2 of [0 <= r - 4 c < 4] t[r]                 ->  t[r]                                  0 <= r < 8
//   (sum over k < 2 of x[k]) + (sum over k < 3 of x[k + 2])   ->  sum over k < 5 of x[k]
#include "runtime/check/proof/store.h"
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>

namespace cleave::proof {

// All indices in a term: its arguments, and what stands in their quotients, remainders and rows.
void Store::visitIndices(Term t, const std::function<void(Index)> &seen) const {
  auto visit = [&](auto &self, Index index) -> void {
    seen(index);
    for (auto [part, factor] : node(index).terms) {
      const AtomNode &inner = atom(part);
      if (inner.kind == AtomNode::Row)
        for (Index argument : term(inner.term).arguments) self(self, argument);
      if (inner.kind == AtomNode::Quotient || inner.kind == AtomNode::Remainder) self(self, inner.of);
    }
  };
  for (Index argument : term(t).arguments) visit(visit, argument);
}

// How often a term's indices divide something in which one of the variables is.
int64_t Store::divisionsOf(Term t, const std::vector<Atom> &of) const {
  int64_t count = 0;
  visitIndices(t, [&](Index index) {
    for (auto [part, factor] : node(index).terms) {
      const AtomNode &inner = atom(part);
      const bool divides = inner.kind == AtomNode::Quotient || inner.kind == AtomNode::Remainder;
      count += divides && std::any_of(of.begin(), of.end(), [&](Atom v) { return dependsOn(inner.of, v); });
    }
  });
  return count;
}

// Made once more from the parts in whose indices the variable is divided: what a definition adds up may be whole there,
// as 2 p + (q + r) / 2 is (k + r) / 2 at p = k / 4, q = k % 4. Terms of many parts stay as they are, since to make all of
// a decoder's again takes longer than its proof.
Term Store::undivided(Term t, Atom variable, std::unordered_map<Term, Term> &done) {
  constexpr size_t mostParts = 32; // the norms of images have 7
  if (auto known = done.find(t); known != done.end()) return known->second;
  const DefinitionNode &made = definitionOf(t);
  if (made.children.empty() || done.size() >= mostParts || divisionsOf(t, {variable}) == 0) return done[t] = t;
  std::vector<Atom> over;
  std::vector<Term> children = open(t, &over);
  for (Term &child : children) child = undivided(child, variable, done);
  return done[t] = assemble(made, over, std::move(children));
}

// A variable that is divided by s becomes s q + r, where that leaves less to divide.
bool Store::splitVariables(std::vector<Atom> &over, Term &body) {
  for (size_t i = 0; i < over.size(); ++i) {
    const Atom v = over[i];
    const int64_t size = atom(v).size;
    std::set<int64_t> steps;
    visitIndices(body, [&](Index index) {
      for (auto [part, factor] : node(index).terms) {
        const AtomNode &inner = atom(part);
        if (inner.kind != AtomNode::Quotient && inner.kind != AtomNode::Remainder) continue;
        if (int64_t own = factorOf(inner.of, v); own != 0) {
          const int64_t step = inner.size / std::gcd(own, inner.size);
          if (step > 1 && step < size && size % step == 0) steps.insert(step);
        }
      }
    });
    const int64_t before = steps.empty() ? 0 : divisionsOf(body, {v});
    for (int64_t step : steps) {
      std::vector<Atom> taken = term(body).variables;
      const Atom q = fresh(taken, size / step);
      taken.push_back(q);
      const Atom r = fresh(taken, step);
      const Term other = replace(body, {{v, add(scale(of(q), step), of(r))}});
      if (divisionsOf(other, {q, r}) >= before) continue;
      body = other;
      over[i] = q;
      over.insert(over.begin() + static_cast<std::ptrdiff_t>(i) + 1, r);
      return true;
    }
  }
  return false;
}

// Two variables that stand everywhere as n a + b, n the size of b, become one.
bool Store::joinVariables(std::vector<Atom> &over, Term &body) {
  for (size_t i = 0; i < over.size(); ++i)
    for (size_t j = 0; j < over.size(); ++j) {
      const Atom a = over[i], b = over[j];
      const int64_t size = atom(b).size;
      if (i == j) continue;
      bool isCandidate = false;
      visitIndices(body, [&](Index index) {
        const int64_t minor = factorOf(index, b);
        isCandidate = isCandidate || (minor != 0 && factorOf(index, a) == minor * size);
      });
      if (!isCandidate) continue;
      const Atom both = fresh(term(body).variables, atom(a).size * size);
      const int64_t before = divisionsOf(body, {a, b});
      Term other = replace(body, {{a, quotient(of(both), size)}, {b, remainder(of(both), size)}});
      if (divisionsOf(other, {both}) > before) {
        std::unordered_map<Term, Term> done; // a part may stand in many
        other = undivided(other, both, done);
      }
      if (divisionsOf(other, {both}) > before) continue;
      body = other;
      over[i] = both;
      over.erase(over.begin() + static_cast<std::ptrdiff_t>(j));
      return true;
    }
  return false;
}

// The first and the last of a variable's values that meet a condition, if it is on no other variable.
std::optional<std::pair<int64_t, int64_t>> Store::valuesThatMeet(Term condition, Atom v) const {
  const Index index = term(condition).arguments[0];
  const int64_t factor = factorOf(index, v), step = std::abs(factor), r = node(index).constant;
  if (factor == 0 || node(index).terms.size() != 1) return std::nullopt;
  const int64_t low = definitionOf(condition).low, high = definitionOf(condition).high; // low <= factor v + r < high
  int64_t least = low == -unbounded ? low : low - r, most = high == unbounded ? high : high - 1 - r; // inclusive
  if (factor < 0) {
    std::swap(least, most);
    least = least == unbounded ? -unbounded : -least;
    most = most == -unbounded ? unbounded : -most;
  }
  auto floorOf = [&](int64_t x) { return x >= 0 ? x / step : -((-x + step - 1) / step); };
  const int64_t last = atom(v).size - 1;
  return std::pair(least == -unbounded ? 0 : std::max<int64_t>(0, -floorOf(-least)),
                   most == unbounded ? last : std::min(last, floorOf(most)));
}

// Over the values from first to last alone.
Term Store::limited(Term body, Atom &v, std::pair<int64_t, int64_t> values) {
  const Atom shorter = fresh(term(body).variables, values.second - values.first + 1);
  const Term made = replace(body, {{v, add(of(shorter), constant(values.first))}});
  v = shorter;
  return hasPadding ? settled(made) : made;
}

// A condition that a variable of the sum meets for one value alone, or for a range: the sum runs over no other.
bool Store::removeInside(std::vector<Atom> &over, Term &body) {
  std::vector<Term> factors = kindOf(body) == Kind::Product ? open(body) : std::vector<Term>{body};
  for (size_t f = 0; f < factors.size(); ++f) {
    if (kindOf(factors[f]) != Kind::Inside) continue;
    const int64_t low = definitionOf(factors[f]).low, high = definitionOf(factors[f]).high;
    const Index index = term(factors[f]).arguments[0];
    for (size_t i = 0; i < over.size(); ++i) {
      const Atom v = over[i];
      const int64_t factor = factorOf(index, v), size = atom(v).size;
      if (factor == 0) continue;
      const Index rest = subtract(index, scale(of(v), factor));
      if (dependsOn(rest, v)) continue;
      std::vector<Term> others = factors;
      if (const auto values = valuesThatMeet(factors[f], v)) {
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(f));
        const bool isNever = values->first > values->second;
        body = isNever ? number(0) : limited(product(others), over[i], *values);
        if (isNever) over.clear();
        return true;
      }
      if (low == -unbounded || high == unbounded || high - low > std::abs(factor)) continue;
      // factor > 0: v = floor((high - 1 - rest) / factor); else v = floor((rest - low) / |factor|)
      const Index only = factor > 0 ? quotient(subtract(constant(high - 1), rest), factor)
                                    : quotient(subtract(rest, constant(low)), -factor);
      others.push_back(inside(only, 0, size));
      std::vector<Term> made;
      for (Term t : others) made.push_back(replace(t, {{v, only}}));
      body = product(made);
      over.erase(over.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
  }
  return false;
}

// The maximum of what is minus infinity beyond a range is that over the range.
bool Store::limitMaximum(std::vector<Atom> &over, Term &body) {
  const std::optional<Masked> of = masked(body);
  if (!of) return false;
  std::vector<Term> conditions =
      kindOf(of->condition) == Kind::Product ? open(of->condition) : std::vector{of->condition};
  for (size_t c = 0; c < conditions.size(); ++c)
    for (Atom &v : over) {
      if (kindOf(conditions[c]) != Kind::Inside) continue;
      const auto values = valuesThatMeet(conditions[c], v);
      if (!values || values->first > values->second) continue;
      conditions.erase(conditions.begin() + static_cast<std::ptrdiff_t>(c));
      body = limited(masked(product(conditions), of->value), v, *values);
      return true;
    }
  return false;
}

// The sum of two sums, if it is one over a longer range of one variable: of f(k) over k < 2 and of f(k + 2) over k < 3,
// or of f(2) alone.
std::optional<Term> Store::joined(Term first, Term second) {
  std::vector<Atom> before, after;
  const Term head = open(first, &before)[0], tail = open(second, &after)[0];
  const bool isOne = after.size() + 1 == before.size(); // the second has one value of a variable
  if (!isOne && after.size() != before.size()) return std::nullopt;
  for (size_t v = 0; v < before.size(); ++v) {
    const int64_t size = atom(before[v]).size, more = isOne ? 1 : atom(after[v]).size;
    std::vector<Atom> taken = before;
    for (const std::vector<Atom> &others : {after, term(head).variables, term(tail).variables})
      taken.insert(taken.end(), others.begin(), others.end());
    const Atom all = fresh(taken, size + more);
    Replacement inTail;
    if (!isOne) inTail.add(after[v], add(of(all), constant(-size)));
    bool fits = true;
    for (size_t other = 0; other < before.size(); ++other) {
      if (other == v) continue;
      const Atom its = after[isOne && other > v ? other - 1 : other];
      fits &= atom(its).size == atom(before[other]).size;
      if (its != before[other]) inTail.add(its, of(before[other]));
    }
    if (!fits) continue;
    const Term whole = replace(head, {{before[v], of(all)}});
    const Term reached = isOne ? replace(head, {{before[v], constant(size)}}) : whole;
    if (reached != replace(tail, inTail)) continue;
    before[v] = all;
    return reduce(Reduce::Sum, before, whole);
  }
  return std::nullopt;
}

// Terms that are sums of one function over neighbouring ranges, as parts of a batch that run one after the other leave
// them, become one.
bool Store::mergeNeighbours(std::vector<std::pair<double, Term>> &terms) {
  struct Place {
    size_t at;
    std::vector<Term> outside; // factors beside the sum
    Term sum;
  };
  std::map<Key, std::vector<Place>> alike;
  for (size_t i = 0; i < terms.size(); ++i) {
    Place place{i, {}, {}};
    int sums = 0;
    for (Term factor : kindOf(terms[i].second) == Kind::Product ? open(terms[i].second) : std::vector{terms[i].second})
      if (kindOf(factor) == Kind::Reduction && definitionOf(factor).reduce == Reduce::Sum)
        place.sum = factor, ++sums;
      else
        place.outside.push_back(factor);
    if (sums != 1) continue;
    Key key{std::bit_cast<int64_t>(terms[i].first),
            static_cast<int64_t>(term(definitionOf(place.sum).children[0]).definition)};
    std::ranges::sort(place.outside);
    for (Term factor : place.outside) key.push_back(static_cast<int64_t>(factor));
    alike[key].push_back(std::move(place));
  }
  bool changed = false;
  for (auto &[key, places] : alike)
    for (size_t i = 0; i < places.size(); ++i)
      for (size_t j = 0; j < places.size(); ++j) {
        if (i == j || terms[places[i].at].first == 0 || terms[places[j].at].first == 0) continue;
        const std::optional<Term> both = joined(places[i].sum, places[j].sum);
        if (!both || kindOf(*both) != Kind::Reduction) continue;
        places[i].sum = *both;
        std::vector<Term> factors = places[i].outside;
        factors.push_back(*both);
        terms[places[i].at].second = product(factors);
        terms[places[j].at].first = 0;
        changed = true;
      }
  std::erase_if(terms, [](const auto &part) { return part.first == 0; });
  return changed;
}

// Factors of one definition stand in the order of their variables' names, so these are given by where the variables
// stand in the other factors: [0 <= i < 8] [0 <= j < 8] x[i, j], wherever i and j come from.
void Store::nameByPlaces(std::vector<Atom> &over, Term &body) {
  if (kindOf(body) != Kind::Product || over.size() < 2) return;
  const std::vector<Term> factors = open(body);
  std::map<Definition, int> uses;
  for (Term factor : factors) ++uses[term(factor).definition];
  if (uses.size() == factors.size()) return;
  std::vector<std::pair<std::vector<int64_t>, Atom>> order;
  for (Atom v : over) {
    std::vector<int64_t> places;
    for (size_t f = 0; f < factors.size(); ++f) {
      if (uses[term(factors[f]).definition] > 1) continue;
      const std::vector<int64_t> own = placesOf(v, factors[f]);
      if (own.empty()) continue;
      places.push_back(static_cast<int64_t>(f));
      places.insert(places.end(), own.begin(), own.end());
    }
    places.push_back(atom(v).size);
    order.emplace_back(std::move(places), v);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Atom> taken;
  for (Atom v : term(body).variables)
    if (std::find(over.begin(), over.end(), v) == over.end()) taken.push_back(v);
  Replacement by;
  for (size_t i = 0; i < order.size(); ++i) {
    const Atom v = order[i].second, named = fresh(taken, atom(v).size);
    taken.push_back(named);
    if (named != v) by.add(v, of(named));
    over[i] = named;
  }
  body = replace(body, by);
}

// The variables are renamed first, so that the same reduction is made once.
Term Store::reduce(Reduce kind, std::vector<Atom> over, Term body) {
  std::vector<Atom> taken;
  for (Atom v : term(body).variables)
    if (std::find(over.begin(), over.end(), v) == over.end()) taken.push_back(v);
  auto [by, back] = plainNames(taken);
  for (Atom &v : taken)
    if (const Index *plain = by.find(v)) v = node(*plain).terms[0].first;
  Key key{static_cast<int64_t>(kind)};
  for (Atom &v : over) {
    const Atom renamed = fresh(taken, atom(v).size);
    taken.push_back(renamed);
    key.push_back(static_cast<int64_t>(renamed));
    if (renamed != v) by.add(v, of(renamed));
    v = renamed;
  }
  body = replace(body, by);
  key.push_back(static_cast<int64_t>(body));
  auto known = reduced.find(key);
  if (known == reduced.end()) {
    const Term made = reduceRenamed(kind, std::move(over), body);
    known = reduced.emplace(std::move(key), made).first;
  }
  return renamed(known->second, back);
}

Term Store::reduceRenamed(Reduce kind, std::vector<Atom> over, Term body) {
  while (true) {
    std::vector<Atom> used;
    double repeated = 1;
    for (Atom v : over) {
      if (atom(v).size == 0) throw Unproved{"a reduction of no elements"};
      if (dependsOn(body, v))
        used.push_back(v);
      else
        repeated *= static_cast<double>(atom(v).size);
    }
    over = used;
    if (kind == Reduce::Sum && repeated != 1) return times(repeated, reduce(kind, over, body));
    if (over.empty()) return body;
    const DefinitionNode &made = definitionOf(body);
    if (made.kind == Kind::Reduction && made.reduce == kind) {
      body = open(body, &over)[0];
      continue;
    }
    const bool isWithin = dependsOn(body, microbatch(anyMicrobatch)); // a sum over microbatches is open already
    if (kind == Reduce::Sum && made.kind == Kind::Microbatches && !isWithin) {
      std::vector<Atom> each;
      const Term one = open(body, &each)[0];
      return gatheredFrom(each[0], made.low, made.high, reduce(kind, over, one));
    }
    if (kind == Reduce::Sum && made.kind == Kind::Sum) {
      const std::vector<Term> children = open(body);
      std::vector<std::pair<double, Term>> parts;
      for (size_t i = 0; i < children.size(); ++i) parts.emplace_back(made.factors[i], reduce(kind, over, children[i]));
      return sum(parts);
    }
    if (kind == Reduce::Sum && (made.kind == Kind::Product || made.kind == Kind::Inside) && removeInside(over, body))
      continue;
    if (hasPadding && kind == Reduce::Max && limitMaximum(over, body)) continue;
    // Before factors are told apart by their variables: x / 32 and x % 32 are two of them.
    if (splitVariables(over, body)) continue;
    if (kind == Reduce::Sum && made.kind == Kind::Product) {
      const std::vector<Term> factors = open(body);
      std::vector<Term> outside, within;
      for (Term factor : factors)
        (std::any_of(over.begin(), over.end(), [&](Atom v) { return dependsOn(factor, v); }) ? within : outside)
            .push_back(factor);
      if (!outside.empty()) {
        outside.push_back(reduce(kind, over, product(within)));
        return product(outside);
      }
      // In a product with one sum over microbatches each microbatch has its own reduction.
      auto isGathered = [&](Term factor) { return kindOf(factor) == Kind::Microbatches; };
      if (!isWithin && std::ranges::count_if(within, isGathered) == 1) {
        const auto whole = std::ranges::find_if(within, isGathered);
        const DefinitionNode &all = definitionOf(*whole);
        std::vector<Atom> each;
        *whole = open(*whole, &each)[0];
        return gatheredFrom(each[0], all.low, all.high, reduce(kind, over, product(within)));
      }
      // A sum over a concatenation is one sum for each piece.
      if (auto pieces =
              std::find_if(within.begin(), within.end(), [&](Term factor) { return isConcatenation(factor); });
          pieces != within.end()) {
        std::vector<std::pair<double, Term>> parts;
        for (Term piece : piecesOf(*pieces, within)) {
          *pieces = piece;
          parts.emplace_back(1.0, reduce(kind, over, product(within)));
        }
        return sum(parts);
      }
      // A variable is summed in the factors that it is in, where these are one, or a part of those of another variable.
      std::vector<std::vector<bool>> isIn(over.size());
      for (size_t v = 0; v < over.size(); ++v)
        for (Term factor : within) isIn[v].push_back(dependsOn(factor, over[v]));
      auto isSummedInside = [&](const std::vector<bool> &own) {
        const auto count = std::count(own.begin(), own.end(), true);
        return count < static_cast<std::ptrdiff_t>(own.size()) &&
               (count == 1 || std::any_of(
                                  isIn.begin(), isIn.end(),
                                  [&](const std::vector<bool> &other) {
                                    for (size_t f = 0; f < own.size(); ++f)
                                      if (own[f] && !other[f]) return false;
                                    return own != other;
                                  }));
      };
      if (auto inner = std::find_if(isIn.begin(), isIn.end(), isSummedInside); inner != isIn.end()) {
        std::vector<Term> inside, rest;
        for (size_t f = 0; f < within.size(); ++f) ((*inner)[f] ? inside : rest).push_back(within[f]);
        std::vector<Atom> first, later;
        for (size_t v = 0; v < over.size(); ++v) (isIn[v] == *inner ? first : later).push_back(over[v]);
        rest.push_back(reduce(kind, first, product(inside)));
        over = later;
        body = product(rest);
        continue;
      }
      // Factors that share no variable, however far around, are sums of their own.
      std::vector<Term> connected{within[0]}, apart(within.begin() + 1, within.end());
      std::vector<Atom> ofConnected, ofOthers;
      for (size_t i = 0; i < connected.size(); ++i)
        for (Atom v : over)
          if (dependsOn(connected[i], v)) {
            for (size_t j = 0; j < apart.size();)
              if (dependsOn(apart[j], v)) {
                connected.push_back(apart[j]);
                apart.erase(apart.begin() + static_cast<std::ptrdiff_t>(j));
              } else {
                ++j;
              }
          }
      if (!apart.empty()) {
        for (Atom v : over)
          (std::any_of(connected.begin(), connected.end(), [&](Term factor) { return dependsOn(factor, v); })
               ? ofConnected
               : ofOthers)
              .push_back(v);
        return product({reduce(kind, ofConnected, product(connected)), reduce(kind, ofOthers, product(apart))});
      }
    }
    if (joinVariables(over, body)) continue;
    nameByPlaces(over, body);
    // In an order that does not depend on how they came about: by where they stand in the body.
    std::vector<std::pair<std::vector<int64_t>, Atom>> order;
    for (Atom v : over) {
      std::vector<int64_t> places = placesOf(v, body);
      places.push_back(atom(v).size);
      order.emplace_back(std::move(places), v);
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) over[i] = order[i].second;
    return abstracted(DefinitionNode{.kind = Kind::Reduction, .reduce = kind}, over, {body}, {});
  }
}

Term Store::opaque(const std::string &name, const std::vector<Atom> &over, const std::vector<Term> &bodies,
                   const std::vector<Index> &at) {
  return abstracted(DefinitionNode{.kind = Kind::Opaque, .name = name, .low = static_cast<int64_t>(bodies.size())},
                    over, bodies, at);
}

// A definition in which `over` is bound. What does not depend on these becomes parameters, the largest parts of indices
// first.
Term Store::abstracted(DefinitionNode made, const std::vector<Atom> &over, const std::vector<Term> &bodies,
                       const std::vector<Index> &at) {
  std::vector<Index> arguments;
  auto parameter = [&](Index index) {
    auto known = std::find(arguments.begin(), arguments.end(), index);
    const int64_t number = known - arguments.begin();
    if (known == arguments.end()) arguments.push_back(index);
    return this->parameter(number);
  };
  std::vector<Atom> bound;
  for (size_t i = 0; i < over.size(); ++i) {
    made.sizes.push_back(atom(over[i]).size);
    bound.push_back(variable(Variable::Bound, static_cast<int64_t>(i), made.sizes.back()));
  }
  auto isBound = [&](Index index) {
    return std::any_of(over.begin(), over.end(), [&](Atom v) { return dependsOn(index, v); });
  };
  const Weight boundIn = [&](Index index) { // by which of them are in it
    uint64_t sum = 0;
    for (size_t i = 0; i < over.size(); ++i)
      if (dependsOn(index, over[i])) sum += KeyHash()({static_cast<int64_t>(i), factorOf(index, over[i])});
    return sum == 0 ? 0 : sum + node(index).likeness;
  };
  auto rename = [&](auto &self, auto &renameTerm, Index index) -> Index {
    if (isConstant(index)) return index;
    if (!isBound(index)) return of(parameter(index));
    const IndexNode &from = node(index);
    std::map<Atom, int64_t> kept, free;
    for (auto [part, factor] : from.terms) {
      AtomNode inner = atom(part);
      if (!isBound(intern(0, {{part, 1}}))) {
        free[part] = factor;
        continue;
      }
      Atom renamed = part;
      if (inner.kind == AtomNode::Var) {
        renamed = bound[static_cast<size_t>(std::find(over.begin(), over.end(), part) - over.begin())];
      } else if (inner.kind == AtomNode::Row) {
        inner.term = renameTerm(self, renameTerm, inner.term);
        renamed = intern(inner);
      } else {
        inner.of = self(self, renameTerm, inner.of);
        renamed = intern(inner);
      }
      kept[renamed] += factor;
    }
    if (free.empty()) return intern(from.constant, kept);
    kept[parameter(intern(from.constant, free))] += 1;
    return intern(0, kept);
  };
  auto renameTerm = [&](auto &self, auto &again, Term t) -> Term {
    const TermNode &from = term(t);
    std::vector<Index> renamed, own = from.arguments;
    arrange(from.definition, own, boundIn);
    for (Index argument : own) renamed.push_back(self(self, again, argument));
    return intern(from.definition, std::move(renamed));
  };
  for (Term body : bodies) {
    const DefinitionNode &of = definitionOf(body);
    inherit(made, body);
    if ((made.kind == Kind::Reduction || made.kind == Kind::Microbatches) &&
        (of.fragility > 0 || of.kind == Kind::Inside))
      made.fragility = 1;
    made.children.push_back(renameTerm(rename, renameTerm, body));
  }
  for (Index index : at) made.children.push_back(renameTerm(rename, renameTerm, indexValue(index)));
  return intern(intern(std::move(made)), std::move(arguments));
}

} // namespace cleave::proof
