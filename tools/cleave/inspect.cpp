// cleave inspect MODEL: its content. cleave inspect --ops: the table of core operators and their facets. cleave inspect
// --keys recipe: the table of a recipe's keys.
#include "compiler/cluster/cluster_fields.h"
#include "compiler/recipe/keys.h"
#include "runtime/train/metric_values.h"
#include "tools/cleave/commands.h"
#include <charconv>
#include <fmt/core.h>
#include <memory>

namespace cleave::tool {
namespace {

struct InspectOptions {
  std::string model, keys, output;
  std::vector<std::string> dims;
  bool json = false, ops = false, notesInFull = false;
};

Result<std::map<std::string, int64_t>> parseDims(const std::vector<std::string> &texts) {
  std::map<std::string, int64_t> dims;
  for (const std::string &text : texts) {
    size_t equals = text.find('=');
    int64_t size = 0;
    const char *end = text.data() + text.size();
    if (equals == std::string::npos || equals == 0 || std::from_chars(text.data() + equals + 1, end, size).ptr != end ||
        size < 1)
      return Status(ErrorKind::Usage, fmt::format("--dim wants NAME=SIZE, got '{}'", text));
    dims[text.substr(0, equals)] = size;
  }
  return dims;
}

std::string documentMetrics() {
  std::string text = "| key | meaning |\n|---|---|\n";
  runtime::StepMetrics all;
  for (const char *name : {"grad_norm.NAME", "loss.NAME"}) all.named[name];
  all.evaluation.emplace().metrics["NAME"], all.evaluation->losses["NAME"];
  for (const runtime::MetricValue &metric : runtime::metricValues(all))
    text += fmt::format("| `{}` | {} |\n", metric.key, metric.meaning);
  return text;
}

// Files whose keys stand in one table, by the word for --keys.
const std::map<std::string, std::string (*)()> tablesOfKeys = {
    {"cluster", planner::documentFields}, {"metrics", documentMetrics}, {"recipe", recipe::documentKeys}};

int runInspect(const InspectOptions &options) {
  if (options.ops || !options.keys.empty()) {
    Status written = writeText(options.output, options.ops ? operatorTable() : tablesOfKeys.at(options.keys)());
    return written ? 0 : fail(written);
  }
  if (options.model.empty()) return fail(Status(ErrorKind::Usage, "inspect wants a MODEL, --ops or --keys"));
  auto dims = parseDims(options.dims);
  if (!dims) return fail(dims.status());
  auto inspection = inspect(options.model, *dims);
  if (!inspection) return fail(inspection.status());
  Status written = writeText(options.output, options.json ? inspection->json() : inspection->text(options.notesInFull));
  return written ? 0 : fail(written);
}

} // namespace

void addInspect(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("inspect", "Show a model's content, and the part that is not supported");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("model", options->model, "the exported model (.onnx)");
  command->add_option("--dim", options->dims, "NAME=SIZE: bind a symbolic dimension for the FLOP count")
      ->take_all()
      ->expected(1);
  command->add_flag("--notes", options->notesInFull, "with the names of all tensors that a doubt is about");
  command->add_flag("--json", options->json, "for programs");
  command->add_flag("--ops", options->ops, "print the core operators and their facets instead");
  command->add_option("--keys", options->keys, "print the keys of a file instead: cluster, metrics, recipe")
      ->check(CLI::IsMember(tablesOfKeys));
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->callback([options, &status] { status = runInspect(*options); });
}

} // namespace cleave::tool
