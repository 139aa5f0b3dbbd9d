// 2D and 3D tensor parallelism: the features of every tensor over one axis, and with a second axis samples over that.
#include "compiler/planner/split/laying.h"

namespace cleave::planner {
namespace {

// Between operations: features over the first axis and samples over the second, or the other way round; on a plane,
// which has one axis here, Samples stand for features that do not divide.
enum class Form : uint8_t { Unknown, First, Second, Samples };

class GridWalk {
public:
  explicit GridWalk(Laying &laying)
      : laying(laying), problem(laying.problem), facts(laying.facts), isPlanar(laying.axes.size() == 1),
        form(problem.tensors.size(), Form::Unknown), feature(problem.tensors.size(), -1), wanted(problem) {}

  void run() {
    findWantedFeatures();
    for (size_t i = 0; i < problem.nodes.size(); ++i) isProduct(i) ? visitProduct(i) : visitOther(i);
  }

private:
  // A product that makes heads makes them split: the dimension that attention splits, back to the product it comes
  // from.
  void findWantedFeatures() {
    for (size_t i = problem.nodes.size(); i-- > 0;) {
      const Node &node = problem.nodes[i];
      int64_t factor = facts.sequence.inAttention[i] ? facts.sequence.heads[i] : -1;
      for (size_t r = 0; factor < 0 && node.cheap && r < node.results.size(); ++r)
        factor = factorAt(node.rule, node.rule.results[r], wanted.of[size_t(node.results[r])]);
      wanted.propagate(node, factor);
    }
  }

  int64_t weightOf(size_t i) const {
    const Node &node = problem.nodes[i];
    for (size_t o = 0; o < node.operands.size(); ++o)
      if (isMatrix(problem.tensors[size_t(node.operands[o])])) return int64_t(o);
    return -1;
  }
  // A sum over a factor that only a table has.
  bool isLookup(size_t i) const {
    int64_t rows = facts.vocabularyFactors[i];
    return rows >= 0 && problem.nodes[i].rule.factors[size_t(rows)].kind == dist::Factor::Reduced;
  }
  bool isProduct(size_t i) const { return weightOf(i) >= 0 && (!problem.nodes[i].cheap || isLookup(i)); }

  // Where features do not divide.
  Form withoutFeatures(Form in) const { return isPlanar ? Form::Samples : in; }
  size_t featureAxis(Form which) const { return isPlanar || which == Form::First ? 0 : 1; }
  Form other(Form which) const { return isPlanar ? Form::First : which == Form::First ? Form::Second : Form::First; }

  // The input among the operands that are not weights: the first of a known form, one with features before others.
  int64_t inputOf(size_t i) const {
    const Node &node = problem.nodes[i];
    int64_t best = -1;
    for (size_t o = 0; o < node.operands.size(); ++o) {
      size_t t = size_t(node.operands[o]);
      if (form[t] == Form::Unknown) continue;
      if (feature[t] >= 0) return int64_t(o);
      if (best < 0) best = int64_t(o);
    }
    return best;
  }
  int64_t featureFactor(size_t i, int64_t operand) const {
    if (operand < 0) return -1;
    const Node &node = problem.nodes[i];
    return factorAt(node.rule, node.rule.operands[size_t(operand)], feature[size_t(node.operands[size_t(operand)])]);
  }

  // The weight's factor that becomes the result's features: heads where attention follows, else the largest.
  int64_t columnsOf(size_t i, size_t axis) const {
    const Node &node = problem.nodes[i];
    size_t weight = size_t(weightOf(i));
    auto isColumn = [&](int64_t factor) {
      if (factor < 0 || factor == facts.batchFactors[i] || !laying.can(axis, i, factor)) return false;
      for (size_t o = 0; o < node.operands.size(); ++o)
        if ((dimOf(node.rule, node.rule.operands[o], factor) >= 0) != (o == weight)) return false;
      return dimOf(node.rule, node.rule.results[0], factor) >= 0;
    };
    int64_t best = factorAt(node.rule, node.rule.results[0], wanted.of[size_t(node.results[0])]);
    if (isColumn(best)) return best;
    best = -1;
    for (size_t f = 0; f < node.rule.factors.size(); ++f)
      if (isColumn(int64_t(f)) && (best < 0 || node.rule.factors[f].size > node.rule.factors[size_t(best)].size))
        best = int64_t(f);
    return best;
  }

  void visitProduct(size_t i) {
    int64_t input = inputOf(i);
    Form in = input < 0 ? Form::First : form[size_t(problem.nodes[i].operands[size_t(input)])];
    if (in == Form::Samples) in = Form::First;
    if (isLookup(i)) {
      int64_t columns = columnsOf(i, featureAxis(Form::First));
      place(i, Form::First, columns);
      return settle(i, columns < 0 ? withoutFeatures(Form::First) : Form::First, columns);
    }
    int64_t rows = featureFactor(i, input);
    size_t rowAxis = featureAxis(in), columnAxis = isPlanar ? 0 : 1 - rowAxis;
    int64_t columns = columnsOf(i, columnAxis);
    if (columns >= 0) laying.give(columnAxis, i, columns);
    // On a plane the rows are gathered, unless the columns do not divide. The rest of the axes takes samples.
    if (!isPlanar || columns < 0)
      if (!laying.give(rowAxis, i, rows)) laying.giveSamples(rowAxis, i);
    if (!isPlanar && columns < 0) laying.giveSamples(columnAxis, i);
    settle(i, columns < 0 ? withoutFeatures(in) : other(in), columns);
  }

  void visitOther(size_t i) {
    int64_t input = inputOf(i);
    if (input < 0) return; // of parameters or masks: as its readers want it
    Form in = form[size_t(problem.nodes[i].operands[size_t(input)])];
    int64_t factor = featureFactor(i, input);
    place(i, in, factor);
    settle(i, in, factor);
  }

  void place(size_t i, Form which, int64_t factor) {
    bool isSamples = which == Form::Samples;
    if (!isSamples) laying.give(featureAxis(which), i, factor);
    for (size_t axis = 0; axis < laying.axes.size(); ++axis)
      if (isSamples || axis != featureAxis(which)) laying.giveSamples(axis, i);
  }
  void settle(size_t i, Form which, int64_t factor) {
    const Node &node = problem.nodes[i];
    for (size_t r = 0; r < node.results.size(); ++r) {
      form[size_t(node.results[r])] = which;
      if (which != Form::Samples) feature[size_t(node.results[r])] = dimOf(node.rule, node.rule.results[r], factor);
    }
  }

  Laying &laying;
  const Problem &problem;
  const ProblemFacts &facts;
  bool isPlanar;
  std::vector<Form> form;
  std::vector<int64_t> feature; // per tensor: dimension
  LogicalAxis wanted;           // and as attention wants it
};

} // namespace

void layGrid(Laying &laying) { GridWalk(laying).run(); }

} // namespace cleave::planner
