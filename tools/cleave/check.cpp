// cleave check: compares a model's file, or a plan, with the PyTorch module that it was exported from. PyTorch does the
// comparing, in Python: this starts `python3 -m cleave.check` (python/cleave/check).
#include "tools/cleave/commands.h"
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <unistd.h>

namespace cleave::tool {
namespace {

struct CheckOptions {
  std::string model, module, example, recipe, data, python = "python3";
  std::vector<std::string> accepted;
  bool json = false;
};

int runCheck(const CheckOptions &options) {
  std::vector<std::string> words = {options.python, "-m", "cleave.check", options.model, "--module", options.module};
  auto add = [&](const char *flag, const std::string &value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--example", options.example);
  add("--recipe", options.recipe);
  add("--data", options.data);
  for (const std::string &glob : options.accepted) add("--accept", glob);
  if (options.json) words.push_back("--json");
  std::error_code error;
  const std::string own = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (!error) setenv("CLEAVE_BIN", own.c_str(), /*overwrite=*/0);
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return fail({ErrorKind::Usage, fmt::format("'{}' cannot be started: --python names the Python that has torch and the "
                                             "module `cleave`",
                                             options.python)});
}

} // namespace

void addCheck(CLI::App &app, int &status) {
  auto *command =
      app.add_subcommand("check", "Compare a model's file with the PyTorch module that it was exported from");
  auto options = std::make_shared<CheckOptions>();
  command->add_option("model", options->model, "the exported model (.onnx), or a plan")->required();
  command
      ->add_option("--module", options->module,
                   "FILE.py:NAME of a function that returns (module, example), or of a module")
      ->required();
  command->add_option("--example", options->example,
                      "FILE.py:NAME of the example inputs, where the function returns a module alone");
  command->add_option("--recipe", options->recipe, "how it trains (YAML); a plan has its own");
  command->add_option("--data", options->data,
                      "a batch (.npz): an array for each input, and the labels; random numbers without it");
  command->add_option("--accept", options->accepted, "GLOB of tensors whose differences are known; repeatable")
      ->take_all()
      ->expected(1);
  command->add_flag("--json", options->json, "for programs");
  command->add_option("--python", options->python, "the Python that has torch and the module `cleave`")
      ->envname("CLEAVE_PYTHON");
  command->callback([options, &status] { status = runCheck(*options); });
}

} // namespace cleave::tool
