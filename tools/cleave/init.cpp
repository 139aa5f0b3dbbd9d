// cleave init MODEL: the first recipe for a model, with the other choices as comments.
#include "compiler/driver/draft_recipe.h"
#include "compiler/import/import.h"
#include "compiler/recipe/recipe.h"
#include "tools/cleave/commands.h"
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <memory>

namespace cleave::tool {
namespace {

struct InitOptions {
  std::string model, output, task, data;
  bool overwrite = false;
};

Status init(const InitOptions &options) {
  if (!options.overwrite && !options.output.empty() && options.output != "-" && std::filesystem::exists(options.output))
    return inputError(fmt::format("{} is there already; --overwrite replaces it", options.output));
  auto seen = inspect(options.model, {});
  if (!seen) return seen.status();
  auto training = import_::trainingOf(options.model);
  if (!training) return training.status();
  DraftOptions draft{.task = options.task, .data = options.data, .saysLoss = training->has_value()};
  draft.source = fmt::format("Written by `cleave init {}`", options.model);
  auto text = draftRecipe(*seen, draft);
  if (!text) return text.status();
  CLEAVE_RETURN_IF_ERROR(writeText(options.output, *text));
  if (options.output.empty() || options.output == "-") return Status::ok();
  print(stderr, fmt::format("cleave: wrote {0}; next: cleave compile {1} --recipe {0} --cluster cpu:2 -o x.plan\n",
                            options.output, options.model));
  return Status::ok();
}

} // namespace

void addInit(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("init", "Write a first recipe for a model, with the choices as comments");
  auto options = std::make_shared<InitOptions>();
  command
      ->add_option("model", options->model,
                   "the exported model: .onnx, or a folder of onnxruntime-training's artifacts")
      ->required();
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->add_option(
      "--task", options->task,
      fmt::format("what it learns: {} (default: follows from its outputs)", fmt::join(draftTasks(), ", ")));
  command->add_option("--data", options->data, "file or folder of the data (default: random data)");
  command->add_flag("--overwrite", options->overwrite, "replace the file if it is there");
  command->callback([options, &status] {
    Status done = init(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
