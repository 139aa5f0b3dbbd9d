#include "runtime/base/sharding/factor_rule.h"
#include <gtest/gtest.h>

namespace cleave::dist {
namespace {

const Mesh ruleMesh{{{"dp", 2}, {"tp", 4}}};

// ([b,s,k],[k,n]) -> [b,s,n]
FactorRule matmul() {
  FactorRule rule;
  int64_t b = rule.add(8), s = rule.add(16), k = rule.add(64, Factor::Reduced), n = rule.add(256);
  rule.operands = {{{b}, {s}, {k}}, {{k}, {n}}};
  rule.results = {{{b}, {s}, {n}}};
  return rule;
}

// [b,(h d)] -> [b,h,d]
FactorRule splitHeads(int64_t heads) {
  FactorRule rule;
  int64_t b = rule.add(8), h = rule.add(heads), d = rule.add(16);
  rule.operands = {{{b}, {h, d}}};
  rule.results = {{{b}, {h}, {d}}};
  return rule;
}

TEST(FactorRule, prints) {
  EXPECT_EQ(matmul().str(), "([a,b,c],[c,d]) -> [a,b,d] a=8 b=16 reduced c=64 d=256");
  EXPECT_EQ(splitHeads(4).str(), "([a,(b c)]) -> [a,b,c] a=8 b=4 c=16");
}

TEST(FactorRule, aSplitSaysHowTensorsLie) {
  FactorRule rule = matmul();
  FactorSharding split = {{"dp"}, {}, {"tp"}, {}};
  EXPECT_EQ(operandSharding(rule, split, 0).str(), "[{dp},{},{tp}]");
  EXPECT_EQ(operandSharding(rule, split, 1).str(), "[{tp},{}]");
  EXPECT_EQ(resultSharding(rule, split, 0).str(), "[{dp},{},{}] partial(tp)");
}

TEST(FactorRule, reductionsOfOtherKinds) {
  FactorRule rule;
  int64_t b = rule.add(8), n = rule.add(4, Factor::Reduced, Reduction::Max);
  rule.operands = {{{b}, {n}}};
  rule.results = {{{b}}};
  EXPECT_EQ(resultSharding(rule, {{}, {"tp"}}, 0).str(), "[{}] partial_max(tp)");
}

TEST(FactorRule, compoundDimensionsSplitByTheirMajorFactor) {
  EXPECT_EQ(operandSharding(splitHeads(4), {{}, {"tp"}, {}}, 0).str(), "[{},{tp}]");
  EXPECT_FALSE(canSplit(ruleMesh, splitHeads(4), 2, {"tp"}));
  EXPECT_TRUE(canSplit(ruleMesh, splitHeads(1), 2, {"tp"})); // nothing before it
  EXPECT_EQ(operandSharding(splitHeads(1), {{}, {}, {"tp"}}, 0).str(), "[{},{tp}]");
}

TEST(FactorRule, unevenAndWholeFactorsCannotBeSplit) {
  FactorRule rule = splitHeads(6);
  EXPECT_FALSE(canSplit(ruleMesh, rule, 1, {"tp"}));
  EXPECT_TRUE(canSplit(ruleMesh, rule, 1, {"dp"}));
  EXPECT_FALSE(canSplit(ruleMesh, rule, 1, {"dp", "tp"}));
  rule.factors[0].kind = Factor::Whole;
  EXPECT_FALSE(canSplit(ruleMesh, rule, 0, {"dp"}));
  EXPECT_TRUE(canSplit(ruleMesh, rule, 0, {}));
}

FactorSharding infer(const FactorRule &rule, std::vector<std::string> operands, std::vector<std::string> results,
                     std::vector<size_t> priority) {
  std::vector<Sharding> held(operands.size() + results.size());
  std::vector<const Sharding *> in, out;
  std::string error;
  size_t next = 0;
  for (auto *list : {&operands, &results})
    for (const std::string &text : *list) {
      Sharding &sharding = held[next++];
      bool known = text != "?";
      if (known) EXPECT_TRUE(Sharding::parse(text, sharding, error)) << error;
      (list == &operands ? in : out).push_back(known ? &sharding : nullptr);
    }
  return inferFactorSharding(ruleMesh, rule, in, out, priority);
}

TEST(FactorRule, inference) {
  FactorRule rule = matmul();
  using Split = FactorSharding;
  EXPECT_EQ(infer(rule, {"[{dp},{},{tp}]", "?"}, {"?"}, {0, 1}), (Split{{"dp"}, {}, {"tp"}, {}}));
  EXPECT_EQ(infer(rule, {"[{dp},{},{}]", "[{},{tp}]"}, {"?"}, {0, 1}), (Split{{"dp"}, {}, {}, {"tp"}}));
  EXPECT_EQ(infer(rule, {"?", "?"}, {"[{dp},{},{tp}]"}, {}), (Split{{"dp"}, {}, {}, {"tp"}}));
  // The first in the order wins an axis.
  EXPECT_EQ(infer(rule, {"[{tp},{},{}]", "[{},{tp}]"}, {"?"}, {0, 1}), (Split{{"tp"}, {}, {}, {}}));
  EXPECT_EQ(infer(rule, {"[{tp},{},{}]", "[{},{tp}]"}, {"?"}, {1, 0}), (Split{{}, {}, {}, {"tp"}}));
  // A longer split of the same dimension is taken over.
  EXPECT_EQ(infer(rule, {"[{},{},{tp}]", "[{tp,dp},{}]"}, {"?"}, {0, 1}), (Split{{}, {}, {"tp", "dp"}, {}}));
  // Partial axes say nothing.
  EXPECT_EQ(infer(rule, {"[{dp},{},{}] partial(tp)", "?"}, {"?"}, {0}), (Split{{"dp"}, {}, {}, {}}));
}

TEST(FactorRule, inferenceDropsWhatDoesNotDivide) {
  FactorRule rule = splitHeads(6);
  EXPECT_EQ(infer(rule, {"[{dp},{tp}]"}, {"?"}, {0}), (FactorSharding{{"dp"}, {}, {}}));
  EXPECT_EQ(infer(rule, {"[{tp},{dp}]"}, {"?"}, {0}), (FactorSharding{{"tp"}, {"dp"}, {}}));
}

} // namespace
} // namespace cleave::dist
