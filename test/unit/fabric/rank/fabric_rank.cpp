// One process of a run that does what every fabric must do, as its launch variables say: all devices as threads, or one
// rank.
//   fabric_rank collectives|transfers cpu|fake|real [TOLERANCE]      of the GPU
//   fabric_rank control|abort|killed|stopped|other-collective|other-size FOLDER
#include "runtime/engine/comm/open_fabric.h"
#include "runtime/engine/executor/executor.h"
#include "test/unit/fabric/rank/collective_plan.h"
#include "test/unit/fabric/rank/host_cases.h"
#include "test/unit/fabric/rank/transfer_plan.h"
#include "test/unit/fabric/rank/values.h"
#include <cstdio>
#include <cstdlib>
#include <functional>

using namespace cleave;
using namespace cleave::runtime;

namespace {

constexpr int steps = 2;

struct Held {
  std::string name;
  plan::DType dtype;
  std::function<std::vector<double>(int64_t device, int64_t step)> given, expected; // null: is not
  double tolerance;
};

// Fills, runs and compares on all devices of this process.
Status check(const plan::Plan &plan, const dist::Mesh &mesh, const std::vector<Held> &tensors) {
  Result<std::unique_ptr<Fabric>> fabric = openFabric(mesh, "fabric conformance");
  if (!fabric) return fabric.status();
  Result<std::unique_ptr<Executor>> made = Executor::create(plan, std::move(*fabric), {.threads = 1});
  if (!made) return made.status();
  Executor &executor = **made;
  std::map<std::string, const plan::Parameter *> parameters;
  for (const plan::Parameter &parameter : plan.parameters()) parameters[parameter.name()] = &parameter;
  for (int step = 0; step < steps; ++step) {
    auto forEach = [&](auto &&visit) {
      for (int64_t device : executor.devices())
        for (const Held &tensor : tensors)
          if (executor.holds(device, *parameters.at(tensor.name))) visit(device, tensor);
    };
    forEach([&](int64_t device, const Held &tensor) {
      if (!tensor.given) return;
      ShardBytes bytes = executor.shard(device, *parameters.at(tensor.name));
      const std::vector<double> values = tensor.given(device, step);
      const size_t width = tensor.dtype == plan::BF16 ? 2 : 4;
      for (size_t i = 0; i < values.size(); ++i) test::store(tensor.dtype, values[i], bytes.data() + i * width);
    });
    Result<std::map<std::string, double>> outputs = executor.run("step", {}, step);
    if (!outputs) return outputs.status();
    Status wrong;
    forEach([&](int64_t device, const Held &tensor) {
      const auto &expected = tensor.expected ? tensor.expected : tensor.given;
      ShardBytes bytes = executor.shard(device, *parameters.at(tensor.name));
      const std::string why =
          test::compare(tensor.dtype, bytes.data(), expected(device, step), tensor.expected ? tensor.tolerance : 0);
      if (why.empty()) return;
      wrong = runError("device " + std::to_string(device) + ", step " + std::to_string(step) + ", " + tensor.name +
                       ": " + why);
      std::fprintf(stderr, "%s\n", wrong.message().c_str());
    });
    if (!wrong) executor.giveUp(wrong);
    CLEAVE_RETURN_IF_ERROR(wrong);
  }
  return Status::ok();
}

Status collectives(const std::string &gpu, double tolerance) {
  test::CollectivePlan made({{{"a", 2}, {"b", 3}, {"c", 1}}}, gpu != "fake");
  test::finishPlan(made.plan, made.plan.programs(0).arena_bytes(), gpu);
  std::vector<Held> tensors;
  for (const test::CollectiveTensor &tensor : made.tensors) {
    const plan::DType dtype = tensor.part->dtype;
    const bool sums = tensor.of->reduce == plan::Collective::SUM && dtype != plan::I32;
    Held &held = tensors.emplace_back(tensor.name, dtype);
    held.tolerance = !sums ? 0 : dtype == plan::BF16 ? tolerance * 0x10000 : tolerance; // 16 bits less
    if (tensor.isInput)
      held.given = [&tensor, dtype](int64_t device, int64_t step) {
        std::vector<double> values(static_cast<size_t>(tensor.shape[0] * tensor.shape[1] * tensor.shape[2]));
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = test::valueOf(dtype, device, tensor.number, step, static_cast<int64_t>(i));
        return values;
      };
    if (tensor.isOutput)
      held.expected = [&made, &tensor](int64_t device, int64_t step) { return made.expected(tensor, device, step); };
  }
  return check(made.plan, made.mesh, tensors);
}

Status transfers(const std::string &gpu) {
  const dist::Mesh mesh{{{"pp", 2}, {"dp", 3}}};
  test::TransferPlan made(mesh);
  test::finishPlan(made.plan, made.plan.programs(0).arena_bytes(), gpu);
  std::vector<Held> tensors;
  for (const test::TransferTensor &tensor : made.tensors) {
    auto valuesOf = [&tensor](int64_t device, int64_t step) {
      std::vector<double> values(static_cast<size_t>(tensor.elements));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = test::valueOf(plan::F32, device, tensor.number, step, static_cast<int64_t>(i));
      return values;
    };
    tensors.push_back({tensor.name + ", sent", plan::F32, valuesOf, nullptr, 0});
    tensors.push_back({tensor.name + ", received", plan::F32, nullptr,
                       [&tensor, valuesOf](int64_t device, int64_t step) {
                         return valuesOf(device + 3 * (tensor.fromStage - tensor.toStage), step);
                       },
                       0});
  }
  return check(made.plan, mesh, tensors);
}

} // namespace

int main(int argc, char **argv) {
  const std::string name = argc > 1 ? argv[1] : "", argument = argc > 2 ? argv[2] : "";
  Status status = name == "collectives" ? collectives(argument, argc > 3 ? std::atof(argv[3]) : 0)
                  : name == "transfers" ? transfers(argument)
                                        : test::runHostCase(name, argument);
  if (status) std::printf("ok\n");
  if (!status) std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return status.exitStatus();
}
