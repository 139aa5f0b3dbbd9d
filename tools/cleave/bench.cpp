// cleave bench X.plan: how long steps take, and on which commands, and the prediction beside it.
#include "runtime/engine/comm/launch.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/step_times.h"
#include <algorithm>
#include <fmt/core.h>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

namespace cleave::tool {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string plan, output;
  TrustOptions trust;
  StepRun run;
  int64_t rows = 15;
  bool json = false;
};

class Bench {
public:
  Bench(const BenchOptions &options, const plan::Plan &plan) : options(options), plan(plan) {}

  Result<Json> measure() {
    CLEAVE_ASSIGN_OR_RETURN(StepTimes times, timeSteps(plan, options.run));
    std::vector<double> &seconds = times.seconds;
    if (seconds.empty()) return Json(); // another process has the figures
    std::ranges::sort(seconds);
    Json found;
    found["steps"] = options.run.steps, found["warmup"] = options.run.warmup;
    auto &step = found["step_s"];
    step["min"] = seconds.front();
    for (auto [name, part] : {std::pair("p50", 0.5), std::pair("p90", 0.9), std::pair("p99", 0.99)})
      step[name] = percentile(seconds, part);
    step["max"] = seconds.back();
    found["memory_bytes_per_device"] = times.bytes;
    const Json report = Json::parse(plan.report_json(), nullptr, false);
    if (report.is_object() && report.contains("predicted")) {
      found["predicted"]["step_s"] = report["predicted"]["step_time_s"];
      found["predicted"]["memory_bytes_per_device"] = report["predicted"]["memory_bytes_per_device"];
    }
    auto launch = runtime::readLaunch();
    if (launch && launch->kind == runtime::Launch::Kind::Alone) CLEAVE_RETURN_IF_ERROR(profile(found));
    return found;
  }

private:
  // Seconds a step and device by phase, by kind of command and by node, from a trace.
  Status profile(Json &found) {
    StepTrace file;
    CLEAVE_RETURN_IF_ERROR(file.write(plan, options.run));
    const Json trace = Json::parse(std::ifstream(file.path), nullptr, false);
    if (!trace.is_object() && !trace.is_array()) return runError("the trace of the steps cannot be read");
    struct Sum {
      double seconds = 0;
      int64_t commands = 0;
    };
    std::map<std::string, Sum> phases, kinds, nodes;
    std::set<int64_t> ranks, steps;
    for (const Json &event : trace.is_array() ? trace : trace["traceEvents"]) {
      if (event.value("ph", "") != "X" || event.value("cat", "") == "action") continue;
      const Json &args = event["args"];
      const int64_t step = args.value("step", int64_t(0));
      if (step <= options.run.warmup) continue;
      ranks.insert(event.value("pid", int64_t(0))), steps.insert(step);
      const double seconds = event.value("dur", 0.0) * 1e-6;
      for (Sum *sum :
           {&phases[event.value("cat", "")], &kinds[args.value("kind", "")], &nodes[event.value("name", "")]})
        sum->seconds += seconds, ++sum->commands;
    }
    const double shares = double(ranks.size() * steps.size());
    auto list = [&](const char *name, const std::map<std::string, Sum> &sums) {
      std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
      std::ranges::stable_sort(sorted, std::greater(), [](const auto &entry) { return entry.second.seconds; });
      for (const auto &[what, sum] : sorted)
        found[name].push_back(
            {{"name", what}, {"seconds", sum.seconds / shares}, {"commands", double(sum.commands) / shares}});
    };
    list("phases", phases), list("kinds", kinds), list("nodes", nodes);
    return Status::ok();
  }

  const BenchOptions &options;
  const plan::Plan &plan;
};

std::string figures(const BenchOptions &options, const Json &found) {
  auto ms = [](const Json &seconds) { return 1e3 * seconds.get<double>(); };
  constexpr double mib = 1024.0 * 1024;
  const Json &step = found["step_s"];
  std::string out =
      fmt::format("{}: {} steps after {} to warm up\n\n", options.plan, options.run.steps, options.run.warmup);
  out += fmt::format("step    p50 {:.2f} ms  min {:.2f}  p90 {:.2f}  p99 {:.2f}  max {:.2f}\n", ms(step["p50"]),
                     ms(step["min"]), ms(step["p90"]), ms(step["p99"]), ms(step["max"]));
  if (found.contains("predicted")) {
    const double predicted = ms(found["predicted"]["step_s"]), measured = ms(step["p50"]);
    out +=
        fmt::format("        predicted {:.2f} ms: measured {:+.1f} %\n", predicted, 100 * (measured / predicted - 1));
  }
  out += fmt::format("memory  {:.1f} MiB a device", found["memory_bytes_per_device"].get<double>() / mib);
  if (found.contains("predicted"))
    out += fmt::format(", predicted {:.1f} MiB", found["predicted"]["memory_bytes_per_device"].get<double>() / mib);
  out += "\n";
  for (auto [key, title] :
       {std::pair("phases", "phase"), std::pair("kinds", "kind of command"), std::pair("nodes", "node")}) {
    if (!found.contains(key)) continue;
    double all = 0;
    for (const Json &row : found[key]) all += row["seconds"].get<double>();
    out += fmt::format("\n{:34} {:>9} {:>7} {:>9}\n", title, "ms a step", "part", "commands");
    int64_t shown = 0;
    for (const Json &row : found[key]) {
      if (shown++ == options.rows) break;
      const double seconds = row["seconds"].get<double>();
      out += fmt::format("{:34} {:9.3f} {:6.1f} % {:7.1f}\n", row["name"].get<std::string>(), 1e3 * seconds,
                         100 * seconds / all, row["commands"].get<double>());
    }
    if (int64_t(found[key].size()) > options.rows)
      out += fmt::format("{} more\n", int64_t(found[key].size()) - options.rows);
  }
  if (found.contains("phases"))
    out += fmt::format(
        "\nTimes of commands are means over devices of {} traced steps; collectives include the wait for others.\n",
        tracedSteps);
  return out;
}

Status bench(const BenchOptions &options) {
  auto plan = options.trust.read(options.plan);
  if (!plan) return plan.status();
  auto found = Bench(options, *plan).measure();
  if (!found) return found.status();
  if (found->is_null()) return Status::ok();
  return options.json ? writeJson(options.output, *found) : writeText(options.output, figures(options, *found));
}

} // namespace

void addBench(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("bench", "Time steps of a plan, and show what they spend the time on");
  auto options = std::make_shared<BenchOptions>();
  command->add_option("plan", options->plan, "the compiled plan")->required();
  command->add_option("--steps", options->run.steps, "steps that are timed")
      ->check(positiveNumber)
      ->capture_default_str();
  command->add_option("--warmup", options->run.warmup, "steps before them")
      ->check(nonNegativeNumber)
      ->capture_default_str();
  command->add_option("--rows", options->rows, "rows of each table")->check(positiveNumber)->capture_default_str();
  command->add_option("--data", options->run.data, "replaces the recipe's data.path");
  command->add_option("--model", options->run.model,
                      "the .onnx file or folder of artifacts, if it moved since compiling");
  command->add_option("--threads", options->run.threads, "threads a device")->check(positiveNumber);
  command->add_flag("--json", options->json, "for programs, with all rows");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  options->trust.add(*command);
  command->callback([options, &status] {
    Status done = bench(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
