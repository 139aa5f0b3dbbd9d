#include "runtime/engine/probe/trial_plan.h"
#include "runtime/base/packed.h"
#include "runtime/engine/comm/local.h"
#include "runtime/engine/executor/trace.h"
#include "runtime/plan/dtype.h"
#include <algorithm>

namespace cleave::runtime {

TrialPlan::TrialPlan(const std::vector<std::pair<std::string, int64_t>> &axes) {
  for (const auto &[name, size] : axes) {
    plan::MeshAxis &axis = *plan.mutable_mesh()->add_axes();
    axis.set_name(name);
    axis.set_size(size);
  }
  plan::Program &program = *plan.add_programs();
  fragment = program.add_fragments();
  fragment->set_name("final");
  plan::Routine &routine = *program.add_routines();
  routine.set_name("step");
  routine.add_actions()->set_fragment(0);
  plan.mutable_training()->set_global_batch(1);
  plan.mutable_training()->set_microbatches(1);
}

TrialPlan::TrialPlan(const plan::Plan &made, int repeats) : plan(made), isMade(true) {
  fragment = plan.mutable_programs(0)->mutable_fragments(0);
  const plan::Fragment once = *fragment;
  for (int i = 1; i < repeats; ++i) fragment->mutable_commands()->MergeFrom(once.commands());
}

plan::Buffer TrialPlan::buffer(plan::DType dtype, const std::vector<int64_t> &shape) {
  plan::Buffer out;
  out.set_offset(top);
  out.set_dtype(dtype);
  for (int64_t size : shape) out.add_shape(size);
  top += (byteSize(out) + 63) / 64 * 64;
  return out;
}

plan::Command &TrialPlan::add(const std::string &name) {
  plan::Command &command = *fragment->add_commands();
  command.set_name(name);
  command.set_phase("forward");
  if (waitFor) command.add_wait_events(waitFor);
  waitFor = 0;
  return command;
}

void TrialPlan::fill(const plan::Buffer &target) {
  plan::Fill &fill = *add("fill").mutable_fill();
  *fill.mutable_target() = target;
  fill.set_value(std::string(static_cast<size_t>(byteSize(target.dtype())), '\0'));
}

void TrialPlan::copy(const plan::Buffer &source, const plan::Buffer &target) {
  plan::Copy &copy = *add("copy").mutable_copy();
  *copy.mutable_source() = source;
  *copy.mutable_target() = target;
  int64_t elements = elementCount(source.shape());
  copy.add_sizes(elements);
  copy.add_source_strides(1);
  copy.add_target_strides(1);
  copy.mutable_source_offset();
  copy.mutable_target_offset();
}

void TrialPlan::product(const plan::Buffer &lhs, const plan::Buffer &rhs, const plan::Buffer &out,
                        const std::vector<int64_t> &batch, int64_t m, int64_t n, int64_t k, const Strides &strides) {
  plan::Contract &contract = *add("product").mutable_contract();
  *contract.mutable_lhs() = lhs, *contract.mutable_rhs() = rhs, *contract.mutable_out() = out;
  contract.set_m(m), contract.set_n(n), contract.set_k(k);
  contract.mutable_batch()->Assign(batch.begin(), batch.end());
  contract.mutable_lhs_strides()->Assign(strides.lhs.begin(), strides.lhs.end());
  contract.mutable_rhs_strides()->Assign(strides.rhs.begin(), strides.rhs.end());
  contract.mutable_out_strides()->Assign(strides.out.begin(), strides.out.end());
}

void TrialPlan::convolution(plan::Convolution::Pass pass, const plan::Buffer &x, const plan::Buffer &weights,
                            const plan::Buffer &y) {
  plan::Convolution &convolution = *add("convolution").mutable_convolution();
  convolution.set_pass(pass);
  *convolution.mutable_input() = x, *convolution.mutable_weight() = weights, *convolution.mutable_output() = y;
  for (int dim = 2; dim < weights.shape_size(); ++dim) {
    const int64_t around = weights.shape(dim) - 1;
    convolution.add_strides(1);
    convolution.add_dilations(1);
    convolution.add_pads_begin(around / 2);
    convolution.add_pads_end(around - around / 2);
  }
  convolution.set_groups(1);
}

void TrialPlan::collective(plan::Collective::Op op, const std::string &axis, const plan::Buffer &input,
                           const plan::Buffer &output) {
  if (fragment->commands_size()) {
    plan::Command &before = *fragment->mutable_commands(fragment->commands_size() - 1);
    if (!before.record_event()) before.set_record_event(++events);
    waitFor = before.record_event();
  }
  plan::Command &command = add("collective");
  command.set_stream(1);
  command.set_record_event(++events);
  waitFor = events;
  plan::Collective &collective = *command.mutable_collective();
  collective.set_op(op);
  collective.add_axes(axis);
  collective.set_sequence(sequence++);
  *collective.add_inputs() = input;
  *collective.add_outputs() = output;
  collective.add_dims(0);
  if (op == plan::Collective::ALL_TO_ALL) collective.add_split_dims(1);
  collective.set_bytes(byteSize(input));
}

// A routine that writes the whole arena.
void TrialPlan::addFill() {
  plan::Program &program = *plan.mutable_programs(0);
  program.set_arena_bytes(top);
  plan::Fragment &all = *program.add_fragments();
  all.set_name("evaluate");
  plan::Command &command = *all.add_commands();
  command.set_name("fill");
  command.set_phase("forward");
  plan::Buffer &target = *command.mutable_fill()->mutable_target();
  target.set_dtype(plan::F32);
  target.add_shape(top / 4);
  command.mutable_fill()->set_value(packed(1.0f));
  plan::Routine &routine = *program.add_routines();
  routine.set_name("evaluate");
  routine.add_actions()->set_fragment(1);
}

namespace {
double medianOf(std::vector<double> &times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}
} // namespace

Result<std::unique_ptr<Executor>> TrialPlan::open(const ExecutorOptions &options) {
  if (!isMade) addFill();
  CLEAVE_ASSIGN_OR_RETURN(dist::Mesh mesh, meshOf(plan.mesh()));
  Result<std::unique_ptr<Executor>> executor = Executor::create(plan, std::make_unique<LocalFabric>(mesh), options);
  if (!executor) return executor.status();
  if (isMade) {
    for (int64_t device : (*executor)->devices())
      for (const plan::Parameter &parameter : (*executor)->plan().parameters()) {
        ShardBytes bytes = (*executor)->shard(device, parameter, ShardAccess::Replace);
        // Numbers between 1 and 2 that differ: what a GPU multiplies says how fast its clock is.
        const bool isHalf = byteSize(parameter.dtype()) == 2;
        for (size_t i = 0; isHalf && i < bytes.size() / 2; ++i)
          reinterpret_cast<uint16_t *>(bytes.data())[i] =
              static_cast<uint16_t>((parameter.dtype() == plan::BF16 ? 0x3f80 : 0x3c00) + (i * 2654435761u >> 7) % 128);
        for (size_t i = 0; !isHalf && i < bytes.size() / 4; ++i)
          reinterpret_cast<float *>(bytes.data())[i] = 1 + static_cast<float>((i * 2654435761u >> 7) % 1024) / 1024;
      }
  } else if (auto filled = (*executor)->run("evaluate", {}, 0); !filled) {
    return filled.status();
  }
  return executor;
}

Result<double> TrialPlan::time(int threads) {
  constexpr int warmUp = 2, least = 9, most = 60, leastOfLong = 5;
  constexpr double budget = 0.15, isLong = 0.5; // seconds of timed runs
  ExecutorOptions options;
  options.threads = threads;
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, open(options));
  std::vector<double> times;
  double sum = 0;
  auto isEnough = [&](int timed) {
    return timed >= most || (sum >= isLong && timed >= leastOfLong) || (sum >= budget && timed >= least);
  };
  for (int run = 0; !isEnough(run - warmUp); ++run) {
    int64_t begin = nowNanoseconds();
    CLEAVE_ASSIGN_OR_RETURN(auto outputs, executor->run("step", {}, run));
    double seconds = static_cast<double>(nowNanoseconds() - begin) / 1e9;
    if (run < warmUp) continue;
    times.push_back(seconds);
    sum += seconds;
  }
  return medianOf(times);
}

Result<TrialPlan::Copies> TrialPlan::timeCopies(int threads) {
  constexpr int steps = 8; // the first of which warms up
  ExecutorOptions options;
  options.threads = threads;
  options.trace.recordsPerLane =
      static_cast<size_t>(steps) * static_cast<size_t>(plan.programs(0).fragments(0).commands_size() + 2);
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, open(options));
  for (int step = 0; step < steps; ++step)
    if (auto outputs = executor->run("step", {}, step); !outputs) return outputs.status();
  std::vector<double> seconds, pauses;
  for (const TraceLane &lane : executor->recorded()->all()) {
    const TraceLane::Record *last = nullptr;
    for (const TraceLane::Record &record : lane.records) {
      if (!record.command || !record.command->has_copy()) continue;
      if (record.step > 0 && last && last->step == record.step) {
        seconds.push_back(static_cast<double>(record.end - record.begin) / 1e9);
        pauses.push_back(static_cast<double>(record.begin - last->end) / 1e9);
      }
      last = &record;
    }
  }
  if (seconds.empty()) return runError("a trial of copies has recorded no two of them");
  return Copies{medianOf(seconds), medianOf(pauses)};
}

} // namespace cleave::runtime
