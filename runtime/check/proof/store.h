// Symbolic numbers: what a device holds, as a function of where it lies in the tensor and on the mesh.
//
// An *index* is an integer expression of variables with known ranges: sums with integer factors, quotients and
// remainders by constants, and the row that a number of the data names. A *term* is a real number: a definition applied
// to indices. Definitions are closed, so a term is as small as its indices, however much led to it:
//
//   device's part of x (4 of 8 rows, axis dp)       x[d0 + 4 dp, d1]
//   local product                                   D7[d0 + 4 dp, d1]      D7(p0, p1) = sum over k of x[p0, k] w[k, p1]
//   all-gather along dimension 0                    D7[d0, d1]             dp := d0 / 4, d0 := d0 % 4
//
// Everything is interned: equal numbers mean equal expressions. All constructors bring what they make into one form by
// identities of real arithmetic, so two terms with the same number are equal for all values of their variables and of
// the tensors. The reverse need not hold: what is not brought to one form is not proved.
//
// Coordinates of the mesh are variables, so one walk over a program stands for all its devices.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cleave::proof {

// The reason why a step cannot be proved. Thrown inside the prover only.
struct Unproved {
  std::string why;
};

enum class Index : int32_t {};
enum class Atom : int32_t {};
enum class Term : int32_t {};
enum class Definition : int32_t {};

// Dimension: of the tensor that a term is a value of. Coordinate: along a mesh axis. Bound: what a reduction runs over,
// inside its definition; Fresh: the same while it is worked on. Parameter: of a definition. Microbatch: the number of
// one, whose values say nothing of each other.
enum class Variable : int8_t { Dimension, Fresh, Bound, Parameter, Coordinate, Microbatch };

struct AtomNode {
  enum Kind : int8_t { Row, Quotient, Remainder, Var } kind;
  Variable variable = Variable::Dimension;
  int64_t number = 0; // of a variable
  int64_t size = 0;   // variable: in [0, size), 0 where it is not known; Row: rows; else what is divided by
  Index of{};         // Quotient, Remainder
  Term term{};        // Row
};
struct Range {
  int64_t low, high; // inclusive
  static constexpr int64_t infinite = int64_t(1) << 60;
  bool isFinite() const { return low > -infinite && high < infinite; }
};
struct IndexNode {
  int64_t constant = 0;
  std::vector<std::pair<Atom, int64_t>> terms; // atoms with their factors, by atom
  Range range;
  std::vector<Atom> variables; // all in it, sorted
  int64_t level = 0;           // of its latest fresh variable, from 1 on
  uint64_t likeness = 0;       // the same for indices that differ in the names of variables, or in the constant
};

inline constexpr size_t mostExpressions = 2'500'000; // that a store makes
inline constexpr int8_t mostFragile = 3;
inline constexpr int64_t manyConditions = int64_t{1} << 61;
inline constexpr int64_t anyMicrobatch = -1;          // what a sum over microbatches runs over, while it is worked on
inline constexpr int64_t unbounded = Range::infinite; // as a condition's bound

// Microbatches: the sum over the microbatches from `low` to below `high`.
// Table: an integer of a constant.
enum class Kind : int8_t {
  Leaf,
  Number,
  Index,
  Table,
  Inside,
  Function,
  Sum,
  Product,
  Reduction,
  Opaque,
  Microbatches
};
enum class Reduce : int8_t { Sum, Max, Min };

// Blocks of as many parameters each, which may change places: the number is the same in any order of the blocks, or
// `isCyclic`: in any turn of them.
struct Symmetry {
  std::vector<std::vector<size_t>> blocks{};
  bool isCyclic = false;
};

struct DefinitionNode {
  Kind kind;
  std::string name{};            // Leaf: the tensor; Function, Opaque: the operation
  double number = 0;             // Number
  int64_t low = 0, high = 0;     // Inside: low <= index < high; Microbatches
  Reduce reduce = Reduce::Sum;   // Reduction
  std::vector<int64_t> sizes{};  // Reduction, Opaque: of what it runs over
  std::vector<double> factors{}; // Sum: of its children
  std::vector<Term> children{};  // over Parameter and Bound variables
  // Other indices may bring it to another form: how many levels of sums and products around it are looked through then.
  int8_t fragility = 0;
  // Somewhere in it:
  int64_t conditions = 0;             // on indices: how many, up to `manyConditions`
  bool isGathered = false;            // sums over microbatches
  bool hasStandIns = false;           // leaves that stand for other terms
  std::vector<int64_t> numbers{};     // Table
  std::vector<Symmetry> symmetries{}; // no parameter is in two of them
};
struct TermNode {
  Definition definition;
  std::vector<Index> arguments;
  std::vector<Atom> variables; // all in it, sorted
};

// Indices in the place of variables.
class Replacement {
public:
  Replacement() = default;
  Replacement(std::initializer_list<std::pair<Atom, Index>> pairs) {
    for (auto [variable, by] : pairs) add(variable, by);
  }
  void add(Atom variable, Index by);
  const Index *find(Atom variable) const;            // null: it stays
  bool isFor(const std::vector<Atom> &sorted) const; // any of them

private:
  std::vector<std::pair<Atom, Index>> pairs; // by variable
};

class Store {
public:
  // `roundings`: casts to a narrower float are functions with a name; else nothing. More terms than `most` are
  // Unproved. `hasPadding`: conditions are looked for within functions, too, which takes longer.
  explicit Store(bool roundings = true, size_t most = mostExpressions, bool hasPadding = false);

  const bool hasPadding;

  // Indices.
  Atom variable(Variable kind, int64_t number, int64_t size);
  Atom parameter(int64_t number);
  // One that is none of these: of the same names, the same one.
  Atom fresh(const std::vector<Atom> &beside, int64_t size);
  Index constant(int64_t value);
  Index of(Atom atom);
  // A tensor's index along a dimension; 0 where that has one entry.
  Index dimension(int64_t number, int64_t size);
  Index add(Index a, Index b);
  Index scale(Index a, int64_t factor);
  Index subtract(Index a, Index b) { return add(a, scale(b, -1)); }
  Index quotient(Index a, int64_t by);
  Index remainder(Index a, int64_t by);
  // The row of a table of so many that a number names. Negative ones count from the end; others are an error of the
  // run.
  Index row(Term number, int64_t rows);
  // Wherever the places lie in a tensor of that shape, the number at them names one of so many rows, and is not
  // negative. Then `number + rows * entry` names that row of the entry's, where a table has all entries' rows.
  void nameRows(Term number, const std::vector<Index> &places, const std::vector<int64_t> &shape, int64_t rows);
  Index replace(Index index, const Replacement &by);
  const IndexNode &node(Index index) const { return indices[static_cast<size_t>(index)]; }
  const AtomNode &atom(Atom atom) const { return atoms[static_cast<size_t>(atom)]; }
  bool isConstant(Index index) const { return node(index).terms.empty(); }
  int64_t factorOf(Index index, Atom atom) const;

  // Terms.
  Term number(double value);
  Term leaf(const std::string &name, std::vector<Index> arguments);
  Term indexValue(Index index);
  // The number at a place in a constant. Where it grows by as much from each place to the next, it is an index.
  Term table(const std::vector<int64_t> &numbers, Index at);
  Term inside(Index index, int64_t low, int64_t high); // 1 where low <= index < high, else 0
  Term function(const std::string &name, std::vector<Term> children);
  // Pieces that exclude each other are rounded each by itself; a value that has been rounded so stays.
  Term rounded(Term x, const std::string &type);
  Term sum(const std::vector<std::pair<double, Term>> &terms);
  Term sum(Term a, Term b) { return sum({{1.0, a}, {1.0, b}}); }
  Term product(const std::vector<Term> &factors);
  Term times(double factor, Term term) { return sum({{factor, term}}); }
  Term reduce(Reduce kind, std::vector<Atom> over, Term body);
  // An operation that is only a name: the same where it is applied to the same, as functions of `over`.
  Term opaque(const std::string &name, const std::vector<Atom> &over, const std::vector<Term> &bodies,
              const std::vector<Index> &at);
  Term replace(Term term, const Replacement &by);
  // Made once more from its parts where there are conditions: indices may decide them by now.
  Term settled(Term term);

  // Microbatches (microbatches.cpp).
  Atom microbatch(int64_t number) { return variable(Variable::Microbatch, number, 0); }
  // The same of another microbatch.
  Term ofMicrobatch(Term t, Atom from, Atom to);
  // Whether a term has to do with this microbatch alone, or with none.
  bool isOf(Term t, Atom microbatch) const;
  // The sum of `t`, in which is `microbatch`, over those from low to below high.
  Term gathered(Atom microbatch, int64_t low, int64_t high, Term t);

  // A leaf that stands for a term of these variables, until it is replaced by it.
  Term standIn(const std::string &name, const std::vector<Atom> &variables);
  struct Original {
    std::vector<Atom> variables;
    Term value;
  };
  using Originals = std::function<Original(Definition)>; // by the leaf's definition
  Term withOriginals(Term t, const Originals &originals);
  // The rest of a sum in which the leaf is one term; nothing: the term is no such sum.
  std::optional<Term> addedTo(Term leaf, Term t);
  bool hasStandIns(Term t) const { return definitionOf(t).hasStandIns; }

  const TermNode &term(Term t) const { return terms[static_cast<size_t>(t)]; }
  const DefinitionNode &definition(Definition d) const { return definitions[static_cast<size_t>(d)]; }
  const DefinitionNode &definitionOf(Term t) const { return definition(term(t).definition); }
  Kind kindOf(Term t) const { return definitionOf(t).kind; }
  bool isNumber(Term t, double value) const { return kindOf(t) == Kind::Number && definitionOf(t).number == value; }
  static bool isCommutative(const std::string &function);
  static bool isUnordered(const DefinitionNode &made); // its children
  bool dependsOn(Term t, Atom variable) const;
  bool dependsOn(Index index, Atom variable) const;
  // The parts of a term's definition, at the term's indices. `over`: the variables of a reduction, now fresh.
  std::vector<Term> open(Term t, std::vector<Atom> *over = nullptr);

  std::string show(Index index) const;
  std::string show(Term term, int depth = 3) const;
  size_t termCount() const { return terms.size(); }
  size_t definitionCount() const { return definitions.size(); }

private:
  using Key = std::vector<int64_t>;
  struct KeyHash {
    size_t operator()(const Key &key) const;
  };
  static uint64_t mixed(uint64_t hash, uint64_t part) {
    hash ^= part + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
    return hash * 0xff51afd7ed558ccd;
  }
  using Ids = std::unordered_map<Key, int32_t, KeyHash>;

  // Terms are found by what they are, which they hold themselves.
  struct Application {
    Definition definition;
    const std::vector<Index> &arguments;
  };
  struct TermHash {
    using is_transparent = void;
    const Store &store;
    size_t operator()(const Application &of) const;
    size_t operator()(Term t) const { return (*this)({store.term(t).definition, store.term(t).arguments}); }
  };
  struct TermEqual {
    using is_transparent = void;
    const Store &store;
    bool operator()(Term a, Term b) const { return a == b; }
    bool operator()(const Application &of, Term t) const {
      return of.definition == store.term(t).definition && of.arguments == store.term(t).arguments;
    }
    bool operator()(Term t, const Application &of) const { return (*this)(of, t); }
  };

  // index.cpp
  Atom intern(const AtomNode &node);
  Index intern(int64_t constant, const std::map<Atom, int64_t> &terms);
  Range rangeOf(const AtomNode &atom) const;
  std::vector<Atom> variablesOf(const AtomNode &atom, Atom self) const;
  uint64_t likenessOf(const AtomNode &atom) const;
  bool joinQuotients(int64_t &constant, std::map<Atom, int64_t> &terms);
  std::optional<Index> rowOfEntry(Term number, int64_t rows);
  bool isMicrobatch(Index index) const;
  bool namesRow(Term number, int64_t rows);
  struct Split; // of an index that is divided
  Split split(Index a, int64_t by);

  // term.cpp
  Definition intern(DefinitionNode node);
  Term intern(Definition definition, std::vector<Index> arguments);
  Term close(DefinitionNode node, std::vector<Term> children);
  Term apply(Definition definition, std::vector<Index> arguments);
  Term rebuild(Term term);
  struct Names {
    Replacement plain, back;
  };
  using Known = std::unordered_map<Term, Term>;
  Term once(Known &known, Definition which, std::vector<Index> arguments, Term (Store::*make)(Term));
  Term settledAnew(Term t);
  Names plainNames(const std::vector<Atom> &variables);
  Term renamed(Term t, const Replacement &by);
  Term assemble(const DefinitionNode &made, const std::vector<Atom> &over, std::vector<Term> children);
  void order(std::vector<Term> &operands) const;
  bool isBefore(Term a, Term b) const;
  std::vector<int64_t> nameOf(Index index) const;
  Term compare(const std::string &name, Term a, Term b);
  double divisorIn(double factor, Term t) const;
  void inherit(DefinitionNode &made, Term child) const;
  // The index that a term is the value of, if it is one.
  bool asIndex(Term t, Index &index);
  std::optional<Index> affineOf(const std::vector<int64_t> &table, Index at);

  // pieces.cpp
  bool isConcatenation(Term term) const;
  std::vector<Term> piecesOf(Term t, const std::vector<Term> &factors);
  bool meets(Term sum, const std::vector<Term> &factors);
  bool useConditions(std::vector<Term> &factors, Term &result);
  int64_t conditionsIn(Term t) const;
  void dropImplied(std::vector<Term> &factors);
  std::optional<std::pair<std::vector<Term>, Term>> commonConditions(Term t);
  bool isMinusInfinity(Term t) const;
  struct Masked { // a value where a condition holds, else minus infinity
    Term condition, value;
  };
  std::optional<Masked> masked(Term t);
  Term masked(Term condition, Term value);
  std::optional<Term> withoutMinusInfinity(Term exponent);
  void mergeInside(std::vector<Term> &factors);
  bool mergePieces(std::vector<std::pair<double, Term>> &terms);
  bool isUnderCondition(Term t) const;
  bool excludeEachOther(Term a, Term b);
  struct Conditional;
  Conditional conditional(Term t);
  std::optional<std::vector<std::pair<double, Term>>> termsOf(Term t);
  void joinConditions(std::vector<std::pair<double, Term>> &terms);
  std::optional<Term> insideOne(Index index, int64_t low, int64_t high);

  // symmetry.cpp
  using Weight = std::function<uint64_t(Index)>;
  std::vector<Symmetry> symmetriesOf(const DefinitionNode &made);
  std::vector<int64_t> placesOf(Term t) const;
  std::vector<int64_t> placesOf(Atom variable, Term t) const;
  bool isSymmetric(const DefinitionNode &made, const Symmetry &symmetry);
  std::optional<Symmetry> symmetryBetween(const std::vector<Index> &left, const std::vector<Index> &right) const;
  void forEachTwins(const DefinitionNode &made, const std::vector<Term> &children,
                    const std::function<void(size_t, size_t)> &with) const;
  void arrange(Definition definition, std::vector<Index> &arguments, const Weight &weight) const;
  Weight usesIn(const DefinitionNode &made, const std::vector<Term> &children) const;
  void orderTwins(const DefinitionNode &made, std::vector<Term> &children, const Weight &uses) const;

  // microbatches.cpp
  struct Share; // of a term of a sum in what is summed over microbatches
  std::optional<Term> firstGathered(Term t) const;
  bool shareOf(Term t, Share &share);
  uint64_t likenessOf(Term t);
  Term gatheredFrom(Atom microbatch, int64_t low, int64_t high, Term t);
  bool joinShares(const Share &first, Share &second);
  bool mergeMicrobatches(std::vector<std::pair<double, Term>> &terms);

  // reduction.cpp
  Term reduceRenamed(Reduce kind, std::vector<Atom> over, Term body);
  Term abstracted(DefinitionNode node, const std::vector<Atom> &over, const std::vector<Term> &bodies,
                  const std::vector<Index> &at);
  std::optional<std::pair<int64_t, int64_t>> valuesThatMeet(Term condition, Atom v) const;
  Term limited(Term body, Atom &v, std::pair<int64_t, int64_t> values);
  bool removeInside(std::vector<Atom> &over, Term &body);
  bool limitMaximum(std::vector<Atom> &over, Term &body);
  std::optional<Term> joined(Term first, Term second);
  bool mergeNeighbours(std::vector<std::pair<double, Term>> &terms);
  Term undivided(Term t, Atom variable, std::unordered_map<Term, Term> &done);
  bool splitVariables(std::vector<Atom> &over, Term &body);
  void nameByPlaces(std::vector<Atom> &over, Term &body);
  bool joinVariables(std::vector<Atom> &over, Term &body);
  void visitIndices(Term t, const std::function<void(Index)> &seen) const;
  int64_t divisionsOf(Term t, const std::vector<Atom> &variables) const;

  std::deque<AtomNode> atoms; // these stay where they are
  std::deque<IndexNode> indices;
  std::deque<TermNode> terms;
  std::deque<DefinitionNode> definitions;
  std::vector<Atom> parameters; // by number
  Ids atomIds, indexIds, definitionIds;
  std::unordered_set<Term, TermHash, TermEqual> termIds{0, TermHash{*this}, TermEqual{*this}};
  Key key; // of what is looked up
  std::unordered_map<std::string, int64_t> names;
  // Definitions that name one of so many rows wherever their indices are within these sizes (0: a microbatch's number),
  // or are those of some place.
  struct NamedRows {
    std::vector<int64_t> sizes;
    std::vector<Index> at;
  };
  std::map<std::pair<int64_t, Definition>, NamedRows> namedRows; // by the rows
  Known settledTerms;
  // Recursions over steps (CTC) come to the same terms again and again: decoders look 50 times for each, CTC 1,200.
  static constexpr size_t lookupsPerTerm = 12;
  size_t mostTerms, lookups = 0;
  std::unordered_map<Key, Term, KeyHash> reduced; // reductions in their form
  Known rebuilt;                                  // fragile terms in their form
  int depth = 0;                                  // of replace
  const bool roundings;
};

} // namespace cleave::proof
