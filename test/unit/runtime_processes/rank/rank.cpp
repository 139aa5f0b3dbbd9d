// Trains the MLP plan of test/unit/runtime and prints the bits of every loss and of the parameters that device 0 holds.
//   runtime_rank DP TP STEPS [MODE]
// Or the hand-made pipeline, with weights as the plan draws them:
//   runtime_rank SCHEDULE RANKS DP STEPS [MODE]
// Modes: `nan`; before a step a rank is killed, stopped, or sleeps: `die RANK STEP`, `stop RANK STEP TIMEOUT`,
// `sleep RANK STEP TIMEOUT`; or sleeps a little before every step: `slow RANK MILLISECONDS`.
#include "runtime/engine/comm/open_fabric.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/train/state/weights.h"
#include "test/unit/runtime/mlp_weights.h"
#include "test/unit/runtime/pipeline_plan.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <unistd.h>

using namespace cleave;
using namespace cleave::runtime;

namespace {

int fail(const Status &status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return status.exitStatus();
}

void printParameters(Executor &executor) {
  for (const plan::Parameter &parameter : executor.plan().parameters()) {
    if (!executor.holds(0, parameter)) continue;
    uint64_t hash = 1469598103934665603ull;
    for (std::byte byte : executor.shard(0, parameter)) hash = (hash ^ static_cast<uint64_t>(byte)) * 1099511628211ull;
    std::printf("%s %llx\n", parameter.name().c_str(), static_cast<unsigned long long>(hash));
  }
}

struct Mode {
  std::string name;
  int rank = -1, step = 0; // of `slow`: milliseconds
  double timeout = 600;
};

// Trains and prints; `fill` gives the parameters their first values.
int train(const plan::Plan &plan, const std::vector<const std::byte *> &inputs, int steps, const Mode &mode,
          const std::function<Status(Executor &)> &fill) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  Result<std::unique_ptr<Fabric>> fabric = openFabric(*mesh, plan.SerializeAsString());
  if (!fabric) return fail(fabric.status());
  Result<std::unique_ptr<Executor>> made = Executor::create(
      plan, std::move(*fabric),
      {.threads = 1, .limits = {.step = {mode.timeout, "--step-timeout"}}, .tell = [](const std::string &text) {
         std::fprintf(stderr, "told: %s\n", text.c_str());
       }});
  if (!made) return fail(made.status());
  Executor &executor = **made;
  if (Result<bool> agreed = executor.fabric().control().allEqual(42, TimeLimits().preparation); !agreed || !*agreed)
    return fail(agreed.status());
  if (Status filled = fill(executor); !filled) return fail(filled);
  int64_t first = executor.devices().front();
  for (int step = 0; step < steps; ++step) {
    if (first == mode.rank && mode.name == "slow") ::usleep(static_cast<useconds_t>(mode.step) * 1000);
    if (first == mode.rank && step == mode.step) {
      if (mode.name == "die") ::kill(::getpid(), SIGKILL);
      if (mode.name == "stop") ::kill(::getpid(), SIGSTOP);
      if (mode.name == "sleep") ::sleep(60);
    }
    auto outputs = executor.run("step", inputs, step);
    if (!outputs) return fail(outputs.status());
    if (first == 0) std::printf("loss %a\n", outputs->at("loss"));
  }
  if (first == 0) printParameters(executor);
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  bool pipeline = argv[1][std::strspn(argv[1], "0123456789")] != 0; // not a number
  int rest = pipeline ? 5 : 4;
  Mode mode;
  std::string what = argc > rest ? argv[rest] : "";
  mode.name = what;
  if (argc > rest + 2) mode.rank = std::atoi(argv[rest + 1]), mode.step = std::atoi(argv[rest + 2]);
  if (argc > rest + 3) mode.timeout = std::atof(argv[rest + 3]);
  int steps = std::atoi(argv[rest - 1]);
  if (pipeline) {
    test::PipelineShape shape{.ranks = std::atoi(argv[2]), .dp = std::atoi(argv[3]), .schedule = argv[1]};
    if (mode.name == "nan") shape.lr = 1e30f;
    plan::Plan plan = test::pipelinePlan(shape);
    test::PipelineData data = test::pipelineData(shape);
    return train(plan, data.pointers(shape), steps, mode, [&](Executor &executor) {
      WeightReader weights(plan);
      for (int64_t device : executor.devices())
        for (const plan::Parameter &parameter : plan.parameters())
          if (executor.holds(device, parameter))
            if (Status status = weights.initialize(parameter, executor.shardShape(device, parameter),
                                                   executor.shard(device, parameter));
                !status)
              return status;
      return Status::ok();
    });
  }
  test::MlpShape shape{.dp = std::atoi(argv[1]), .tp = std::atoi(argv[2])};
  if (mode.name == "nan") shape.lr = 1e30;
  test::MlpData data = test::mlpData(shape);
  return train(test::mlpPlan(shape),
               {reinterpret_cast<const std::byte *>(data.x.data()), reinterpret_cast<const std::byte *>(data.t.data())},
               steps, mode, [&](Executor &executor) {
                 test::loadWeights(executor, data);
                 return Status::ok();
               });
}
