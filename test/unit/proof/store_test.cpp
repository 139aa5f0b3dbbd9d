// The rules: what is equal for all values comes to one form, and what is not stays apart.
#include "runtime/check/proof/evaluate.h"
#include "runtime/check/proof/store.h"
#include <gtest/gtest.h>
#include <limits>

namespace cleave::proof {
namespace {

class Rules : public testing::Test {
protected:
  explicit Rules(bool hasPadding = false) : store(true, mostExpressions, hasPadding) {}
  Index dim(int64_t number, int64_t size) { return store.dimension(number, size); }
  Atom coordinate(int64_t size) { return store.variable(Variable::Coordinate, 0, size); }
  Index number(int64_t value) { return store.constant(value); }
  Index plus(Index a, int64_t factor, Index b) { return store.add(store.scale(a, factor), b); }
  Term x(std::vector<Index> at) { return store.leaf("x", std::move(at)); }
  Term w(std::vector<Index> at) { return store.leaf("w", std::move(at)); }
  Term sum(std::vector<Atom> over, Term body) { return store.reduce(Reduce::Sum, std::move(over), body); }
  Atom fresh(int64_t size) { return store.variable(Variable::Fresh, next++, size); }
  Store store;
  int64_t next = 0;
};

TEST_F(Rules, anIndexIsTakenApartAndPutTogether) {
  const Index flat = plus(dim(0, 4), 16, dim(1, 16));
  EXPECT_EQ(store.quotient(flat, 16), dim(0, 4));
  EXPECT_EQ(store.remainder(flat, 16), dim(1, 16));
  const Index whole = dim(0, 64);
  EXPECT_EQ(plus(store.quotient(whole, 16), 16, store.remainder(whole, 16)), whole);
  EXPECT_EQ(store.quotient(store.quotient(whole, 4), 4), store.quotient(whole, 16));
  EXPECT_EQ(store.quotient(store.remainder(whole, 16), 4), store.remainder(store.quotient(whole, 4), 4));
  EXPECT_NE(store.quotient(whole, 16), store.quotient(whole, 8));
  EXPECT_NE(store.remainder(store.add(whole, number(1)), 64), whole);
}

// ((d % 8) + c) % 2 = (d + c) % 2, and ((d % 8) + c) / 2 = (d + c) / 2 - 4 (d / 8): d in [0, 64), c in [0, 3)
TEST_F(Rules, aRemainderInAQuotientIsTakenOut) {
  const Index inner = store.add(store.remainder(dim(0, 64), 8), dim(1, 3)), plain = store.add(dim(0, 64), dim(1, 3));
  EXPECT_EQ(store.remainder(inner, 2), store.remainder(plain, 2));
  EXPECT_EQ(store.quotient(inner, 2),
            plus(store.quotient(plain, 2), 1, store.scale(store.quotient(dim(0, 64), 8), -4)));
  for (int64_t d = 0; d < 64; ++d)
    for (int64_t c = 0; c < 3; ++c)
      for (auto [found, expected] : {std::pair(store.remainder(inner, 2), (d % 8 + c) % 2),
                                     std::pair(store.quotient(inner, 2), (d % 8 + c) / 2)}) {
        const Replacement at = {{store.variable(Variable::Dimension, 0, 64), number(d)},
                                {store.variable(Variable::Dimension, 1, 3), number(c)}};
        EXPECT_EQ(store.replace(found, at), number(expected));
      }
  EXPECT_NE(store.remainder(inner, 16), store.remainder(plain, 16)); // 8 is no multiple of it
}

TEST_F(Rules, negativeIndicesAreDividedDownwards) {
  const Index shifted = store.subtract(dim(0, 8), number(8)); // in [-8, 0)
  EXPECT_EQ(store.quotient(shifted, 8), number(-1));
  EXPECT_EQ(store.remainder(shifted, 8), dim(0, 8));
}

TEST_F(Rules, sumsAndProductsHaveOneOrder) {
  const Term a = x({dim(0, 4)}), b = w({dim(0, 4)});
  EXPECT_EQ(store.sum(a, b), store.sum(b, a));
  EXPECT_EQ(store.product({a, b}), store.product({b, a}));
  EXPECT_EQ(store.sum({{1.0, a}, {-1.0, a}}), store.number(0));
  EXPECT_EQ(store.times(2, store.sum(a, b)), store.sum({{2.0, b}, {2.0, a}}));
  EXPECT_NE(store.sum(a, b), store.sum({{1.0, a}, {2.0, b}}));
  EXPECT_NE(store.product({a, a}), a);
}

// Chunks of a sequence in another order: 0 3 1 2, of which the even and the odd places grow evenly.
TEST_F(Rules, aTableThatGrowsEvenlyIsAnIndex) {
  const std::vector<int64_t> order{0, 3, 1, 2};
  EXPECT_EQ(store.table(order, number(1)), store.number(3));
  EXPECT_EQ(store.table(order, store.scale(dim(0, 2), 2)), store.indexValue(dim(0, 2)));
  EXPECT_EQ(store.table(order, plus(dim(0, 2), 2, number(1))), store.indexValue(store.subtract(number(3), dim(0, 2))));
  EXPECT_EQ(store.table(order, store.subtract(number(3), store.scale(dim(0, 2), 2))),
            store.indexValue(store.add(dim(0, 2), number(2)))); // places 3 and 1
  const Term whole = store.table(order, dim(0, 4)), other = store.table({0, 3, 2, 1}, dim(0, 4));
  EXPECT_EQ(store.kindOf(whole), Kind::Table);
  EXPECT_NE(whole, other);
  EXPECT_EQ(store.replace(whole, {{store.variable(Variable::Dimension, 0, 4), number(2)}}), store.number(1));
  EXPECT_EQ(store.kindOf(store.table(order, store.add(dim(0, 4), number(1)))), Kind::Table); // beyond its end
}

// [(v + 1) % 4 >= 2] holds for v = 1 and 2; [(v + 1) % 4 < 2] for 0 and 3, in two ranges.
TEST_F(Rules, aConditionOnOneDividedVariableIsOneOnIt) {
  const Index turned = store.remainder(store.add(dim(0, 4), number(1)), 4);
  EXPECT_EQ(store.inside(turned, 2, 4), store.inside(dim(0, 4), 1, 3));
  EXPECT_EQ(store.inside(store.subtract(turned, dim(0, 4)), 0, 8), store.inside(dim(0, 4), 0, 3));
  EXPECT_EQ(store.kindOf(store.inside(turned, 0, 2)), Kind::Inside);
  EXPECT_NE(store.inside(turned, 0, 2), store.inside(turned, 0, 3));
}

// What may change places in a term has one order in it, however deep and whatever stands there.
TEST_F(Rules, indicesThatMayChangePlacesHaveOneOrder) {
  const Atom a = store.variable(Variable::Dimension, 0, 4), b = store.variable(Variable::Dimension, 1, 4);
  const Atom c = store.variable(Variable::Dimension, 2, 4);
  auto exp = [&](Term t) { return store.function("Exp", {t}); };
  auto at = [&](Atom v) { return x({store.of(v)}); };
  const Replacement swap = {{a, store.of(b)}, {b, store.of(a)}};
  const Term both = exp(store.sum(at(a), at(b)));
  EXPECT_EQ(store.replace(both, swap), both);
  const Term most = exp(store.function("Max", {store.function("Max", {at(a), at(b)}), at(c)}));
  EXPECT_EQ(most, exp(store.function("Max", {at(b), store.function("Max", {at(c), at(a)})})));
  EXPECT_EQ(store.replace(most, {{a, store.of(c)}, {c, store.of(a)}}), most);
  // One of them stands elsewhere, too: other terms of one definition.
  const Term first = exp(store.product({at(a), both})), second = exp(store.product({at(b), both}));
  EXPECT_NE(first, second);
  EXPECT_EQ(store.term(first).definition, store.term(second).definition);
  EXPECT_EQ(store.replace(first, swap), second);
  EXPECT_NE(exp(store.sum({{1.0, at(a)}, {2.0, at(b)}})), exp(store.sum({{2.0, at(a)}, {1.0, at(b)}})));
  // A matrix by its own transpose: sum over k of x[a, k] x[b, k], and the product of that by itself.
  const Atom k = fresh(8), l = fresh(4);
  auto square = [&](Index i, Index j) { return sum({k}, store.product({x({i, store.of(k)}), x({j, store.of(k)})})); };
  EXPECT_EQ(exp(square(store.of(a), store.of(b))), exp(square(store.of(b), store.of(a))));
  auto fourth = [&](Index i, Index j) {
    return exp(sum({l}, store.product({square(i, store.of(l)), square(store.of(l), j)})));
  };
  EXPECT_EQ(store.replace(fourth(store.of(a), store.of(b)), swap), fourth(store.of(a), store.of(b)));
}

// f(a, b, c, d) + f(b, c, d, a) + ... is the same when all turn, and another one when two change places.
TEST_F(Rules, indicesOfARingMayTurn) {
  std::vector<Atom> v;
  for (int64_t i = 0; i < 4; ++i) v.push_back(store.variable(Variable::Dimension, i, 4));
  auto exp = [&](Term t) { return store.function("Exp", {t}); };
  std::vector<std::pair<double, Term>> parts;
  for (size_t i = 0; i < 4; ++i)
    parts.emplace_back(
        1.0, exp(x({store.of(v[i]), store.of(v[(i + 1) % 4]), store.of(v[(i + 2) % 4]), store.of(v[(i + 3) % 4])})));
  const Term ring = exp(store.sum(parts));
  auto replaced = [&](std::vector<size_t> order) {
    Replacement by;
    for (size_t i = 0; i < 4; ++i) by.add(v[i], store.of(v[order[i]]));
    return store.replace(ring, by);
  };
  EXPECT_EQ(replaced({1, 2, 3, 0}), ring);
  EXPECT_EQ(replaced({3, 0, 1, 2}), ring);
  EXPECT_NE(replaced({1, 0, 2, 3}), ring);
  EXPECT_NE(replaced({3, 2, 1, 0}), ring);
}

// The sum over a convolution's result, with its rows and columns as they are and as one index of both: a normalization
// of tensors with the channels first, and last.
TEST_F(Rules, paddedWindowsAreSummedInOneOrder) {
  const Atom h = fresh(8), v = fresh(8), i = fresh(3), j = fresh(3), both = fresh(64);
  auto convolved = [&](Index row, Index column) {
    const Index y = store.subtract(store.add(row, store.of(i)), number(1)),
                z = store.subtract(store.add(column, store.of(j)), number(1));
    return store.product({store.inside(y, 0, 8), store.inside(z, 0, 8), x({y, z, store.of(i), store.of(j)})});
  };
  const Term apart = sum({i, j, h, v}, convolved(store.of(h), store.of(v)));
  const Index flat = store.of(both);
  EXPECT_EQ(sum({both, i, j}, convolved(store.quotient(flat, 8), store.remainder(flat, 8))), apart);
  EXPECT_EQ(sum({j, i, both}, convolved(store.quotient(flat, 8), store.remainder(flat, 8))), apart);
}

TEST_F(Rules, factorsOfOneKindStandByTheNumbersOfVariables) {
  // Variables that are met in another order: dimension 5 before dimension 4.
  const Index later = dim(5, 32), earlier = dim(4, 32), first = dim(6, 32), second = dim(7, 32);
  auto made = [&](Index a, Index b) {
    return store.product(
        {store.inside(store.add(a, number(1)), 1, 30), store.inside(store.add(b, number(1)), 1, 30), x({a, b})});
  };
  EXPECT_EQ(store.term(made(earlier, later)).definition, store.term(made(first, second)).definition);
}

TEST_F(Rules, numbersThatDoNotMultiplyExactlyStayApart) {
  const Term a = x({dim(0, 4)});
  const Term twice = store.times(0.1, store.times(0.3, a));
  EXPECT_EQ(twice, store.times(0.3, store.times(0.1, a)));
  EXPECT_NE(twice, store.times(0.1 * 0.3, a));
  // Within a sum, too: 0.1 (0.3 a + b) where 0.3 a was a term of its own before.
  const Term b = store.leaf("b", {});
  const Term parts = store.sum(store.times(0.1, store.times(0.3, a)), store.times(0.1, b));
  EXPECT_EQ(store.sum({{0.1, store.times(0.3, a)}, {0.1, b}}), parts);
}

// A mean over 6144 elements of what is the same for all of them.
TEST_F(Rules, aNumberIsDividedByOneThatDividesIt) {
  const Term mean = store.function("Reciprocal", {store.number(6144)}), a = x({dim(0, 4)});
  const Term half = store.times(12288, store.product({mean, a}));
  EXPECT_EQ(store.product({store.number(24576), mean, a}), store.times(4, a));
  EXPECT_EQ(store.sum(half, half), store.times(4, a));
  EXPECT_EQ(store.product({store.number(6144), mean}), store.number(1));
  EXPECT_NE(store.product({store.number(24575), mean, a}), store.times(4, a));
  EXPECT_NE(store.sum(half, store.product({mean, a})), store.times(2, a));
}

TEST_F(Rules, powersOfTwoStandBeforeAProduct) {
  const Term a = x({dim(0, 8)}), b = w({dim(0, 8)}), c = store.function("Exp", {a});
  EXPECT_EQ(store.times(2, store.product({c, store.sum({{0.5, a}, {0.5, b}})})), store.product({c, store.sum(a, b)}));
  EXPECT_EQ(store.times(0.25, store.product({c, store.sum({{4, a}, {-4, b}})})),
            store.product({c, store.sum({{1, a}, {-1, b}})}));
  EXPECT_NE(store.product({c, store.sum({{0.5, a}, {0.5, b}})}), store.product({c, store.sum(a, b)}));
  EXPECT_EQ(store.product({store.sum({{0.5, a}, {0.5, b}})}), store.sum({{0.5, a}, {0.5, b}}));
}

TEST_F(Rules, anIndexIsOneAlsoWherePartsOfItAreUnderConditions) {
  // sum over h < 2, k < 8 of ([h < 1] x[k] + [h >= 1] w[k] + y[8 h + k]) squared: k is 8 h + k in its half
  const Atom h = fresh(2), k = fresh(8), whole = fresh(16);
  const Index at = store.of(whole);
  auto square = [&](std::vector<Atom> over, Term low, Term high, Term all) {
    const Term each = store.sum({{1.0, low}, {1.0, high}, {1.0, all}});
    return sum(std::move(over), store.product({each, each}));
  };
  auto y = [&](Index index) { return store.leaf("y", {index}); };
  const Term split =
      square({h, k}, store.product({store.inside(store.of(h), 0, 1), x({store.of(k)})}),
             store.product({store.inside(store.of(h), 1, 2), w({store.of(k)})}), y(plus(store.of(h), 8, store.of(k))));
  auto joined = [&](int64_t from) {
    return square({whole}, store.product({store.inside(at, 0, 8), x({at})}),
                  store.product({store.inside(at, 8, 16), w({store.subtract(at, number(from))})}), y(at));
  };
  EXPECT_EQ(split, joined(8));
  EXPECT_NE(split, joined(7));
}

TEST_F(Rules, partsOfAContractionAddUp) {
  // sum over c of sum over k < 8 of x[i, 8 c + k] w[8 c + k, j] = sum over k < 16
  const Atom c = coordinate(2), k = fresh(8), all = fresh(2), whole = fresh(16);
  const Index at = plus(store.of(c), 8, store.of(k));
  const Term part = sum({k}, store.product({x({dim(0, 4), at}), w({at, dim(1, 4)})}));
  const Term reduced = sum({all}, store.replace(part, {{c, store.of(all)}}));
  const Term expected = sum({whole}, store.product({x({dim(0, 4), store.of(whole)}), w({store.of(whole), dim(1, 4)})}));
  EXPECT_EQ(reduced, expected);
  EXPECT_NE(part, expected);
  EXPECT_NE(store.times(2, reduced), expected);
  // Added twice over an axis on which nothing depends
  EXPECT_EQ(sum({fresh(4)}, expected), store.times(4, expected));
}

TEST_F(Rules, aFactorMovesOutOfASum) {
  const Atom k = fresh(8);
  EXPECT_EQ(sum({k}, store.product({w({dim(0, 4)}), x({store.of(k)})})),
            store.product({w({dim(0, 4)}), sum({k}, x({store.of(k)}))}));
}

TEST_F(Rules, aSumOverRowsIsOneOverRowsAndColumns) {
  const Atom row = fresh(32), a = fresh(4), b = fresh(8);
  const Term flat = sum({row}, x({store.quotient(store.of(row), 8), store.remainder(store.of(row), 8)}));
  EXPECT_EQ(flat, sum({b, a}, x({store.of(a), store.of(b)})));
  EXPECT_NE(flat, sum({a, b}, x({store.of(b), store.of(a)})));
}

TEST_F(Rules, maximaAreNotSums) {
  const Atom k = fresh(8), c = fresh(2), r = fresh(4);
  const Index at = plus(store.of(c), 4, store.of(r));
  const Term whole = store.reduce(Reduce::Max, {k}, x({store.of(k)}));
  EXPECT_EQ(store.reduce(Reduce::Max, {c}, store.reduce(Reduce::Max, {r}, x({at}))), whole);
  EXPECT_NE(sum({k}, x({store.of(k)})), whole);
  EXPECT_EQ(store.reduce(Reduce::Max, {c}, whole), whole);
}

TEST_F(Rules, aTableCutOverDevicesIsLookedUpOnOne) {
  // sum over c of [0 <= row - 4 c < 4] table[row]
  const Atom c = fresh(2);
  const Index row = store.row(store.leaf("labels", {dim(0, 3)}), 8);
  const Term part = store.product({store.inside(store.subtract(row, store.scale(store.of(c), 4)), 0, 4), x({row})});
  EXPECT_EQ(sum({c}, part), x({row}));
}

// [4 (a - b) + c - d = v] is a condition on each where one c - d leaves a multiple of 4, and on both together
// elsewhere.
TEST_F(Rules, aValueOfTwoPartsIsOneOfEach) {
  const Index whole = store.subtract(dim(0, 3), dim(1, 3)), rest = store.subtract(dim(2, 4), dim(3, 4));
  const Index both = plus(whole, 4, rest);
  EXPECT_EQ(store.inside(both, 4, 5), store.product({store.inside(whole, 1, 2), store.inside(rest, 0, 1)}));
  EXPECT_NE(store.inside(both, 4, 5), store.product({store.inside(whole, 1, 2), store.inside(rest, 0, 2)}));
  for (int64_t value = -12; value <= 12; ++value) {
    const Term condition = store.inside(both, value, value + 1);
    for (int64_t at = 0; at < 3 * 3 * 4 * 4; ++at) {
      const int64_t a = at / 48, b = at / 16 % 3, c = at / 4 % 4, d = at % 4;
      const Replacement here = {{store.variable(Variable::Dimension, 0, 3), number(a)},
                                {store.variable(Variable::Dimension, 1, 3), number(b)},
                                {store.variable(Variable::Dimension, 2, 4), number(c)},
                                {store.variable(Variable::Dimension, 3, 4), number(d)}};
      EXPECT_EQ(store.replace(condition, here), store.number(4 * (a - b) + c - d == value ? 1 : 0));
    }
  }
}

// Entries that look up rows of their own do it in one table of all rows, where a number is known to name one of theirs.
TEST_F(Rules, aRowOfAnEntryIsOneOfAllRows) {
  auto named = [&](const char *name, Index at, Index of) { return store.leaf(name, {at, of}); };
  auto flat = [&](Term row, int64_t rows, Index entry) {
    return store.row(store.sum(row, store.indexValue(store.scale(entry, rows))), 4 * rows);
  };
  const Index entry = dim(0, 4), at = dim(1, 2), place = dim(0, 8);
  const Term known = named("labels", entry, at), other = named("others", entry, at);
  const Term joined = named("joined", store.quotient(place, 2), store.remainder(place, 2));
  const Term diagonal = named("diagonal", entry, entry);
  store.nameRows(known, {entry, at}, {4, 2}, 11);
  store.nameRows(joined, {place}, {8}, 11);
  store.nameRows(diagonal, {entry}, {4}, 11);
  EXPECT_EQ(flat(known, 11, entry), plus(entry, 11, store.row(known, 11)));
  const Term ofJoined = named("joined", entry, at);
  EXPECT_EQ(flat(ofJoined, 11, entry), plus(entry, 11, store.row(ofJoined, 11)));
  // Of another entry the row is another one.
  EXPECT_NE(flat(known, 11, entry), flat(known, 11, store.subtract(number(3), entry)));
  // Nothing is known of other numbers, of other rows, or of other places.
  const Term elsewhere = named("labels", store.add(entry, number(1)), at),
             crossed = named("diagonal", entry, dim(2, 4));
  for (auto [term, rows] : {std::pair(other, 11), {known, 12}, {elsewhere, 11}, {crossed, 11}})
    EXPECT_NE(flat(term, rows, entry), plus(entry, rows, store.row(term, rows)));
}

TEST_F(Rules, conditionsHoldOnPartsOfARange) {
  EXPECT_EQ(store.inside(dim(0, 4), 0, 4), store.number(1));
  EXPECT_EQ(store.inside(dim(0, 4), 4, 9), store.number(0));
  EXPECT_EQ(store.inside(plus(dim(0, 4), 16, dim(1, 16)), 0, 32), store.inside(dim(0, 4), 0, 2));
  EXPECT_NE(store.inside(plus(dim(0, 4), 16, dim(1, 16)), 0, 33), store.inside(dim(0, 4), 0, 2));
  // 96 a + b with b < 72 is never within 72 and 96.
  EXPECT_EQ(store.inside(plus(dim(0, 6), 96, dim(1, 72)), 72, 96), store.number(0));
  EXPECT_EQ(store.inside(plus(dim(0, 6), 96, dim(1, 72)), 72, 180), store.inside(dim(0, 6), 1, 2));
  EXPECT_NE(store.inside(plus(dim(0, 6), 96, dim(1, 72)), 71, 180), store.inside(dim(0, 6), 1, 2));
  EXPECT_EQ(store.inside(plus(dim(0, 6), 96, dim(1, 72)), -20, 80), store.inside(dim(0, 6), 0, 1));
  // Within one row both the row and the place in it are limited.
  EXPECT_EQ(store.inside(plus(dim(0, 2), 48, dim(1, 48)), 50, 72),
            store.product({store.inside(dim(0, 2), 1, 2), store.inside(dim(1, 48), 2, 24)}));
  EXPECT_NE(store.inside(plus(dim(0, 3), 48, dim(1, 48)), 50, 100),
            store.product({store.inside(dim(0, 3), 1, 3), store.inside(dim(1, 48), 2, 24)}));
  const Term a = x({dim(0, 8)});
  EXPECT_EQ(
      store.sum(store.product({store.inside(dim(0, 8), 0, 3), a}), store.product({store.inside(dim(0, 8), 3, 8), a})),
      a);
}

TEST_F(Rules, termsWithOneConditionAreOne) {
  const Term a = x({dim(0, 8)}), b = w({dim(0, 8)}), low = store.inside(dim(0, 8), 0, 3),
             high = store.inside(dim(0, 8), 3, 8);
  const Term apart = store.sum(store.product({low, a}), store.product({low, b}));
  EXPECT_EQ(apart, store.product({low, store.sum(a, b)}));
  EXPECT_NE(apart, store.product({low, store.sum(a, a)}));
  EXPECT_EQ(store.sum(apart, store.product({high, a})), store.sum(a, store.product({low, b})));
  EXPECT_EQ(store.sum({{1.0, apart}, {-1.0, store.product({low, b})}}), store.product({low, a}));
}

// A packed gradient in 16 bits: parts that are rounded each, or padded, added and rounded.
TEST_F(Rules, piecesThatExcludeEachOtherAreRoundedEach) {
  const Index i = dim(0, 12);
  const Term a = x({i}), b = w({i});
  auto pieces = [&](Term left, Term right, int64_t border) {
    return store.sum(store.product({store.inside(i, 0, 8), left}), store.product({store.inside(i, border, 12), right}));
  };
  auto rounded = [&](Term t) { return store.rounded(t, "bf16"); };
  EXPECT_EQ(rounded(pieces(a, b, 8)), pieces(rounded(a), rounded(b), 8));
  EXPECT_EQ(rounded(pieces(rounded(a), store.times(0.5, b), 8)), pieces(rounded(a), rounded(store.times(0.5, b)), 8));
  EXPECT_EQ(rounded(rounded(a)), rounded(a));
  EXPECT_NE(rounded(pieces(a, b, 7)), pieces(rounded(a), rounded(b), 7)); // at 7 both are added
  EXPECT_NE(rounded(store.sum(a, b)), store.sum(rounded(a), rounded(b)));
  EXPECT_NE(store.rounded(rounded(a), "f16"), rounded(a));
}

TEST_F(Rules, aStoreThatIsFullSaysSoEachTime) {
  Store small(true, 20);
  auto fill = [&] {
    for (int64_t i = 0; i < 100; ++i) (void)small.leaf("x", {small.constant(i)});
  };
  EXPECT_THROW(fill(), Unproved);
  EXPECT_THROW(fill(), Unproved);
  EXPECT_LE(small.termCount(), 21u);
  EXPECT_EQ(small.leaf("x", {small.constant(0)}), small.leaf("x", {small.constant(0)})); // one that it has
}

TEST_F(Rules, whatIsInOneFactorAloneIsSummedThere) {
  const Atom i = fresh(4), k = fresh(8), l = fresh(8);
  const Term inner = sum({k}, x({store.of(i), store.of(k)}));
  const Term nested = sum({i}, store.product({w({store.of(i)}), inner}));
  EXPECT_EQ(sum({l, i}, store.product({w({store.of(i)}), x({store.of(i), store.of(l)})})), nested);
  EXPECT_NE(sum({l, i}, store.product({w({store.of(l)}), x({store.of(i), store.of(l)})})), nested);
}

TEST_F(Rules, partsThatAreDividedTogetherAreOneIndex) {
  const Atom c = fresh(2), k = fresh(24), q = fresh(3), r = fresh(16);
  auto squared = [&](Index a, Index b) { return store.product({x({a, b}), x({a, b})}); };
  const Index v = store.add(store.scale(store.of(c), 24), store.of(k));
  const Term whole = sum({q, r}, squared(store.of(q), store.of(r)));
  EXPECT_EQ(sum({c, k}, squared(store.quotient(v, 16), store.remainder(v, 16))), whole);
  EXPECT_NE(sum({c, k}, squared(store.quotient(v, 16), store.remainder(store.of(k), 16))), whole);
}

// What is divided within a definition, too: sum over k < 64 of w[k] (sum over b of x[(k + b) / 2] y[b])
TEST_F(Rules, partsOfWhatADefinitionDividesAreOneIndex) {
  auto window = [&](Index k) {
    const Atom b = fresh(3);
    const Term near = x({store.quotient(store.add(k, store.of(b)), 2)});
    return store.product({w({k}), sum({b}, store.product({near, store.leaf("y", {store.of(b)})}))});
  };
  const Atom k = fresh(64), c = fresh(16), r = fresh(4);
  const Index parts = plus(store.of(c), 4, store.of(r));
  EXPECT_EQ(sum({c, r}, window(parts)), sum({k}, window(store.of(k))));
  EXPECT_NE(sum({c, r}, window(store.add(parts, number(1)))), sum({k}, window(store.of(k))));
}

TEST_F(Rules, theSquareOfPiecesIsThatOfEach) {
  const Atom v = fresh(8);
  const Term low = store.inside(store.of(v), 0, 3), high = store.inside(store.of(v), 3, 8);
  const Term a = x({store.of(v)}), b = w({store.of(v)}), c = store.function("Exp", {a}), d = store.function("Exp", {b});
  auto pieces = [&](Term inLow, Term inHigh) {
    return store.sum(store.product({low, inLow}), store.product({high, inHigh}));
  };
  const Term both = store.sum(pieces(a, b), pieces(c, d)), left = store.sum(a, c), right = store.sum(b, d);
  EXPECT_EQ(sum({v}, store.product({both, both})),
            store.sum(sum({v}, store.product({low, left, left})), sum({v}, store.product({high, right, right}))));
  EXPECT_NE(sum({v}, store.product({both, both})), sum({v}, store.product({both, pieces(a, b)})));
  // Beside another factor its terms are apart, wherever they were added.
  const Term factor = store.function("Tanh", {a});
  EXPECT_EQ(sum({v}, store.product({factor, both})), store.sum(sum({v}, store.product({factor, pieces(a, b)})),
                                                               sum({v}, store.product({factor, pieces(c, d)}))));
}

TEST_F(Rules, aConditionLimitsWhatIsDivided) {
  const Index v = dim(0, 16);
  EXPECT_EQ(store.inside(store.quotient(v, 8), 0, 1), store.inside(v, 0, 8));
  const Term lower = store.inside(v, 0, 8), upper = store.inside(v, 8, 16);
  EXPECT_EQ(store.product({lower, x({store.remainder(v, 8)})}), store.product({lower, x({v})}));
  EXPECT_EQ(store.product({upper, x({store.remainder(v, 8)})}),
            store.product({upper, x({store.subtract(v, number(8))})}));
  EXPECT_NE(store.product({upper, x({store.remainder(v, 8)})}), store.product({upper, x({v})}));
}

TEST_F(Rules, openingDoesNotCatchFreeVariables) {
  // sum over k of x[i, k], at i := the variable that its own k would have
  const Atom i = fresh(8), k = fresh(8);
  const Term row = sum({k}, x({store.of(i), store.of(k)}));
  for (const Atom other : {i, k, fresh(8)}) {
    const Term moved = store.replace(row, {{i, store.of(other)}});
    std::vector<Atom> over;
    EXPECT_EQ(store.open(moved, &over)[0], x({store.of(other), store.of(over.at(0))}));
    EXPECT_NE(over[0], other);
  }
}

TEST_F(Rules, theOrderOfFactorsDoesNotDependOnNames) {
  auto shifted = [&](Atom v) { return store.add(store.of(v), number(8)); };
  const Atom a = fresh(8), b = fresh(8);
  const Term first = store.product({x({store.of(a)}), x({shifted(a)})});
  const Term second = store.product({x({shifted(b)}), x({store.of(b)})});
  EXPECT_EQ(store.term(first).definition, store.term(second).definition);
  EXPECT_EQ(sum({a}, first), sum({b}, second));
}

TEST_F(Rules, definitionsAreTheSameWhereverTheyAreApplied) {
  const Term a = store.function("Exp", {x({dim(0, 4)})});
  EXPECT_EQ(store.replace(a, {{store.variable(Variable::Dimension, 0, 4), number(2)}}),
            store.function("Exp", {x({number(2)})}));
  EXPECT_NE(a, store.function("Tanh", {x({dim(0, 4)})}));
}

TEST_F(Rules, aDifferenceIsShownInNumbers) {
  const Term a = x({dim(0, 4)});
  EXPECT_EQ(differ(store, store.sum(a, a), store.times(2, a)), "");
  EXPECT_NE(differ(store, a, store.times(2, a)), "");
  EXPECT_NE(differ(store, a, x({store.subtract(number(3), dim(0, 4))})), "");
}

// g(m, i) = sum over k < 4 of x[m, k, i] w[k]
class Microbatches : public Rules {
protected:
  Term g(int64_t m) {
    const Atom k = fresh(4);
    return sum({k}, store.product({x({of(m), store.of(k), dim(0, 8)}), w({store.of(k)})}));
  }
  Index of(int64_t m) { return store.of(store.microbatch(m)); }
  Term all(int64_t low, int64_t high) {
    Term total = store.number(0);
    for (int64_t m = low; m < high; ++m) total = store.sum(total, g(m));
    return total;
  }
};

TEST_F(Microbatches, areSummedAsOneTermInAnyOrder) {
  EXPECT_EQ(store.kindOf(all(0, 3)), Kind::Microbatches);
  EXPECT_EQ(store.sum(store.sum(g(2), g(0)), g(1)), all(0, 3));
  EXPECT_EQ(store.sum(all(0, 2), all(2, 5)), all(0, 5));
  EXPECT_EQ(store.gathered(store.microbatch(7), 0, 5, g(7)), all(0, 5));
  EXPECT_EQ(store.gathered(store.microbatch(7), 3, 4, g(7)), g(3));
  EXPECT_NE(all(0, 5), all(0, 4));
  EXPECT_NE(all(0, 5), all(1, 6));
  EXPECT_NE(store.sum(g(0), g(0)), all(0, 2));
  EXPECT_NE(store.sum(all(0, 3), g(2)), all(0, 4)); // one twice
}

TEST_F(Microbatches, partsAndFactorsAreSummedApart) {
  // s (a(m) - b(m)), s in all of them: s (sum of a - sum of b)
  const Term s = store.function("Reciprocal", {store.number(3)});
  auto both = [&](int64_t m) {
    return store.product({s, store.sum({{1.0, g(m)}, {-1.0, store.function("Exp", {g(m)})}})});
  };
  Term total = store.number(0), as = store.number(0), bs = store.number(0);
  for (int64_t m = 0; m < 4; ++m) {
    total = store.sum(total, both(m));
    as = store.sum(as, g(m));
    bs = store.sum(bs, store.function("Exp", {g(m)}));
  }
  EXPECT_EQ(total, store.product({s, store.sum({{1.0, as}, {-1.0, bs}})}));
  EXPECT_EQ(store.gathered(store.microbatch(0), 0, 4, both(0)), total);
}

TEST_F(Microbatches, aReductionIsOfEachMicrobatch) {
  // sum over i of a[i] (sum over m of g(m, i)) = sum over m of (sum over i of a[i] g(m, i))
  const Atom i = fresh(8);
  auto reduced = [&](Term t) {
    const Term at = store.replace(t, {{store.variable(Variable::Dimension, 0, 8), store.of(i)}});
    return sum({i}, store.product({store.leaf("a", {store.of(i)}), at}));
  };
  EXPECT_EQ(reduced(all(0, 3)), store.sum(store.sum(reduced(g(0)), reduced(g(1))), reduced(g(2))));
  const Term square = store.product({all(0, 3), all(0, 3)});
  EXPECT_NE(square, store.sum(store.sum(store.product({g(0), g(0)}), store.product({g(1), g(1)})),
                              store.product({g(2), g(2)})));
}

TEST_F(Microbatches, oneStandsForAnother) {
  EXPECT_EQ(store.ofMicrobatch(g(1), store.microbatch(1), store.microbatch(5)), g(5));
  EXPECT_TRUE(store.isOf(g(1), store.microbatch(1)));
  EXPECT_FALSE(store.isOf(g(1), store.microbatch(2)));
  EXPECT_FALSE(store.isOf(all(0, 2), store.microbatch(0)));
  EXPECT_TRUE(store.isOf(store.number(3), store.microbatch(0)));
}

TEST_F(Microbatches, aLeafStandsForATerm) {
  const std::vector<Atom> over = {store.variable(Variable::Dimension, 0, 8)};
  const Term leaf = store.standIn("what lay there", over);
  const Term next = store.sum(leaf, g(4));
  EXPECT_EQ(store.addedTo(leaf, next), g(4));
  EXPECT_FALSE(store.addedTo(leaf, store.sum(next, store.function("Exp", {leaf}))).has_value());
  EXPECT_FALSE(store.addedTo(leaf, store.times(2, next)).has_value());
  const Store::Originals original = [&](Definition) { return Store::Original{over, all(0, 4)}; };
  EXPECT_EQ(store.withOriginals(next, original), all(0, 5));
  // At another index: leaf[7 - i]
  const Term turned = store.replace(next, {{over[0], store.subtract(number(7), dim(0, 8))}});
  EXPECT_EQ(store.withOriginals(turned, original),
            store.replace(all(0, 5), {{over[0], store.subtract(number(7), dim(0, 8))}}));
  // Not in an index, where nobody would look for it.
  EXPECT_THROW(store.row(leaf, 8), Unproved);
}

// Padding: 5 of 8 entries count.
class Padding : public Rules {
protected:
  Padding() : Rules(/*hasPadding=*/true) {}
  Term isReal(Index index) { return store.inside(index, 0, 5); }
  Term orMinusInfinity(Term condition, Term value) {
    return store.function("Where", {condition, value, store.number(-std::numeric_limits<double>::infinity())});
  }
  Term maximum(std::vector<Atom> over, Term body) { return store.reduce(Reduce::Max, std::move(over), body); }
  Term less(Term a, Term b) { return store.sum({{1.0, a}, {-1.0, b}}); }
};

TEST_F(Padding, aMaximumLeavesOutWhatIsMinusInfinity) {
  const Atom k = fresh(8), real = fresh(5), other = fresh(4);
  const Term masked = orMinusInfinity(isReal(store.of(k)), x({store.of(k)}));
  EXPECT_EQ(maximum({k}, masked), maximum({real}, x({store.of(real)})));
  EXPECT_NE(maximum({k}, masked), maximum({other}, x({store.of(other)})));
  const Term zero = store.product({isReal(store.of(k)), x({store.of(k)})});
  EXPECT_NE(maximum({k}, zero), maximum({real}, x({store.of(real)})));
}

TEST_F(Padding, aSoftmaxLeavesOutWhatIsMinusInfinity) {
  const Atom k = fresh(8), real = fresh(5);
  auto weight = [&](Term score, Term most) { return store.function("Exp", {less(score, most)}); };
  const Term masked = orMinusInfinity(isReal(store.of(k)), x({store.of(k)})), most = maximum({k}, masked);
  const Term wanted = sum({real}, weight(x({store.of(real)}), maximum({real}, x({store.of(real)}))));
  EXPECT_EQ(sum({k}, weight(masked, most)), wanted);
  // A cast to 16 bits, and one mask in another.
  EXPECT_EQ(store.rounded(masked, "bf16"),
            orMinusInfinity(isReal(store.of(k)), store.rounded(x({store.of(k)}), "bf16")));
  const Term causal = store.inside(store.subtract(dim(0, 8), store.of(k)), 0, 8);
  const Term both = orMinusInfinity(isReal(store.of(k)), orMinusInfinity(causal, x({store.of(k)})));
  const Term inner =
      orMinusInfinity(store.inside(store.subtract(dim(0, 8), store.of(real)), 0, 8), x({store.of(real)}));
  EXPECT_EQ(sum({k}, weight(both, maximum({k}, both))), sum({real}, weight(inner, maximum({real}, inner))));
}

// Where a causal mask leaves nothing, the maximum is minus infinity, and the difference no number.
TEST_F(Padding, conditionsOnTwoIndicesStayInExponents) {
  const Term causal = store.inside(store.subtract(dim(0, 8), dim(1, 8)), 0, 8);
  const Term weight = store.function("Exp", {orMinusInfinity(causal, x({dim(1, 8)}))});
  EXPECT_EQ(store.kindOf(weight), Kind::Function);
}

TEST_F(Padding, aConditionHoldsWithinFunctionsBesideIt) {
  const Index d = dim(0, 8);
  const Term real = isReal(d), padded = store.product({real, x({d})});
  auto inverse = [&](Term t) { return store.function("Reciprocal", {store.sum(t, store.number(1))}); };
  EXPECT_EQ(store.product({real, inverse(padded)}), store.product({real, inverse(x({d}))}));
  EXPECT_NE(inverse(padded), inverse(x({d})));
  EXPECT_NE(store.product({store.inside(d, 0, 6), inverse(padded)}),
            store.product({store.inside(d, 0, 6), inverse(x({d}))}));
  EXPECT_EQ(store.function("Sqrt", {padded}), store.product({real, store.function("Sqrt", {x({d})})}));
  EXPECT_NE(store.function("Cos", {padded}), store.product({real, store.function("Cos", {x({d})})}));
}

TEST_F(Padding, aConditionThatAnotherImpliesGoes) {
  const Index d = dim(0, 8), row = store.row(w({dim(1, 4)}), 5);
  const Term isIt = store.inside(store.subtract(d, row), 0, 1);
  EXPECT_EQ(store.product({isIt, isReal(d)}), isIt);
  EXPECT_NE(store.product({isIt, store.inside(d, 0, 4)}), isIt);
}

} // namespace
} // namespace cleave::proof
