// cleave simulate X.plan: the step that the plan's own commands make on a cluster, by the cost model, and its trace.
#include "compiler/simulate/simulate.h"
#include "runtime/engine/executor/trace.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/plan_file.h"
#include "tools/cleave/commands.h"
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace cleave::tool {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateOptions {
  std::string plan, cluster, trace, output;
  bool json = false;
};

std::string figures(const SimulateOptions &options, const planner::Cluster &cluster,
                    const simulate::SimulatedStep &step, double predicted) {
  std::string out = fmt::format("{} on {}: {} a step, of {} commands\n", options.plan, cluster.name,
                                report::formatSeconds(step.seconds), step.count);
  out += fmt::format("compute {} and communication {} on the fullest device",
                     report::formatSeconds(step.computeSeconds), report::formatSeconds(step.communicationSeconds));
  const double hidden = step.computeSeconds + step.communicationSeconds - step.seconds;
  out += hidden > 0 ? fmt::format(", of which {} overlap\n", report::formatSeconds(hidden)) : "\n";
  if (predicted > 0)
    out += fmt::format("the search predicted {}: simulated {:+.1f} %\n", report::formatSeconds(predicted),
                       100 * (step.seconds / predicted - 1));
  std::vector<report::Row> rows{{"command", "count", "launches", "work", "bytes", "time", "part"}};
  double all = 0;
  for (const simulate::SimulatedTotal &total : step.totals) all += total.seconds;
  for (const simulate::SimulatedTotal &total : step.totals)
    rows.push_back({total.kind, fmt::format("{:.6g}", total.count), fmt::format("{:.6g}", total.launches),
                    total.flops > 0 ? report::formatFlops(total.flops) : "",
                    total.bytes > 0 ? report::formatBytes(total.bytes) : "", report::formatSeconds(total.seconds),
                    fmt::format("{:.1f} %", all > 0 ? 100 * total.seconds / all : 0)});
  return out + fmt::format("\n{}", fmt::join(report::tableLines(rows, "", "  "), ""));
}

Json jsonOf(const planner::Cluster &cluster, const simulate::SimulatedStep &step) {
  Json json{{"cluster", cluster.name},          {"step_s", step.seconds},
            {"compute_s", step.computeSeconds}, {"communication_s", step.communicationSeconds},
            {"commands", step.count},           {"kinds", Json::array()}};
  for (const simulate::SimulatedTotal &total : step.totals)
    json["kinds"].push_back({{"kind", total.kind},
                             {"count", total.count},
                             {"launches", total.launches},
                             {"flops", total.flops},
                             {"bytes", total.bytes},
                             {"seconds", total.seconds}});
  return json;
}

// In the form of `cleave run --trace`, so that both can be looked at side by side.
Status writeTrace(const plan::Plan &plan, const simulate::SimulatedStep &step, const std::string &path) {
  constexpr double nanoseconds = 1e9;
  runtime::Trace trace(plan, {.recordsPerLane = step.commands.size()});
  for (const simulate::SimulatedCommand &one : step.commands)
    trace.lane(one.device, one.lane)
        .add({one.command, one.action, one.fragment, 0, int64_t(nanoseconds * one.begin),
              int64_t(nanoseconds * one.end)});
  return trace.write(path);
}

Status simulate_(const SimulateOptions &options) {
  CLEAVE_ASSIGN_OR_RETURN(plan::Plan plan, runtime::readPlanFile(options.plan));
  auto cluster = options.cluster.empty() ? planner::parseClusterYaml(plan.cluster_yaml(), options.plan + "'s cluster")
                                         : planner::parseCluster(options.cluster);
  if (!cluster) return cluster.status();
  auto step = simulate::simulateStep(plan, *cluster, !options.trace.empty());
  if (!step) return inputError(options.plan + ": " + step.status().message());
  if (!options.trace.empty()) CLEAVE_RETURN_IF_ERROR(writeTrace(plan, *step, options.trace));
  if (options.json) return writeJson(options.output, jsonOf(*cluster, *step));
  const Json made = Json::parse(plan.report_json(), nullptr, false);
  const double predicted =
      options.cluster.empty() && made.contains("predicted") ? made["predicted"].value("step_time_s", 0.0) : 0;
  return writeText(options.output, figures(options, *cluster, *step, predicted));
}

} // namespace

void addSimulate(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("simulate", "Price a plan's own commands, and run them through its order");
  auto options = std::make_shared<SimulateOptions>();
  command->add_option("plan", options->plan, "the compiled plan")->required();
  command->add_option("--cluster", options->cluster, "another one than the plan was made for, of as many devices");
  command->add_option("--trace", options->trace,
                      "write the step in Chrome's trace format, as `cleave run --trace` does");
  command->add_flag("--json", options->json, "for programs");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->callback([options, &status] {
    Status done = simulate_(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
