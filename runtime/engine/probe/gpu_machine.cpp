#include "runtime/engine/probe/gpu_machine.h"
#include "plan/plan.pb.h"
#include "runtime/engine/device/cuda/library.h"
#include "runtime/engine/probe/trial_plan.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {

std::vector<GpuDescription> findGpus() {
  std::vector<GpuDescription> found;
  Result<const cuda::Driver *> opened = cuda::openDriver();
  int count = 0;
  if (!opened || (*opened)->deviceGetCount(&count)) return found;
  const cuda::Driver &driver = **opened;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0, major = 0, minor = 0;
    char name[256] = {};
    size_t bytes = 0;
    if (driver.deviceGet(&device, ordinal) || driver.deviceGetName(name, sizeof name, device) ||
        driver.deviceTotalMem(&bytes, device) || driver.deviceGetAttribute(&major, cuda::attributeMajor, device) ||
        driver.deviceGetAttribute(&minor, cuda::attributeMinor, device))
      continue;
    found.push_back({name, 10 * major + minor, static_cast<double>(bytes)});
  }
  return found;
}

namespace {

using Kind = GpuTrial::Kind;

// Copies to the host's memory and back, by turns, of the first parameter of a plan.
plan::Plan hostCopies(const plan::Plan &made) {
  plan::Plan copies = made;
  plan::Program &program = *copies.mutable_programs(0);
  const plan::Parameter &data = copies.parameters(0);
  const int64_t elements = elementCount(data.shape());
  program.mutable_fragments(0)->clear_commands();
  program.set_host_bytes(elements * byteSize(data.dtype()));
  for (bool out : {true, false}) {
    plan::Command &command = *program.mutable_fragments(0)->add_commands();
    command.set_name("copy");
    command.set_phase("forward");
    plan::Copy &copy = *command.mutable_copy();
    plan::Buffer here, there;
    here.set_dtype(data.dtype()), there.set_dtype(data.dtype());
    here.add_shape(elements), there.add_shape(elements);
    here.set_offset(data.offset()), there.set_on_host(true);
    *copy.mutable_source() = out ? here : there, *copy.mutable_target() = out ? there : here;
    copy.add_sizes(elements), copy.add_source_strides(1), copy.add_target_strides(1);
    copy.mutable_source_offset(), copy.mutable_target_offset();
  }
  return copies;
}

class GpuMeasurement {
public:
  GpuMeasurement(const GpuProbe &probe, GpuFigures &figures) : probe(probe), figures(figures) {}

  Status measure(const GpuTrial &trial) {
    double seconds = 0;
    CLEAVE_RETURN_IF_ERROR(once(*trial.plan, trial.times, trial.kind != Kind::AllReduce, seconds));
    switch (trial.kind) {
    case Kind::Launch:
      figures.launchSeconds = seconds;
      probe.say(fmt::format("launch           {:.2f} us", 1e6 * seconds));
      return Status::ok();
    case Kind::Stream:
      figures.streamRate = trial.bytes / seconds;
      probe.say(fmt::format("memory           {:.0f} MiB read and written: {:.1f} GB/s a GPU", trial.bytes / (1 << 20),
                            figures.streamRate / 1e9));
      CLEAVE_RETURN_IF_ERROR(once(hostCopies(*trial.plan), 1, true, seconds));
      figures.hostRate = trial.bytes / seconds; // the parameter, which is half, there and back
      probe.say(fmt::format("host's memory    {:.1f} GB/s a GPU", figures.hostRate / 1e9));
      return Status::ok();
    case Kind::Product: {
      const double flops = 2.0 * double(trial.m) * double(trial.n) * double(trial.k);
      figures.products[trial.precision].push_back({1, trial.m, trial.n, trial.k, flops / seconds});
      probe.say(fmt::format("product          {} [{}, {}] [{}, {}]: {:.2f} TFLOP/s a GPU", trial.precision, trial.m,
                            trial.k, trial.k, trial.n, flops / seconds / 1e12));
      return Status::ok();
    }
    case Kind::AllReduce:
      figures.collectives.push_back({"all_reduce", probe.devices, int64_t(trial.bytes), seconds});
      probe.say(fmt::format("all_reduce       {} GPUs, {:.0f} KiB: {:.1f} us", probe.devices, trial.bytes / 1024,
                            1e6 * seconds));
      return Status::ok();
    }
    return Status::ok();
  }

private:
  // Seconds of one of the `times` that a step does it. `mayRepeat`: the commands may follow themselves in a longer
  // step.
  Status once(const plan::Plan &plan, int64_t times, bool mayRepeat, double &seconds) {
    constexpr double longEnough = 3e-3;
    constexpr int most = 400;
    CLEAVE_ASSIGN_OR_RETURN(double first, TrialPlan(plan, 1).time(1));
    if (emptySeconds == 0) emptySeconds = first; // of the first trial, a small kernel
    double measured = first;
    int repeats = 1;
    if (mayRepeat) {
      repeats = std::clamp(static_cast<int>(longEnough / std::max(measured - emptySeconds, 1e-6)), 2, most);
      CLEAVE_ASSIGN_OR_RETURN(double longer, TrialPlan(plan, repeats).time(1));
      measured = longer;
    }
    seconds = std::max(measured - emptySeconds, 0.1 * measured) / double(repeats * times);
    return Status::ok();
  }

  const GpuProbe &probe;
  GpuFigures &figures;
  double emptySeconds = 0;
};

} // namespace

Result<GpuFigures> GpuProbe::measure() const {
  GpuFigures figures;
  figures.gpu = gpu;
  figures.devices = devices;
  say(fmt::format("{} x {}, compute capability {}.{}, {:.1f} GiB", devices, gpu.name, gpu.capability / 10,
                  gpu.capability % 10, gpu.memoryBytes / (1 << 30)));
  GpuMeasurement measurement(*this, figures);
  for (const GpuTrial &trial : trials) CLEAVE_RETURN_IF_ERROR(measurement.measure(trial));
  return figures;
}

} // namespace cleave::runtime
