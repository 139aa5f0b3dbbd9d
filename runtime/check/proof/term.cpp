// Terms: sums and products in one form, and what other operations make of them.
#include "runtime/check/proof/store.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

namespace cleave::proof {
namespace {

bool multiplyExactly(double a, double b, double &product) {
  product = a * b;
  return std::isfinite(product) && std::fma(a, b, -product) == 0 && (product != 0 || a == 0 || b == 0);
}
bool addExactly(double a, double b, double &total) {
  total = a + b;
  const double part = total - a;
  return std::isfinite(total) && (a - (total - part)) + (b - part) == 0;
}
bool isWhole(double value) { return std::floor(value) == value && std::fabs(value) < 9.0e15; }

// The power of two that all factors of a sum are, but for their signs: beside other factors it stands before the
// product, as in 0.5 x (a + b) for x (0.5 a + 0.5 b). Else 1.
double scaleOf(const std::vector<double> &factors) {
  const double scale = std::fabs(factors[0]);
  const bool isOne = std::ranges::all_of(factors, [&](double factor) { return std::fabs(factor) == scale; });
  return isOne && std::exp2(std::ilogb(scale)) == scale && std::isfinite(1 / scale) ? scale : 1;
}

// Functions of one number that are 0 at 0.
bool keepsZero(std::string_view name) {
  for (std::string_view one : {"Abs", "Ceil", "Erf", "Floor", "Relu", "Round", "Sign", "Sin", "Sqrt", "Tanh"})
    if (name == one) return true;
  return false;
}

// A factor that does not multiply exactly with the others.
constexpr std::string_view factorName = "number ";

} // namespace

bool Store::isCommutative(const std::string &name) {
  return name == "Equal" || name == "Max" || name == "Min" || name == "And" || name == "Or" || name == "Xor";
}

Store::Store(bool roundings, size_t most, bool hasPadding)
    : hasPadding(hasPadding), mostTerms(most), roundings(roundings) {
  (void)constant(0); // index 0
  (void)number(0);   // term 0
}

size_t Store::TermHash::operator()(const Application &of) const {
  uint64_t hash = static_cast<uint64_t>(of.definition);
  for (Index argument : of.arguments) hash = mixed(hash, static_cast<uint64_t>(argument));
  return hash ^ (hash >> 32);
}

Definition Store::intern(DefinitionNode node) {
  const int64_t name = names.try_emplace(node.name, static_cast<int64_t>(names.size())).first->second;
  key.assign({static_cast<int64_t>(node.kind), name, std::bit_cast<int64_t>(node.number), node.low, node.high,
              static_cast<int64_t>(node.reduce), static_cast<int64_t>(node.sizes.size())});
  key.insert(key.end(), node.sizes.begin(), node.sizes.end());
  key.insert(key.end(), node.numbers.begin(), node.numbers.end());
  for (double factor : node.factors) key.push_back(std::bit_cast<int64_t>(factor));
  for (Term child : node.children) key.push_back(static_cast<int64_t>(child));
  auto [found, isNew] = definitionIds.try_emplace(key, static_cast<int32_t>(definitions.size()));
  const Definition made{found->second};
  if (!isNew) return made;
  definitions.push_back(std::move(node));
  definitions.back().symmetries = symmetriesOf(definition(made));
  return made;
}

Term Store::intern(Definition definition, std::vector<Index> arguments) {
  arrange(definition, arguments, nullptr);
  if (++lookups > lookupsPerTerm * mostTerms)
    throw Unproved{fmt::format("it takes more than {} rewrites", lookupsPerTerm * mostTerms)};
  if (auto known = termIds.find(Application{definition, arguments}); known != termIds.end()) return *known;
  if (terms.size() > mostTerms) throw Unproved{fmt::format("it takes more than {} expressions", mostTerms)};
  TermNode made{definition, std::move(arguments), {}};
  for (Index argument : made.arguments) {
    const std::vector<Atom> &more = node(argument).variables;
    made.variables.insert(made.variables.end(), more.begin(), more.end());
  }
  std::sort(made.variables.begin(), made.variables.end());
  made.variables.erase(std::unique(made.variables.begin(), made.variables.end()), made.variables.end());
  terms.push_back(std::move(made));
  return *termIds.insert(Term{static_cast<int32_t>(terms.size() - 1)}).first;
}

bool Store::dependsOn(Term t, Atom variable) const {
  return std::binary_search(term(t).variables.begin(), term(t).variables.end(), variable);
}

// A definition has somewhere in it all that a child has.
void Store::inherit(DefinitionNode &made, Term child) const {
  const DefinitionNode &of = definitionOf(child);
  made.conditions = std::min(manyConditions, made.conditions + conditionsIn(child));
  made.isGathered = made.isGathered || of.isGathered || of.kind == Kind::Microbatches;
  made.hasStandIns = made.hasStandIns || of.hasStandIns;
}

// The definition of `node` with these children, whose indices become its parameters: each different one is one.
Term Store::close(DefinitionNode made, std::vector<Term> children) {
  const Weight uses = usesIn(made, children);
  if (isUnordered(made)) orderTwins(made, children, uses);
  std::vector<Index> arguments;
  for (size_t i = 0; i < children.size(); ++i) {
    const TermNode &child = term(children[i]);
    const DefinitionNode &of = definition(child.definition);
    inherit(made, children[i]);
    const bool isLinear = made.kind == Kind::Sum || made.kind == Kind::Product;
    auto fragile = [&](int level) { made.fragility = std::max<int8_t>(made.fragility, static_cast<int8_t>(level)); };
    if (isLinear && of.kind == Kind::Inside) fragile(mostFragile);
    if (isLinear) fragile(of.fragility - 1);
    if (isUnordered(made) && i > 0 && term(children[i - 1]).definition == child.definition) fragile(1);
    std::vector<Index> renamed, own = child.arguments;
    arrange(child.definition, own, uses);
    for (Index argument : own) {
      if (isConstant(argument)) {
        renamed.push_back(argument);
        continue;
      }
      auto known = std::find(arguments.begin(), arguments.end(), argument);
      renamed.push_back(this->of(parameter(known - arguments.begin())));
      if (known == arguments.end()) arguments.push_back(argument);
    }
    made.children.push_back(intern(child.definition, std::move(renamed)));
  }
  forEachTwins(made, made.children, [&](size_t first, size_t end) {
    std::sort(made.children.begin() + static_cast<std::ptrdiff_t>(first),
              made.children.begin() + static_cast<std::ptrdiff_t>(end));
  });
  return intern(intern(std::move(made)), std::move(arguments));
}

std::vector<Term> Store::open(Term t, std::vector<Atom> *over) {
  const TermNode &from = term(t);
  const DefinitionNode &made = definition(from.definition);
  Replacement by;
  for (size_t i = 0; i < from.arguments.size(); ++i) by.add(parameter(static_cast<int64_t>(i)), from.arguments[i]);
  std::vector<Atom> taken = from.variables;
  for (size_t i = 0; i < made.sizes.size(); ++i) {
    const Atom own = made.kind == Kind::Microbatches ? microbatch(anyMicrobatch) : fresh(taken, made.sizes[i]);
    taken.push_back(own);
    by.add(variable(Variable::Bound, static_cast<int64_t>(i), made.sizes[i]), of(own));
    if (over) over->push_back(own);
  }
  std::vector<Term> children;
  for (Term child : made.children) children.push_back(replace(child, by));
  return children;
}

Term Store::apply(Definition which, std::vector<Index> arguments) {
  const DefinitionNode &made = definition(which);
  switch (made.kind) {
  case Kind::Leaf:
  case Kind::Number:
    return intern(which, std::move(arguments));
  case Kind::Index:
    return indexValue(arguments[0]);
  case Kind::Table:
    return table(std::vector<int64_t>(made.numbers), arguments[0]);
  case Kind::Inside:
    return inside(arguments[0], made.low, made.high);
  default:
    break;
  }
  bool isPlain = made.fragility == 0;
  for (size_t i = 0; i < arguments.size() && isPlain; ++i)
    isPlain = !isConstant(arguments[i]) &&
              std::find(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments[i]) ==
                  arguments.begin() + static_cast<std::ptrdiff_t>(i);
  if (isPlain) return intern(which, std::move(arguments));
  return once(rebuilt, which, std::move(arguments), &Store::rebuild);
}

// What is made of a term, which is the same for other names of its fresh variables.
Term Store::once(Known &known, Definition which, std::vector<Index> arguments, Term (Store::*make)(Term)) {
  std::vector<Atom> variables;
  for (Index argument : arguments)
    for (Atom v : node(argument).variables)
      if (std::ranges::find(variables, v) == variables.end()) variables.push_back(v);
  const Names names = plainNames(variables);
  for (Index &argument : arguments) argument = replace(argument, names.plain);
  const Term plain = intern(which, std::move(arguments));
  auto made = known.find(plain);
  if (made == known.end()) made = known.emplace(plain, (this->*make)(plain)).first;
  return renamed(made->second, names.back);
}

// Names for fresh variables, numbered from 0 on in their order, and back.
Store::Names Store::plainNames(const std::vector<Atom> &variables) {
  std::vector<Atom> own;
  for (Atom v : variables)
    if (atom(v).variable == Variable::Fresh) own.push_back(v);
  std::ranges::sort(own, {}, [&](Atom v) { return std::pair(atom(v).number, atom(v).size); });
  Names names;
  for (size_t i = 0; i < own.size(); ++i) {
    const Atom plain = variable(Variable::Fresh, static_cast<int64_t>(i), atom(own[i]).size);
    if (plain == own[i]) continue;
    names.plain.add(own[i], of(plain));
    names.back.add(plain, of(own[i]));
  }
  return names;
}

// With other names of variables; it keeps its form.
Term Store::renamed(Term t, const Replacement &by) {
  if (!by.isFor(term(t).variables)) return t;
  std::vector<Index> arguments;
  for (Index argument : term(t).arguments) arguments.push_back(replace(argument, by));
  return intern(term(t).definition, std::move(arguments));
}

// The same from its parts, which may have come to another form.
Term Store::rebuild(Term same) {
  const DefinitionNode &made = definitionOf(same);
  std::vector<Atom> over;
  return assemble(made, over, open(same, &over));
}

Term Store::settled(Term t) {
  if (definitionOf(t).conditions == 0) return t;
  return once(settledTerms, term(t).definition, term(t).arguments, &Store::settledAnew);
}
Term Store::settledAnew(Term t) {
  std::vector<Atom> over;
  std::vector<Term> children = open(t, &over);
  for (Term &child : children) child = settled(child);
  return assemble(definitionOf(t), over, std::move(children));
}

Term Store::assemble(const DefinitionNode &made, const std::vector<Atom> &over, std::vector<Term> children) {
  switch (made.kind) {
  case Kind::Function:
    return function(made.name, std::move(children));
  case Kind::Product:
    return product(children);
  case Kind::Reduction:
    return reduce(made.reduce, over, children[0]);
  case Kind::Microbatches:
    return gatheredFrom(over[0], made.low, made.high, children[0]);
  case Kind::Opaque: {
    std::vector<Index> at;
    for (size_t i = static_cast<size_t>(made.low); i < children.size(); ++i) {
      Index index{};
      if (!asIndex(children[i], index)) throw Unproved{"the place of an operation's result is no index"};
      at.push_back(index);
    }
    children.resize(static_cast<size_t>(made.low));
    return opaque(made.name, over, children, at);
  }
  default: {
    std::vector<std::pair<double, Term>> sum_;
    for (size_t i = 0; i < children.size(); ++i) sum_.emplace_back(made.factors[i], children[i]);
    return sum(sum_);
  }
  }
}

Term Store::replace(Term t, const Replacement &by) {
  if (!by.isFor(term(t).variables)) return t;
  if (depth > 2000) throw Unproved{"an expression is too deep"};
  struct Deeper {
    int &depth;
    explicit Deeper(int &depth) : depth(depth) { ++depth; }
    ~Deeper() { --depth; }
  } deeper(depth);
  const TermNode &from = term(t);
  std::vector<Index> arguments;
  for (Index argument : from.arguments) arguments.push_back(replace(argument, by));
  return apply(from.definition, std::move(arguments));
}

Term Store::leaf(const std::string &name, std::vector<Index> arguments) {
  return intern(intern(DefinitionNode{.kind = Kind::Leaf, .name = name}), std::move(arguments));
}

Term Store::number(double value) {
  if (!std::isfinite(value)) return leaf(std::isnan(value) ? "nan" : value < 0 ? "-infinity" : "infinity", {});
  if (value == 0) value = 0; // no negative zero among real numbers
  return intern(intern(DefinitionNode{.kind = Kind::Number, .number = value}), {});
}

Term Store::indexValue(Index index) {
  const int64_t least = node(index).constant;
  if (isConstant(index)) return number(static_cast<double>(least));
  if (least != 0)
    return sum({{1.0, indexValue(add(index, constant(-least)))}, {static_cast<double>(least), number(1)}});
  return intern(intern(DefinitionNode{.kind = Kind::Index}), {index});
}

Term Store::table(const std::vector<int64_t> &numbers, Index at) {
  if (const std::optional<Index> index = affineOf(numbers, at)) return indexValue(*index);
  return intern(intern(DefinitionNode{.kind = Kind::Table, .numbers = numbers}), {at});
}

std::optional<Index> Store::affineOf(const std::vector<int64_t> &table, Index at) {
  const IndexNode &from = node(at);
  if (from.range.low < 0 || from.range.high >= static_cast<int64_t>(table.size())) return std::nullopt;
  // The places are first, first + step and so on; `count` says which of them.
  int64_t first = from.range.low, step = 1;
  Index count = add(at, constant(-first));
  if (from.terms.size() == 1) {
    const auto [part, factor] = from.terms[0];
    step = std::abs(factor);
    const Range range = rangeOf(atom(part));
    count = factor > 0 ? subtract(of(part), constant(range.low)) : subtract(constant(range.high), of(part));
  }
  auto number = [&](int64_t place) { return table[static_cast<size_t>(place)]; };
  const int64_t grows = first + step > from.range.high ? 0 : number(first + step) - number(first);
  for (int64_t place = first; place + step <= from.range.high; place += step)
    if (number(place + step) - number(place) != grows) return std::nullopt;
  return add(constant(number(first)), scale(count, grows));
}

bool Store::asIndex(Term t, Index &index) {
  const TermNode &from = term(t);
  const DefinitionNode &made = definition(from.definition);
  if (made.kind == Kind::Index) {
    index = from.arguments[0];
    return true;
  }
  if (made.kind == Kind::Number && isWhole(made.number)) {
    index = constant(static_cast<int64_t>(made.number));
    return true;
  }
  if (made.kind != Kind::Sum) return false;
  Index total = constant(0);
  const std::vector<Term> children = open(t);
  for (size_t i = 0; i < children.size(); ++i) {
    Index part;
    if (!isWhole(made.factors[i]) || !asIndex(children[i], part)) return false;
    total = add(total, scale(part, static_cast<int64_t>(made.factors[i])));
  }
  index = total;
  return true;
}

// An index by the numbers of its variables, whichever was met first: h is before w where they are dimensions 1 and 2 as
// where they are 2 and 3.
std::vector<int64_t> Store::nameOf(Index index) const {
  std::vector<std::vector<int64_t>> parts;
  for (auto [part, factor] : node(index).terms) {
    const AtomNode &inner = atom(part);
    parts.push_back({inner.kind, static_cast<int64_t>(inner.variable), inner.number, inner.size, factor});
    if (inner.kind == AtomNode::Row) parts.back().push_back(static_cast<int64_t>(inner.term));
    if (inner.kind == AtomNode::Quotient || inner.kind == AtomNode::Remainder) {
      const std::vector<int64_t> of = nameOf(inner.of);
      parts.back().insert(parts.back().end(), of.begin(), of.end());
    }
  }
  std::sort(parts.begin(), parts.end());
  std::vector<int64_t> name{node(index).constant};
  for (const auto &part : parts) name.insert(name.end(), part.begin(), part.end());
  return name;
}

// The order of what has none: by what it is, then by how it is built. Names of variables come last, so that the same
// under other names is in the same order; what is free comes before what a reduction runs over.
bool Store::isBefore(Term a, Term b) const {
  const TermNode &left = term(a), &right = term(b);
  if (left.definition != right.definition) return left.definition < right.definition;
  for (size_t i = 0; i < left.arguments.size(); ++i) {
    const IndexNode &x = node(left.arguments[i]), &y = node(right.arguments[i]);
    const auto first = std::tie(x.level, x.likeness);
    if (const auto second = std::tie(y.level, y.likeness); first != second) return first < second;
    if (left.arguments[i] == right.arguments[i]) continue;
    if (auto own = nameOf(left.arguments[i]), other = nameOf(right.arguments[i]); own != other) return own < other;
    return left.arguments[i] < right.arguments[i];
  }
  return false;
}
void Store::order(std::vector<Term> &operands) const {
  std::sort(operands.begin(), operands.end(), [&](Term a, Term b) { return isBefore(a, b); });
}

// A comparison of two indices is a condition on their difference.
Term Store::compare(const std::string &name, Term a, Term b) {
  Index left, right;
  if (asIndex(a, left) && asIndex(b, right)) {
    const Index difference = subtract(left, right);
    if (name == "Equal") return inside(difference, 0, 1);
    return inside(difference, -unbounded, name == "Less" ? 0 : 1);
  }
  std::vector<Term> both{a, b};
  if (name == "Equal") order(both);
  return close(DefinitionNode{.kind = Kind::Function, .name = name}, both);
}

Term Store::function(const std::string &name, std::vector<Term> children) {
  if (name == "Equal" || name == "Less" || name == "LessOrEqual") return compare(name, children[0], children[1]);
  if (name == "Greater") return compare("Less", children[1], children[0]);
  if (name == "GreaterOrEqual") return compare("LessOrEqual", children[1], children[0]);
  if (name == "Reciprocal" && kindOf(children[0]) == Kind::Number) {
    const double of = definitionOf(children[0]).number;
    int exponent;
    if (std::fabs(std::frexp(of, &exponent)) == 0.5) return number(1 / of);
  }
  if (name == "Where") {
    const Term condition = children[0], yes = children[1], no = children[2];
    if (isNumber(condition, 1) || yes == no) return yes;
    if (isNumber(condition, 0)) return no;
    Term otherwise = sum({{1.0, number(1)}, {-1.0, condition}});
    const bool isPlace = kindOf(condition) == Kind::Inside;
    if (isPlace) {
      const DefinitionNode &made = definitionOf(condition);
      const Index index = term(condition).arguments[0];
      if (made.low == -unbounded) otherwise = inside(index, made.high, unbounded);
      if (made.high == unbounded) otherwise = inside(index, -unbounded, made.low);
    }
    if (isNumber(no, 0)) return product({condition, yes});
    if (isNumber(yes, 0)) return product({otherwise, no});
    if (const auto inner = hasPadding && isMinusInfinity(no) ? masked(yes) : std::nullopt)
      return masked(product({condition, inner->condition}), inner->value);
    auto isInfinite = [&](Term t) { return kindOf(t) == Kind::Leaf && definitionOf(t).name.ends_with("infinity"); };
    if (isPlace && !isInfinite(yes) && !isInfinite(no)) return sum(product({condition, yes}), product({otherwise, no}));
  }
  if (name == "Max" || name == "Min") { // of all, each once
    std::vector<Term> all;
    for (Term child : children)
      for (Term one :
           kindOf(child) == Kind::Function && definitionOf(child).name == name ? open(child) : std::vector{child})
        if (std::ranges::find(all, one) == all.end()) all.push_back(one);
    if (all.size() == 1) return all[0];
    children = std::move(all);
  }
  if (hasPadding && name == "Exp")
    if (const std::optional<Term> of = withoutMinusInfinity(children[0])) return *of;
  if (hasPadding && keepsZero(name))
    if (auto common = commonConditions(children[0])) {
      common->first.push_back(function(name, {common->second}));
      return product(common->first);
    }
  if (isCommutative(name)) order(children);
  return close(DefinitionNode{.kind = Kind::Function, .name = name}, children);
}

// The number whose reciprocal is the term, or one of its factors, where it divides `factor`: 8 x (1 / 4) is 2. 0: none.
double Store::divisorIn(double factor, Term t) const {
  const DefinitionNode &made = definitionOf(t);
  if (made.kind == Kind::Function && made.name == "Reciprocal" && kindOf(made.children[0]) == Kind::Number) {
    const double of = definitionOf(made.children[0]).number;
    return of != 0 && std::fmod(factor, of) == 0 && isWhole(factor / of) ? of : 0;
  }
  if (made.kind == Kind::Product)
    for (Term child : made.children)
      if (kindOf(child) == Kind::Function)
        if (const double of = divisorIn(factor, child); of != 0) return of;
  return 0;
}

Term Store::product(const std::vector<Term> &given) {
  std::vector<Term> factors, left(given.rbegin(), given.rend());
  std::vector<double> numbers;
  while (!left.empty()) {
    const Term t = left.back();
    left.pop_back();
    const DefinitionNode &made = definitionOf(t);
    if (made.kind == Kind::Number) {
      numbers.push_back(made.number);
    } else if (made.kind == Kind::Leaf && made.name.starts_with(factorName)) {
      numbers.push_back(std::strtod(made.name.c_str() + factorName.size(), nullptr));
    } else if (made.kind == Kind::Product || (made.kind == Kind::Sum && made.children.size() == 1)) {
      if (made.kind == Kind::Sum) numbers.push_back(made.factors[0]);
      for (Term child : open(t)) left.push_back(child);
    } else {
      factors.push_back(t);
    }
  }
  mergeInside(factors);
  if (hasPadding) dropImplied(factors);
  if (std::ranges::count_if(factors, [&](Term t) { return kindOf(t) != Kind::Inside; }) > 1)
    for (Term &t : factors)
      if (const double scale = kindOf(t) == Kind::Sum ? scaleOf(definitionOf(t).factors) : 1; scale != 1) {
        numbers.push_back(scale);
        t = sum({{1 / scale, t}});
      }
  if (Term distributed; useConditions(factors, distributed)) {
    std::vector<Term> all{distributed};
    for (double value : numbers) all.push_back(number(value));
    return all.size() == 1 ? distributed : product(all);
  }
  std::sort(numbers.begin(), numbers.end());
  double factor = 1;
  for (Term &t : factors)
    if (kindOf(t) == Kind::Number) numbers.push_back(definitionOf(t).number), t = number(1);
  std::erase_if(factors, [&](Term t) { return isNumber(t, 1); });
  for (double value : numbers) {
    if (value == 0) return number(0);
    double both;
    if (multiplyExactly(factor, value, both))
      factor = both;
    else // stays a factor of its own
      factors.push_back(leaf(fmt::format("{}{:a}", factorName, value), {}));
  }
  std::erase_if(factors, [&](Term t) {
    const double of = kindOf(t) == Kind::Function ? divisorIn(factor, t) : 0;
    if (of != 0) factor /= of;
    return of != 0;
  });
  if (factors.empty()) return number(factor);
  order(factors);
  const Term all = factors.size() == 1 ? factors[0] : close(DefinitionNode{.kind = Kind::Product}, factors);
  return factor == 1 ? all : sum({{factor, all}});
}

Term Store::sum(const std::vector<std::pair<double, Term>> &given) {
  const Term one = number(1);
  std::map<Term, double> total;
  std::vector<std::pair<double, Term>> rest; // whose factors do not add up exactly
  auto addTo = [&](double factor, Term t) {
    auto [found, isNew] = total.try_emplace(t, factor);
    if (double both; !isNew && addExactly(found->second, factor, both))
      found->second = both;
    else if (!isNew)
      rest.emplace_back(factor, t);
  };
  auto addProduct = [&](Term t) { // by the factor that it begins with
    const DefinitionNode &made = definitionOf(t);
    if (made.kind == Kind::Sum && made.children.size() == 1)
      addTo(made.factors[0], open(t)[0]);
    else
      addTo(1, t);
  };
  Index index = constant(0);
  std::vector<std::pair<double, Term>> left(given.rbegin(), given.rend());
  while (!left.empty()) {
    auto [factor, t] = left.back();
    left.pop_back();
    if (factor == 0) continue;
    const DefinitionNode &made = definitionOf(t);
    if (made.kind == Kind::Number) {
      if (double both; multiplyExactly(factor, made.number, both))
        addTo(both, one);
      else
        addProduct(product({t, number(factor)}));
    } else if (made.kind == Kind::Index && isWhole(factor)) {
      index = add(index, scale(term(t).arguments[0], static_cast<int64_t>(factor)));
    } else if (const auto parts = termsOf(t)) {
      std::vector<std::pair<double, Term>> inner;
      for (auto [times, child] : *parts)
        if (double both; multiplyExactly(factor, times, both)) inner.emplace_back(both, child);
      if (parts->size() == 1 && inner.empty()) {
        addProduct(product({number(factor), t}));
      } else if (inner.size() == parts->size()) {
        left.insert(left.end(), inner.begin(), inner.end());
      } else {
        std::vector<Term> both{leaf(fmt::format("{}{:a}", factorName, factor), {}), t};
        order(both);
        addTo(1, close(DefinitionNode{.kind = Kind::Product}, both));
      }
    } else {
      addTo(factor, t);
    }
  }
  if (!isConstant(index)) {
    const double shift = static_cast<double>(node(index).constant);
    if (shift != 0) addTo(shift, one);
    addTo(1, intern(intern(DefinitionNode{.kind = Kind::Index}), {add(index, constant(-node(index).constant))}));
  } else if (node(index).constant != 0) {
    addTo(static_cast<double>(node(index).constant), one);
  }
  for (auto [t, factor] : total)
    if (factor != 0) rest.emplace_back(factor, t);
  bool isDivided = false;
  for (auto &[factor, t] : rest)
    if (divisorIn(factor, t) != 0) {
      t = product({number(factor), t});
      factor = 1;
      isDivided = true;
    }
  if (isDivided || mergePieces(rest) || mergeMicrobatches(rest) || mergeNeighbours(rest)) return sum(rest);
  joinConditions(rest);
  if (rest.empty()) return number(0);
  if (rest.size() == 1 && rest[0].second == one) return number(rest[0].first);
  if (rest.size() == 1 && rest[0].first == 1) return rest[0].second;
  std::sort(rest.begin(), rest.end(), [&](const auto &a, const auto &b) {
    return a.second == b.second ? a.first < b.first : isBefore(a.second, b.second);
  });
  DefinitionNode made{.kind = Kind::Sum};
  std::vector<Term> children;
  for (auto [factor, t] : rest) {
    made.factors.push_back(factor);
    children.push_back(t);
  }
  const Term all = close(std::move(made), children);
  if (hasPadding && children.size() > 1 &&
      isConcatenation(all)) // [h < 2] [v < 8] a + [h < 2] b is [h < 2] ([v < 8] a + b)
    if (auto common = commonConditions(all); common && !meets(common->second, common->first)) {
      common->first.push_back(common->second);
      return product(common->first);
    }
  return all;
}

} // namespace cleave::proof
