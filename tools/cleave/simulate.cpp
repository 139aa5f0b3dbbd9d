// cleave simulate X.plan: the step that the plan's own commands make on a cluster, by the cost model, and its trace.
#include "compiler/simulate/simulate.h"
#include "runtime/engine/executor/trace.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/routine.h"
#include "tools/cleave/commands.h"
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

namespace cleave::tool {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateOptions {
  std::string plan, cluster, trace, output;
  bool json = false;
};

std::string figures(const SimulateOptions &options, const planner::Cluster &cluster, const std::string &shape,
                    const simulate::SimulatedStep &step, double predicted) {
  std::string out =
      fmt::format("{} on {}: {} a step{}, of {:.6g} commands a device\n", options.plan, cluster.name,
                  report::formatSeconds(step.seconds), shape.empty() ? "" : " (" + shape + ")", step.count);
  const simulate::DeviceTimes &times = step.fullest;
  out += fmt::format("device {}, the fullest: compute {}", times.device, report::formatSeconds(times.compute));
  for (auto [what, seconds] : {std::pair{"communication", times.communication}, {"host copies", times.hostCopies}})
    if (seconds > 0) out += fmt::format(", {} {}", what, report::formatSeconds(seconds));
  if (times.overlapped > 0) out += fmt::format("; {} at the same time", report::formatSeconds(times.overlapped));
  out += "\n";
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

Json jsonOf(const planner::Cluster &cluster, const std::string &shape, const simulate::SimulatedStep &step) {
  const simulate::DeviceTimes &times = step.fullest;
  Json json{{"cluster", cluster.name},
            {"step_s", step.seconds},
            {"commands", step.count},
            {"fullest_device",
             {{"device", times.device},
              {"compute_s", times.compute},
              {"communication_s", times.communication},
              {"host_copies_s", times.hostCopies},
              {"overlapped_s", times.overlapped}}},
            {"kinds", Json::array()}};
  if (!shape.empty()) json["shape"] = shape;
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
  std::map<std::pair<int64_t, int>, std::vector<const simulate::SimulatedCommand *>> lanes;
  size_t most = 0;
  for (const simulate::SimulatedCommand &one : step.commands) {
    auto &commands = lanes[{one.device, one.lane}];
    commands.push_back(&one);
    most = std::max(most, commands.size());
  }
  runtime::Trace trace(plan, {.recordsPerLane = 2 * most}); // as many actions as commands, at most
  auto nanoseconds = [](double seconds) { return int64_t(1e9 * seconds); };
  for (const auto &[place, commands] : lanes) {
    runtime::TraceLane &lane = trace.lane(place.first, place.second);
    int64_t actionBegan = 0;
    for (size_t i = 0; i < commands.size(); ++i) {
      const simulate::SimulatedCommand &one = *commands[i];
      const int64_t begin = nanoseconds(one.begin), end = nanoseconds(one.end);
      if (i == 0 || commands[i - 1]->action != one.action) actionBegan = begin;
      lane.add({one.command, one.action, one.fragment, 0, begin, end});
      if (lane.lane == runtime::computeLane && (i + 1 == commands.size() || commands[i + 1]->action != one.action))
        lane.add({nullptr, one.action, one.fragment, 0, actionBegan, end});
    }
  }
  return trace.write(path);
}

// The step's seconds in the report that was made with the plan; 0: it has none.
double predictedBySearch(const plan::Plan &plan) {
  const Json::json_pointer place("/predicted/step_time_s");
  const Json report = Json::parse(plan.report_json(), nullptr, false);
  return report.contains(place) && report[place].is_number() ? report[place].get<double>() : 0;
}

Status simulate_(const SimulateOptions &options) {
  CLEAVE_ASSIGN_OR_RETURN(plan::Plan plan, runtime::readPlanFile(options.plan));
  auto cluster = options.cluster.empty() ? planner::parseClusterYaml(plan.cluster_yaml(), options.plan + "'s cluster")
                                         : planner::parseCluster(options.cluster);
  if (!cluster) return cluster.status();
  auto step = simulate::simulateStep(plan, *cluster, !options.trace.empty());
  if (!step) return inputError(options.plan + ": " + step.status().message());
  if (!options.trace.empty()) CLEAVE_RETURN_IF_ERROR(writeTrace(plan, *step, options.trace));
  const std::string shape = simulate::simulatedShape(plan);
  if (options.json) return writeJson(options.output, jsonOf(*cluster, shape, *step));
  const double predicted = options.cluster.empty() ? predictedBySearch(plan) : 0;
  return writeText(options.output, figures(options, *cluster, shape, *step, predicted));
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
