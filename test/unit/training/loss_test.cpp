// Losses and their gradients against formulas written out in doubles.
#include "test/unit/training/models.h"
#include "test/unit/training/step_harness.h"
#include <cmath>

using namespace cleave;
using namespace cleave::training;
using namespace cleave::training::testing;
using runtime::HostTensor;

namespace {

recipe::Recipe recipeFor(recipe::LossKind kind) {
  recipe::Recipe recipe;
  recipe.losses[0].kind = kind;
  recipe.optimizer.kind = recipe::OptimizerKind::Sgd;
  return recipe;
}

struct Outcome {
  double loss = 0, evaluated = 0;
  std::vector<double> gradient;
};

// Trains @p by sgd with learning rate 1: the change of p is its gradient.
Outcome lossOf(const recipe::Recipe &recipe, const std::string &shape, const HostTensor &p, const HostTensor &labels) {
  StepHarness harness(identity(shape));
  EXPECT_TRUE(harness.train(recipe)) << harness.messages;
  auto executor = harness.execute(runtime::Precision::Double);
  EXPECT_TRUE(executor) << executor.status().message();
  executor->state["p"] = p;
  auto evaluated = executor->run("evaluate", {{"labels", labels}}, {});
  auto step = executor->step({{{"labels", labels}}}, {.step = 1, .learningRate = 1});
  EXPECT_TRUE(step) << step.status().message();
  Outcome outcome{step->loss, evaluated->at("loss").reals()[0], executor->state["p"].reals()};
  std::vector<double> before = p.reals();
  double squares = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    outcome.gradient[i] = before[i] - outcome.gradient[i];
    squares += outcome.gradient[i] * outcome.gradient[i];
  }
  EXPECT_NEAR(step->gradNorm, std::sqrt(squares), 1e-9);
  EXPECT_DOUBLE_EQ(outcome.loss, outcome.evaluated);
  return outcome;
}

void expectNear(const std::vector<double> &actual, const std::vector<double> &wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(actual[i], wanted[i], 1e-7) << "element " << i;
}

const std::vector<double> logits = {1.0, -2.0, 0.5, 3.0, 3.0, -1.0, 0.0, 0.25, -0.5};

TEST(CrossEntropy, SmoothedAndIgnoring) {
  recipe::Recipe recipe = recipeFor(recipe::LossKind::SoftmaxCrossEntropy);
  recipe.losses[0].ignoreIndex = -100;
  recipe.losses[0].labelSmoothing = 0.1;
  auto outcome = lossOf(recipe, "3x3", HostTensor::ofReals(plan::F64, {3, 3}, logits),
                        HostTensor::ofIntegers(plan::I64, {3}, {2, -100, 0}));
  double loss = 0;
  std::vector<double> gradient(9, 0);
  for (int row : {0, 2}) {
    const double *x = &logits[row * 3];
    double sum = std::exp(x[0]) + std::exp(x[1]) + std::exp(x[2]);
    for (int c = 0; c < 3; ++c) {
      double target = (c == (row == 0 ? 2 : 0) ? 0.9 : 0.0) + 0.1 / 3, p = std::exp(x[c]) / sum;
      loss -= target * std::log(p) / 2;
      gradient[row * 3 + c] = (p - target) / 2;
    }
  }
  EXPECT_NEAR(outcome.loss, loss, 1e-7);
  expectNear(outcome.gradient, gradient);
}

TEST(CrossEntropy, StaysFiniteForLargeLogits) {
  auto outcome =
      lossOf(recipeFor(recipe::LossKind::SoftmaxCrossEntropy), "1x2",
             HostTensor::ofReals(plan::F64, {1, 2}, {5000, -5000}), HostTensor::ofIntegers(plan::I64, {1}, {1}));
  EXPECT_DOUBLE_EQ(outcome.loss, 10000);
  expectNear(outcome.gradient, {1, -1});
}

TEST(CrossEntropy, ClassAxisAndSum) {
  recipe::Recipe recipe = recipeFor(recipe::LossKind::SoftmaxCrossEntropy);
  recipe.losses[0].axis = 1;
  recipe.losses[0].reduction = recipe::Reduction::Sum;
  auto outcome = lossOf(recipe, "1x2x2", HostTensor::ofReals(plan::F64, {1, 2, 2}, {1, 2, 3, 5}),
                        HostTensor::ofIntegers(plan::I64, {1, 2}, {0, 1}));
  EXPECT_NEAR(outcome.loss, std::log(1 + std::exp(2)) + std::log(1 + std::exp(-3)), 1e-12);
}

TEST(CrossEntropy, TakesProbabilities) {
  recipe::Recipe recipe = recipeFor(recipe::LossKind::SoftmaxCrossEntropy);
  recipe.losses[0].labels.dtype = "float32";
  recipe.losses[0].labelSmoothing = 0.5;
  auto outcome = lossOf(recipe, "1x2", HostTensor::ofReals(plan::F64, {1, 2}, {0, std::log(3.0)}),
                        HostTensor::ofReals(plan::F32, {1, 2}, {1, 0})); // smoothed: 0.75, 0.25
  EXPECT_NEAR(outcome.loss, -0.75 * std::log(0.25) - 0.25 * std::log(0.75), 1e-9);
  expectNear(outcome.gradient, {0.25 - 0.75, 0.75 - 0.25});
}

TEST(CrossEntropy, IsNaNForALabelThatIsNoClass) {
  for (int64_t label : {-1, 3}) {
    StepHarness harness(identity("1x3"));
    ASSERT_TRUE(harness.train(recipeFor(recipe::LossKind::SoftmaxCrossEntropy))) << harness.messages;
    auto executor = harness.execute(runtime::Precision::Double);
    executor->state["p"] = HostTensor::zeros(plan::F64, {1, 3});
    auto step = executor->step({{{"labels", HostTensor::ofIntegers(plan::I64, {1}, {label})}}}, {});
    ASSERT_TRUE(step) << step.status().message();
    EXPECT_TRUE(std::isnan(step->loss)) << label;
  }
}

TEST(Nll, PicksLogProbabilities) {
  auto outcome =
      lossOf(recipeFor(recipe::LossKind::Nll), "2x3", HostTensor::ofReals(plan::F64, {2, 3}, {-1, -2, -3, -4, -5, -6}),
             HostTensor::ofIntegers(plan::I64, {2}, {1, 0}));
  EXPECT_DOUBLE_EQ(outcome.loss, 3);
  expectNear(outcome.gradient, {0, -0.5, 0, -0.5, 0, 0});
}

// PyTorch: logarithms are clamped at -100, the derivative's denominator at 1e-12.
TEST(BinaryCrossEntropy, IsFiniteAtTheBorders) {
  auto outcome =
      lossOf(recipeFor(recipe::LossKind::Bce), "4", HostTensor::ofReals(plan::F64, {4}, {0.3, 0.0, 1.0, 0.0}),
             HostTensor::ofReals(plan::F32, {4}, {1, 0, 1, 1}));
  EXPECT_NEAR(outcome.loss, (-std::log(0.3) + 100) / 4, 1e-7);
  EXPECT_NEAR(outcome.gradient[0], -1 / 0.3 / 4, 1e-7);
  EXPECT_EQ(outcome.gradient[1], 0);
  EXPECT_EQ(outcome.gradient[2], 0);
  EXPECT_NEAR(outcome.gradient[3], -0.25e12, 0.25e5);
}

TEST(BinaryCrossEntropy, WithLogits) {
  auto outcome =
      lossOf(recipeFor(recipe::LossKind::BceWithLogits), "4", HostTensor::ofReals(plan::F64, {4}, {0, 2, -3, 800}),
             HostTensor::ofReals(plan::F32, {4}, {1, 0, 0.25, 1}));
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(
      outcome.loss,
      (-std::log(0.5) - std::log(1 - sigmoid(2)) - 0.25 * std::log(sigmoid(-3)) - 0.75 * std::log(1 - sigmoid(-3))) / 4,
      1e-7);
  expectNear(outcome.gradient, {-0.5 / 4, sigmoid(2) / 4, (sigmoid(-3) - 0.25) / 4, 0});
}

TEST(Regression, MseL1Huber) {
  HostTensor p = HostTensor::ofReals(plan::F64, {3}, {0.5, -3, 2}),
             t = HostTensor::ofReals(plan::F32, {3}, {0.25, 1, 2});
  auto mse = lossOf(recipeFor(recipe::LossKind::Mse), "3", p, t);
  EXPECT_NEAR(mse.loss, (0.0625 + 16) / 3, 1e-7);
  expectNear(mse.gradient, {0.5 / 3, -8.0 / 3, 0});
  auto l1 = lossOf(recipeFor(recipe::LossKind::L1), "3", p, t);
  EXPECT_NEAR(l1.loss, 4.25 / 3, 1e-7);
  expectNear(l1.gradient, {1.0 / 3, -1.0 / 3, 0});
  recipe::Recipe recipe = recipeFor(recipe::LossKind::Huber);
  recipe.losses[0].huberDelta = 2;
  auto huber = lossOf(recipe, "3", p, t);
  EXPECT_NEAR(huber.loss, (0.03125 + 6) / 3, 1e-7);
  expectNear(huber.gradient, {0.25 / 3, -2.0 / 3, 0});
}

TEST(AttachLoss, SaysWhatIsWrong) {
  recipe::Recipe recipe = recipeFor(recipe::LossKind::Mse);
  recipe.losses[0].outputs = {"logit"};
  StepHarness unknown(classifier(2));
  EXPECT_FALSE(unknown.train(recipe));
  EXPECT_NE(unknown.messages.find("no output 'logit'; it has logits"), std::string::npos) << unknown.messages;

  recipe.losses[0].outputs.clear();
  recipe.losses[0].labels.name = "x";
  StepHarness taken(classifier(2));
  EXPECT_FALSE(taken.train(recipe));
  EXPECT_NE(taken.messages.find("'x' is already an input"), std::string::npos) << taken.messages;

  recipe = recipeFor(recipe::LossKind::SoftmaxCrossEntropy);
  recipe.losses[0].axis = 2;
  StepHarness axis(classifier(2));
  EXPECT_FALSE(axis.train(recipe));
  EXPECT_NE(axis.messages.find("axis 2 does not fit"), std::string::npos) << axis.messages;
}

} // namespace
