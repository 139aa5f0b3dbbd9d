#include "runtime/verify/compare.h"
#include "graph.pb.h"
#include "runtime/comm/local.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/schedule.h"
#include "runtime/plan/previous_weights.h"
#include "runtime/plan/routine.h"
#include "runtime/reference/executor.h"
#include "runtime/reference/philox.h"
#include "runtime/state/weights.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {
namespace {

// Random but valid inputs: integers below their bound, labels of real type in [0, 1), other reals in [-1, 1).
HostTensor randomInput(const plan::InputBinding &input, int64_t step, int64_t microbatch, uint64_t stream) {
  HostTensor tensor =
      HostTensor::zeros(input.buffer().dtype(), {input.global_shape().begin(), input.global_shape().end()});
  uint64_t counter = uint64_t(step) | uint64_t(microbatch) << 32;
  int64_t count = tensor.elements();
  bool real = isFloat(tensor.dtype);
  std::vector<double> values(static_cast<size_t>(count));
  int64_t bound = std::max<int64_t>(input.upper_bound(), 2);
  for (int64_t i = 0; i < count; ++i) {
    double uniform = philoxUniform(0x76657269, counter, stream, uint64_t(i));
    values[size_t(i)] = !real ? std::floor(uniform * double(bound)) : input.label() ? uniform : 2 * uniform - 1;
  }
  tensor.setReals(values.data());
  return tensor;
}

// A persistent tensor put together from the devices' shards.
Result<HostTensor> gather(Executor &executor, const plan::Parameter &parameter) {
  HostTensor whole = HostTensor::zeros(parameter.dtype(), {parameter.shape().begin(), parameter.shape().end()});
  int64_t width = byteSize(parameter.dtype());
  std::vector<int64_t> strides = rowMajorStrides(whole.shape);
  for (int64_t device : executor.devices()) {
    if (!executor.holds(device, parameter)) continue;
    Shard box = executor.shardShape(device, parameter);
    ShardBytes held = executor.shard(device, parameter, ShardAccess::Read);
    const std::byte *bytes = held.data();
    // Runs along the last dimension are contiguous in both.
    int64_t rank = int64_t(box.size.size()), run = rank == 0 ? 1 : box.size.back(), runs = 1;
    for (int64_t d = 0; d + 1 < rank; ++d) runs *= box.size[size_t(d)];
    for (int64_t r = 0; r < runs; ++r) {
      int64_t rest = r, offset = rank == 0 ? 0 : box.begin.back();
      for (int64_t d = rank - 2; d >= 0; --d) {
        offset += (box.begin[size_t(d)] + rest % box.size[size_t(d)]) * strides[size_t(d)];
        rest /= box.size[size_t(d)];
      }
      std::memcpy(whole.data.data() + offset * width, bytes + r * run * width, size_t(run * width));
    }
  }
  return whole;
}

// Devices that hold the same part of a tensor must hold the same bits: replicas, and weights tied across stages. Empty:
// they do.
std::string differingCopies(Executor &executor, const plan::Parameter &parameter) {
  std::map<std::vector<int64_t>, int64_t> first; // by where the part begins
  for (int64_t device : executor.devices()) {
    if (!executor.holds(device, parameter)) continue;
    auto [known, added] = first.try_emplace(executor.shardShape(device, parameter).begin, device);
    if (added) continue;
    ShardBytes a = executor.shard(known->second, parameter, ShardAccess::Read),
               b = executor.shard(device, parameter, ShardAccess::Read);
    if (std::memcmp(a.data(), b.data(), a.size()) != 0)
      return fmt::format("devices {} and {} hold different copies of {}", known->second, device, parameter.name());
  }
  return "";
}

// Elements whose gradient is only rounding noise: an optimizer that divides by the gradient's own size (Adam and its
// kind) turns that noise into full-sized steps, so they cannot agree and prove nothing. Told by the reference's first
// moment: below 1e-6 of the largest of all moments.
class NoiseMask {
public:
  explicit NoiseMask(const NamedTensors &state) : state(state) {
    for (const auto &[name, tensor] : state)
      if (name.rfind(prefix, 0) == 0)
        for (double value : tensor.reals()) largest = std::max(largest, std::abs(value));
  }
  // Empty: compare everything.
  std::vector<bool> of(const std::string &parameter) const {
    auto moment =
        state.find(prefix + parameter.substr(parameter.starts_with(previousPrefix) ? previousPrefix.size() : 0));
    if (moment == state.end()) return {};
    std::vector<bool> noise;
    for (double value : moment->second.reals()) noise.push_back(std::abs(value) < 1e-6 * largest);
    return noise;
  }

private:
  static constexpr const char *prefix = "adam.m/";
  const NamedTensors &state;
  double largest = 0;
};

TensorComparison compareTensor(const std::string &name, const HostTensor &split, const HostTensor &reference,
                               const std::vector<bool> &noise, double scale) {
  TensorComparison result{name};
  std::vector<double> a = split.reals(), b = reference.reals();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!noise.empty() && noise[i]) {
      ++result.skipped;
      continue;
    }
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  result.error = std::isfinite(difference) ? std::sqrt(difference) / std::max(std::sqrt(norm), scale) : INFINITY;
  return result;
}

// The spacing of numbers near 1 of the coarsest type a plan computes on; 0: of none that is coarser than f32.
double epsilonOf(const plan::Plan &plan) {
  double epsilon = 0;
  for (const plan::Parameter &parameter : plan.parameters())
    epsilon = std::max(epsilon, parameter.dtype() == plan::BF16  ? 0x1p-7
                                : parameter.dtype() == plan::F16 ? 0x1p-10
                                                                 : 0);
  return epsilon;
}

// Tensors that are of one size by their meaning: "parameter", or what an optimizer keeps ("adam.m").
std::string kindOf(const plan::Parameter &parameter) {
  if (parameter.role() != plan::Parameter::OPTIMIZER_STATE) return plan::Parameter::Role_Name(parameter.role());
  return parameter.name().substr(0, parameter.name().find('/'));
}

double relative(double value, double reference) {
  return std::isfinite(value) ? std::abs(value - reference) / std::max(std::abs(reference), 1e-12) : INFINITY;
}

class Comparer {
public:
  Comparer(const plan::Plan &plan, const CompareOptions &options) : plan(plan), result{options, {}, {}, {}} {}

  Result<Comparison> run() {
    if (double epsilon = epsilonOf(plan); epsilon > 0) {
      CompareOptions &options = result.options;
      options.lossTolerance = std::max(options.lossTolerance, epsilon / 2);
      options.normTolerance = std::max(options.normTolerance, 2 * epsilon);
      options.tensorTolerance = std::max(options.tensorTolerance, 2 * epsilon);
    }
    CLEAVE_RETURN_IF_ERROR(open());
    for (int64_t step = 1; step <= result.options.steps; ++step) CLEAVE_RETURN_IF_ERROR(runStep(step));
    CLEAVE_RETURN_IF_ERROR(compareState());
    return std::move(result);
  }

private:
  Status open() {
    if (plan.reference_graph().empty()) return inputError("the plan carries no reference graph to compare with");
    plan::Graph graph;
    if (!graph.ParseFromString(plan.reference_graph())) return inputError("the plan's reference graph is damaged");
    auto created = ReferenceExecutor::create(std::move(graph), Precision::Double);
    if (!created) return created.status();
    reference = std::make_unique<ReferenceExecutor>(std::move(*created));
    auto mesh = meshOf(plan.mesh());
    if (!mesh) return mesh.status();
    auto made = Executor::create(plan, std::make_unique<LocalFabric>(*mesh), {});
    if (!made) return made.status();
    executor = std::move(*made);
    WeightReader weights(plan, result.options.model);
    for (const plan::Parameter &parameter : plan.parameters()) {
      for (int64_t device : executor->devices())
        if (executor->holds(device, parameter))
          CLEAVE_RETURN_IF_ERROR(weights.initialize(parameter, executor->shardShape(device, parameter),
                                                    executor->shard(device, parameter, ShardAccess::Replace)));
      auto whole = gather(*executor, parameter);
      if (!whole) return whole.status();
      reference->state[parameter.name()] =
          parameter.dtype() == plan::F32 ? whole->converted(plan::F64) : std::move(*whole);
    }
    return Status::ok();
  }

  Status runStep(int64_t step) {
    if (!executor->has("step")) return inputError("the plan has no routine 'step'");
    std::vector<const plan::InputBinding *> bindings = inputsOf(plan, "step");
    std::vector<NamedTensors> inputs(static_cast<size_t>(microbatchesOf(plan, "step")));
    std::vector<const std::byte *> pointers;
    for (size_t m = 0; m < inputs.size(); ++m)
      for (size_t i = 0; i < bindings.size(); ++i) {
        auto &tensor = inputs[m][bindings[i]->name()] = randomInput(*bindings[i], step, int64_t(m), uint64_t(i));
        pointers.push_back(tensor.data.data());
      }
    auto ran = executor->run("step", pointers, step - 1, skipped);
    if (!ran) return ran.status();
    std::map<std::string, double> outputs = *ran;
    HostValues host{.step = step,
                    .skipped = skipped,
                    .learningRate = learningRate(plan.training().lr(), step - 1),
                    .seed = plan.training().seed()};
    auto expected = reference->step(inputs, host);
    if (!expected) return expected.status();
    StepComparison seen{step, outputs["loss"], expected->loss, outputs["grad_norm"], expected->gradNorm};
    result.steps.push_back(seen);
    if (expected->skipped) {
      if (outputs["skipped"] != *expected->skipped)
        result.faults.push_back(
            fmt::format("step {}: {} steps skipped split, {} unsplit", step, outputs["skipped"], *expected->skipped));
      skipped = std::llround(*expected->skipped);
      if (!std::isfinite(seen.referenceGradNorm)) return Status::ok(); // skipped: there is no norm to compare
    }
    if (!(relative(seen.loss, seen.referenceLoss) <= result.options.lossTolerance))
      result.faults.push_back(fmt::format("step {}: loss {} split, {} unsplit", step, seen.loss, seen.referenceLoss));
    if (!(relative(seen.gradNorm, seen.referenceGradNorm) <= result.options.normTolerance))
      result.faults.push_back(
          fmt::format("step {}: gradient norm {} split, {} unsplit", step, seen.gradNorm, seen.referenceGradNorm));
    return Status::ok();
  }

  // A tensor of zeros (a bias without gradient) is compared with the scale of one rounding of the learning rate. In 16
  // bits a sum that is rounded the other way changes everything after it a little, and a gradient by as much of what
  // flows through the network, not of what is left where most cancels: tensors are compared with all of their kind.
  Status compareState() {
    NoiseMask noise(reference->state);
    std::map<std::string, double> squares;
    if (epsilonOf(plan) > 0)
      for (const plan::Parameter &parameter : plan.parameters())
        if (auto found = reference->state.find(parameter.name()); found != reference->state.end())
          for (double value : found->second.reals()) squares[kindOf(parameter)] += value * value;
    for (const plan::Parameter &parameter : plan.parameters()) {
      if (!parameter.snapshot() || !isFloat(parameter.dtype())) continue;
      auto found = reference->state.find(parameter.name());
      if (found == reference->state.end()) continue;
      if (std::string fault = differingCopies(*executor, parameter); !fault.empty()) result.faults.push_back(fault);
      auto whole = gather(*executor, parameter);
      if (!whole) return whole.status();
      bool weight = parameter.role() == plan::Parameter::PARAMETER;
      double scale = std::max(1e-5, std::sqrt(squares[kindOf(parameter)]));
      TensorComparison seen = compareTensor(
          parameter.name(), *whole, found->second,
          weight || parameter.name().starts_with(previousPrefix) ? noise.of(parameter.name()) : std::vector<bool>{},
          scale);
      if (!(seen.error <= result.options.tensorTolerance))
        result.faults.push_back(
            fmt::format("{} is off by {:.2e} of its norm after {} steps", seen.name, seen.error, result.options.steps));
      result.tensors.push_back(seen);
    }
    std::stable_sort(result.tensors.begin(), result.tensors.end(),
                     [](const auto &a, const auto &b) { return a.error > b.error; });
    return Status::ok();
  }

  const plan::Plan &plan;
  Comparison result;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<ReferenceExecutor> reference;
  int64_t skipped = 0;
};

} // namespace

Result<Comparison> comparePlan(const plan::Plan &plan, const CompareOptions &options) {
  return Comparer(plan, options).run();
}

std::string Comparison::text() const {
  std::string out;
  for (const StepComparison &step : steps)
    out += fmt::format("step {}: loss {:.7g} split, {:.7g} unsplit ({:.1e}); gradient norm {:.7g}, {:.7g} ({:.1e})\n",
                       step.step, step.loss, step.referenceLoss, relative(step.loss, step.referenceLoss), step.gradNorm,
                       step.referenceGradNorm, relative(step.gradNorm, step.referenceGradNorm));
  if (!tensors.empty())
    out += fmt::format("{} persistent tensors after {} steps: the worst, {}, is off by {:.1e} of its norm\n",
                       tensors.size(), options.steps, tensors.front().name, tensors.front().error);
  for (const std::string &fault : faults) out += "DISAGREES: " + fault + "\n";
  if (agrees()) out += "the split computes what the unsplit model computes\n";
  return out;
}

std::string Comparison::json() const {
  nlohmann::json out{{"agrees", agrees()}, {"faults", faults}};
  for (const StepComparison &step : steps)
    out["steps"].push_back({{"step", step.step},
                            {"loss", step.loss},
                            {"reference_loss", step.referenceLoss},
                            {"grad_norm", step.gradNorm},
                            {"reference_grad_norm", step.referenceGradNorm}});
  for (const TensorComparison &tensor : tensors)
    out["tensors"].push_back({{"name", tensor.name}, {"error", tensor.error}, {"skipped", tensor.skipped}});
  return out.dump(2) + "\n";
}

} // namespace cleave::runtime
