// cleave tune MODEL: compile the fastest splits of the search, run each here, keep the one that is measured fastest,
// and write what the prediction missed into a cluster file.
#include "compiler/cluster/device_presets.h"
#include "compiler/report/measured.h"
#include "runtime/base/printable.h"
#include "runtime/base/threads/thread_count.h"
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/probe/gpu_machine.h"
#include "runtime/engine/probe/idle_cores.h"
#include "runtime/plan/verify/verify.h"
#include "runtime/train/data/files.h"
#include "runtime/train/data/settings.h"
#include "tools/cleave/compile_options.h"
#include "tools/cleave/step_times.h"
#include <algorithm>
#include <ctime>
#include <fmt/chrono.h>
#include <fstream>
#include <memory>

namespace cleave::tool {
namespace {

struct TuneOptions {
  CompileOptions compile;
  std::string clusterOutput;
  int64_t steps = 30; // of each split
};

// Splits take turns, so that what else the machine does meets all of them.
constexpr int64_t rounds = 3, warmupSteps = 2;

// Are the devices of the cluster this process'?
Status checkDevices(const planner::Cluster &cluster) {
  CLEAVE_ASSIGN_OR_RETURN(runtime::Launch launch, runtime::readLaunch());
  if (launch.kind != runtime::Launch::Kind::Alone)
    return {ErrorKind::Usage, "cleave tune runs all devices in one process: start it without mpirun, srun or torchrun"};
  const std::string needed = fmt::format("cleave tune runs the splits on this machine, and {} has ", cluster.name);
  if (cluster.nodes > 1) return inputError(fmt::format("{}{} nodes", needed, cluster.nodes));
  const std::string capability = planner::computeCapability(cluster.device.kind);
  if (capability.empty())
    return cluster.device.isCpu() ? Status::ok()
                                  : inputError(fmt::format("{}devices of kind '{}', which is none that is known",
                                                           needed, cluster.device.kind));
  const auto here = std::ranges::count_if(runtime::findGpus(), [&](const runtime::GpuDescription &gpu) {
    return fmt::format("sm_{}", gpu.capability) == capability;
  });
  if (here >= cluster.numDevices()) return Status::ok();
  return inputError(fmt::format("{}{} GPUs of kind {} ({}): {} here", needed, cluster.numDevices(), cluster.device.kind,
                                capability, here == 0 ? "none is" : fmt::format("{} are", here)));
}

// Names the recipe data that is on this machine?
Result<bool> hasData(const plan::Training &training) {
  if (training.data_yaml().empty()) return false;
  CLEAVE_ASSIGN_OR_RETURN(runtime::DataSettings settings, runtime::parseDataSettings(training.data_yaml()));
  const std::vector<std::string> paths = runtime::allPaths(settings);
  CLEAVE_ASSIGN_OR_RETURN(auto bytes, runtime::fileBytes(paths));
  return paths.empty() || bytes.has_value();
}

class Tuning {
public:
  Tuning(const TuneOptions &options, CompileRequest asked) : options(options), request(std::move(asked)) {}

  Status run(PlanMaker &maker) {
    const planner::Cluster &cluster = request.cluster;
    CLEAVE_RETURN_IF_ERROR(checkDevices(cluster));
    if (const int cores = runtime::availableCores(); cluster.device.isCpu() && cluster.numDevices() > cores) {
      const std::string turns = fmt::format("{} has {} devices and this process {} core{}: they take turns",
                                            cluster.name, cluster.numDevices(), cores, cores == 1 ? "" : "s");
      if (!options.clusterOutput.empty())
        return inputError(turns + ", and what compute takes then says nothing of one; leave --cluster-out out");
      request.warn(turns + ", and are measured so");
    }
    CLEAVE_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, compileBest(request));
    CLEAVE_RETURN_IF_ERROR(measure(candidates));
    const size_t kept = fastest(candidates, &report::TriedSplit::measuredSeconds);
    const report::TriedSplit chosen = candidates[kept].tried;
    if (chosen.measuredSeconds <= 0) return runError(chosen.split.whyNot);
    Compiled tuned = keep(request, std::move(candidates), kept);
    CLEAVE_ASSIGN_OR_RETURN(report::Measured measured, trace(tuned));
    measured.step.measured = measured.sums.front().measured = chosen.measuredSeconds; // not slowed down by the trace
    const std::string rows = table(report::triedRows(tuned.report)), sums = table(report::sumRows(measured));
    CLEAVE_RETURN_IF_ERROR(maker.finish(std::move(tuned), request));
    if (!options.compile.json)
      print(maker.beside(), fmt::format("\n{}\n{}\n\n{}", rows, report::verdict(measured), sums));
    return options.clusterOutput.empty() ? Status::ok() : learn(measured, report::splitText(chosen.split));
  }

private:
  // The plan as it is timed: random samples where the recipe's are not here, and no evaluations.
  Result<plan::Plan> timed(const plan::Plan &plan) const {
    plan::Plan copy = plan;
    CLEAVE_ASSIGN_OR_RETURN(const bool isHere, hasData(plan.training()));
    if (!isHere) copy.mutable_training()->set_data_yaml("kind: synthetic\n");
    copy.mutable_training()->clear_eval_yaml();
    return copy;
  }

  Result<StepTimes> timeSteps(const plan::Plan &plan, const StepRun &run) const {
    CLEAVE_RETURN_IF_ERROR(runtime::verifyPlan(plan));
    CLEAVE_ASSIGN_OR_RETURN(const plan::Plan copy, timed(plan));
    return tool::timeSteps(copy, run);
  }

  // The median step of every split that was compiled and fits.
  Status measure(std::vector<Candidate> &candidates) {
    const runtime::IdleCores cores;
    const StepRun run{.warmup = warmupSteps, .steps = (options.steps + rounds - 1) / rounds};
    std::vector<std::vector<double>> seconds(candidates.size());
    for (int64_t round = 0; round < rounds; ++round)
      for (size_t turn = 0; turn < candidates.size(); ++turn) {
        const size_t i = round % 2 == 0 ? turn : candidates.size() - 1 - turn;
        std::string &whyNot = candidates[i].tried.split.whyNot;
        if (!whyNot.empty()) continue;
        Result<StepTimes> times = timeSteps(candidates[i].compiled->plan, run);
        if (!times && times.status().exitStatus() == int(ErrorKind::Input)) return times.status(); // so are all
        if (!times)
          whyNot = "did not run: " + times.status().message();
        else
          seconds[i].insert(seconds[i].end(), times->seconds.begin(), times->seconds.end());
      }
    for (size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].tried.split.whyNot.empty()) {
        std::ranges::sort(seconds[i]);
        candidates[i].tried.measuredSeconds = percentile(seconds[i], 0.5);
      }
    disturbance = runtime::warningOfOthers(cores.busyWithOthers());
    if (!disturbance.empty()) request.warn(disturbance);
    return Status::ok();
  }

  // Traced steps of the chosen plan beside their prediction.
  Result<report::Measured> trace(const Compiled &tuned) const {
    CLEAVE_ASSIGN_OR_RETURN(const plan::Plan copy, timed(tuned.plan));
    StepTrace file;
    CLEAVE_RETURN_IF_ERROR(file.write(copy, {.warmup = warmupSteps}));
    return report::readMeasured(tuned.report, {file.path});
  }

  // The cluster with compute as it was measured. What comments its file begins with stay.
  Status learn(const report::Measured &measured, const std::string &split) const {
    const auto compute = std::ranges::find(measured.sums, "compute", &report::MeasuredRow::what);
    if (compute == measured.sums.end() || compute->ratio() <= 0) return runError("the traced steps have no compute");
    planner::Cluster cluster = request.cluster;
    cluster.device.computeFactor *= compute->ratio();
    std::string comments;
    std::ifstream before(options.compile.request.split.cluster);
    for (std::string line; std::getline(before, line) && line.starts_with("#");) comments += line + "\n";
    std::string learned = runtime::printable(fmt::format(
        "# device.compute_factor by `cleave tune` {} on {:%Y-%m-%d}: {}, {}: compute {} a step, {:.3g} x the "
        "predicted {}{}{}",
        versionName(), fmt::gmtime(std::time(nullptr)), request.model, split, report::formatSeconds(compute->measured),
        compute->ratio(), report::formatSeconds(compute->predicted), disturbance.empty() ? "" : "; ", disturbance));
    std::ranges::replace(learned, '\n', ' '); // of a name
    return writeCluster(comments + learned + "\n", cluster, options.clusterOutput);
  }

  const TuneOptions &options;
  const CompileRequest request;
  std::string disturbance; // by others, while steps were timed
};

Status tune(const TuneOptions &options) {
  if (options.clusterOutput == "-" && (options.compile.json || options.compile.output == "-"))
    return {ErrorKind::Usage, "--cluster-out -, and --json or -o -, want standard output: give the cluster a file"};
  PlanMaker maker(options.compile);
  CLEAVE_ASSIGN_OR_RETURN(CompileRequest request, maker.request());
  return Tuning(options, std::move(request)).run(maker);
}

} // namespace

void addTune(CLI::App &app, int &status) {
  auto *command =
      app.add_subcommand("tune", "Compile the fastest splits, run each here, and write the plan of the fastest");
  auto options = std::make_shared<TuneOptions>();
  options->compile.refine = 4;
  options->compile.add(*command);
  command->add_option("--best", options->compile.refine, "splits that are compiled and run, the fastest by the search")
      ->check(positiveNumber)
      ->capture_default_str();
  command->add_option("--steps", options->steps, "steps of each split that are timed, in three rounds by turns")
      ->check(positiveNumber)
      ->capture_default_str();
  command->add_option("--cluster-out", options->clusterOutput,
                      "also write the cluster file, with what compute took: device.compute_factor");
  command->callback([options, &status] {
    const Status done = tune(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
