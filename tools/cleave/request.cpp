// The common part of estimate, compile and plan: reading the recipe and the cluster, errors, output files.
#include "runtime/base/atomic_file.h"
#include "runtime/base/printable.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/shell.h"
#include "tools/cleave/terminal_line.h"
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

namespace cleave::tool {

void SplitOptions::add(CLI::App &command) {
  command
      .add_option("--cluster", cluster,
                  "the machines: a YAML file, a preset such as a100-80g:8x2 or a100-80g:8,software=pytorch, or cpu:4")
      ->required();
  auto *group = command.add_option_group("split", "The search chooses everything left out.");
  group->add_option("--mesh", split.mesh, "mesh axes and sizes, e.g. dp=2,tp=2");
  group->add_option("--mesh-order", split.meshOrder,
                    "mesh axes from the outermost to the innermost, which lies inside a node first, e.g. dp,pp,tp; "
                    "axes left out lie where it is best");
  group->add_option("--zero", split.zero, "ZeRO stage: 0, 1, 2 or 3");
  group->add_option("--microbatches", split.microbatches, "microbatches a step");
  group->add_option("--schedule", split.schedule, "pipeline schedule");
  group->add_option("--recompute", split.recompute,
                    "none, activations (GELUs, norms), selective (attention) or full; one for each stage or block: "
                    "full,full,none; with :except-last not of the last microbatch");
  group->add_option("--offload", split.offload,
                    "none, optimizer, activations or all: kept in the host's memory and copied to the device "
                    "when it is used");
  group->add_option("--chunk", split.chunk,
                    "none, auto or a number: the head and its loss run part by part over the samples, so that logits "
                    "are never stored whole");
  group->add_flag("--sequence-parallel", split.sequenceParallel,
                  "split norms and residuals along the sequence over tp");
  group->add_flag("--allow-repeated-work", split.allowRepeatedWork,
                  "also a split in which data parallel devices compute the same, because the batch does not divide");
  group->add_option("--split-at", split.splitAt, "\"GLOB\"[:before|after]: cut pipeline stages at a node; repeatable")
      ->take_all()
      ->expected(1);
  group->add_option("--balance", split.balance, "blocks of each pipeline stage, e.g. 3,3,2");
  group->add_option("--like", split.like, "a preset: ddp, zero1, zero2, zero3, fsdp, hsdp, megatron, ...");
  command.add_option("--top", top, "number of runners-up among the alternatives, each with another mesh")
      ->check(CLI::Range(int64_t(0), int64_t(1000)));
  command
      .add_option("--search-seconds", searchSeconds,
                  "seconds after which the search stops with the best split found so far")
      ->check([](const std::string &text) {
        double seconds = -1;
        return CLI::detail::lexical_cast(text, seconds) && seconds >= 0 ? "" : text + " is no number from 0 up";
      });
  command
      .add_option(
          "--search-moves", searchMoves,
          "only these moves after all settings were looked at: cuts, splits, bounds, units, schedules, zero; or none")
      ->delimiter(',');
  group
      ->add_option("--pin", split.pins,
                   "\"GLOB=dp,-,tp\" or \"GLOB=64:-,192:tp\": fix a tensor's layout, one entry a dimension")
      ->take_all()
      ->expected(1);
}

void RequestOptions::add(CLI::App &command) {
  command.add_option("model", model, "the exported model: .onnx, or a folder of onnxruntime-training's artifacts")
      ->required();
  command.add_option("--recipe", recipe, "how it trains (YAML)")->required();
  command.add_option("--set", overrides, "KEY=VALUE: override a key of the recipe, e.g. optimizer.lr=1e-3")
      ->take_all()
      ->expected(1);
  command.add_option("--problem", problemFile, "also write the planner's problem, as text; `cleave plan` solves it");
  command.add_option("--dump-ir", irFolder, "also write the module after each phase into this folder");
  command.add_flag("--no-annotations", ignoreAnnotations,
                   "leave out what the model's device annotations say of the split");
  split.add(command);
}

namespace {

std::string describe(const planner::SearchProgress &progress) {
  const std::string best = progress.best > 0
                               ? fmt::format("best {:.4g} s, at most {:.1f} % from the optimum", progress.best,
                                             100 * (1 - std::min(1.0, progress.bound / progress.best)))
                               : "no plan fits yet";
  const std::string doing =
      progress.doing.empty() ? fmt::format("{} settings left", progress.left) : runtime::printable(progress.doing);
  return fmt::format("cleave: search {:.0f} s: {} priced, {}, {}", progress.seconds, progress.candidates, doing, best);
}

} // namespace

planner::SearchOptions SplitOptions::search() const {
  planner::SearchOptions options;
  options.top = top;
  options.seconds = searchSeconds;
  options.moves = searchMoves;
  auto line = std::make_shared<TerminalLine>();
  options.progress = [line](const planner::SearchProgress &progress) {
    line->tell([&] { return describe(progress); });
  };
  return options;
}

Result<CompileRequest> RequestOptions::request() const {
  auto parsed = recipe::parseRecipe(recipe, overrides);
  if (!parsed) return parsed.status();
  auto machines = planner::parseCluster(split.cluster);
  if (!machines) return machines.status();
  auto warn = [](const std::string &text) { print(stderr, fmt::format("cleave: warning: {}\n", text)); };
  CompileRequest request{.model = model,
                         .recipe = *parsed,
                         .cluster = *machines,
                         .split = split.split,
                         .annotations = !ignoreAnnotations,
                         .problemFile = problemFile,
                         .irFolder = irFolder,
                         .warn = warn,
                         .search = split.search()};
  return request;
}

void print(std::FILE *to, const std::string &text) {
  const std::string shown = runtime::printable(text);
  std::fwrite(shown.data(), 1, shown.size(), to);
}

int terminalWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  const char *columns = std::getenv("COLUMNS");
  const int given = columns ? std::atoi(columns) : 0;
  return given > 0 ? given : 100;
}

report::Report withOrigin(report::Report report, const std::string &recipe) {
  report.recipe = recipe;
  report.command = ownCommand();
  report.version = versionName();
  return report;
}

std::string table(const std::vector<report::Row> &rows) {
  return fmt::format("{}", fmt::join(report::tableLines(rows, "", "  "), ""));
}

int fail(const Status &status) {
  const bool isStopped = status.exitStatus() == static_cast<int>(ErrorKind::Stopped);
  print(stderr, fmt::format("cleave: {}{}\n", isStopped ? "" : "error: ", status.message()));
  return status.exitStatus();
}

Status writeText(const std::string &path, const std::string &text) {
  if (path.empty() || path == "-") {
    print(stdout, text);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? Status::ok()
                                                                : inputError("cannot write to standard output");
  }
  return runtime::writeFileAtomically(text, path);
}

Status writeJson(const std::string &path, const nlohmann::ordered_json &json) {
  return writeText(path, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

} // namespace cleave::tool
