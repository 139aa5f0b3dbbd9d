// The compiler up to the training phase, run by the reference executor in double precision, against the trainings that
// PyTorch recorded: every loss, gradient norm, step-0 gradient and final parameter.
#include "compiler/driver/pass_list.h"
#include "compiler/recipe/schedule.h"
#include "runtime/plan/lr_schedule.h"
#include "runtime/train/data/zip.h"
#include "test/unit/golden_reference/golden_model.h"
#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

using namespace cleave;
using namespace cleave::golden;
using runtime::HostTensor;

namespace {

double norm(const std::vector<double> &values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Constants of the graph (0.9, 1e-5 ...) are float32, PyTorch's were doubles.
constexpr double tolerance = 2e-6;

void expectNear(double actual, double wanted, const std::string &what, double relative = tolerance) {
  EXPECT_NEAR(actual, wanted, relative * std::abs(wanted) + 1e-12) << what;
}

// The gradients of grads.npz in row-major order. Some are transposed views of PyTorch's, saved in Fortran order, which
// the readers of training data refuse; so only the shape and the order are read from the header here.
std::map<std::string, std::vector<double>> recordedGradients(const std::string &path, const nlohmann::json &shapes) {
  std::map<std::string, std::vector<double>> gradients;
  if (!std::filesystem::exists(path)) return gradients;
  auto file = runtime::MappedFile::open(path);
  EXPECT_TRUE(file) << file.status().message();
  auto entries = runtime::readZip((*file)->bytes(), path);
  EXPECT_TRUE(entries) << entries.status().message();
  for (const runtime::ZipEntry &entry : *entries) {
    std::string_view bytes = entry.inflated ? std::string_view(*entry.inflated) : entry.stored;
    size_t start = 10 + static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
    std::string_view header = bytes.substr(10, start - 10);
    std::string name = entry.name.substr(0, entry.name.size() - 4);
    std::vector<int64_t> shape = shapes.at(name).at("shape");
    bool single = header.find("<f4") != header.npos;
    HostTensor stored = HostTensor::zeros(single ? plan::F32 : plan::F64, shape);
    EXPECT_EQ(stored.data.size(), bytes.size() - start) << name;
    std::memcpy(stored.data.data(), bytes.data() + start, stored.data.size());
    std::vector<double> values = stored.reals(), &ordered = gradients[name];
    if (header.find("'fortran_order': True") == header.npos) {
      ordered = values;
      continue;
    }
    std::vector<int64_t> index(shape.size(), 0);
    for (size_t i = 0; i < values.size(); ++i) { // row-major index, column-major place
      int64_t place = 0;
      for (size_t d = shape.size(); d-- > 0;) place = place * shape[d] + index[d];
      ordered.push_back(values[place]);
      for (size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
    }
  }
  return gradients;
}

// The model's weights are too large to be kept with it: make_weights.py writes them.
bool lacksWeights(const std::string &name) {
  return name == "fairscale_classifier" && !std::filesystem::exists(folderOf(name) + "/weights.bin");
}

class Golden : public ::testing::TestWithParam<const char *> {};

void train(const std::string &name, const TrainingOptions &options, int64_t steps) {
  GoldenModel model = GoldenModel::load(name, options);
  ASSERT_EQ(model.error, "");
  steps = std::min<int64_t>(steps, model.train["steps"].get<int64_t>());
  if (options.microbatches == 1 && !model.golden.contains("running_stats_final_f64")) {
    auto evaluated = model.executor->run("evaluate", model.batch(0)[0], {});
    ASSERT_TRUE(evaluated) << evaluated.status().message();
    expectNear(evaluated->at("loss").reals().at(0), model.golden["loss_f64"][0], name + " evaluated");
  }
  for (int64_t step = 0; step < steps; ++step) {
    auto outcome = model.executor->step(
        model.batch(step),
        {.step = step + 1, .learningRate = runtime::learningRate(recipe::planned(model.recipe.optimizer.lr), step)});
    ASSERT_TRUE(outcome) << outcome.status().message();
    std::string at = name + " step " + std::to_string(step);
    expectNear(outcome->loss, model.golden["loss_f64"][step], at + " loss");
    expectNear(outcome->gradNorm, model.golden["grad_norm_f64"][step], at + " grad_norm", 1e-5);
  }
  if (steps < model.train["steps"]) return;
  for (const auto &[parameter, wanted] : model.golden["param_norms_final_f64"].items()) {
    ASSERT_TRUE(model.executor->state.contains(parameter)) << parameter;
    expectNear(norm(model.executor->state[parameter].reals()), wanted, parameter);
  }
  if (!model.golden.contains("running_stats_final_f64")) return;
  for (const auto &[statistic, wanted] : model.golden["running_stats_final_f64"].items()) {
    ASSERT_TRUE(model.executor->state.contains(statistic)) << statistic;
    expectNear(norm(model.executor->state[statistic].reals()), wanted["norm"], statistic, 1e-5);
  }
}

TEST_P(Golden, TrainsAsPyTorchDid) {
  if (lacksWeights(GetParam())) GTEST_SKIP() << "no weights.bin: run make_weights.py";
  train(GetParam(), {}, GetParam() == std::string("fairscale_classifier") ? 2 : 10);
}

TEST_P(Golden, HasPyTorchsFirstGradients) {
  if (lacksWeights(GetParam())) GTEST_SKIP() << "no weights.bin: run make_weights.py";
  GoldenModel model = GoldenModel::load(GetParam(), {}, runtime::Precision::Double, /*backwardOnly=*/true);
  ASSERT_EQ(model.error, "");
  auto outputs = model.executor->run("model", model.batch(0)[0], {});
  ASSERT_TRUE(outputs) << outputs.status().message();
  auto recorded = recordedGradients(folderOf(GetParam()) + "/grads.npz", model.golden["grads_step0_f64"]);
  size_t compared = 0;
  for (const auto &[parameter, wanted] : model.golden["grads_step0_f64"].items()) {
    auto found = outputs->find("gradient/" + parameter);
    ASSERT_NE(found, outputs->end()) << parameter;
    std::vector<double> values = found->second.reals();
    double sum = 0, size = wanted["norm"];
    for (double value : values) sum += value;
    // A gradient that is 0 but for rounding (a bias before a softmax or a batch norm) has no relative error.
    EXPECT_NEAR(norm(values), size, 1e-5 * size + 1e-9) << parameter;
    EXPECT_NEAR(sum, wanted["sum"].get<double>(), 1e-5 * size + 1e-9) << parameter;
    auto array = recorded.find(parameter);
    if (array == recorded.end()) continue;
    std::vector<double> elements = array->second;
    ASSERT_EQ(elements.size(), values.size()) << parameter;
    for (size_t i = 0; i < values.size(); ++i) elements[i] -= values[i];
    EXPECT_LE(norm(elements), 1e-5 * size + 1e-9) << parameter;
    ++compared;
  }
  EXPECT_EQ(compared, recorded.size());
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         ::testing::Values("mlp", "mingpt_nano", "gpt2_tiny", "llama_tiny", "bert_tiny", "resnet_cifar",
                                           "fairscale_classifier"),
                         [](const auto &info) { return std::string(info.param); });

// With running statistics a sample's loss does not depend on the others of its batch.
TEST(GoldenEvaluation, UsesRunningStatistics) {
  GoldenModel model = GoldenModel::load("resnet_cifar", {});
  ASSERT_EQ(model.error, "");
  runtime::NamedTensors batch = model.batch(0)[0];
  auto lossOf = [&](const runtime::NamedTensors &inputs) {
    auto outputs = model.executor->run("evaluate", inputs, {});
    EXPECT_TRUE(outputs) << outputs.status().message();
    return outputs->at("loss").reals().at(0);
  };
  int64_t samples = batch.begin()->second.shape[0];
  double mean = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    runtime::NamedTensors alike = batch;
    for (auto &[name, tensor] : alike) {
      size_t bytes = tensor.data.size() / samples;
      const std::byte *chosen = batch[name].data.data() + sample * bytes;
      for (int64_t i = 0; i < samples; ++i) std::copy(chosen, chosen + bytes, tensor.data.data() + i * bytes);
    }
    mean += lossOf(alike) / static_cast<double>(samples);
  }
  expectNear(lossOf(batch), mean, "evaluated loss", 1e-9);
}

// Labels are ignored unevenly in bert_tiny: two microbatches must weigh as one batch.
TEST(GoldenMicrobatches, EqualTheWholeBatch) {
  train("mlp", {.microbatches = 4}, 10);
  train("bert_tiny", {.microbatches = 2}, 3);
}

} // namespace
