// What recomputation does again, of a GPT whose products can be counted by hand.
#include "compiler/planner/split_model.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>

using namespace cleave;
using namespace cleave::planner;
using namespace cleave::planner::testing;

namespace {

// FLOP of the products of a forward pass that `full` computes again.
double flopsAgain(const Problem &problem, const Constraints &constraints) {
  const ProblemFacts facts = gatherFacts(problem, constraints);
  double flops = 0;
  for (const Variable &variable : facts.structure->variables)
    if (!variable.isHome && variable.inSegment && !problem.nodes[size_t(variable.index)].cheap)
      flops += double(variable.count) * problem.nodes[size_t(variable.index)].flops;
  return flops;
}

// Of a layer's 24 b s h^2 FLOP in products with weights the last product's 8 are not needed: what it makes is added to
// the residual stream, which is kept. Scores and weighing are 4 b s^2 h.
TEST(Recomputation, LeavesOutWhatNothingReadsAgain) {
  const double b = 2, s = 16, h = 32, layers = 3;
  const Problem problem = gpt({2, 16, 32, 4, 3, 64});
  EXPECT_DOUBLE_EQ(flopsAgain(problem, {}), layers * (16 * b * s * h * h + 4 * b * s * s * h));
  Constraints all;
  all.recomputesAll = true;
  EXPECT_DOUBLE_EQ(flopsAgain(problem, all), layers * (24 * b * s * h * h + 4 * b * s * s * h));
}

} // namespace
