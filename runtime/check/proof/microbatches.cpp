// Sums over microbatches: what a step accumulates, as one term however many microbatches there are.
//
//   g(m0) + g(m1)                               ->  sum over 0 <= m < 2 of g(m)
//   (sum over 0 <= m < 2 of g(m)) + g(m2)       ->  sum over 0 <= m < 3 of g(m)
//   sum over i of a(i) (sum over m of g(m, i))  ->  sum over m of (sum over i of a(i) g(m, i))
//
// And leaves that stand for other terms, so that a microbatch's commands run once for all that follow.
#include "runtime/check/proof/store.h"
#include <algorithm>
#include <bit>

namespace cleave::proof {

// The same with another number: no condition and no order hangs on it, so nothing is made anew.
Term Store::ofMicrobatch(Term t, Atom from, Atom to) {
  if (from == to || !dependsOn(t, from)) return t;
  const TermNode &of_ = term(t);
  std::vector<Index> arguments;
  for (Index argument : of_.arguments) arguments.push_back(replace(argument, {{from, of(to)}}));
  return intern(of_.definition, std::move(arguments));
}

bool Store::isOf(Term t, Atom microbatch) const {
  const DefinitionNode &made = definitionOf(t);
  if (made.isGathered || made.kind == Kind::Microbatches) return false;
  return std::ranges::all_of(term(t).variables,
                             [&](Atom v) { return v == microbatch || atom(v).variable != Variable::Microbatch; });
}

Term Store::gathered(Atom microbatch, int64_t low, int64_t high, Term t) {
  return high - low == 1 ? ofMicrobatch(t, microbatch, this->microbatch(low)) : gatheredFrom(microbatch, low, high, t);
}

// The same, as a sum even of one.
Term Store::gatheredFrom(Atom m, int64_t low, int64_t high, Term t) {
  if (!dependsOn(t, m)) return times(static_cast<double>(high - low), t);
  const DefinitionNode &made = definitionOf(t);
  if (auto parts = termsOf(t)) {
    for (auto &[factor, part] : *parts) part = gatheredFrom(m, low, high, part);
    return sum(*parts);
  }
  if (made.kind == Kind::Product) {
    std::vector<Term> outside, within;
    for (Term factor : open(t)) (dependsOn(factor, m) ? within : outside).push_back(factor);
    if (!outside.empty()) {
      outside.push_back(gatheredFrom(m, low, high, product(within)));
      return product(outside);
    }
  }
  return abstracted(DefinitionNode{.kind = Kind::Microbatches, .low = low, .high = high}, {m}, {t}, {});
}

// The term is the product of `outside` and of `each`: a sum over the microbatches from low to below high, or a sum of
// such sums.
struct Store::Share {
  std::vector<Term> outside;
  Term each;
  int64_t low, high;
};

// The first sum over microbatches in sums and products, at any indices.
std::optional<Term> Store::firstGathered(Term t) const {
  const DefinitionNode &made = definitionOf(t);
  if (made.kind == Kind::Microbatches) return t;
  if (!made.isGathered || (made.kind != Kind::Sum && made.kind != Kind::Product)) return std::nullopt;
  for (Term child : made.children)
    if (const std::optional<Term> found = firstGathered(child)) return found;
  return std::nullopt;
}

// False: it is no such product.
bool Store::shareOf(Term t, Share &share) {
  std::vector<Term> within;
  std::optional<Atom> only;
  int count = 0; // microbatches, and factors that are sums over them
  for (Atom v : term(t).variables)
    if (atom(v).variable == Variable::Microbatch) only = v, ++count;
  for (Term factor : kindOf(t) == Kind::Product ? open(t) : std::vector{t}) {
    const DefinitionNode &made = definitionOf(factor);
    const bool isSum = made.kind == Kind::Microbatches || (made.kind == Kind::Sum && made.isGathered);
    count += isSum;
    (isSum || (only && dependsOn(factor, *only)) ? within : share.outside).push_back(factor);
  }
  if (count != 1 || (only && atom(*only).number < 0)) return false;
  share.each = within[0];
  if (only) share.each = gatheredFrom(*only, atom(*only).number, atom(*only).number + 1, product(within));
  const std::optional<Term> first = firstGathered(share.each);
  if (!first || kindOf(share.each) == Kind::Product) return false;
  share.low = definitionOf(*first).low, share.high = definitionOf(*first).high;
  return true;
}

// The same for terms that differ in the microbatches of their sums alone.
uint64_t Store::likenessOf(Term t) {
  const DefinitionNode &made = definitionOf(t);
  if (made.kind != Kind::Microbatches && !made.isGathered) return static_cast<uint64_t>(t);
  Key key{static_cast<int64_t>(made.kind)};
  if (made.kind == Kind::Microbatches) {
    key.push_back(static_cast<int64_t>(made.children[0]));
    for (Index argument : term(t).arguments) key.push_back(static_cast<int64_t>(argument));
    return KeyHash()(key);
  }
  const std::vector<Term> parts = open(t);
  uint64_t total = 0; // in any order
  for (size_t i = 0; i < parts.size(); ++i)
    total += KeyHash()({static_cast<int64_t>(likenessOf(parts[i])),
                        made.factors.empty() ? 0 : std::bit_cast<int64_t>(made.factors[i])});
  key.push_back(static_cast<int64_t>(total));
  return KeyHash()(key);
}

// Two shares that are the same but for their microbatches, which are neighbours, become one, the second; false: they
// are not.
bool Store::joinShares(const Share &first, Share &second) {
  if (first.high != second.low || kindOf(first.each) != kindOf(second.each)) return false;
  if (kindOf(first.each) == Kind::Microbatches) {
    if (definitionOf(first.each).children != definitionOf(second.each).children ||
        term(first.each).arguments != term(second.each).arguments)
      return false;
    DefinitionNode both = definitionOf(first.each);
    both.low = first.low, both.high = second.high;
    second.each = intern(intern(std::move(both)), std::vector<Index>(term(first.each).arguments));
  } else {
    const size_t parts = definitionOf(first.each).children.size();
    const Term both = sum(first.each, second.each);
    if (kindOf(both) != Kind::Sum || definitionOf(both).children.size() != parts ||
        definitionOf(second.each).children.size() != parts)
      return false;
    second.each = both;
  }
  second.low = first.low;
  return true;
}

// Terms that are the same of neighbouring microbatches become one.
bool Store::mergeMicrobatches(std::vector<std::pair<double, Term>> &sum_) {
  std::vector<int64_t> spans;
  auto note = [&](int64_t span) {
    if (std::ranges::find(spans, span) == spans.end()) spans.push_back(span);
  };
  for (auto [factor, t] : sum_) {
    if (const std::optional<Term> gathered_ = firstGathered(t)) note(-definitionOf(*gathered_).high);
    for (Atom v : term(t).variables)
      if (atom(v).variable == Variable::Microbatch) note(atom(v).number);
  }
  if (spans.size() < 2) return false;
  struct Place {
    size_t at;
    Share share;
  };
  std::map<Key, std::vector<Place>> alike; // but for the microbatches
  for (size_t i = 0; i < sum_.size(); ++i) {
    Place place{i, {}};
    if (!shareOf(sum_[i].second, place.share)) continue;
    Key key{std::bit_cast<int64_t>(sum_[i].first)};
    std::ranges::sort(place.share.outside);
    for (Term factor : place.share.outside) key.push_back(static_cast<int64_t>(factor));
    key.push_back(static_cast<int64_t>(likenessOf(place.share.each)));
    alike[key].push_back(std::move(place));
  }
  bool changed = false;
  for (auto &[key, places] : alike) {
    std::ranges::sort(places, {}, [](const Place &place) { return place.share.low; });
    for (size_t i = 0; i + 1 < places.size(); ++i) {
      Share &both = places[i + 1].share;
      if (!joinShares(places[i].share, both)) continue;
      std::vector<Term> factors = both.outside;
      factors.push_back(both.each);
      sum_[places[i].at].first = 0;
      sum_[places[i + 1].at].second = product(factors);
      changed = true;
    }
  }
  std::erase_if(sum_, [](const auto &part) { return part.first == 0; });
  return changed;
}

Term Store::standIn(const std::string &name, const std::vector<Atom> &variables) {
  std::vector<Index> arguments;
  for (Atom v : variables) arguments.push_back(of(v));
  return intern(intern(DefinitionNode{.kind = Kind::Leaf, .name = name, .hasStandIns = true}), std::move(arguments));
}

std::optional<Term> Store::addedTo(Term leaf, Term t) {
  const DefinitionNode &made = definitionOf(t);
  if (made.kind != Kind::Sum) return std::nullopt;
  const std::vector<Term> parts = open(t);
  std::vector<std::pair<double, Term>> rest;
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i] != leaf || made.factors[i] != 1) rest.emplace_back(made.factors[i], parts[i]);
  const Term added = sum(rest);
  return rest.size() + 1 == parts.size() && !hasStandIns(added) ? std::optional(added) : std::nullopt;
}

Term Store::withOriginals(Term t, const Originals &originals) {
  if (!hasStandIns(t)) return t;
  const TermNode &from = term(t);
  if (kindOf(t) == Kind::Leaf) {
    const Original original = originals(from.definition);
    Replacement by;
    for (size_t i = 0; i < from.arguments.size(); ++i) by.add(original.variables[i], from.arguments[i]);
    return replace(original.value, by);
  }
  const DefinitionNode &made = definitionOf(t);
  std::vector<Atom> over;
  std::vector<Term> children = open(t, &over);
  for (Term &child : children) child = withOriginals(child, originals);
  return assemble(made, over, std::move(children));
}

} // namespace cleave::proof
