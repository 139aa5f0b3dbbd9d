#include "runtime/capi/cleave_runtime.h"
#include "runtime/base/mapped_file.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/plan/trust.h"
#include "runtime/train/data/settings.h"
#include "runtime/train/metric_values.h"
#include "runtime/train/prometheus_file.h"
#include "runtime/train/state/snapshot.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <fmt/format.h>

using namespace cleave;
using namespace cleave::runtime;

struct cleave_training {
  plan::Plan plan;
  std::unique_ptr<Trainer> trainer;
  EvaluationSums evaluated;
  std::string evaluation; // their result, as JSON
  StepMetrics latest;     // of no step: 0
  std::string prometheus, error;
  int status = 0;
};

namespace {

thread_local std::string openError;
thread_local int openStatus = 0;

// Runs the body; its failure, or an exception, becomes the training's error.
template <typename Body> int guarded(cleave_training *training, Body &&body) {
  if (!training) return 2;
  Status status;
  try {
    status = body();
    if (status) status = MappedFile::intact();
  } catch (const std::bad_alloc &) {
    status = runError("out of memory");
  } catch (const std::exception &error) {
    status = runError(error.what());
  }
  training->error = status.message();
  return training->status = status.exitStatus();
}

// Of what no training is open for yet.
template <typename Body> int guardedAlone(Body &&body) {
  cleave_training none;
  openStatus = guarded(&none, body);
  openError = none.error;
  return openStatus;
}

Status misuse(const std::string &message) { return {ErrorKind::Usage, message}; }

// Of the step of a shape; null: no such input.
const plan::InputBinding *inputOf(const cleave_training *training, int index, size_t shape) {
  if (!training || index < 0 || shape >= shapesOf(training->plan)) return nullptr;
  std::vector<const plan::InputBinding *> inputs = inputsOf(training->plan, routineOf(training->plan, "step", shape));
  return static_cast<size_t>(index) < inputs.size() ? inputs[static_cast<size_t>(index)] : nullptr;
}

const plan::InputBinding *inputOf(const cleave_training *training, int index) {
  return training ? inputOf(training, index, shapesOf(training->plan) - 1) : nullptr;
}

// Of the arrays of a step.
std::vector<int64_t> shapeOf(const cleave_training *training, const plan::InputBinding &input, size_t step) {
  std::vector<int64_t> shape(input.global_shape().begin(), input.global_shape().end());
  if (input.without_samples()) return shape;
  const auto local = std::ssize(training->trainer->localSamples(step));
  int64_t &samples = shape[size_t(input.sample_dim())];
  samples = local > 0 ? local : samples * microbatchesOf(training->plan, "step");
  return shape;
}

// The first `most` sizes; how many there are.
int copySizes(const auto &shape, int64_t *sizes, int most) {
  for (int i = 0; i < std::min(most, int(shape.size())); ++i) sizes[i] = shape[size_t(i)];
  return int(shape.size());
}

Status openTraining(cleave_training &training, const char *path, const cleave_options *given) {
  if (!path) return misuse("cleave_open: no plan path");
  cleave_options options{};
  if (given) {
    if (given->size == 0 || given->size > sizeof options)
      return misuse("cleave_open: options.size is not sizeof(cleave_options) of this version");
    std::memcpy(&options, given, given->size);
  }
  if (options.resume != 0 && options.overwrite != 0)
    return misuse("cleave_open: resume and overwrite exclude each other");
  Trust trust;
  trust.keys = options.trust_keys ? options.trust_keys : "";
  trust.code = options.trust_code != 0;
  CLEAVE_ASSIGN_OR_RETURN(training.plan, readTrustedPlan(path, trust));
  TrainOptions train;
  if (options.data) train.data = options.data;
  train.model = options.model ? options.model : "";
  train.snapshots = options.snapshots ? options.snapshots : "";
  train.ownSnapshots = options.own_snapshots != 0;
  train.resume = options.resume != 0;
  train.overwrite = options.overwrite != 0;
  train.threads = options.threads;
  train.localBatches = options.local_batches != 0;
  train.acceptChanges = options.accept_changes != 0;
  train.checkWeights = options.check_weights != 0;
  if (options.on_lost)
    train.onLost = [tell = options.on_lost, of = options.on_lost_data](const std::string &why, bool isStuck) {
      if (!isStuck) tell(why.c_str(), of);
    };
  if (options.step_timeout > 0) train.limits.step.seconds = options.step_timeout;
  if (options.meeting_timeout > 0) train.limits.meeting.seconds = options.meeting_timeout;
  CLEAVE_ASSIGN_OR_RETURN(training.trainer, Trainer::create(training.plan, std::move(train)));
  return Status::ok();
}

} // namespace

extern "C" {

int cleave_runtime_version(void) { return CLEAVE_RUNTIME_VERSION; }

cleave_training *cleave_open(const char *plan_path, const cleave_options *options) {
  auto training = std::make_unique<cleave_training>();
  const int status = guardedAlone([&] { return openTraining(*training, plan_path, options); });
  return status == 0 ? training.release() : nullptr;
}

void cleave_close(cleave_training *training) { delete training; }

const char *cleave_input_name(const cleave_training *training, int index) {
  const plan::InputBinding *input = inputOf(training, index);
  return input ? input->name().c_str() : nullptr;
}

int64_t cleave_input_bytes(const cleave_training *training, int index) {
  const plan::InputBinding *input = inputOf(training, index);
  if (!input) return 0;
  return elementCount(shapeOf(training, *input, shapesOf(training->plan) - 1)) * byteSize(input->buffer().dtype());
}

const char *cleave_input_type(const cleave_training *training, int index) {
  const plan::InputBinding *input = inputOf(training, index);
  return input ? name(input->buffer().dtype()) : nullptr;
}

int cleave_lengths(const cleave_training *training) { return training ? int(shapesOf(training->plan)) : 0; }

int cleave_ramped_shape(const cleave_training *training) {
  if (!training || !isRamp(training->plan)) return -1;
  return int(rampedShape(training->plan, training->trainer->stepsDone()));
}

int cleave_input_shape(const cleave_training *training, int index, int64_t *sizes, int most) {
  return cleave_input_shape_at(training, index, cleave_lengths(training) - 1, sizes, most);
}

int cleave_input_shape_at(const cleave_training *training, int index, int length, int64_t *sizes, int most) {
  const plan::InputBinding *input = length < 0 ? nullptr : inputOf(training, index, size_t(length));
  if (!input) return -1;
  return copySizes(shapeOf(training, *input, size_t(length)), sizes, most);
}

int64_t cleave_batch(const cleave_training *training, int length) {
  const bool isKnown = training && length >= 0 && size_t(length) < shapesOf(training->plan);
  return isKnown ? batchOf(training->plan, size_t(length)) : -1;
}

int cleave_bind(cleave_training *training, const char *input, const void *data, int64_t bytes) {
  return guarded(training, [&] {
    return input && data ? training->trainer->bind(input, data, bytes) : misuse("cleave_bind: null");
  });
}

int cleave_filled_dimension(cleave_training *training, const char *input, int *is_label, int64_t *label) {
  int dimension = -1;
  const int status = guarded(training, [&] {
    if (!input || !is_label || !label) return misuse("cleave_filled_dimension: null");
    if (const std::string &why = training->plan.training().no_smaller_batch(); !why.empty()) return inputError(why);
    for (const plan::InputBinding *one : inputsOf(training->plan, "step")) {
      if (one->name() != input) continue;
      if (one->without_samples()) return inputError(fmt::format("input '{}' has no samples", input));
      if (one->label() && one->ignored_size() != 1) return inputError("the losses ignore no label in common");
      *is_label = one->label() ? 1 : 0, *label = one->label() ? one->ignored(0) : 0;
      dimension = static_cast<int>(one->sample_dim());
      return Status::ok();
    }
    return misuse(fmt::format("cleave_filled_dimension: the plan has no input '{}'", input));
  });
  return status == 0 ? dimension : -1;
}

int cleave_local_samples(const cleave_training *training, int64_t *samples, int most) {
  if (!training) return 0;
  return copySizes(training->trainer->localSamples(rampedShape(training->plan, training->trainer->stepsDone())),
                   samples, most);
}

int cleave_step(cleave_training *training, cleave_metrics *metrics) {
  return guarded(training, [&] {
    CLEAVE_ASSIGN_OR_RETURN(StepMetrics step, training->trainer->step());
    takeLatest(training->latest, step);
    if (!metrics) return Status::ok();
    cleave_metrics out{};
    if (metrics->size == 0 || metrics->size > sizeof out)
      return misuse("cleave_step: metrics.size is not sizeof(cleave_metrics) of this version");
    out.size = metrics->size;
    out.step = step.step, out.loss = step.loss, out.grad_norm = step.gradNorm.value_or(std::nan(""));
    out.learning_rate = step.learningRate, out.step_seconds = step.stepSeconds;
    out.samples_per_second = step.samplesPerSecond, out.tokens_per_second = step.tokensPerSecond;
    out.tflops_per_device = step.tflopsPerDevice, out.peak_bytes_per_device = step.peakBytesPerDevice;
    std::memcpy(metrics, &out, metrics->size);
    return Status::ok();
  });
}

int cleave_bind_evaluation(cleave_training *training, const char *input, const void *data, int64_t bytes) {
  return guarded(training, [&] {
    return input && data ? training->trainer->bindEvaluation(input, data, bytes)
                         : misuse("cleave_bind_evaluation: null");
  });
}

int cleave_evaluate(cleave_training *training, int64_t batches, int add) {
  return guarded(training, [&] {
    if (add == 0) training->evaluated = {};
    CLEAVE_RETURN_IF_ERROR(training->trainer->evaluate(batches, training->evaluated));
    training->evaluation = toJson(training->evaluated.result(training->trainer->evaluationRules())).dump();
    return Status::ok();
  });
}

const char *cleave_evaluation(const cleave_training *training) {
  return training && !training->evaluation.empty() ? training->evaluation.c_str() : nullptr;
}

const char *cleave_prometheus(cleave_training *training) {
  if (!training) return nullptr;
  training->prometheus = prometheusText(training->latest);
  return training->prometheus.c_str();
}

int64_t cleave_steps_done(const cleave_training *training) { return training ? training->trainer->stepsDone() : 0; }

const char *cleave_parameter_name(const cleave_training *training, int index) {
  return training && index >= 0 && index < training->plan.parameters_size()
             ? training->plan.parameters(index).name().c_str()
             : nullptr;
}

static const plan::Parameter *findParameter(const cleave_training *training, const char *name) {
  if (training && name)
    for (const plan::Parameter &parameter : training->plan.parameters())
      if (parameter.name() == name) return &parameter;
  return nullptr;
}

int64_t cleave_parameter_bytes(const cleave_training *training, const char *name) {
  const plan::Parameter *parameter = findParameter(training, name);
  return parameter ? elementCount(parameter->shape()) * byteSize(parameter->dtype()) : 0;
}

const char *cleave_parameter_type(const cleave_training *training, const char *name) {
  const plan::Parameter *parameter = findParameter(training, name);
  return parameter ? runtime::name(parameter->dtype()) : nullptr;
}

int cleave_parameter_shape(const cleave_training *training, const char *name, int64_t *sizes, int most) {
  const plan::Parameter *parameter = findParameter(training, name);
  if (!parameter) return -1;
  return copySizes(std::vector<int64_t>(parameter->shape().begin(), parameter->shape().end()), sizes, most);
}

int cleave_read_parameter(cleave_training *training, const char *name, void *out, int64_t bytes) {
  return guarded(training, [&] {
    const plan::Parameter *parameter = findParameter(training, name);
    if (!parameter) return inputError(fmt::format("the plan has no parameter '{}'", name ? name : ""));
    if (!out || bytes != cleave_parameter_bytes(training, name))
      return misuse(fmt::format("parameter '{}' has {} bytes, the array {}", name,
                                cleave_parameter_bytes(training, name), bytes));
    Executor &executor = training->trainer->executor();
    if (static_cast<int64_t>(executor.devices().size()) != executor.mesh().numDevices())
      return misuse("the tensor is spread over processes: write a snapshot and read that");
    executor.gather(*parameter, static_cast<std::byte *>(out));
    return Status::ok();
  });
}

int cleave_snapshot(cleave_training *training) {
  return guarded(training, [&] { return training->trainer->snapshot(); });
}

const char *cleave_data_path(const char *plan_path) {
  static thread_local std::string found;
  const int status = guardedAlone([&] {
    if (!plan_path) return misuse("cleave_data_path: no plan path");
    CLEAVE_ASSIGN_OR_RETURN(const plan::Plan plan, readPlanFile(plan_path));
    const std::string &yaml = plan.training().data_yaml();
    found.clear();
    if (yaml.empty()) return Status::ok();
    CLEAVE_ASSIGN_OR_RETURN(const DataSettings settings, parseDataSettings(yaml));
    if (settings.paths.size() == 1) found = settings.paths.front();
    return Status::ok();
  });
  return status == 0 ? found.c_str() : nullptr;
}

int cleave_check_snapshot(const char *path) {
  return guardedAlone([&] {
    if (!path) return misuse("cleave_check_snapshot: no path");
    CLEAVE_ASSIGN_OR_RETURN(const std::unique_ptr<Snapshot> snapshot, Snapshot::open(path));
    return snapshot->check();
  });
}

int cleave_devices(const cleave_training *training, int64_t *devices, int most) {
  return training ? copySizes(training->trainer->executor().devices(), devices, most) : 0;
}

int cleave_agree(cleave_training *training, const char *failure) {
  return guarded(training, [&] { return training->trainer->agree(failure ? runError(failure) : Status::ok()); });
}

int cleave_agree_on_more(cleave_training *training, int has_more) {
  return guarded(training, [&] { return training->trainer->agreeOnMore(has_more != 0); });
}

const char *cleave_error(const cleave_training *training) {
  return training ? training->error.c_str() : openError.c_str();
}
int cleave_error_status(const cleave_training *training) { return training ? training->status : openStatus; }

} // extern "C"
