// Indices: sums of atoms in one form, quotients and remainders taken apart as far as ranges allow.
#include "runtime/check/proof/store.h"
#include <algorithm>
#include <numeric>
#include <set>

namespace cleave::proof {
namespace {

int64_t floorQuotient(int64_t a, int64_t by) {
  const int64_t q = a / by;
  return a % by < 0 ? q - 1 : q;
}

int64_t checkedMultiply(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw Unproved{"an index does not fit 64 bits"};
  return product;
}
int64_t checkedAdd(int64_t a, int64_t b) {
  int64_t total;
  if (__builtin_add_overflow(a, b, &total)) throw Unproved{"an index does not fit 64 bits"};
  return total;
}

// A bound times a factor; an infinite bound stays infinite.
int64_t boundOf(int64_t bound, int64_t factor) {
  __int128 product = static_cast<__int128>(bound) * factor;
  return static_cast<int64_t>(std::clamp<__int128>(product, -Range::infinite, Range::infinite));
}
Range added(Range a, Range b) {
  auto sum = [](int64_t x, int64_t y) {
    return std::clamp(x + y, -Range::infinite, Range::infinite); // each is at most 2^60
  };
  const int64_t low = a.low <= -Range::infinite || b.low <= -Range::infinite ? -Range::infinite : sum(a.low, b.low);
  const int64_t high = a.high >= Range::infinite || b.high >= Range::infinite ? Range::infinite : sum(a.high, b.high);
  return {low, high};
}
Range scaled(Range a, int64_t factor) {
  Range range{boundOf(a.low, factor), boundOf(a.high, factor)};
  if (factor < 0) std::swap(range.low, range.high);
  return range;
}

} // namespace

size_t Store::KeyHash::operator()(const Key &key) const {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (int64_t part : key) hash = mixed(hash, static_cast<uint64_t>(part));
  return hash ^ (hash >> 32);
}

Range Store::rangeOf(const AtomNode &atom) const {
  switch (atom.kind) {
  case AtomNode::Var:
    return atom.size > 0 ? Range{0, atom.size - 1} : Range{-Range::infinite, Range::infinite};
  case AtomNode::Row:
    return {0, atom.size - 1};
  case AtomNode::Quotient: {
    Range range = node(atom.of).range;
    if (range.low > -Range::infinite) range.low = floorQuotient(range.low, atom.size);
    if (range.high < Range::infinite) range.high = floorQuotient(range.high, atom.size);
    return range;
  }
  case AtomNode::Remainder:
    return {0, atom.size - 1};
  }
  return {-Range::infinite, Range::infinite};
}

std::vector<Atom> Store::variablesOf(const AtomNode &atom, Atom self) const {
  if (atom.kind == AtomNode::Var) return {self};
  if (atom.kind == AtomNode::Row) return terms[static_cast<size_t>(atom.term)].variables;
  return node(atom.of).variables;
}

uint64_t Store::likenessOf(const AtomNode &atom) const {
  Key key{atom.kind, atom.size};
  auto add = [&](Index index) {
    key.push_back(node(index).constant);
    key.push_back(static_cast<int64_t>(node(index).likeness));
  };
  switch (atom.kind) {
  case AtomNode::Var:
    if (atom.variable == Variable::Coordinate) key.push_back(atom.number + 1);
    break;
  case AtomNode::Row:
    key.push_back(static_cast<int64_t>(term(atom.term).definition));
    for (Index argument : term(atom.term).arguments) add(argument);
    break;
  default:
    add(atom.of);
  }
  return KeyHash()(key);
}

Atom Store::intern(const AtomNode &node) {
  key.assign({node.kind, static_cast<int64_t>(node.variable), node.number, node.size, static_cast<int64_t>(node.of),
              static_cast<int64_t>(node.term)});
  auto [found, isNew] = atomIds.try_emplace(key, static_cast<int32_t>(atoms.size()));
  if (isNew) atoms.push_back(node);
  return Atom{found->second};
}

Index Store::intern(int64_t constant, const std::map<Atom, int64_t> &sum) {
  key.assign({constant});
  for (auto [atom, factor] : sum)
    if (factor != 0) key.insert(key.end(), {static_cast<int64_t>(atom), factor});
  auto [found, isNew] = indexIds.try_emplace(key, static_cast<int32_t>(indices.size()));
  if (!isNew) return Index{found->second};
  IndexNode made{constant, {}, {constant, constant}, {}};
  for (auto [part, factor] : sum) {
    if (factor == 0) continue;
    made.terms.emplace_back(part, factor);
    made.range = added(made.range, scaled(rangeOf(atom(part)), factor));
    std::vector<Atom> more = variablesOf(atom(part), part);
    made.variables.insert(made.variables.end(), more.begin(), more.end());
    made.likeness += KeyHash()({factor, static_cast<int64_t>(likenessOf(atom(part)))});
  }
  std::sort(made.variables.begin(), made.variables.end());
  made.variables.erase(std::unique(made.variables.begin(), made.variables.end()), made.variables.end());
  for (Atom v : made.variables)
    if (atom(v).variable == Variable::Fresh) made.level = std::max(made.level, atom(v).number + 1);
  indices.push_back(std::move(made));
  return Index{found->second};
}

Atom Store::variable(Variable kind, int64_t number, int64_t size) {
  return intern(AtomNode{AtomNode::Var, kind, number, size, {}, {}});
}
Atom Store::parameter(int64_t number) {
  while (parameters.size() <= static_cast<size_t>(number))
    parameters.push_back(variable(Variable::Parameter, static_cast<int64_t>(parameters.size()), 0));
  return parameters[static_cast<size_t>(number)];
}
Atom Store::fresh(const std::vector<Atom> &beside, int64_t size) {
  int64_t number = 0;
  for (Atom part : beside)
    if (atom(part).variable == Variable::Fresh) number = std::max(number, atom(part).number + 1);
  return variable(Variable::Fresh, number, size);
}
Index Store::constant(int64_t value) { return intern(value, {}); }
Index Store::of(Atom part) {
  if (atom(part).kind == AtomNode::Var && atom(part).size == 1) return constant(0);
  return intern(0, {{part, 1}});
}
Index Store::dimension(int64_t number, int64_t size) { return of(variable(Variable::Dimension, number, size)); }

int64_t Store::factorOf(Index index, Atom part) const {
  for (auto [own, factor] : node(index).terms)
    if (own == part) return factor;
  return 0;
}

// m * (x / m) + x % m = x, and x - m * (x / m) = x % m
bool Store::joinQuotients(int64_t &constant, std::map<Atom, int64_t> &sum) {
  for (auto [part, factor] : sum) {
    const AtomNode &rest = atom(part);
    if (rest.kind != AtomNode::Remainder || factor == 0) continue;
    const Index whole = quotient(rest.of, rest.size);
    const IndexNode &found = node(whole);
    if (found.terms.size() != 1 || found.terms[0].second != 1 || found.constant != 0) continue;
    auto other = sum.find(found.terms[0].first);
    if (other == sum.end() || other->second != checkedMultiply(factor, rest.size)) continue;
    const int64_t times = factor;
    sum.erase(other);
    sum.erase(part);
    const IndexNode &inner = node(rest.of);
    constant = checkedAdd(constant, checkedMultiply(inner.constant, times));
    for (auto [own, own_factor] : inner.terms)
      sum[own] = checkedAdd(sum.count(own) ? sum[own] : 0, checkedMultiply(own_factor, times));
    return true;
  }
  for (auto [part, factor] : sum) {
    const AtomNode &whole = atom(part);
    if (whole.kind != AtomNode::Quotient || factor == 0 || factor % whole.size != 0) continue;
    const int64_t times = -(factor / whole.size);
    const IndexNode &inner = node(whole.of);
    if (!std::all_of(inner.terms.begin(), inner.terms.end(), [&](const auto &term) {
          auto own = sum.find(term.first);
          return own != sum.end() && own->second == checkedMultiply(term.second, times);
        }))
      continue;
    for (const auto &term : inner.terms) sum.erase(term.first);
    sum.erase(part);
    const IndexNode &rest = node(remainder(whole.of, whole.size));
    constant = checkedAdd(constant, checkedMultiply(rest.constant - inner.constant, times));
    for (auto [own, own_factor] : rest.terms)
      sum[own] = checkedAdd(sum.count(own) ? sum[own] : 0, checkedMultiply(own_factor, times));
    return true;
  }
  return false;
}

Index Store::add(Index a, Index b) {
  if (a == Index{0}) return b;
  if (b == Index{0}) return a;
  const IndexNode &left = node(a), &right = node(b);
  int64_t constant = checkedAdd(left.constant, right.constant);
  std::map<Atom, int64_t> sum(left.terms.begin(), left.terms.end());
  for (auto [part, factor] : right.terms) sum[part] = checkedAdd(sum.count(part) ? sum[part] : 0, factor);
  while (joinQuotients(constant, sum)) {
  }
  return intern(constant, sum);
}

Index Store::scale(Index a, int64_t factor) {
  if (factor == 1) return a;
  const IndexNode &from = node(a);
  std::map<Atom, int64_t> sum;
  for (auto [part, own] : from.terms) sum[part] = checkedMultiply(own, factor);
  return intern(checkedMultiply(from.constant, factor), factor == 0 ? std::map<Atom, int64_t>() : sum);
}

// a = by * whole + step * upper + rest, where rest lies in [0, step): then a / by = whole + upper / (by / step) and
// a % by = step * (upper % (by / step)) + rest. `isDone`: upper is nothing.
struct Store::Split {
  Index whole, upper, rest;
  int64_t step;
  bool isDone;
};

Store::Split Store::split(Index a, int64_t by) {
  const IndexNode &from = node(a);
  std::map<Atom, int64_t> whole, rest;
  for (auto [part, factor] : from.terms)
    if (factor % by == 0)
      whole[part] = factor / by;
    else
      rest[part] = factor;
  int64_t multiple = floorQuotient(from.constant, by), left = from.constant - multiple * by;
  Index lower = intern(left, rest);
  if (Range range = node(lower).range; range.isFinite())
    if (int64_t q = floorQuotient(range.low, by); q == floorQuotient(range.high, by))
      return {intern(checkedAdd(multiple, q), whole), constant(0), add(lower, constant(-q * by)), by, true};
  std::vector<int64_t> steps;
  for (auto [part, factor] : rest) steps.push_back(std::gcd(factor, by));
  std::sort(steps.rbegin(), steps.rend());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  for (int64_t step : steps) {
    if (step <= 1) continue;
    std::map<Atom, int64_t> upper, small;
    for (auto [part, factor] : rest)
      if (factor % step == 0)
        upper[part] = factor / step;
      else
        small[part] = factor;
    Index below = intern(left, small);
    Range range = node(below).range;
    if (!range.isFinite()) continue;
    int64_t q = floorQuotient(range.low, step);
    if (q != floorQuotient(range.high, step)) continue;
    return {intern(multiple, whole), intern(q, upper), add(below, constant(-q * step)), step, false};
  }
  return {intern(multiple, whole), lower, constant(0), 1, false};
}

Index Store::quotient(Index a, int64_t by) {
  if (by == 1) return a;
  if (by <= 0) throw Unproved{"an index is divided by what is not positive"};
  const Split parts = split(a, by);
  if (parts.isDone) return parts.whole;
  by /= parts.step;
  if (parts.step > 1) return add(parts.whole, quotient(parts.upper, by));
  const IndexNode &upper = node(parts.upper);
  if (upper.terms.size() == 1 && upper.terms[0].second == 1) {
    const AtomNode &inner = atom(upper.terms[0].first);
    if (inner.kind == AtomNode::Quotient) // (x / a + c) / b = (x + a c) / (a b)
      return add(parts.whole, quotient(add(inner.of, constant(checkedMultiply(inner.size, upper.constant))),
                                       checkedMultiply(inner.size, by)));
    if (inner.kind == AtomNode::Remainder && upper.constant == 0 && inner.size % by == 0)
      return add(parts.whole, remainder(quotient(inner.of, by), inner.size / by));
  }
  for (auto [part, factor] : upper.terms) { // (x % (by n) + c) / by = (x + c) / by - n (x / (by n))
    const AtomNode &inner = atom(part);
    const int64_t span = checkedMultiply(factor, inner.size);
    if (inner.kind != AtomNode::Remainder || span % by != 0) continue;
    const Index without = add(parts.upper, scale(subtract(inner.of, of(part)), factor));
    return add(parts.whole, subtract(quotient(without, by), scale(quotient(inner.of, inner.size), span / by)));
  }
  return add(parts.whole, of(intern(AtomNode{AtomNode::Quotient, {}, 0, by, parts.upper, {}})));
}

Index Store::remainder(Index a, int64_t by) {
  if (by == 1) return constant(0);
  if (by <= 0) throw Unproved{"an index is divided by what is not positive"};
  const Split parts = split(a, by);
  if (parts.isDone) return parts.rest;
  by /= parts.step;
  if (parts.step > 1) return add(scale(remainder(parts.upper, by), parts.step), parts.rest);
  for (auto [part, factor] : node(parts.upper).terms) { // (x % (by n) + c) % by = (x + c) % by
    const AtomNode &inner = atom(part);
    if (inner.kind == AtomNode::Remainder && checkedMultiply(factor, inner.size) % by == 0)
      return remainder(add(parts.upper, scale(subtract(inner.of, of(part)), factor)), by);
  }
  return of(intern(AtomNode{AtomNode::Remainder, {}, 0, by, parts.upper, {}}));
}

Index Store::row(Term number, int64_t rows) {
  if (Index index; asIndex(number, index))
    if (Range range = node(index).range; range.low >= 0 && range.high < rows) return index;
  if (rows == 1) return constant(0);
  if (const std::optional<Index> index = rowOfEntry(number, rows)) return *index;
  if (hasStandIns(number)) throw Unproved{"it looks up rows by numbers that come from other microbatches"};
  return of(intern(AtomNode{AtomNode::Row, {}, 0, rows, {}, number}));
}

void Store::nameRows(Term number, const std::vector<Index> &places, const std::vector<int64_t> &shape, int64_t rows) {
  const TermNode &named = term(number);
  if (!definition(named.definition).symmetries.empty()) return;
  // The indices of the number, each of them in its range, are those of all places in another form.
  std::vector<int64_t> sizes;
  Index whole = constant(0), all = constant(0);
  bool isEveryPlace = true;
  for (Index argument : named.arguments) {
    const IndexNode &own = node(argument);
    const bool isOfMicrobatch = isMicrobatch(argument);
    isEveryPlace &= isOfMicrobatch || (own.range.low == 0 && own.range.isFinite());
    sizes.push_back(isOfMicrobatch ? 0 : own.range.high + 1);
    if (!isOfMicrobatch && isEveryPlace) whole = add(scale(whole, sizes.back()), argument);
  }
  for (size_t d = 0; d < places.size(); ++d)
    if (std::ranges::any_of(node(places[d]).variables, [&](Atom v) { return dependsOn(number, v); }))
      all = add(scale(all, shape[d]), places[d]);
  if (isEveryPlace && whole == all) {
    namedRows[{rows, named.definition}] = {sizes, {}};
    return;
  }
  // Or the place can be read off: each of its variables is an index of the number.
  for (Atom v : named.variables)
    if (std::ranges::find(named.arguments, of(v)) == named.arguments.end()) return;
  namedRows[{rows, named.definition}] = {{}, named.arguments};
}

bool Store::isMicrobatch(Index index) const {
  const IndexNode &own = node(index);
  return own.constant == 0 && own.terms.size() == 1 && own.terms[0].second == 1 &&
         atom(own.terms[0].first).variable == Variable::Microbatch;
}

bool Store::namesRow(Term number, int64_t rows) {
  const TermNode &named = term(number);
  auto known = namedRows.find({rows, named.definition});
  if (known == namedRows.end()) return false;
  const auto &[sizes, at] = known->second;
  auto isWithin = [&](Index index, int64_t size) {
    return size == 0 ? isMicrobatch(index) : node(index).range.low >= 0 && node(index).range.high < size;
  };
  Replacement place;
  for (size_t i = 0; i < at.size(); ++i)
    if (const IndexNode &own = node(at[i]); own.variables.size() == 1 && at[i] == of(own.variables[0])) {
      const Atom v = own.variables[0];
      if (!isWithin(named.arguments[i], isMicrobatch(at[i]) ? 0 : atom(v).size)) return false;
      place.add(v, named.arguments[i]);
    }
  for (size_t i = 0; i < at.size(); ++i)
    if (replace(at[i], place) != named.arguments[i]) return false;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!isWithin(named.arguments[i], sizes[i])) return false;
  return true;
}

// number = n + rows * entry, where n names one of the entry's rows
std::optional<Index> Store::rowOfEntry(Term number, int64_t rows) {
  if (kindOf(number) != Kind::Sum) return std::nullopt;
  std::vector<std::pair<double, Term>> others;
  Index index = constant(0);
  const std::vector<Term> children = open(number);
  for (size_t i = 0; i < children.size(); ++i)
    if (const double factor = definitionOf(number).factors[i]; kindOf(children[i]) == Kind::Index && factor == 1)
      index = term(children[i]).arguments[0];
    else
      others.emplace_back(factor, children[i]);
  std::set<int64_t> sizes;
  for (const auto &[key, known] : namedRows)
    if (key.first < rows && rows % key.first == 0) sizes.insert(key.first);
  for (int64_t size : sizes) {
    std::map<Atom, int64_t> entries, rest;
    for (auto [part, factor] : node(index).terms) (factor % size == 0 ? entries : rest)[part] = factor;
    const Index first = intern(0, entries);
    if (node(first).range.low < 0 || node(first).range.high > rows - size) continue;
    std::vector<std::pair<double, Term>> own = others;
    own.emplace_back(1.0, indexValue(intern(0, rest)));
    if (const Term n = sum(own); namesRow(n, size)) return add(first, row(n, size));
  }
  return std::nullopt;
}

namespace {
bool isBefore(const std::pair<Atom, Index> &pair, Atom variable) { return pair.first < variable; }
} // namespace

void Replacement::add(Atom variable, Index by) {
  auto at = std::lower_bound(pairs.begin(), pairs.end(), variable, isBefore);
  if (at == pairs.end() || at->first != variable) pairs.emplace(at, variable, by);
}
const Index *Replacement::find(Atom variable) const {
  auto at = std::lower_bound(pairs.begin(), pairs.end(), variable, isBefore);
  return at == pairs.end() || at->first != variable ? nullptr : &at->second;
}
bool Replacement::isFor(const std::vector<Atom> &sorted) const {
  if (sorted.size() < pairs.size()) return std::ranges::any_of(sorted, [&](Atom v) { return find(v) != nullptr; });
  return std::ranges::any_of(
      pairs, [&](const auto &pair) { return std::binary_search(sorted.begin(), sorted.end(), pair.first); });
}

bool Store::dependsOn(Index index, Atom variable) const {
  const std::vector<Atom> &in = node(index).variables;
  return std::binary_search(in.begin(), in.end(), variable);
}

Index Store::replace(Index index, const Replacement &by) {
  const IndexNode &from = node(index);
  if (!by.isFor(from.variables)) return index;
  if (from.terms.size() == 1 && from.constant == 0 && from.terms[0].second == 1)
    if (const Index *value = by.find(from.terms[0].first)) return *value;
  Index result = constant(from.constant);
  for (auto [part, factor] : from.terms) {
    const AtomNode &inner = atom(part);
    Index value{};
    switch (inner.kind) {
    case AtomNode::Var: {
      const Index *found = by.find(part);
      value = found ? *found : of(part);
      break;
    }
    case AtomNode::Quotient:
      value = quotient(replace(inner.of, by), inner.size);
      break;
    case AtomNode::Remainder:
      value = remainder(replace(inner.of, by), inner.size);
      break;
    case AtomNode::Row:
      value = row(replace(inner.term, by), inner.size);
      break;
    }
    result = add(result, scale(value, factor));
  }
  return result;
}

} // namespace cleave::proof
