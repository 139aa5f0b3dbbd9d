// Trains the MLP plan of test/unit/runtime and prints the bits of every loss and of the parameters that device 0 holds.
//   runtime_rank DP TP STEPS [die RANK STEP | nan | slow]
#include "runtime/comm/open_fabric.h"
#include "runtime/device/strided_copy.h"
#include "runtime/executor/executor.h"
#include "test/unit/runtime/mlp_plan.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

using namespace cleave;
using namespace cleave::runtime;

namespace {

int fail(const Status &status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return status.exitStatus();
}

void load(Executor &executor, const test::MlpData &data) {
  for (const plan::Parameter &parameter : executor.plan().parameters()) {
    const std::vector<float> &whole = parameter.name() == "w1" ? data.w1 : parameter.name() == "b1" ? data.b1 : data.w2;
    std::vector<int64_t> strides = denseStrides({parameter.shape().begin(), parameter.shape().end()});
    for (int64_t device : executor.devices()) {
      Shard shard = executor.shardShape(device, parameter);
      int64_t from = 0;
      for (size_t d = 0; d < strides.size(); ++d) from += shard.begin[d] * strides[d];
      StridedCopy(shard.size, strides, denseStrides(shard.size), 4)
          .run(reinterpret_cast<const std::byte *>(whole.data() + from), executor.shard(device, parameter).data());
    }
  }
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  test::MlpShape shape{.dp = std::atoi(argv[1]), .tp = std::atoi(argv[2])};
  std::string mode = argc > 4 ? argv[4] : "";
  if (mode == "nan") shape.lr = 1e30;
  plan::Plan plan = test::mlpPlan(shape);
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  Result<std::unique_ptr<Fabric>> fabric = openFabric(*mesh);
  if (!fabric) return fail(fabric.status());
  Result<std::unique_ptr<Executor>> made = Executor::create(plan, std::move(*fabric), {.threads = 1});
  if (!made) return fail(made.status());
  Executor &executor = **made;
  if (Result<bool> agreed = executor.fabric().agree(42); !agreed || !*agreed) return fail(agreed.status());
  test::MlpData data = test::mlpData(shape);
  load(executor, data);
  int64_t first = executor.devices().front();
  for (int step = 0; step < std::atoi(argv[3]); ++step) {
    if (mode == "die" && first == std::atoi(argv[5]) && step == std::atoi(argv[6])) ::kill(::getpid(), SIGKILL);
    const std::byte *inputs[] = {reinterpret_cast<const std::byte *>(data.x.data()),
                                 reinterpret_cast<const std::byte *>(data.t.data())};
    auto outputs = executor.run("step", inputs, step);
    if (!outputs) return fail(outputs.status());
    if (first == 0) std::printf("loss %a\n", outputs->at("loss"));
  }
  if (first != 0) return 0;
  for (const plan::Parameter &parameter : plan.parameters()) {
    uint64_t hash = 1469598103934665603ull;
    for (std::byte byte : executor.shard(0, parameter)) hash = (hash ^ static_cast<uint64_t>(byte)) * 1099511628211ull;
    std::printf("%s %llx\n", parameter.name().c_str(), static_cast<unsigned long long>(hash));
  }
  return 0;
}
