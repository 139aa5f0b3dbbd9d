#include "runtime/check/proof/memory.h"
#include "runtime/check/proof/operations.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>

namespace cleave::proof {
namespace {
constexpr int mostPieces = 1024;     // of a read, that different writes left
constexpr size_t mostEnds = 4;       // of the parts of one cut
constexpr int64_t mostReaders = 4;   // along an axis, that are looked at one by one
constexpr int64_t mostValues = 1024; // of a variable that is tried value by value
} // namespace

void Memory::write(const Place &place, const std::vector<int64_t> &shape, Term value) {
  write(place, shape, rowMajorStrides(shape), value);
}
Term Memory::read(const Place &place, const std::vector<int64_t> &shape) {
  return read(place, store.constant(0), shape, rowMajorStrides(shape));
}

void Memory::write(const Place &place, const std::vector<int64_t> &sizes, const std::vector<int64_t> &strides,
                   Term value) {
  if (elementCount(sizes) == 0) return;
  std::vector<size_t> order;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  Cell cell{.place = place, .end = 0, .sizes = {}, .strides = {}, .variables = {}, .number = writes++, .value = value};
  int64_t last = 0;
  cell.isDense = true;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t d = order[i];
    const int64_t below = i + 1 < order.size() ? strides[order[i + 1]] * sizes[order[i + 1]] : 1;
    if (strides[d] < below) throw Unproved{"it writes elements that overlap"};
    cell.isDense = cell.isDense && strides[d] == below;
    cell.sizes.push_back(sizes[d]);
    cell.strides.push_back(strides[d]);
    cell.variables.push_back(store.variable(Variable::Dimension, static_cast<int64_t>(d), sizes[d]));
    last += strides[d] * (sizes[d] - 1);
  }
  cell.end = place.byte + (last + 1) * runtime::byteSize(place.dtype);
  if (cell.isDense)
    std::erase_if(written, [&](const Cell &old) {
      return old.place.onHost == place.onHost && old.place.byte >= place.byte && old.end <= cell.end;
    });
  written.push_back(std::move(cell));
}

std::vector<int64_t> Memory::shapeOf(const Place &place, int64_t elements) const {
  for (auto cell = written.rbegin(); cell != written.rend(); ++cell)
    if (cell->place.onHost == place.onHost && cell->place.byte == place.byte)
      return cell->isDense && elementCount(cell->sizes) == elements ? cell->sizes : std::vector{elements};
  return {elements};
}

Term Memory::read(const Place &place, Index offset, const std::vector<int64_t> &sizes,
                  const std::vector<int64_t> &strides) {
  if (elementCount(sizes) == 0) return store.number(0);
  std::vector<Atom> over;
  Replacement back;
  Index element = offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    over.push_back(store.fresh(over, sizes[d]));
    back.add(over.back(), store.dimension(static_cast<int64_t>(d), sizes[d]));
    element = store.add(element, store.scale(store.of(over.back()), strides[d]));
  }
  const Part whole{.place = place, .element = element, .over = over, .given = store.number(1)};
  pieces = 0;
  return store.replace(resolve(written.size(), whole), back);
}

// Reads the content that the first `cells` writes left, the newest first.
Term Memory::resolve(size_t cells, const Part &part) {
  if (++pieces > mostPieces) throw Unproved{"it reads too many pieces of different writes"};
  const Place &place = part.place;
  const int64_t bytes = runtime::byteSize(place.dtype);
  const Range range = store.node(part.element).range;
  const int64_t begin = place.byte + range.low * bytes, end = place.byte + (range.high + 1) * bytes;
  while (cells-- > 0) {
    const Cell &cell = written[cells];
    if (cell.place.onHost != place.onHost || end <= cell.place.byte || cell.end <= begin) continue;
    const int64_t apart = place.byte - cell.place.byte;
    if (cell.place.dtype != place.dtype || apart % bytes != 0)
      throw Unproved{
          fmt::format("it reads {} where {} was written", runtime::name(place.dtype), runtime::name(cell.place.dtype))};
    Index rest = store.add(part.element, store.constant(apart / bytes));
    Replacement by;
    std::vector<Term> undecided;
    bool isApart = false;
    auto needs = [&](Term condition) {
      const Term both = store.product({part.given, condition});
      if (store.isNumber(both, 0)) isApart = true;
      if (both == part.given) return;
      for (Term one : store.kindOf(condition) == Kind::Product ? store.open(condition) : std::vector{condition})
        undecided.push_back(one);
    };
    for (size_t d = 0; d < cell.sizes.size() && !isApart; ++d) {
      const Index digit = store.quotient(rest, cell.strides[d]);
      rest = store.remainder(rest, cell.strides[d]);
      needs(store.inside(digit, 0, cell.sizes[d]));
      by.add(cell.variables[d], digit);
    }
    if (!isApart) needs(store.inside(rest, 0, 1));
    if (isApart) continue;
    if (undecided.empty()) return store.replace(seen(cell), by);
    if (std::ranges::any_of(undecided, [&](Term condition) { return isOfDevice(condition); }) &&
        std::ranges::none_of(undecided, [&](Term condition) { return isDivided(condition); }))
      return underConditions(cells, part, undecided, store.replace(seen(cell), by));
    return cut(cells + 1, part, undecided.back());
  }
  throw Unproved{"it reads memory that nobody wrote"};
}

bool Memory::isOfDevice(Term condition) const {
  return std::ranges::any_of(store.term(condition).variables,
                             [&](Atom v) { return store.atom(v).variable == Variable::Coordinate; });
}
bool Memory::isDivided(Term condition) const {
  return std::ranges::any_of(store.node(store.term(condition).arguments[0]).terms,
                             [&](const auto &term) { return store.atom(term.first).kind != AtomNode::Var; });
}

// The value where all conditions hold, and what the first `cells` writes left where one does not: devices along an axis
// read what different writes left. The conditions divide nothing; else `cut` looks at each device by itself.
Term Memory::underConditions(size_t cells, const Part &part, const std::vector<Term> &conditions, Term value) {
  std::vector<std::pair<double, Term>> sum;
  Term before = store.number(1); // the conditions that hold
  for (Term condition : conditions) {
    const DefinitionNode &made = store.definitionOf(condition);
    const Index index = store.term(condition).arguments[0];
    for (auto [low, high] : {std::pair(-unbounded, made.low), std::pair(made.high, unbounded)}) {
      if (low == unbounded || high == -unbounded) continue;
      const Term here = store.product({before, store.inside(index, low, high)});
      Part rest = part;
      rest.given = store.product({part.given, here});
      if (!store.isNumber(rest.given, 0)) sum.emplace_back(1.0, store.product({here, resolve(cells, rest)}));
    }
    before = store.product({before, condition});
  }
  sum.emplace_back(1.0, store.product({before, value}));
  return store.sum(sum);
}

// The same part with a variable replaced, which becomes `more` variables.
Memory::Part Memory::replaced(const Part &part, Atom variable, Index by, std::vector<Atom> more) const {
  Part moved = part;
  std::erase(moved.over, variable);
  moved.over.insert(moved.over.end(), more.begin(), more.end());
  moved.element = store.replace(part.element, {{variable, by}});
  moved.given = store.replace(part.given, {{variable, by}});
  return moved;
}

// The read in parts, in which the condition holds everywhere or nowhere.
Term Memory::cut(size_t cells, const Part &part, Term condition) {
  const DefinitionNode &made = store.definitionOf(condition);
  const Index index = store.term(condition).arguments[0];
  // The piece of v in [first, last), at v.
  auto piece = [&](Atom v, int64_t first, int64_t last) {
    const Atom shorter = store.fresh(part.over, last - first);
    const Index moved = store.add(store.of(shorter), store.constant(first));
    const Term value = resolve(cells, replaced(part, v, moved, {shorter}));
    const Term back = store.replace(value, {{shorter, store.subtract(store.of(v), store.constant(first))}});
    return std::pair(1.0, store.product({store.inside(store.of(v), first, last), back}));
  };
  auto inParts = [&](Atom v, const std::set<int64_t> &ends) {
    std::vector<std::pair<double, Term>> sum;
    for (auto first = ends.begin(); std::next(first) != ends.end(); ++first)
      sum.push_back(piece(v, *first, *std::next(first)));
    return store.sum(sum);
  };
  // Where an index of one variable passes a multiple, with the ends of its range; nothing if there are too many values.
  auto multiplesIn = [&](Index of, Atom v, int64_t size) {
    const int64_t values = store.atom(v).size;
    std::set<int64_t> ends;
    if (values > mostValues || store.node(of).terms.size() != 1) return ends;
    ends = {0, values};
    auto whole = [&](int64_t at) { return store.quotient(store.replace(of, {{v, store.constant(at)}}), size); };
    for (int64_t at = 1; at < values; ++at)
      if (whole(at) != whole(at - 1)) ends.insert(at);
    return ends;
  };
  // A variable that the condition divides, in two, or where few of its values pass a multiple, there.
  std::vector<AtomNode> divisions; // the inner ones first
  auto collect = [&](auto &self, Index of) -> void {
    for (auto [atom, factor] : store.node(of).terms) {
      const AtomNode &inner = store.atom(atom);
      if (inner.kind != AtomNode::Quotient && inner.kind != AtomNode::Remainder) continue;
      self(self, inner.of);
      divisions.push_back(inner);
    }
  };
  collect(collect, index);
  for (const AtomNode &division : divisions)
    for (Atom v : part.over) {
      const int64_t own = store.factorOf(division.of, v), size = store.atom(v).size;
      if (own == 0) continue;
      const int64_t step = division.size / std::gcd(own, division.size);
      if (step <= 1 || step >= size || size % step != 0) {
        std::set<int64_t> ends = multiplesIn(division.of, v, division.size);
        if (ends.size() > 2 && ends.size() <= mostEnds) return inParts(v, ends);
        continue;
      }
      std::vector<Atom> taken = part.over;
      const Atom q = store.fresh(taken, size / step);
      taken.push_back(q);
      const Atom r = store.fresh(taken, step);
      const Index moved = store.add(store.scale(store.of(q), step), store.of(r));
      const Term value = resolve(cells, replaced(part, v, moved, {q, r}));
      return store.replace(value, {{q, store.quotient(store.of(v), step)}, {r, store.remainder(store.of(v), step)}});
    }
  for (Atom v : part.over) {
    const int64_t factor = store.factorOf(index, v), size = store.atom(v).size;
    if (factor == 0) continue;
    const Index rest = store.subtract(index, store.scale(store.of(v), factor));
    if (store.dependsOn(rest, v)) continue;
    const Range range = store.node(rest).range;
    if (!range.isFinite()) continue;
    // The values of v for which the condition may change with v + 1, or hangs on the rest.
    std::set<int64_t> ends{0, size};
    for (int64_t bound : {made.low, made.high}) {
      if (bound <= -Range::infinite || bound >= Range::infinite) continue;
      for (int64_t r : {range.low, range.high}) {
        const int64_t distance = bound - r; // factor v against it
        const int64_t q = distance >= 0 == (factor > 0) ? std::abs(distance) / std::abs(factor)
                                                        : -(std::abs(distance) / std::abs(factor));
        for (int64_t near = q - 1; near <= q + 2; ++near)
          if (near > 0 && near < size) {
            const Term before = store.inside(store.add(rest, store.constant(factor * (near - 1))), made.low, made.high);
            const Term after = store.inside(store.add(rest, store.constant(factor * near)), made.low, made.high);
            if (before != after) ends.insert(near);
          }
      }
    }
    if (ends.size() < 3) continue;
    return inParts(v, ends);
  }
  // Another write on each device along an axis.
  for (Atom c : store.node(index).variables) {
    if (store.atom(c).variable != Variable::Coordinate || store.atom(c).size > mostReaders) continue;
    std::vector<std::pair<double, Term>> sum;
    for (int64_t at = 0; at < store.atom(c).size; ++at) {
      const Term value = resolve(cells, replaced(part, c, store.constant(at), {}));
      sum.emplace_back(1.0, store.product({store.inside(store.of(c), at, at + 1), value}));
    }
    return store.sum(sum);
  }
  throw Unproved{fmt::format("it reads from several writes, and which one depends on {}", store.show(index))};
}

} // namespace cleave::proof
