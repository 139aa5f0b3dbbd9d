#include "runtime/train/metric_values.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/jobs.h"
#include "tools/cleave/run_summary.h"
#include <fmt/format.h>

namespace cleave::tool {
namespace {

struct EvalOptions {
  std::string plan, data;
  TrustOptions trust;
  runtime::TrainOptions train;
  int64_t batches = 0;
  bool json = false;
};

int evaluatePlan(EvalOptions &options) {
  auto plan = options.trust.read(options.plan);
  if (!plan) return fail(plan.status());
  if (!options.data.empty()) options.train.data = options.data;
  options.train.onNote = [](const std::string &text) { print(stderr, text + "\n"); };
  options.train.onWarning = [](const std::string &text) { print(stderr, "cleave: warning: " + text + "\n"); };
  auto found = runtime::evaluate(*plan, options.train, options.batches);
  if (!found) return fail(found.status());
  if (!found->isFirst) return 0;
  if (const int64_t left = found->heldOut - found->samples; options.batches == 0 && left > 0)
    print(stderr, fmt::format("note: the last {} of {} samples fill no batch and are left out\n", left, found->heldOut));
  if (options.json) {
    Status written = writeJson("-", runtime::toJson(*found));
    return written ? 0 : fail(written);
  }
  std::string text = fmt::format("{}  ({} samples)\n", evaluationText(*found), found->samples);
  for (const auto &[name, rows] : found->confusion) {
    text += fmt::format("{}: a row for each class of the labels, a column for each that the model says\n", name);
    for (const std::vector<double> &row : rows) {
      for (double count : row) text += fmt::format("{:>8.0f}", count);
      text += "\n";
    }
  }
  Status written = writeText("-", text);
  return written ? 0 : fail(written);
}

} // namespace

void addEval(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("eval", "Evaluate a snapshot on samples that are held out, or on other data");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("plan", options->plan, "the compiled plan")->required();
  command->add_option("snapshot", options->train.snapshots,
                      "a snapshot, or a folder of them: then the newest (default: the model's weights)");
  command->add_option("--data", options->data, "file or folder in place of the recipe's data.path: all of it counts");
  command->add_option("--batches", options->batches, "batches to look at (default: all)")->check(positiveNumber);
  addProcessOptions(*command, options->train);
  options->trust.add(*command);
  command->add_flag("--json", options->json, "for programs: one object with the loss and the metrics");
  command->callback([options, &status] { status = evaluatePlan(*options); });
}

} // namespace cleave::tool
