// Definitions that are the same when some of their parameters change places: x[p0] + x[p1], or a product of a matrix
// and itself. Their arguments stand in one order, so that a term is one however it came about:
//
//   D(p0, p1) = x[p0] + x[p1]               D[a, b] and D[b, a] are one term
//   E(p0, p1) = exp(D[p0, p1])              and so are E[a, b] and E[b, a]
//   F(p0, p1) = x[p0] D[p0, p1]             F[a, b] and F[b, a] are not, but F is one definition, whatever a and b are
//   G(p, q, r) = H[p, q, r] + H[q, r, p] + H[r, p, q]         G[a, b, c], G[b, c, a], G[c, a, b] are one term: a ring's
#include "runtime/check/proof/store.h"
#include <algorithm>
#include <bit>
#include <numeric>

namespace cleave::proof {
namespace {

constexpr size_t mostCandidates = 256; // of the symmetries of one definition, that are tried

using Block = std::vector<size_t>;

// The blocks that take each other's places when every parameter takes that of the next: `next` has one for each, or
// for each of a half, which then goes back. Nothing: its cycles have several lengths.
std::optional<Symmetry> symmetryOf(std::map<size_t, size_t> next) {
  const std::map<size_t, size_t> given = next;
  for (auto [p, q] : given) next.try_emplace(q, p);
  Symmetry symmetry;
  std::map<size_t, bool> isSeen;
  for (auto [first, second] : next) {
    if (isSeen[first]) continue;
    Block cycle;
    for (size_t p = first; !isSeen[p]; p = next.at(p)) {
      isSeen[p] = true;
      cycle.push_back(p);
    }
    if (next.at(cycle.back()) != first) return std::nullopt;
    if (symmetry.blocks.empty()) symmetry.blocks.resize(cycle.size());
    if (cycle.size() < 2 || symmetry.blocks.size() != cycle.size()) return std::nullopt;
    for (size_t i = 0; i < cycle.size(); ++i) symmetry.blocks[i].push_back(cycle[i]);
  }
  if (symmetry.blocks.empty()) return std::nullopt;
  symmetry.isCyclic = symmetry.blocks.size() > 2;
  return symmetry;
}

bool has(const Symmetry &symmetry, size_t parameter) {
  return std::ranges::any_of(symmetry.blocks,
                             [&](const Block &block) { return std::ranges::count(block, parameter) > 0; });
}
// Whether it has any, or all, of another's parameters.
bool hasAny(const Symmetry &symmetry, const Symmetry &of) {
  return std::ranges::any_of(of.blocks, [&](const Block &block) {
    return std::ranges::any_of(block, [&](size_t p) { return has(symmetry, p); });
  });
}
bool hasAll(const Symmetry &symmetry, const Symmetry &of) {
  return std::ranges::all_of(of.blocks, [&](const Block &block) {
    return std::ranges::all_of(block, [&](size_t p) { return has(symmetry, p); });
  });
}

// The block of a pair that a symmetry does not have, where it has the other one; null: it does not have just one.
const Block *oneMore(const Symmetry &symmetry, const Symmetry &pair) {
  if (symmetry.isCyclic || pair.isCyclic) return nullptr;
  const bool hasFirst = std::ranges::count(symmetry.blocks, pair.blocks[0]) > 0;
  const bool hasSecond = std::ranges::count(symmetry.blocks, pair.blocks[1]) > 0;
  const Block &other = pair.blocks[hasFirst ? 1 : 0];
  return hasFirst != hasSecond && !hasAny(symmetry, {{other}}) ? &other : nullptr;
}

} // namespace

bool Store::isUnordered(const DefinitionNode &made) {
  return made.kind == Kind::Sum || made.kind == Kind::Product ||
         (made.kind == Kind::Function && isCommutative(made.name));
}

// Each symmetry's blocks in their order, by the weights of their indices and then by the indices themselves.
void Store::arrange(Definition which, std::vector<Index> &arguments, const Weight &weight) const {
  for (const Symmetry &symmetry : definition(which).symmetries) {
    std::vector<std::vector<std::pair<uint64_t, Index>>> blocks;
    for (const Block &places : symmetry.blocks) {
      auto &block = blocks.emplace_back();
      for (size_t place : places) block.emplace_back(weight ? weight(arguments[place]) : 0, arguments[place]);
    }
    if (symmetry.isCyclic) {
      auto least = blocks;
      for (size_t turn = 1; turn < blocks.size(); ++turn) {
        std::ranges::rotate(blocks, blocks.begin() + 1);
        least = std::min(least, blocks);
      }
      blocks = std::move(least);
    } else {
      std::ranges::sort(blocks);
    }
    for (size_t b = 0; b < blocks.size(); ++b)
      for (size_t i = 0; i < blocks[b].size(); ++i) arguments[symmetry.blocks[b][i]] = blocks[b][i].second;
  }
}

// The number of each argument's place: the same for places that may be changed.
std::vector<int64_t> Store::placesOf(Term t) const {
  std::vector<int64_t> places(term(t).arguments.size());
  std::iota(places.begin(), places.end(), 0);
  for (const Symmetry &symmetry : definitionOf(t).symmetries)
    for (const Block &block : symmetry.blocks)
      for (size_t i = 0; i < block.size(); ++i) places[block[i]] = static_cast<int64_t>(symmetry.blocks[0][i]);
  return places;
}

// Where a variable stands in a term's arguments, with its factor in each.
std::vector<int64_t> Store::placesOf(Atom variable, Term t) const {
  const std::vector<Index> &arguments = term(t).arguments;
  const std::vector<int64_t> places = placesOf(t);
  std::vector<std::pair<int64_t, int64_t>> found;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (dependsOn(arguments[i], variable)) found.emplace_back(places[i], -factorOf(arguments[i], variable));
  std::ranges::sort(found);
  std::vector<int64_t> list;
  for (auto [place, factor] : found) list.insert(list.end(), {place, factor});
  return list;
}

// Where an index stands in the children: the same for indices that may change places. Null: none of them may.
Store::Weight Store::usesIn(const DefinitionNode &made, const std::vector<Term> &children) const {
  bool isAsked = std::ranges::any_of(children, [&](Term child) { return !definitionOf(child).symmetries.empty(); });
  forEachTwins(made, children, [&](size_t, size_t) { isAsked = true; });
  if (!isAsked) return nullptr;
  std::unordered_map<Index, uint64_t> uses;
  const bool isOrdered = !isUnordered(made);
  for (size_t c = 0; c < children.size(); ++c) {
    const TermNode &child = term(children[c]);
    const std::vector<int64_t> places = placesOf(children[c]);
    for (size_t i = 0; i < child.arguments.size(); ++i)
      uses[child.arguments[i]] +=
          KeyHash()({static_cast<int64_t>(child.definition), places[i], isOrdered ? static_cast<int64_t>(c) : 0,
                     made.factors.empty() ? 0 : std::bit_cast<int64_t>(made.factors[c])});
  }
  return [uses = std::move(uses)](Index index) {
    auto found = uses.find(index);
    return found == uses.end() ? 0 : found->second;
  };
}

// Calls `with` for each run of children of one definition and with one factor, by the first and the end.
void Store::forEachTwins(const DefinitionNode &made, const std::vector<Term> &children,
                         const std::function<void(size_t, size_t)> &with) const {
  auto areTwins = [&](size_t a, size_t b) {
    return term(children[a]).definition == term(children[b]).definition &&
           (made.factors.empty() || made.factors[a] == made.factors[b]);
  };
  for (size_t first = 0, end; isUnordered(made) && first < children.size(); first = end) {
    for (end = first + 1; end < children.size() && areTwins(first, end);) ++end;
    if (end - first > 1) with(first, end);
  }
}

// Twins by where their indices stand elsewhere.
void Store::orderTwins(const DefinitionNode &made, std::vector<Term> &children, const Weight &uses) const {
  forEachTwins(made, children, [&](size_t first, size_t end) {
    std::vector<std::pair<std::vector<uint64_t>, Term>> twins;
    for (size_t i = first; i < end; ++i) {
      std::vector<Index> arguments = term(children[i]).arguments;
      arrange(term(children[i]).definition, arguments, uses);
      auto &weights = twins.emplace_back(std::vector<uint64_t>{}, children[i]).first;
      for (Index argument : arguments) weights.push_back(uses(argument));
    }
    std::ranges::stable_sort(twins, {}, [](const auto &twin) { return twin.first; });
    for (size_t i = first; i < end; ++i) children[i] = twins[i - first].second;
  });
}

// Whether it has the same children when each parameter of a block takes the place of the next block's.
bool Store::isSymmetric(const DefinitionNode &made, const Symmetry &symmetry) {
  Replacement turned;
  const size_t count = symmetry.blocks.size();
  for (size_t b = 0; b < count; ++b)
    for (size_t i = 0; i < symmetry.blocks[b].size(); ++i)
      turned.add(parameter(static_cast<int64_t>(symmetry.blocks[b][i])),
                 of(parameter(static_cast<int64_t>(symmetry.blocks[(b + 1) % count][i]))));
  std::vector<std::pair<double, Term>> before, after;
  for (size_t c = 0; c < made.children.size(); ++c) {
    const TermNode &child = term(made.children[c]);
    std::vector<Index> arguments;
    for (Index argument : child.arguments) arguments.push_back(replace(argument, turned));
    const double factor = made.factors.empty() ? 0 : made.factors[c];
    before.emplace_back(factor, made.children[c]);
    after.emplace_back(factor, intern(child.definition, std::move(arguments)));
  }
  if (isUnordered(made)) std::ranges::sort(before), std::ranges::sort(after);
  return before == after;
}

// The symmetry by which the indices of one list would become those of the other.
std::optional<Symmetry> Store::symmetryBetween(const std::vector<Index> &left, const std::vector<Index> &right) const {
  auto onlyParameter = [&](Index index) -> std::optional<size_t> {
    std::optional<size_t> only;
    for (Atom v : node(index).variables) {
      if (atom(v).variable != Variable::Parameter) continue;
      if (only) return std::nullopt;
      only = static_cast<size_t>(atom(v).number);
    }
    return only;
  };
  std::map<size_t, size_t> next, back;
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i]) continue;
    const std::optional<size_t> p = onlyParameter(left[i]), q = onlyParameter(right[i]);
    if (!p || !q || *p == *q) return std::nullopt;
    if (next.try_emplace(*p, *q).first->second != *q || back.try_emplace(*q, *p).first->second != *p)
      return std::nullopt;
  }
  return symmetryOf(std::move(next));
}

// Found among those that twins have, and the children's own.
std::vector<Symmetry> Store::symmetriesOf(const DefinitionNode &made) {
  std::vector<Symmetry> candidates;
  auto note = [&](const std::vector<Index> &left, const std::vector<Index> &right) {
    if (candidates.size() >= mostCandidates) return;
    if (std::optional<Symmetry> one = symmetryBetween(left, right)) candidates.push_back(std::move(*one));
  };
  forEachTwins(made, made.children, [&](size_t first, size_t end) {
    for (size_t a = first; a < end; ++a)
      for (size_t b = a + 1; b < end; ++b) {
        std::vector<Index> left = term(made.children[a]).arguments, right = term(made.children[b]).arguments;
        // The indices that both have go first, so that they stand in the same places.
        for (auto [own, other] : {std::pair(&left, right), std::pair(&right, left)})
          arrange(term(made.children[a]).definition, *own,
                  [&](Index index) { return std::ranges::find(other, index) == other.end(); });
        note(left, right);
      }
  });
  for (Term t : made.children)
    for (const Symmetry &symmetry : definitionOf(t).symmetries) {
      const std::vector<Index> &arguments = term(t).arguments;
      auto noteTurned = [&](const std::vector<Block> &from, const std::vector<Block> &to) {
        std::vector<Index> left, right;
        for (size_t b = 0; b < from.size(); ++b)
          for (size_t i = 0; i < from[b].size(); ++i) {
            left.push_back(arguments[from[b][i]]);
            right.push_back(arguments[to[b][i]]);
          }
        note(left, right);
      };
      if (symmetry.isCyclic) {
        std::vector<Block> turned = symmetry.blocks;
        std::ranges::rotate(turned, turned.begin() + 1);
        noteTurned(symmetry.blocks, turned);
        continue;
      }
      for (size_t a = 0; a < symmetry.blocks.size(); ++a)
        for (size_t b = a + 1; b < symmetry.blocks.size(); ++b) noteTurned({symmetry.blocks[a]}, {symmetry.blocks[b]});
    }
  std::ranges::stable_sort(candidates, {}, &Symmetry::isCyclic);
  std::vector<Symmetry> found;
  for (const Symmetry &candidate : candidates) {
    auto isMet = [&](const Symmetry &own) { return hasAny(own, candidate); };
    auto isPart = [&](const Symmetry &own) {
      return own.blocks.size() < candidate.blocks.size() && hasAll(candidate, own);
    };
    const auto met = std::ranges::find_if(found, isMet);
    const Block *more = std::ranges::count_if(found, isMet) == 1 ? oneMore(*met, candidate) : nullptr;
    const bool isLonger = candidate.isCyclic &&
                          std::ranges::all_of(found, [&](const Symmetry &own) { return !isMet(own) || isPart(own); });
    if ((met != found.end() && !more && !isLonger) || !isSymmetric(made, candidate)) continue;
    if (more) {
      met->blocks.push_back(*more);
    } else {
      std::erase_if(found, isMet);
      found.push_back(candidate);
    }
  }
  return found;
}

} // namespace cleave::proof
