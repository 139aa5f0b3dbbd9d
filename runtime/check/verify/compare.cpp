#include "runtime/check/verify/compare.h"
#include "graph.pb.h"
#include "runtime/base/philox.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/base/threads/thread_count.h"
#include "runtime/check/reference/executor.h"
#include "runtime/engine/comm/local.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/lr_schedule.h"
#include "runtime/plan/master_weights.h"
#include "runtime/plan/previous_weights.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/row_scales.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/train/state/weights.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

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
  int64_t bound = input.upper_bound() > 0 ? input.upper_bound() : 2; // nothing bounds it: 0 and 1
  for (int64_t i = 0; i < count; ++i) {
    double uniform = philoxUniform(0x76657269, counter, stream, uint64_t(i));
    values[size_t(i)] = !real ? std::floor(uniform * double(bound)) : input.label() ? uniform : 2 * uniform - 1;
  }
  tensor.setReals(values.data());
  return tensor;
}

// What `add(own, i)` makes of the elements i of [0, count), over all threads: the same for any number of them.
template <typename Value, typename Add, typename Join>
Value combined(int64_t count, const Value &start, Add add, Join join) {
  std::vector<Value> parts(static_cast<size_t>((count + elementsAtATime - 1) / elementsAtATime), start);
  parallelFor(static_cast<int64_t>(parts.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      Value own = start;
      for (int64_t i = part * elementsAtATime; i < std::min(count, (part + 1) * elementsAtATime); ++i) add(own, i);
      parts[static_cast<size_t>(part)] = own;
    }
  });
  return std::accumulate(parts.begin(), parts.end(), start, join);
}

HostTensor gather(Executor &executor, const plan::Parameter &parameter) {
  HostTensor whole = HostTensor::unset(parameter.dtype(), {parameter.shape().begin(), parameter.shape().end()});
  executor.gather(parameter, whole.data.data());
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

// The parameter that a tensor is a version or an average of; its own name of another one.
std::string weightOf(const std::string &tensor) {
  for (std::string_view prefix : {previousPrefix, std::string_view(averagePrefix)})
    if (tensor.starts_with(prefix)) return tensor.substr(prefix.size());
  return tensor;
}

// A tensor's numbers as doubles: those of 8 bits times the scales of their rows (runtime/plan/row_scales.h). `scales`:
// or null.
class Numbers {
public:
  Numbers(const HostTensor &tensor, const HostTensor *scales) : plain(tensor, plan::F64) {
    if (!scales || tensor.elements() == 0) return;
    const AsType ofRows(*scales, plan::F64);
    const auto *factors = ofRows->as<double>(), *codes = plain->as<double>();
    const int64_t row = tensor.elements() / scales->elements();
    products.resize(static_cast<size_t>(tensor.elements()));
    for (int64_t i = 0; i < tensor.elements(); ++i) products[static_cast<size_t>(i)] = codes[i] * factors[i / row];
  }
  const double *data() const { return products.empty() ? plain->as<double>() : products.data(); }

private:
  AsType plain;
  std::vector<double> products;
};
// A tensor and its scales, or null.
struct Scaled {
  const HostTensor *tensor = nullptr, *scales = nullptr;
  Numbers numbers() const { return {*tensor, scales}; }
};
const HostTensor *scalesOf(const NamedTensors &state, const std::string &tensor) {
  const auto found = state.find(rowScalesName(tensor));
  return found == state.end() ? nullptr : &found->second;
}

// Two numbers between two codes may round to either: a code beside the reference's counts as the reference's.
HostTensor withoutRoundings(HostTensor codes, const HostTensor &reference) {
  auto place = [](std::byte code) { // in order of the numbers
    const int bits = std::to_integer<int>(code), magnitude = bits & 0x7f;
    return bits & 0x80 ? -magnitude : magnitude;
  };
  for (size_t i = 0; i < codes.data.size(); ++i)
    if (std::abs(place(codes.data[i]) - place(reference.data[i])) <= 1) codes.data[i] = reference.data[i];
  return codes;
}

// Elements whose gradient is only rounding noise: an optimizer that divides by the gradient's own size (Adam and its
// kind) turns that noise into full-sized steps, so they cannot agree and prove nothing. Told by the reference's first
// moment: below 1e-6 of the largest of all moments.
class NoiseMask {
public:
  explicit NoiseMask(const NamedTensors &state) : state(state) {
    for (const auto &[name, tensor] : state)
      if (name.rfind(prefix, 0) == 0) {
        const Numbers moment(tensor, scalesOf(state, name));
        const double *values = moment.data();
        const double most = combined(
            tensor.elements(), 0.0, [&](double &own, int64_t i) { own = std::max(own, std::abs(values[i])); },
            [](double a, double b) { return std::max(a, b); });
        largest = std::max(largest, most);
      }
  }
  // The first moments of a parameter, of which those below `noise()` are noise; none: compare everything.
  Scaled of(const std::string &parameter) const {
    auto moment = state.find(prefix + weightOf(parameter));
    return moment == state.end() ? Scaled() : Scaled{&moment->second, scalesOf(state, moment->first)};
  }
  double noise() const { return 1e-6 * largest; }

private:
  static constexpr const char *prefix = "exp_avg/";
  const NamedTensors &state;
  double largest = 0;
};

double sumOfSquares(const Scaled &scaled) {
  const Numbers doubles = scaled.numbers();
  const double *values = doubles.data();
  return combined(
      scaled.tensor->elements(), 0.0, [&](double &sum, int64_t i) { sum += values[i] * values[i]; },
      std::plus<double>());
}

struct Sums {
  double difference = 0, norm = 0; // of squares
  int64_t skipped = 0;
  friend Sums operator+(const Sums &a, const Sums &b) {
    return {a.difference + b.difference, a.norm + b.norm, a.skipped + b.skipped};
  }
};

// `moments`: none, or the reference's first moments; where these are below `noise` nothing is compared.
TensorComparison compareTensor(const std::string &name, const Scaled &split, const Scaled &reference,
                               const Scaled &moments, double noise, double scale) {
  TensorComparison result{name};
  const Numbers own = split.numbers(), expected = reference.numbers(),
                moment = moments.tensor ? moments.numbers() : reference.numbers();
  const double *a = own.data(), *b = expected.data(), *m = moments.tensor ? moment.data() : nullptr;
  const Sums sums = combined(
      split.tensor->elements(), Sums{},
      [&](Sums &sums, int64_t i) {
        if (m && std::abs(m[i]) < noise) {
          ++sums.skipped;
          return;
        }
        sums.difference += (a[i] - b[i]) * (a[i] - b[i]);
        sums.norm += b[i] * b[i];
      },
      std::plus<Sums>());
  result.skipped = sums.skipped;
  result.error =
      std::isfinite(sums.difference) ? std::sqrt(sums.difference) / std::max(std::sqrt(sums.norm), scale) : INFINITY;
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

// Tensors that are of one size by their meaning: "parameter", or what an optimizer keeps ("exp_avg").
std::string kindOf(const plan::Parameter &parameter) {
  if (parameter.role() != plan::Parameter::OPTIMIZER_STATE) return plan::Parameter::Role_Name(parameter.role());
  return parameter.name().substr(0, parameter.name().find('/'));
}

double relative(double value, double reference) {
  return std::isfinite(value) ? std::abs(value - reference) / std::max(std::abs(reference), 1e-12) : INFINITY;
}

// Every step starts from the split's own state: what is proven is that each step computes the same, and not how errors
// of rounding grow from step to step, which in a deep network with batch normalization they do fast. Where steps run
// into each other (routine.h) all but the last do so here, too, one at a time.
class Comparer {
public:
  Comparer(const plan::Plan &plan, const CompareOptions &options) : plan(plan) {
    result.options = options;
    for (const plan::Parameter &parameter : plan.parameters()) named[parameter.name()] = &parameter;
  }

  Result<Comparison> run() {
    if (double epsilon = epsilonOf(plan); epsilon > 0) {
      CompareOptions &options = result.options;
      options.lossTolerance = std::max(options.lossTolerance, epsilon / 2);
      options.normTolerance = std::max(options.normTolerance, 2 * epsilon);
      options.tensorTolerance = std::max(options.tensorTolerance, 2 * epsilon);
    }
    if (const std::string &node = plan.training().samples_meet_at(); !node.empty())
      result.basis = fmt::format("the unsplit step of the same {} microbatches: the samples of one meet at '{}', those "
                                 "of the whole batch do not",
                                 plan.training().microbatches(), node);
    CLEAVE_RETURN_IF_ERROR(open());
    if (result.options.steps == 0)
      result.options.steps = stepsOverlap(plan) ? 3 : std::max<int64_t>(2, static_cast<int64_t>(shapesOf(plan)));
    for (int64_t step = 1; step <= result.options.steps; ++step) CLEAVE_RETURN_IF_ERROR(runStep(step));
    std::stable_sort(result.tensors.begin(), result.tensors.end(),
                     [](const auto &a, const auto &b) { return a.error > b.error; });
    return std::move(result);
  }

private:
  // Variants of a step in float32; all but the first have another last bit of the weights.
  static constexpr uint64_t variants = 4;
  // The reference's sums are exact and only their results rounded; a plan's are rounded at every term.
  static constexpr double sensitivityMargin = 8;

  Status open() {
    if (plan.programs().empty() || !findRoutine(plan.programs(0), "step"))
      return inputError("the plan has no routine 'step'");
    CLEAVE_RETURN_IF_ERROR(take(shapesOf(plan) - 1));
    CLEAVE_ASSIGN_OR_RETURN(auto mesh, meshOf(plan.mesh()));
    CLEAVE_ASSIGN_OR_RETURN(executor, Executor::create(plan, std::make_unique<LocalFabric>(mesh), {}));
    WeightReader weights(plan, result.options.model, {.whole = result.options.checkWeights});
    for (const plan::Parameter &parameter : plan.parameters()) {
      for (int64_t device : executor->devices())
        if (executor->holds(device, parameter))
          CLEAVE_RETURN_IF_ERROR(weights.initialize(parameter, executor->shardShape(device, parameter),
                                                    executor->shard(device, parameter, ShardAccess::Replace)));
      exact->state[parameter.name()] = gather(*executor, parameter);
    }
    return Status::ok();
  }

  // The next step has this shape.
  Status take(size_t next) {
    if (exact && next == shape) return Status::ok();
    shape = next;
    bindings = inputsOf(plan, routineOf(plan, "step", shape));
    std::unique_ptr<ReferenceExecutor> before = std::move(exact);
    CLEAVE_RETURN_IF_ERROR(openReference(Precision::Double, exact));
    if (before) exact->state = std::move(before->state);
    rounded.reset();
    return Status::ok();
  }

  Status openReference(Precision precision, std::unique_ptr<ReferenceExecutor> &reference) {
    const std::string &bytes = referenceOf(plan, shape);
    if (bytes.empty()) return inputError("the plan carries no reference graph to compare with");
    plan::Graph graph;
    if (!graph.ParseFromString(bytes)) return inputError("the plan's reference graph is damaged");
    CLEAVE_ASSIGN_OR_RETURN(auto created, ReferenceExecutor::create(std::move(graph), precision));
    reference = std::make_unique<ReferenceExecutor>(std::move(created));
    if (result.options.progress)
      reference->progress = [this](int64_t microbatch, double done) {
        result.options.progress({current, result.options.steps, microbatch, done});
      };
    return Status::ok();
  }

  std::vector<NamedTensors> inputsOfStep(int64_t step) const {
    std::vector<NamedTensors> inputs(static_cast<size_t>(microbatchesOf(plan, "step")));
    for (size_t m = 0; m < inputs.size(); ++m)
      for (size_t i = 0; i < bindings.size(); ++i)
        inputs[m][bindings[i]->name()] = randomInput(*bindings[i], step, int64_t(m), uint64_t(i));
    return inputs;
  }

  // Forward passes change running statistics: where some of the next step are done, the split's are ahead.
  bool isAhead(const plan::Parameter &parameter) const {
    return isFilled && parameter.role() == plan::Parameter::RUNNING_STATISTIC;
  }

  // The reference's state before a step: the split's, as the split holds it, and what only the reference has.
  NamedTensors takeState() {
    NamedTensors before;
    for (const plan::Parameter &parameter : plan.parameters()) {
      HostTensor &own = exact->state[parameter.name()], &given = before[parameter.name()];
      given = parameter.snapshot() && !isAhead(parameter) ? gather(*executor, parameter) : own;
      own = given.converted(heldAs(given.dtype, Precision::Double));
    }
    return before;
  }

  using Pointers = std::vector<const std::byte *>;
  Pointers pointersTo(const std::vector<NamedTensors> &inputs) const {
    Pointers pointers;
    for (const NamedTensors &microbatch : inputs)
      for (const plan::InputBinding *binding : bindings) pointers.push_back(microbatch.at(binding->name()).data.data());
    return pointers;
  }

  Result<std::map<std::string, double>> runSplit(int64_t step, const std::vector<NamedTensors> &inputs) {
    Pointers own = pointersTo(inputs);
    if (!stepsOverlap(plan)) return executor->run(routineOf(plan, "step", shape), own, step - 1, skipped);
    if (!isFilled)
      if (auto filled = executor->run("fill", own, step - 1, skipped); !filled) return filled;
    isFilled = step < result.options.steps;
    if (!isFilled) return executor->run("drain", own, step - 1, skipped);
    std::vector<NamedTensors> next = inputsOfStep(step + 1);
    return executor->run("step", own, step - 1, skipped, pointersTo(next));
  }

  Status runStep(int64_t step) {
    current = step;
    const size_t count = shapesOf(plan);
    CLEAVE_RETURN_IF_ERROR(take(count - 1 - static_cast<size_t>(step - 1) % count));
    const NamedTensors before = takeState();
    std::vector<NamedTensors> inputs = inputsOfStep(step);
    CLEAVE_ASSIGN_OR_RETURN(auto ran, runSplit(step, inputs));
    std::map<std::string, double> outputs = ran;
    HostValues host{.step = step,
                    .skipped = skipped,
                    .learningRate = learningRate(plan.training().lr(), step - 1),
                    .seed = plan.training().seed()};
    CLEAVE_ASSIGN_OR_RETURN(auto expected, exact->step(inputs, host));
    StepComparison seen;
    seen.step = step;
    if (count > 1) seen.length = plan.shapes(static_cast<int>(shape)).length();
    if (isRamp(plan)) seen.batch = batchOf(plan, shape);
    seen.loss = outputs["loss"], seen.referenceLoss = expected.loss;
    seen.gradNorm = outputs["grad_norm"], seen.referenceGradNorm = expected.gradNorm;
    if (expected.skipped) {
      if (outputs["skipped"] != *expected.skipped)
        result.faults.push_back(
            fmt::format("step {}: {} steps skipped split, {} unsplit", step, outputs["skipped"], *expected.skipped));
      skipped = std::llround(*expected.skipped);
      seen.skips = !std::isfinite(seen.referenceGradNorm);
    }
    std::vector<TensorComparison> tensors;
    CLEAVE_RETURN_IF_ERROR(compareState(step, tensors));
    if (!numericFaults(seen, tensors).empty())
      CLEAVE_RETURN_IF_ERROR(measureSensitivity(before, inputs, host, seen, tensors));
    for (std::string &fault : numericFaults(seen, tensors)) result.faults.push_back(std::move(fault));
    result.steps.push_back(seen);
    if (result.tensors.empty()) result.tensors = tensors;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!(tensors[i].error <= result.tensors[i].error)) result.tensors[i] = tensors[i];
    return Status::ok();
  }

  // A tensor of zeros (a bias without gradient) is compared with the scale of one rounding of the learning rate. In 16
  // bits a sum that is rounded the other way changes everything after it a little, and a gradient by as much of what
  // flows through the network, not of what is left where most cancels: tensors are compared with all of their kind.
  Status compareState(int64_t step, std::vector<TensorComparison> &tensors) {
    std::map<std::string, double> squares;
    if (epsilonOf(plan) > 0)
      for (const plan::Parameter &parameter : plan.parameters())
        if (auto found = exact->state.find(parameter.name()); found != exact->state.end())
          squares[kindOf(parameter)] += sumOfSquares({&found->second, scalesOf(exact->state, found->first)});
    NoiseMask noise(exact->state);
    for (const plan::Parameter &parameter : plan.parameters()) {
      if (!isCompared(parameter)) continue;
      if (std::string fault = differingCopies(*executor, parameter); !fault.empty()) result.faults.push_back(fault);
      HostTensor whole = gather(*executor, parameter);
      double scale = std::max(1e-5, std::sqrt(squares[kindOf(parameter)]));
      const HostTensor &reference = exact->state.at(parameter.name());
      const HostTensor *scales = scalesOf(exact->state, parameter.name());
      std::optional<HostTensor> own;
      if (scales) {
        whole = withoutRoundings(std::move(whole), reference);
        own = gather(*executor, *named.at(rowScalesName(parameter.name())));
      }
      tensors.push_back(isAhead(parameter)
                            ? TensorComparison{.name = parameter.name()}
                            : compareTensor(parameter.name(), {&whole, own ? &*own : nullptr}, {&reference, scales},
                                            momentsOf(noise, parameter), noise.noise(), scale));
      tensors.back().step = step;
      tensors.back().scale = scale;
    }
    return Status::ok();
  }
  bool isCompared(const plan::Parameter &parameter) const {
    return parameter.snapshot() && isFloat(parameter.dtype()) && exact->state.contains(parameter.name());
  }
  static Scaled momentsOf(const NoiseMask &noise, const plan::Parameter &parameter) {
    bool weight = parameter.role() == plan::Parameter::PARAMETER || weightOf(parameter.name()) != parameter.name();
    return weight ? noise.of(parameter.name()) : Scaled();
  }

  // How far the unsplit step itself is from its exact results when it is computed in float32.
  Status measureSensitivity(const NamedTensors &before, const std::vector<NamedTensors> &inputs, const HostValues &host,
                            StepComparison &seen, std::vector<TensorComparison> &tensors) {
    result.sensitivityMeasured = true;
    if (!rounded) CLEAVE_RETURN_IF_ERROR(openReference(Precision::AsTyped, rounded));
    NoiseMask noise(exact->state);
    for (uint64_t variant = 0; variant < variants; ++variant) {
      setRounded(before, variant);
      CLEAVE_ASSIGN_OR_RETURN(auto computed, rounded->step(inputs, host));
      seen.lossSensitivity = std::max(seen.lossSensitivity, relative(computed.loss, seen.referenceLoss));
      if (!seen.skips)
        seen.normSensitivity = std::max(seen.normSensitivity, relative(computed.gradNorm, seen.referenceGradNorm));
      size_t i = 0;
      for (const plan::Parameter &parameter : plan.parameters()) {
        if (!isCompared(parameter)) continue;
        TensorComparison &tensor = tensors[i++];
        const auto scaled = [&](const NamedTensors &state) {
          return Scaled{&state.at(tensor.name), scalesOf(state, tensor.name)};
        };
        TensorComparison change = compareTensor(tensor.name, scaled(rounded->state), scaled(exact->state),
                                                momentsOf(noise, parameter), noise.noise(), tensor.scale);
        tensor.sensitivity = std::max(tensor.sensitivity, change.error);
      }
    }
    return Status::ok();
  }
  // Variant 0: the weights as they are; others: every float32 up, down or as it is.
  void setRounded(const NamedTensors &before, uint64_t variant) {
    uint64_t stream = 0;
    for (const plan::Parameter &parameter : plan.parameters()) {
      const HostTensor &value = before.at(parameter.name());
      HostTensor &target = rounded->state[parameter.name()];
      target = parameter.dtype() == plan::F32 ? value.converted(plan::F32) : value;
      ++stream;
      if (variant == 0 || parameter.role() != plan::Parameter::PARAMETER || parameter.dtype() != plan::F32) continue;
      std::vector<double> values = target.reals();
      for (size_t i = 0; i < values.size(); ++i)
        values[i] *= 1 + 0x1p-23 * (std::floor(3 * philoxUniform(0x6c617374, variant, stream, i)) - 1);
      target.setReals(values.data());
    }
  }

  std::vector<std::string> numericFaults(const StepComparison &seen,
                                         const std::vector<TensorComparison> &tensors) const {
    const CompareOptions &options = result.options;
    std::vector<std::string> faults;
    if (!(relative(seen.loss, seen.referenceLoss) <= options.lossTolerance + sensitivityMargin * seen.lossSensitivity))
      faults.push_back(fmt::format("step {}: loss {} split, {} unsplit", seen.step, seen.loss, seen.referenceLoss));
    bool normAgrees = relative(seen.gradNorm, seen.referenceGradNorm) <=
                      options.normTolerance + sensitivityMargin * seen.normSensitivity;
    if (!seen.skips && !normAgrees) // a skipped step has no norm to compare
      faults.push_back(
          fmt::format("step {}: gradient norm {} split, {} unsplit", seen.step, seen.gradNorm, seen.referenceGradNorm));
    for (const TensorComparison &tensor : tensors)
      if (!(tensor.error <= options.tensorTolerance + sensitivityMargin * tensor.sensitivity))
        faults.push_back(fmt::format("step {}: {} is off by {:.2e} of its norm", seen.step, tensor.name, tensor.error));
    return faults;
  }

  const plan::Plan &plan;
  std::map<std::string, const plan::Parameter *> named;
  Comparison result;
  std::vector<const plan::InputBinding *> bindings; // of the step
  size_t shape = 0;                                 // which of the plan's
  std::unique_ptr<Executor> executor;
  std::unique_ptr<ReferenceExecutor> exact, rounded; // in doubles; with every result rounded to float32
  int64_t current = 1;                               // step
  int64_t skipped = 0;
  bool isFilled = false; // forwards of the next step are done
};

} // namespace

Result<Comparison> comparePlan(const plan::Plan &plan, const CompareOptions &options) {
  CallersThreads callers; // of the unsplit model's loops; those of the plan's devices are their own
  setThreads(threadsOfProcess());
  const ReusedBuffers reused;
  return Comparer(plan, options).run();
}

std::string Comparison::text() const {
  std::string out;
  for (const StepComparison &step : steps)
    out += fmt::format("step {}{}: loss {:.7g} split, {:.7g} unsplit ({:.1e}); gradient norm {:.7g}, {:.7g} ({:.1e})\n",
                       step.step,
                       step.length > 0  ? fmt::format(" of length {}", step.length)
                       : step.batch > 0 ? fmt::format(" of batch {}", step.batch)
                                        : "",
                       step.loss, step.referenceLoss, relative(step.loss, step.referenceLoss), step.gradNorm,
                       step.referenceGradNorm, relative(step.gradNorm, step.referenceGradNorm));
  if (!tensors.empty())
    out += fmt::format(
        "{} persistent tensors after each step: the worst, {}, is off by {:.1e} of its norm after step {}\n",
        tensors.size(), tensors.front().name, tensors.front().error, tensors.front().step);
  if (sensitivityMeasured) {
    double loss = 0, norm = 0, tensor = 0;
    for (const StepComparison &step : steps)
      loss = std::max(loss, step.lossSensitivity), norm = std::max(norm, step.normSensitivity);
    for (const TensorComparison &seen : tensors) tensor = std::max(tensor, seen.sensitivity);
    out += fmt::format(
        "the unsplit step itself, in float32 and from weights with another last bit, differs: losses by {:.1e}, "
        "gradient norms by {:.1e}, tensors by {:.1e} of their norm at most; eight times that is allowed\n",
        loss, norm, tensor);
  }
  if (!basis.empty()) out += "compared with " + basis + "\n";
  for (const std::string &fault : faults) out += "DISAGREES: " + fault + "\n";
  if (agrees())
    out += fmt::format("the split computes what the unsplit model computes{}\n",
                       sensitivityMeasured ? ", as closely as float32 defines it" : "");
  return out;
}

std::string Comparison::json() const {
  nlohmann::json out{{"agrees", agrees()}, {"faults", faults}};
  if (!basis.empty()) out["compared_with"] = basis;
  for (const StepComparison &step : steps) {
    out["steps"].push_back({{"step", step.step},
                            {"loss", step.loss},
                            {"reference_loss", step.referenceLoss},
                            {"grad_norm", step.gradNorm},
                            {"reference_grad_norm", step.referenceGradNorm},
                            {"loss_sensitivity", step.lossSensitivity},
                            {"grad_norm_sensitivity", step.normSensitivity}});
    if (step.length > 0) out["steps"].back()["length"] = step.length;
    if (step.batch > 0) out["steps"].back()["batch"] = step.batch;
  }
  for (const TensorComparison &tensor : tensors)
    out["tensors"].push_back({{"name", tensor.name},
                              {"error", tensor.error},
                              {"skipped", tensor.skipped},
                              {"sensitivity", tensor.sensitivity}});
  return out.dump(2) + "\n";
}

} // namespace cleave::runtime
