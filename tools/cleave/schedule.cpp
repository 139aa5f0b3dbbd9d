// cleave schedule KIND --stages P --microbatches M: a pipeline schedule by itself, as a timetable, JSON, CSV or a
// chart.
#include "compiler/report/rendered_schedule.h"
#include "compiler/schedule/csv.h"
#include "tools/cleave/commands.h"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <unistd.h>

namespace cleave::tool {
namespace {

struct ScheduleOptions {
  std::string kind, times, format = "text", output;
  int stages = 0;
  int64_t microbatches = 0;
  bool json = false;
};

Status usage(std::string message) { return {ErrorKind::Usage, std::move(message)}; }

// "f=18.5,b=18.1,w=9.3,comm=0.6", of a rank's whole part of the model. comm may be left out.
Result<planner::StageTimes> readTimes(std::string_view text) {
  planner::StageTimes times{1, 1, 1, 0, 0};
  if (text.empty()) return times;
  double comm = 0;
  struct Key {
    std::string_view name;
    double *value;
    bool given;
  } keys[] = {{"f", &times.forward, false},
              {"b", &times.backwardInput, false},
              {"w", &times.backwardWeight, false},
              {"comm", &comm, false}};
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const size_t equals = std::min(part.find('='), part.size());
    auto *key = std::ranges::find(keys, part.substr(0, equals), &Key::name);
    const std::string_view number = part.substr(std::min(part.size(), equals + 1));
    if (key == std::end(keys) || key->given)
      return usage(
          fmt::format("--times: '{}': write each of f, b, w and comm once: f=18.5,b=18.1,w=9.3,comm=0.6", part));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *key->value);
    if (error != std::errc() || end != number.data() + number.size() || !(*key->value >= 0 && *key->value <= 1e12))
      return usage(fmt::format("--times: '{}' is no time in milliseconds", part));
    key->given = true;
  }
  if (!keys[0].given || !keys[1].given || !keys[2].given)
    return usage(fmt::format("--times: '{}' lacks one of f, b and w", text));
  if (times.forward + times.backwardInput + times.backwardWeight <= 0) return usage("--times: f, b and w are all 0");
  times.sendForward = times.sendBackward = comm;
  return times;
}

Result<std::string> render(const ScheduleOptions &options) {
  Result<planner::StageTimes> times = readTimes(options.times);
  if (!times) return times.status();
  const bool file = options.kind.ends_with(".csv");
  if (!file && (options.stages == 0 || options.microbatches == 0))
    return usage(fmt::format("schedule '{}' needs --stages and --microbatches", options.kind));
  Result<planner::ScheduleShape> shape = planner::scheduleShape(options.kind, options.stages);
  if (!shape) return shape.status();
  // A rank's time is shared by its chunks.
  const int ranks = 1 + *std::ranges::max_element(shape->rankOfStage);
  const double chunks = static_cast<double>(shape->stages) / ranks;
  times->forward /= chunks, times->backwardInput /= chunks, times->backwardWeight /= chunks;
  auto schedule = planner::makeSchedule(options.kind, options.stages, options.microbatches, *times);
  if (!schedule) return schedule.status();
  if (options.format == "csv") return planner::writeCsv(*schedule);
  const planner::Simulation simulation = planner::simulate(*schedule, std::span(&*times, 1));
  const report::RenderedSchedule rendered{*schedule, simulation, *times};
  if (options.json || options.format == "json") return report::renderJson(rendered);
  if (options.format == "svg") return report::renderSvg(rendered);
  return report::renderText(rendered, terminalWidth());
}

int runSchedule(const ScheduleOptions &options) {
  Result<std::string> text = render(options);
  if (!text) return fail(text.status());
  Status written = writeText(options.output, *text);
  return written ? 0 : fail(written);
}

} // namespace

void addSchedule(CLI::App &app, int &status) {
  auto *command =
      app.add_subcommand("schedule", "A pipeline schedule by itself: timetable, bubble rate, live activations");
  auto options = std::make_shared<ScheduleOptions>();
  command->add_option("kind", options->kind, fmt::format("{}", fmt::join(planner::scheduleKinds(), ", ")))->required();
  command
      ->add_option("--stages", options->stages,
                   "pipeline ranks; a rank holds several stages in interleaved:V, looped-bfs:V, "
                   "zb-v and dualpipev")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--microbatches", options->microbatches, "microbatches of a step")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 24));
  command->add_option(
      "--times", options->times,
      "ms of a rank's forward, input gradient, weight gradient and of a send: f=18.5,b=18.1,w=9.3,comm=0.6 "
      "(default f=b=w=1, comm=0); a rank's V stages take the V-th part each, a send always comm");
  command->add_option("--format", options->format, "text, json, csv or svg")
      ->check(CLI::IsMember({"text", "json", "csv", "svg"}));
  command->add_flag("--json", options->json, "the same as --format json");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->footer(
      "bubble_rate is 1 - m (f + b + w) / cost, cost the longest time from a rank's first action to its last "
      "(zero-bubble paper). peak_live counts a stage's activations from its forward to the end of its input "
      "gradient, by rank.");
  command->callback([options, &status] { status = runSchedule(*options); });
}

} // namespace cleave::tool
