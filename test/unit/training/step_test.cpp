// Whole steps: optimizers against formulas written out in doubles, microbatches against one batch, clipping,
// evaluation, recomputation, and the errors.
#include "test/unit/training/models.h"
#include "test/unit/training/step_harness.h"
#include <cmath>

using namespace cleave;
using namespace cleave::training;
using namespace cleave::training::testing;
using runtime::HostTensor;
using runtime::NamedTensors;

namespace {

// p follows mse to 0 from 2 elements, so its gradient is p itself (mean of two squares).
std::vector<double> trainedBy(const recipe::Optimizer &optimizer, int steps, std::vector<double> learningRates) {
  recipe::Recipe recipe;
  recipe.losses[0].kind = recipe::LossKind::Mse;
  recipe.optimizer = optimizer;
  StepHarness harness(identity("2"));
  EXPECT_TRUE(harness.train(recipe)) << harness.messages;
  auto executor = harness.execute(runtime::Precision::Double);
  EXPECT_TRUE(executor) << executor.status().message();
  executor->state["p"] = HostTensor::ofReals(plan::F64, {2}, {1.5, -0.5});
  for (int step = 1; step <= steps; ++step) {
    auto done = executor->step({{{"labels", HostTensor::zeros(plan::F32, {2})}}},
                               {.step = step, .learningRate = learningRates[(step - 1) % learningRates.size()]});
    EXPECT_TRUE(done) << done.status().message();
  }
  return executor->state["p"].reals();
}

recipe::Optimizer optimizerOf(recipe::OptimizerKind kind, double weightDecay = 0) {
  recipe::Optimizer optimizer;
  optimizer.kind = kind;
  optimizer.eps = 1e-3;
  optimizer.weightDecay = weightDecay;
  return optimizer;
}

// The same by `update(p, g, lr, t, s)`, where s are three state numbers, 0 at first.
template <typename Update> void expectTrained(const recipe::Optimizer &optimizer, Update update) {
  std::vector<double> rates = {0.1, 0.05, 0.2};
  std::vector<double> trained = trainedBy(optimizer, 4, rates);
  for (int e = 0; e < 2; ++e) {
    double p = e == 0 ? 1.5 : -0.5, state[3] = {0, 0, 0};
    for (int t = 1; t <= 4; ++t) update(p, p, rates[(t - 1) % 3], t, state);
    EXPECT_NEAR(trained[e], p, 2e-7) << "element " << e; // constants are rounded to f32
  }
}

TEST(Optimizer, Sgd) {
  for (bool nesterov : {false, true})
    for (double dampening : {0.0, 0.3}) {
      if (nesterov && dampening != 0) continue;
      recipe::Optimizer optimizer = optimizerOf(recipe::OptimizerKind::Sgd, 0.01);
      optimizer.momentum = 0.9;
      optimizer.nesterov = nesterov;
      optimizer.dampening = dampening;
      expectTrained(optimizer, [&](double &p, double g, double lr, int t, double *s) {
        g += 0.01 * p;
        s[0] = t == 1 ? g : 0.9 * s[0] + (1 - dampening) * g;
        p -= lr * (nesterov ? g + 0.9 * s[0] : s[0]);
      });
    }
  expectTrained(optimizerOf(recipe::OptimizerKind::Sgd),
                [](double &p, double g, double lr, int, double *) { p -= lr * g; });
}

void adam(double &p, double g, double lr, int t, double *s) {
  s[0] = 0.8 * s[0] + 0.2 * g;
  s[1] = 0.95 * s[1] + 0.05 * g * g;
  p -= lr * (s[0] / (1 - std::pow(0.8, t))) / (std::sqrt(s[1] / (1 - std::pow(0.95, t))) + 1e-3);
}

TEST(Optimizer, AdamAndAdamW) {
  recipe::Optimizer optimizer = optimizerOf(recipe::OptimizerKind::Adam, 0.1);
  optimizer.beta1 = 0.8, optimizer.beta2 = 0.95;
  expectTrained(optimizer, [](double &p, double g, double lr, int t, double *s) { adam(p, g + 0.1 * p, lr, t, s); });
  optimizer.kind = recipe::OptimizerKind::AdamW;
  expectTrained(optimizer, [](double &p, double g, double lr, int t, double *s) {
    p *= 1 - lr * 0.1;
    adam(p, g, lr, t, s);
  });
  optimizer.noDecay = {"p*"};
  expectTrained(optimizer, adam);
}

TEST(Optimizer, AdagradAndLion) {
  recipe::Optimizer adagrad = optimizerOf(recipe::OptimizerKind::Adagrad);
  adagrad.initialAccumulator = 0.5;
  adagrad.lrDecay = 0.1;
  expectTrained(adagrad, [](double &p, double g, double lr, int t, double *s) {
    if (t == 1) s[0] = 0.5;
    s[0] += g * g;
    p -= lr / (1 + (t - 1) * 0.1) * g / (std::sqrt(s[0]) + 1e-3);
  });
  recipe::Optimizer lion = optimizerOf(recipe::OptimizerKind::Lion, 0.1);
  lion.beta1 = 0.9, lion.beta2 = 0.99;
  expectTrained(lion, [](double &p, double g, double lr, int, double *s) {
    double direction = 0.9 * s[0] + 0.1 * g;
    p = p * (1 - lr * 0.1) - lr * ((direction > 0) - (direction < 0));
    s[0] = 0.99 * s[0] + 0.01 * g;
  });
}

// Both elements together: the ratio of the norms is the whole parameter's.
TEST(Optimizer, Lamb) {
  recipe::Optimizer lamb = optimizerOf(recipe::OptimizerKind::Lamb, 0.1);
  lamb.beta1 = 0.8, lamb.beta2 = 0.95;
  std::vector<double> rates = {0.1, 0.05, 0.2}, trained = trainedBy(lamb, 4, rates);
  double p[2] = {1.5, -0.5}, m[2] = {0, 0}, v[2] = {0, 0}, u[2];
  for (int t = 1; t <= 4; ++t) {
    for (int e = 0; e < 2; ++e) {
      m[e] = 0.8 * m[e] + 0.2 * p[e], v[e] = 0.95 * v[e] + 0.05 * p[e] * p[e];
      u[e] = m[e] / (1 - std::pow(0.8, t)) / (std::sqrt(v[e] / (1 - std::pow(0.95, t))) + 1e-3) + 0.1 * p[e];
    }
    double ratio = std::hypot(p[0], p[1]) / std::hypot(u[0], u[1]);
    for (int e = 0; e < 2; ++e) p[e] -= rates[(t - 1) % 3] * ratio * u[e];
  }
  for (int e = 0; e < 2; ++e) EXPECT_NEAR(trained[e], p[e], 2e-7) << "element " << e;
}

// A matrix, by its rows and columns; its step is relative to its own size, and no larger than d.
TEST(Optimizer, Adafactor) {
  recipe::Recipe recipe;
  recipe.losses[0].kind = recipe::LossKind::Mse;
  recipe.optimizer = optimizerOf(recipe::OptimizerKind::Adafactor, 0.1);
  recipe.optimizer.clipThreshold = 0.8;
  StepHarness harness(identity("2x3"));
  ASSERT_TRUE(harness.train(recipe)) << harness.messages;
  auto executor = harness.execute(runtime::Precision::Double);
  ASSERT_TRUE(executor) << executor.status().message();
  std::vector<double> p = {1.5, -0.5, 0.25, 2, -1, 0.75};
  executor->state["p"] = HostTensor::ofReals(plan::F64, {2, 3}, p);
  double row[2] = {}, column[3] = {}, rates[] = {0.1, 2, 0.3}; // the second is above 1 / sqrt(t)
  auto size = [](const std::vector<double> &x) {
    double sum = 0;
    for (double value : x) sum += value * value;
    return std::sqrt(sum / double(x.size()));
  };
  for (int t = 1; t <= 3; ++t) {
    auto done =
        executor->step({{{"labels", HostTensor::zeros(plan::F32, {2, 3})}}}, {.step = t, .learningRate = rates[t - 1]});
    ASSERT_TRUE(done) << done.status().message();
    std::vector<double> g(6), u(6); // the mean of six squares
    for (int i = 0; i < 6; ++i) g[i] = p[i] / 3;
    double weight = std::pow(t, -0.8), mean = 0;
    for (int r = 0; r < 2; ++r) {
      double now = (g[3 * r] * g[3 * r] + g[3 * r + 1] * g[3 * r + 1] + g[3 * r + 2] * g[3 * r + 2]) / 3;
      row[r] += weight * (now - row[r]);
      mean += row[r] / 2;
    }
    for (int c = 0; c < 3; ++c) column[c] += weight * ((g[c] * g[c] + g[3 + c] * g[3 + c]) / 2 - column[c]);
    for (int i = 0; i < 6; ++i) u[i] = g[i] / std::sqrt(row[i / 3] * column[i % 3] / mean);
    double alpha = std::max(1e-3, size(p)) * std::min(rates[t - 1], 1 / std::sqrt(t)) / std::max(1.0, size(u) / 0.8);
    for (int i = 0; i < 6; ++i) p[i] = p[i] * (1 - rates[t - 1] * 0.1) - alpha * u[i];
  }
  std::vector<double> trained = executor->state["p"].reals();
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(trained[i], p[i], 1e-6) << "element " << i;
}

struct Trained {
  std::vector<double> losses, norms;
  NamedTensors state;
};

// Three steps of the classifier on six samples, cut into microbatches. Some labels are ignored, unevenly.
Trained trainClassifier(int64_t microbatches, recipe::Recipe recipe, int64_t other = -100) {
  int size = static_cast<int>(6 / microbatches);
  StepHarness harness(classifier(size));
  EXPECT_TRUE(harness.train(recipe, {.microbatches = microbatches})) << harness.messages;
  auto executor = harness.execute(runtime::Precision::Double);
  EXPECT_TRUE(executor) << executor.status().message();
  std::mt19937_64 random(3);
  executor->state["w0"] = randomTensor(random, {4, 5}, -1, 1);
  executor->state["w1"] = randomTensor(random, {5, 3}, -1, 1);
  executor->state["bias"] = randomTensor(random, {3}, -1, 1);
  std::vector<double> x = randomTensor(random, {6, 4}, -1, 1).reals();
  std::vector<int64_t> labels = {0, 2, 1, other, other, 2};
  std::vector<NamedTensors> batch;
  for (int64_t m = 0; m < microbatches; ++m)
    batch.push_back(
        {{"x", HostTensor::ofReals(plan::F64, {size, 4}, {x.begin() + m * size * 4, x.begin() + (m + 1) * size * 4})},
         {"labels",
          HostTensor::ofIntegers(plan::I64, {size}, {labels.begin() + m * size, labels.begin() + (m + 1) * size})}});
  Trained trained;
  for (int step = 1; step <= 3; ++step) {
    auto outcome = executor->step(batch, {.step = step, .learningRate = 0.1});
    EXPECT_TRUE(outcome) << outcome.status().message();
    trained.losses.push_back(outcome->loss);
    trained.norms.push_back(outcome->gradNorm);
  }
  trained.state = executor->state;
  return trained;
}

void expectSame(const Trained &a, const Trained &b, double tolerance) {
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], tolerance);
    EXPECT_NEAR(a.norms[i], b.norms[i], tolerance);
  }
  for (const char *name : {"w0", "w1", "bias"}) {
    std::vector<double> x = a.state.at(name).reals(), y = b.state.at(name).reals();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], tolerance) << name;
  }
}

TEST(Microbatches, EqualOneBatch) {
  recipe::Recipe recipe;
  recipe.clipNorm = 0.2;
  recipe.optimizer.kind = recipe::OptimizerKind::AdamW;
  recipe.optimizer.weightDecay = 0.1;
  recipe.losses[0].ignoreIndex = -100;
  for (auto reduction : {recipe::Reduction::Mean, recipe::Reduction::Sum}) {
    recipe.losses[0].reduction = reduction;
    Trained whole = trainClassifier(1, recipe);
    EXPECT_LT(whole.losses[2], whole.losses[0]);
    expectSame(whole, trainClassifier(2, recipe), 1e-7);
    expectSame(whole, trainClassifier(3, recipe), 1e-7);
  }
  recipe.losses[0].reduction = recipe::Reduction::Mean; // nothing ignored: the weight is known, 6 labels
  recipe.losses[0].ignoreIndex.reset();
  expectSame(trainClassifier(1, recipe, 1), trainClassifier(3, recipe, 1), 1e-7);
}

TEST(Microbatches, LeaveZeroAccumulators) {
  Trained trained = trainClassifier(3, {}, 1);
  for (const char *name : {"accumulator/w0", "accumulator.loss_sum"})
    for (double value : trained.state.at(name).reals()) EXPECT_EQ(value, 0) << name;
}

TEST(ClipGradients, ScalesToTheNorm) {
  recipe::Recipe recipe;
  recipe.losses[0].kind = recipe::LossKind::Mse;
  recipe.losses[0].reduction = recipe::Reduction::Sum;
  recipe.optimizer.kind = recipe::OptimizerKind::Sgd;
  recipe.clipNorm = 2;
  StepHarness harness(identity("2"));
  ASSERT_TRUE(harness.train(recipe)) << harness.messages;
  auto executor = harness.execute(runtime::Precision::Double);
  executor->state["p"] = HostTensor::ofReals(plan::F64, {2}, {3, 4}); // gradient (6, 8), norm 10
  auto step = executor->step({{{"labels", HostTensor::zeros(plan::F32, {2})}}}, {.learningRate = 1});
  ASSERT_TRUE(step) << step.status().message();
  EXPECT_DOUBLE_EQ(step->gradNorm, 10);
  EXPECT_NEAR(executor->state["p"].reals()[0], 3 - 1.2, 1e-6);
  EXPECT_NEAR(executor->state["p"].reals()[1], 4 - 1.6, 1e-6);
}

TEST(Parameters, FrozenOnesKeepTheirValues) {
  std::string text = classifier(2);
  text.replace(text.find("trainable = true"), 16, "trainable = false");
  StepHarness harness(text);
  recipe::Recipe recipe;
  ASSERT_TRUE(harness.train(recipe)) << harness.messages;
  EXPECT_TRUE(harness.module->lookupSymbol("exp_avg/w1"));
  EXPECT_FALSE(harness.module->lookupSymbol("exp_avg/w0"));
  auto final = harness.module->lookupSymbol<mlir::func::FuncOp>("final");
  final.walk([](onnx::WriteOp write) { EXPECT_NE(write.getParam(), "w0"); });
}

TEST(Parameters, NothingToTrainIsAnError) {
  std::string text = identity("2");
  text.replace(text.find("trainable = true"), 16, "trainable = false");
  StepHarness harness(text);
  recipe::Recipe recipe;
  recipe.losses[0].kind = recipe::LossKind::Mse;
  EXPECT_FALSE(harness.train(recipe));
  EXPECT_NE(harness.messages.find("no trainable parameter reaches the loss"), std::string::npos) << harness.messages;
}

TEST(BuildBackward, ListsOpsWithoutDerivative) {
  StepHarness harness(R"(
onnx.param @p : tensor<2xf32> "parameter" {trainable = true}
func.func @model() -> (tensor<2xf32> {onnx.name = "y"}) {
  %p = onnx.read @p : tensor<2xf32>
  %m = onnx.Mod %p, %p : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %m : tensor<2xf32>
})");
  recipe::Recipe recipe;
  recipe.losses[0].kind = recipe::LossKind::Mse;
  EXPECT_FALSE(harness.train(recipe));
  EXPECT_NE(harness.messages.find("onnx.Mod has no derivative"), std::string::npos) << harness.messages;
}

// Dropout passes its operand, a batch statistic is the running one, nothing is written.
TEST(BuildEvaluate, IsTheModelOutsideTraining) {
  StepHarness harness(R"(
onnx.param @p : tensor<2xf32> "parameter" {trainable = true}
onnx.param @mean : tensor<2xf32> "running_statistic" {trainable = false, fill = 4.0}
func.func @model() -> (tensor<2xf32> {onnx.name = "y"}) {
  %p = onnx.read @p : tensor<2xf32>
  %two = onnx.Constant dense<2.0> : tensor<2xf32>
  %dropped = onnx.Mul %p, %two {onnx.dropout} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %batch = onnx.Mul %dropped, %two {onnx.batch_statistic = @mean} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  onnx.write @mean, %batch : tensor<2xf32>
  %y = onnx.Add %dropped, %batch : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
})");
  recipe::Recipe recipe;
  recipe.losses[0].kind = recipe::LossKind::L1;
  recipe.optimizer.kind = recipe::OptimizerKind::Sgd;
  ASSERT_TRUE(harness.train(recipe)) << harness.messages;
  auto executor = harness.execute(runtime::Precision::Double);
  ASSERT_TRUE(executor) << executor.status().message();
  executor->state["p"] = HostTensor::ofReals(plan::F64, {2}, {1, 3});
  NamedTensors labels = {{"labels", HostTensor::zeros(plan::F32, {2})}};
  auto evaluated = executor->run("evaluate", labels, {});
  ASSERT_TRUE(evaluated) << evaluated.status().message();
  EXPECT_DOUBLE_EQ(evaluated->at("loss").reals()[0], (5 + 7) / 2.0);
  EXPECT_EQ(executor->state["mean"].reals(), (std::vector<double>{4, 4}));
  auto step = executor->step({labels}, {.learningRate = 0});
  ASSERT_TRUE(step) << step.status().message();
  EXPECT_DOUBLE_EQ(step->loss, (6 + 18) / 2.0);
  EXPECT_EQ(executor->state["mean"].reals(), (std::vector<double>{4, 12}));
}

} // namespace
