// cleave report X.plan: the report that was made with the plan, in text, JSON or HTML; --explain, --diff, --trace.
#include "compiler/report/comparison.h"
#include "compiler/report/measured.h"
#include "compiler/report/predicted_timeline.h"
#include "runtime/plan/plan_file.h"
#include "tools/cleave/commands.h"
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <memory>

namespace cleave::tool {
namespace {

struct ReportOptions {
  std::string plan, other, node, format = "text", output, trace;
  std::vector<std::string> measured;
};

Result<report::Report> parse(const std::string &path, const std::string &json) {
  Result<report::Report> report = report::fromJson(json);
  if (!report) return {inputError(fmt::format("{}: {}", path, report.status().message()))};
  return report;
}

// A plan, or what `cleave estimate --json` wrote.
Result<report::Report> read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (file.peek() == '{') return parse(path, {std::istreambuf_iterator<char>(file), {}});
  auto plan = runtime::readPlanFile(path);
  if (!plan) return plan.status();
  return parse(path, plan->report_json());
}

// Several clusters are a table or a page, and nothing else.
int runComparison(const ReportOptions &options, const std::string &json) {
  auto results = report::comparisonFromJson(json);
  if (!results) return fail(inputError(fmt::format("{}: {}", options.plan, results.status().message())));
  if (!options.trace.empty() || !options.node.empty() || !options.other.empty() || !options.measured.empty())
    return fail(inputError(options.plan + ": has the estimates of several clusters, and these options are for one"));
  Status written = writeText(options.output, options.format == "html"   ? report::comparisonHtml(*results)
                                             : options.format == "json" ? report::comparisonJson(*results)
                                                                        : report::comparisonText(*results));
  return written ? 0 : fail(written);
}

// A report in a form that it does not have is refused. Error: names the option and the forms.
Status checkForm(const ReportOptions &options) {
  auto wants = [&](bool given, const char *flag, const char *forms, bool has) {
    if (!given || has) return Status::ok();
    return Status{ErrorKind::Usage, fmt::format("{} has no {}: it is {}", flag, options.format, forms)};
  };
  const bool isText = options.format == "text";
  CLEAVE_RETURN_IF_ERROR(wants(!options.node.empty(), "--explain", "text", isText));
  CLEAVE_RETURN_IF_ERROR(wants(!options.other.empty(), "--diff", "text or html", isText || options.format == "html"));
  return wants(!options.trace.empty(), "--trace", "Chrome's trace format, whatever --format says", isText);
}

int runReport(const ReportOptions &options) {
  if (Status has = checkForm(options); !has) return fail(has);
  std::ifstream file(options.plan, std::ios::binary);
  if (file.peek() == '[') return runComparison(options, {std::istreambuf_iterator<char>(file), {}});
  auto shown = read(options.plan);
  if (!shown) return fail(shown.status());
  if (!options.trace.empty()) {
    Status written = writeText(options.trace, report::renderTrace(*shown));
    return written ? 0 : fail(written);
  }
  std::string text;
  if (!options.node.empty()) {
    auto explained = report::explain(*shown, options.node);
    if (!explained) return fail(explained.status());
    text = *explained;
  } else if (!options.other.empty()) {
    auto other = read(options.other);
    if (!other) return fail(other.status());
    text = options.format == "html" ? report::renderHtmlDiff({options.plan, *shown}, {options.other, *other})
                                    : report::diff(*shown, *other);
  } else if (!options.measured.empty()) {
    auto measured = report::readMeasured(*shown, options.measured);
    if (!measured) return fail(measured.status());
    text = options.format == "html"   ? report::renderHtml(*shown, &*measured)
           : options.format == "json" ? report::renderJson(*measured)
                                      : report::renderText(*measured);
  } else if (options.format == "json") {
    text = report::renderJson(*shown);
  } else if (options.format == "html") {
    text = report::renderHtml(*shown);
  } else {
    text = report::renderText(*shown, terminalWidth());
  }
  Status written = writeText(options.output, text);
  return written ? 0 : fail(written);
}

} // namespace

void addReport(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("report", "Show a plan's split and why it was chosen");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("plan", options->plan, "the compiled plan, or the JSON of an estimate of one or several clusters")
      ->required();
  command->add_option("--format", options->format, "text, json or html")
      ->check(CLI::IsMember({"text", "json", "html"}));
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  auto *explain =
      command->add_option("--explain", options->node, "a node or parameter: its candidate splits and their prices");
  auto *diff = command->add_option("--diff", options->other,
                                   "another plan or estimate: the changes and their worth, as text or as a page");
  diff->excludes(explain);
  command
      ->add_option("--measured", options->measured,
                   "files that `run --trace` or `run --metrics` wrote: measured beside predicted")
      ->excludes(explain)
      ->excludes(diff);
  command
      ->add_option("--trace", options->trace,
                   "write the predicted step in Chrome's trace format instead: Perfetto shows it beside `run --trace`")
      ->excludes(explain);
  command->callback([options, &status] { status = runReport(*options); });
}

} // namespace cleave::tool
