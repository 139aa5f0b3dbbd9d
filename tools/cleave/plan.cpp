// cleave plan X.problem: the search by itself, on a problem that `cleave estimate --problem` or `compile` wrote.
#include "compiler/planner/explain/decision_summary.h"
#include "compiler/planner/search/driver/search.h"
#include "tools/cleave/commands.h"
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/core.h>
#include <memory>

namespace cleave::tool {
namespace {

struct PlanOptions {
  std::string problem, output;
  SplitOptions split;
  bool json = false, withoutAlternatives = false;
};

Result<planner::Problem> readProblem(const std::string &path) {
  const bool isStandardInput = path == "-";
  const std::string name = isStandardInput ? "standard input" : path;
  auto close = [&](std::FILE *file) { return isStandardInput ? 0 : std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(isStandardInput ? stdin : std::fopen(path.c_str(), "rb"),
                                                         close);
  std::string text;
  std::array<char, 1 << 16> part;
  while (file && !std::feof(file.get()) && !std::ferror(file.get()))
    text.append(part.data(), std::fread(part.data(), 1, part.size(), file.get()));
  if (!file || std::ferror(file.get()))
    return inputError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  return planner::Problem::parse(text, name);
}

Result<std::string> solved(const PlanOptions &options) {
  auto problem = readProblem(options.problem);
  if (!problem) return problem.status();
  auto machines = planner::parseCluster(options.split.cluster);
  if (!machines) return machines.status();
  auto constraints = planner::parseConstraints(options.split.split, *machines);
  if (!constraints) return constraints.status();
  const planner::Cluster cluster = planner::usedBy(*problem, *machines);
  planner::SearchOptions search = options.split.search();
  search.alternatives = !options.withoutAlternatives;
  auto decision = planner::solve(*problem, cluster, *constraints, search);
  if (!decision) return decision.status();
  if (options.json) {
    report::Report report = report::makeReport(*problem, cluster, *decision);
    report.given = {options.split.split, options.split.searchMoves};
    return report::renderJson(withOrigin(std::move(report), ""));
  }
  return planner::summaryText(*problem, cluster, *decision);
}

int runPlan(const PlanOptions &options) {
  const Result<std::string> text = solved(options);
  if (!text) return fail(text.status());
  const Status written = writeText(options.output, *text);
  return written ? 0 : fail(written);
}

} // namespace

void addPlan(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("plan", "Choose the split of a problem's text, without the model");
  auto options = std::make_shared<PlanOptions>();
  command
      ->add_option("problem", options->problem,
                   "the file that --problem of estimate or compile wrote; - is standard input")
      ->required();
  options->split.add(*command);
  command->add_flag("--without-alternatives", options->withoutAlternatives,
                    "price no presets beside the search: faster, and none of them can be chosen");
  command->add_flag("--json", options->json, "the report for programs, as `cleave estimate` gives it");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->callback([options, &status] { status = runPlan(*options); });
}

} // namespace cleave::tool
