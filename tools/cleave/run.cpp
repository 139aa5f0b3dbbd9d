// cleave run X.plan: train.
#include "runtime/engine/comm/launch.h"
#include "runtime/engine/comm/tcp/membership.h"
#include "runtime/plan/coordinate.h"
#include "runtime/train/mirror.h"
#include "runtime/train/trainer.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/metrics_server.h"
#include "tools/cleave/recompile.h"
#include "tools/cleave/restarts.h"
#include "tools/cleave/run_summary.h"
#include "tools/cleave/stop_signals.h"
#include "tools/cleave/terminal_line.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fmt/core.h>
#include <memory>
#include <mutex>
#include <sys/ioctl.h>
#include <tuple>
#include <unistd.h>

namespace cleave::tool {
namespace {

struct RunOptions {
  std::string plan, data, traceSteps, recipe;
  std::vector<std::string> overrides;
  TrustOptions trust;
  runtime::TrainOptions train;
  int maxRestarts = 0, prometheusPort = 0; // 0: none is served
  bool quiet = false, elastic = false, json = false;
};

// One line that is rewritten on a terminal; otherwise a line for the first step, the last, and some between.
class Progress {
public:
  void operator()(const runtime::StepMetrics &metrics) {
    std::lock_guard guard(lock);
    line = metrics.steps > 0 ? fmt::format("step {}/{}", metrics.step, metrics.steps)
                             : fmt::format("step {}", metrics.step);
    line += fmt::format("  loss {:.4f}", metrics.loss);
    if (metrics.gradNorm) line += fmt::format("  grad norm {:.3g}", *metrics.gradNorm);
    line += fmt::format("  lr {:.3g}  {}  {}", metrics.learningRate, report::formatSeconds(metrics.stepSeconds),
                        metrics.tokensPerSecond > 0 ? report::formatNumber(metrics.tokensPerSecond) + " tokens/s"
                                                    : report::formatNumber(metrics.samplesPerSecond) + " samples/s");
    if (metrics.evaluation) line += "  eval " + evaluationText(*metrics.evaluation);
    meanSeconds += (metrics.stepSeconds - meanSeconds) / double(std::min<int64_t>(++steps, 50));
    if (terminal) fmt::print(stderr, "\r\033[K{}", TerminalLine::fitting(timeLeft(metrics) + line));
    if (first || metrics.evaluation || (!terminal && metrics.step % 20 == 0)) end();
    first = false;
  }
  // The line so far stays.
  void finish() {
    std::lock_guard guard(lock);
    end();
  }
  // A line of its own; from any thread.
  void note(const std::string &text) {
    std::lock_guard guard(lock);
    end();
    print(stderr, text + "\n");
  }

private:
  // "03:20 left  ", by the mean of the latest steps.
  std::string timeLeft(const runtime::StepMetrics &metrics) const {
    if (metrics.steps <= metrics.step) return "";
    const int64_t left = std::llround(meanSeconds * double(metrics.steps - metrics.step));
    return left < 3600 ? fmt::format("{:02}:{:02} left  ", left / 60, left % 60)
                       : fmt::format("{}:{:02} h left  ", left / 3600, left / 60 % 60);
  }
  void end() {
    if (line.empty()) return;
    fmt::print(stderr, "{}\n", terminal ? "" : line);
    line.clear();
  }

  std::mutex lock;
  bool terminal = isatty(STDERR_FILENO) != 0, first = true;
  double meanSeconds = 0;
  int64_t steps = 0;
  std::string line; // not ended yet
};

// Processes that were started to be one rank each; 0: this one runs all devices.
Result<int64_t> processesStarted() {
  Result<runtime::Launch> launch = runtime::readLaunch();
  if (!launch) return launch.status();
  return launch->kind == runtime::Launch::Kind::Alone ? 0 : launch->size;
}

// For another number of processes, or with another recipe.
Status recompileIfAsked(const RunOptions &options, plan::Plan &plan) {
  Recompiling how{.devices = 0, .recipe = options.recipe, .overrides = options.overrides, .resumed = {}};
  if (options.elastic) {
    CLEAVE_ASSIGN_OR_RETURN(int64_t processes, processesStarted());
    CLEAVE_ASSIGN_OR_RETURN(dist::Mesh mesh, runtime::meshOf(plan.mesh()));
    if (processes != mesh.numDevices()) how.devices = processes;
  }
  if (how.devices == 0 && how.recipe.empty()) return Status::ok();
  if (!how.recipe.empty()) {
    CLEAVE_ASSIGN_OR_RETURN(bool isFresh, runtime::isFreshSnapshotFolder(options.train.snapshots));
    if (!isFresh) how.resumed = options.train.snapshots;
  }
  CLEAVE_ASSIGN_OR_RETURN(plan, recompile(plan, how));
  return Status::ok();
}

int train(RunOptions &options, int attempt) {
  auto plan = options.trust.read(options.plan);
  if (!plan) return fail(plan.status());
  if (Status compiled = recompileIfAsked(options, *plan); !compiled) return fail(compiled);
  if (!options.data.empty()) options.train.data = options.data;
  Progress progress;
  RunSummary summary;
  MetricsServer server;
  if (options.prometheusPort > 0) options.train.openOutputs = [&] { return server.start(options.prometheusPort); };
  options.train.onStep = [&](const runtime::StepMetrics &metrics) {
    if (!options.quiet) progress(metrics);
    if (options.prometheusPort > 0) server.tell(metrics);
    summary.add(metrics);
  };
  Status told; // of the summary
  if (options.json)
    options.train.onEnd = [&](const runtime::RunSpan &span) {
      progress.finish();
      told = writeJson("-", summary.json(span, options.train, attempt));
    };
  if (!options.quiet) options.train.onNote = [&](const std::string &text) { progress.note(text); };
  options.train.onWarning = [&](const std::string &text) { progress.note("cleave: warning: " + text); };
  options.train.onBegin = beginSteps;
  options.train.stopAsked = stopSignal;
  options.train.onLost = [](const std::string &why, bool isStuck) {
    if (!isStuck) return;
    fmt::print(stderr, "cleave: error: {}\n", why);
    ::_exit(static_cast<int>(ErrorKind::RunFailed));
  };
  std::signal(SIGPIPE, SIG_IGN); // who reads the metrics may go
  Status status = runtime::train(*plan, options.train);
  progress.finish();
  if (status) status = told;
  return status ? 0 : fail(status);
}

// Before an attempt after the first, the ranks that are left take new numbers.
Status callRoll(const RunOptions &options, int attempt) {
  Result<runtime::Launch> launch = runtime::readLaunch();
  if (!launch) return launch.status();
  Result<runtime::Network> network = runtime::readNetwork(options.train.network);
  if (!network) return network.status();
  const std::vector<std::string> hosts = runtime::Mirror::notedHosts(options.train.runFolder);
  if (static_cast<int>(hosts.size()) != launch->size) return Status::ok(); // they have not met yet: all come again
  launch->port += attempt - 1; // two ports an attempt: of the membership vote, and of the run
  CLEAVE_RETURN_IF_ERROR(runtime::checkPort(launch->port + 1));
  Result<runtime::Launch> left = runtime::tcp::agreeOnMembers(*launch, *network, hosts, 2);
  if (!left) return left.status();
  auto tell = [](const char *name, const std::string &value) { ::setenv(name, value.c_str(), 1); };
  tell("RANK", std::to_string(left->rank)), tell("WORLD_SIZE", std::to_string(left->size));
  tell("LOCAL_WORLD_SIZE", std::to_string(left->localSize));
  tell("MASTER_ADDR", left->host), tell("MASTER_PORT", std::to_string(left->port));
  ::unsetenv("CLEAVE_ATTEMPT"), ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  if (left->size < launch->size && left->rank == 0)
    fmt::print(stderr, "cleave: {} of {} processes are left and go on\n", left->size, launch->size);
  return Status::ok();
}

// Where this process keeps what its next attempt needs. Error: a launcher under which there is none.
Status openRunFolder(RunOptions &options) {
  Result<runtime::Launch> launch = runtime::readLaunch();
  if (!launch) return launch.status();
  if (launch->kind != runtime::Launch::Kind::Tcp) {
    if (options.train.mirrorEvery == 0) return Status::ok();
    return {ErrorKind::Usage, "--mirror keeps the state in the memory of several processes: start one per device with "
                              "srun or torchrun (MPI ends all when one dies)"};
  }
  options.train.runFolder = runtime::Mirror::folderOf(*launch);
  if (!options.train.resume) runtime::Mirror::remove(options.train.runFolder);
  return Status::ok();
}

int runAttempts(RunOptions &options) {
  if (options.maxRestarts == 0) return train(options, 0);
  return runWithRestarts(options.maxRestarts, [&](int attempt) {
    if (attempt > 0) options.train.resume = true, options.train.overwrite = false;
    if (attempt > 0 && options.elastic && !options.train.runFolder.empty())
      if (Status left = callRoll(options, attempt); !left) return fail(left);
    return train(options, attempt);
  });
}

// "10:12" or "10"; the message names the flag.
Status readTraceSteps(const std::string &text, runtime::TrainOptions &train) {
  const size_t colon = text.find(':');
  const std::string first = text.substr(0, colon), last = colon == std::string::npos ? first : text.substr(colon + 1);
  auto read = [](const std::string &digits, int64_t &step) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (read(first, train.traceFrom) && read(last, train.traceTo) && train.traceFrom >= 1 &&
      train.traceTo >= train.traceFrom)
    return Status::ok();
  return {ErrorKind::Usage,
          fmt::format("--trace-steps is A:B, two steps counted from 1 with A <= B, and not '{}'", text)};
}

// A file, or a port.
Status readPrometheus(RunOptions &options) {
  std::string &given = options.train.prometheus;
  if (given.empty() || !std::ranges::all_of(given, [](unsigned char c) { return std::isdigit(c); }))
    return Status::ok();
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), options.prometheusPort);
  if (error != std::errc() || options.prometheusPort < 1 || options.prometheusPort > 65535)
    return {ErrorKind::Usage, fmt::format("--prometheus {}: a port is 1 to 65535", given)};
  given.clear();
  return Status::ok();
}

int runPlan(RunOptions &options) {
  noteStopSignals();
  if (options.json && options.train.metrics == "-")
    return fail({ErrorKind::Usage, "--json and --metrics - both want standard output: give the metrics a file"});
  if (Status read = readPrometheus(options); !read) return fail(read);
  if (!options.traceSteps.empty())
    if (Status steps = readTraceSteps(options.traceSteps, options.train); !steps) return fail(steps);
  const bool hasState = !options.train.snapshots.empty() || options.train.mirrorEvery > 0;
  for (auto [flag, given, isMissing] :
       {std::tuple{"--resume", options.train.resume, !hasState},
        std::tuple{"--recipe", !options.recipe.empty(), !hasState || !options.train.resume},
        std::tuple{"--max-restarts", options.maxRestarts > 0, !hasState},
        std::tuple{"--keep-best", options.train.keep.best, options.train.snapshots.empty()}})
    if (given && isMissing)
      return fail(Status(ErrorKind::Usage, fmt::format("{} wants {}--snapshot DIR, the folder to resume from", flag,
                                                       flag == std::string("--recipe") ? "--resume and " : "")));
  Result<runtime::Launch> launch = runtime::readLaunch();
  if (options.maxRestarts > 0 && launch && launch->kind == runtime::Launch::Kind::Mpi)
    return fail(Status(ErrorKind::Usage,
                       "--max-restarts: MPI ends all ranks when one dies, and none can join it again; "
                       "start the ranks with srun or torchrun, or start mpirun again with --resume"));
  if (options.maxRestarts > 0 || options.train.mirrorEvery > 0)
    if (Status opened = openRunFolder(options); !opened) return fail(opened);
  const int status = runAttempts(options);
  if ((status == 0 || status == static_cast<int>(ErrorKind::Stopped)) && !options.train.runFolder.empty())
    runtime::Mirror::removeRun(options.train.runFolder);
  return status;
}

} // namespace

void addRun(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("run", "Train: all devices of a cpu:N plan here, or one rank under mpirun");
  auto options = std::make_shared<RunOptions>();
  runtime::TrainOptions &train = options->train;
  command->add_option("plan", options->plan, "the compiled plan")->required();
  command->add_option("--data", options->data, "replaces the recipe's data.path");
  command->add_option("--steps", train.steps, "steps in all, those before a resume included (default: one epoch)")
      ->check(positiveNumber);
  command->add_option("--metrics", train.metrics,
                      "file of JSON lines, one a step, or of CSV if its name ends in .csv; - is standard output");
  command->add_option("--tensorboard", train.tensorboard, "folder for TensorBoard's event files");
  command->add_option(
      "--prometheus", train.prometheus,
      "file whose name ends in .prom, for the textfile collector of Prometheus' node exporter; or a port: "
      "the first process serves http://127.0.0.1:PORT/metrics while it trains");
  command->add_option("--snapshot", train.snapshots, "folder of snapshots; one is always written after the last step");
  command->add_option("--snapshot-every", train.snapshotEvery, "steps between snapshots")->check(positiveNumber);
  command->add_option("--keep", train.keep.newest, "snapshots that stay; older ones are removed")
      ->check(positiveNumber)
      ->capture_default_str();
  command->add_flag(
      "--keep-best", train.keep.best,
      "write a snapshot after each evaluation that is better than all before (the recipe's eval.monitor), and keep "
      "it: DIR/best");
  command->add_flag("--resume", train.resume, "go on from the newest snapshot");
  auto *recipe = command->add_option("--recipe", options->recipe,
                                     "with --resume: go on with this recipe, such as other layers that train; the plan "
                                     "is compiled anew, and what has changed is told");
  command->add_option("--set", options->overrides, "KEY=VALUE: replaces a key of --recipe; repeatable")
      ->take_all()
      ->expected(1)
      ->needs(recipe);
  command->add_flag("--accept-changes", train.acceptChanges,
                    "go on, too, where the model, the loss or the seed is another than in the snapshot");
  command->add_flag("--overwrite", train.overwrite, "remove another run's snapshots from the folder")
      ->excludes("--resume");
  command
      ->add_option("--max-restarts", options->maxRestarts, "times to go on from the newest snapshot when the run fails")
      ->check(nonNegativeNumber);
  command->add_flag("--elastic", options->elastic,
                    "compile the plan anew when another number of processes was started, or is left, than it has "
                    "devices");
  command->add_flag("--mirror{1}", train.mirrorEvery,
                    "after every step, or with --mirror=N every N steps, keep the state in two processes' memory: with "
                    "--elastic and --max-restarts the others go on without a disk when one is lost");
  auto *trace = command->add_option("--trace", train.trace, "Chrome/Perfetto trace, of the first steps unless told");
  command->add_option("--trace-steps", options->traceSteps, "A:B, the first and the last step of the trace")
      ->needs(trace);
  command->add_flag("--debug", train.debug, "GPUs: wait for every command, so that an error names the one that did it");
  command->add_flag_callback(
      "--no-graphs", [&train] { train.graphs = false; },
      "GPUs: start every command of a step by itself, not all as a CUDA graph");
  command->add_option("--counters", train.counters, "JSON file: the bytes every device sent, by collective");
  options->trust.add(*command);
  addProcessOptions(*command, train);
  command->add_flag("--quiet", options->quiet, "no progress");
  command->add_flag("--json", options->json,
                    "for programs: after the last step one object with steps, losses, rates and files, on standard "
                    "output of the first process");
  command->callback([options, &status] { status = runPlan(*options); });
}

} // namespace cleave::tool
