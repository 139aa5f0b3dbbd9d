// Whole training steps (loss, backward, clipping, Adam, microbatches), split as the planner decides under every
// executable preset, on simulated devices against one device. Losses, gradient norms, parameters and optimizer state
// must agree after each of three steps.
#include "compiler/driver/pass_list.h"
#include "compiler/partition/partition.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/recipe/recipe.h"
#include "compiler/training/training.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "test/unit/partition/simulated_devices.h"
#include "test/unit/partition/training_models.h"
#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace cleave::partition {
namespace {

constexpr int64_t samples = 4; // of a microbatch, in the models' text

struct Case {
  std::string name;
  const char *model;
  std::string cluster;
  planner::SplitFlags flags;
  int64_t microbatches = 1;
};

class TrainingStep : public ::testing::TestWithParam<Case> {
protected:
  TrainingStep() { context.loadDialect<onnx::OnnxDialect, dist::DistDialect, func::FuncDialect>(); }

  // Random values in the role of an argument.
  HostTensor argument(func::FuncOp function, unsigned index) {
    runtime::TensorType type = typeOf(function.getArgument(index).getType());
    int64_t count = runtime::elementCount(type.shape);
    if (type.dtype == plan::I64) {
      std::vector<int64_t> values(count);
      for (int64_t &value : values) value = std::uniform_int_distribution<int64_t>(0, 7)(random);
      if (onnx::labelAttr.of(function, index))
        values[0] = -100; // ignored: the weight of the loss depends on the labels
      return HostTensor::ofIntegers(type.dtype, type.shape, values);
    }
    std::vector<double> values(count);
    const bool host = onnx::hostAttr.of(function, index).has_value();
    for (double &value : values) value = host ? 0.1 : std::uniform_real_distribution<double>(-1, 1)(random);
    return HostTensor::ofReals(type.dtype, type.shape, values);
  }

  MLIRContext context;
  std::mt19937 random{11};
};

TEST_P(TrainingStep, equalsOneDevice) {
  const Case &given = GetParam();
  OwningOpRef<ModuleOp> whole = parseSourceString<ModuleOp>(given.model, &context);
  ASSERT_TRUE(whole);
  auto recipe = recipe::parseRecipeText("loss: {kind: softmax_cross_entropy, ignore_index: -100}\n"
                                        "optimizer: {kind: adamw, lr: 0.1, weight_decay: 0.1}\nclip_norm: 0.5\n");
  ASSERT_TRUE(recipe.isOk()) << recipe.status().message();
  PassManager training(&context);
  addTrainingPasses(training, *recipe, {.microbatches = given.microbatches});
  ASSERT_TRUE(succeeded(training.run(*whole)));

  auto problem = extractProblem(*whole, {given.name, samples * given.microbatches, samples, "fp32"});
  ASSERT_TRUE(succeeded(problem));
  ASSERT_TRUE(problem->check().isOk()) << problem->check().message();
  auto cluster = planner::parseCluster(given.cluster);
  ASSERT_TRUE(cluster.isOk()) << cluster.status().message();
  planner::SplitFlags flags = given.flags;
  flags.microbatches = std::to_string(given.microbatches);
  auto constraints = planner::parseConstraints(flags, *cluster);
  ASSERT_TRUE(constraints.isOk()) << constraints.status().message();
  planner::SearchOptions options;
  options.alternatives = false;
  auto decision = planner::solve(*problem, *cluster, *constraints, options);
  ASSERT_TRUE(decision.isOk()) << decision.status().message();
  SCOPED_TRACE("mesh " + decision->mesh.str());

  OwningOpRef<ModuleOp> split = whole->clone();
  PassManager passes(&context);
  addPartitionPasses(passes, {.decision = *decision});
  ASSERT_TRUE(succeeded(passes.run(*split)));

  std::map<std::string, HostTensor> state;
  for (auto param : whole->getOps<onnx::ParamOp>()) {
    runtime::TensorType type = typeOf(param.getType());
    std::vector<double> values(runtime::elementCount(type.shape), 0);
    if (param.getRole() == "parameter")
      for (double &value : values) value = std::uniform_real_distribution<double>(-1, 1)(random);
    state[param.getSymName().str()] = HostTensor::ofReals(type.dtype, type.shape, values);
  }
  SimulatedDevices one(*whole, {}, state), many(*split, decision->mesh, state);
  for (int step = 0; step < 3; ++step) {
    for (int64_t microbatch = 0; microbatch < given.microbatches; ++microbatch) {
      StringRef name = microbatch + 1 < given.microbatches ? "accumulate" : "final";
      auto function = whole->lookupSymbol<func::FuncOp>(name);
      ASSERT_TRUE(function) << name.str();
      std::vector<HostTensor> arguments;
      for (unsigned i = 0; i < function.getNumArguments(); ++i) arguments.push_back(argument(function, i));
      std::vector<HostTensor> wanted = one.run(name, arguments), got = many.run(name, arguments);
      ASSERT_EQ(wanted.size(), got.size());
      for (size_t i = 0; i < wanted.size(); ++i)
        expectClose(got[i], wanted[i], name.str() + " result " + std::to_string(i), 1e-7);
    }
    for (auto &[name, tensor] : state)
      expectClose(many.parameter(name), one.parameter(name), name + " after step " + std::to_string(step), 1e-6);
  }
  auto evaluate = whole->lookupSymbol<func::FuncOp>("evaluate");
  std::vector<HostTensor> arguments;
  for (unsigned i = 0; i < evaluate.getNumArguments(); ++i) arguments.push_back(argument(evaluate, i));
  expectClose(many.run("evaluate", arguments)[0], one.run("evaluate", arguments)[0], "evaluate", 1e-7);

  if (std::getenv("CLEAVE_DUMP_SPLIT")) split->dump();
  std::map<std::string, int> collectives;
  for (Operation &op : split->lookupSymbol<func::FuncOp>("final").getBody().front())
    if (op.getName().getDialectNamespace() == "dist") ++collectives[op.getName().stripDialect().str()];
  for (auto &[kind, count] : collectives) RecordProperty(kind, count);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (auto [model, text] : {std::pair{"transformer", testing::transformer}, {"convolutional", testing::convolutional}})
    for (int64_t microbatches : {1, 3}) {
      auto add = [&](std::string name, std::string cluster, planner::SplitFlags flags) {
        all.push_back({model + ("_" + name) + "_m" + std::to_string(microbatches), text, cluster, flags, microbatches});
      };
      for (const char *preset : {"ddp", "zero1", "zero2", "zero3", "hsdp", "megatron", "megatron-2021"}) {
        std::string name = preset;
        std::ranges::replace(name, '-', '_'); // as a test may be called
        planner::SplitFlags flags;
        flags.like = preset;
        add(name, "cpu:4", flags);
        if (name != "hsdp") add(name + "_2", "cpu:2", flags);
      }
      for (const char *zero : {"0", "1", "2", "3"}) {
        planner::SplitFlags flags;
        flags.mesh = "dp=2,tp=2";
        flags.zero = zero;
        add("dp2tp2_zero" + std::string(zero), "cpu:4", flags);
      }
      planner::SplitFlags megatron;
      megatron.mesh = "dp=2,tp=2";
      megatron.zero = "3";
      megatron.like = "megatron-2021";
      add("dp2tp2_megatron_zero3", "cpu:4", megatron);
      planner::SplitFlags sequence;
      sequence.like = "megatron-sp";
      if (text == testing::transformer) add("megatron_sp", "cpu:2", sequence);
      for (const char *recompute : {"selective", "full"}) {
        planner::SplitFlags again;
        again.mesh = "dp=2,tp=2";
        again.zero = "3";
        again.recompute = recompute;
        add("recompute_" + std::string(recompute), "cpu:4", again);
      }
      add("searched", "cpu:4", {});
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Presets, TrainingStep, ::testing::ValuesIn(cases()),
                         [](const auto &info) { return info.param.name; });

} // namespace
} // namespace cleave::partition
