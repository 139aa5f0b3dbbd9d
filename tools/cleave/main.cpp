// cleave: the command line. See docs and interface: `cleave --help`.
#include "runtime/base/mapped_file.h"
#include "runtime/base/names/glob.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/shell.h"
#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fmt/core.h>
#include <unistd.h>

namespace {

// An option that the command has not, with the nearest that it has; "" if all are known.
std::string unknownOption(const CLI::App &command) {
  for (const std::string &word : command.remaining()) {
    if (!word.starts_with("-") || word.size() == 1 || std::isdigit(uint8_t(word[1]))) continue;
    std::vector<std::string> options;
    for (const CLI::Option *option : cleave::tool::optionsOf(command))
      for (std::string &name : cleave::tool::namesOf(*option)) options.push_back(std::move(name));
    return fmt::format("`cleave {}` has no option '{}'{}", command.get_name(), word,
                       cleave::names::suggestion(word.substr(0, word.find('=')), options));
  }
  return "";
}

// The fault of the command line. CLI11 tells first which command or option is missing, where a word is misspelt.
std::string faultOf(const CLI::App &app, const CLI::ParseError &error) {
  std::vector<std::string> rest = app.remaining();
  for (const CLI::App *command : app.get_subcommands())
    if (std::string unknown = unknownOption(*command); !unknown.empty()) return unknown;
  if (rest.empty() || !app.get_subcommands().empty()) return error.what();
  const std::string &word = rest.front();
  if (word.starts_with("-")) return fmt::format("there is no option '{}' before the command", word);
  std::vector<std::string> commands;
  for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; }))
    commands.push_back(command->get_name());
  return fmt::format("there is no command '{}'{}", word, cleave::names::suggestion(word, commands));
}

// Throws if a file that the command writes is one that it reads.
void checkOutputs(const CLI::App &command) {
  auto isOneOf = [](const CLI::Option &option, std::initializer_list<const char *> names) {
    return std::ranges::any_of(names, [&](const char *name) { return option.check_lname(name); });
  };
  for (const CLI::Option *to : cleave::tool::optionsOf(command))
    for (const CLI::Option *from : cleave::tool::optionsOf(command))
      for (const std::string &path : to->results())
        for (const std::string &read : from->results()) {
          std::error_code isMissing;
          if (isOneOf(*to, {"output", "trace", "metrics", "counters", "prometheus"}) &&
              (from->get_positional() || isOneOf(*from, {"recipe", "cluster", "data", "diff", "measured"})) &&
              std::filesystem::equivalent(path, read, isMissing))
            throw CLI::ValidationError(to->get_name(), path + " is what the command reads: name another file");
        }
}

// In a signal's handler. What was read of the file is not what it says.
void endWithout(const char *path) {
  for (const char *text : {"cleave: error: ", path, ": has become shorter, or unreadable, while it was read\n"})
    (void)!::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(static_cast<int>(cleave::ErrorKind::RunFailed));
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app{"Cleave splits the training of exported ONNX models over devices, says why, and runs it."};
  app.set_version_flag("--version", cleave::tool::versionText,
                       "What it was built from, and what of it this machine has");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::help);
  app.parse_complete_callback([&app] {
    for (const CLI::App *command : app.get_subcommands()) checkOutputs(*command);
  });
  int status = 0;
  std::signal(SIGXFSZ, SIG_IGN); // a write beyond the limit of files tells it
  cleave::runtime::MappedFile::onLoss(endWithout);
  using namespace cleave::tool;
  for (auto *add : {addInspect, addInit,  addEstimate, addPlan,     addCompile, addReport,    addRun,
                    addLaunch,  addBench, addTune,     addEval,     addCheck,   addVerify,    addSimulate,
                    addExport,  addProbe, addEnv,      addSchedule, addKeygen,  addCompletion})
    add(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) return app.exit(error); // --help, --version
    print(stderr, fmt::format("cleave: error: {}\n", faultOf(app, error)));
    fmt::print(stderr, "See `cleave --help` and `cleave COMMAND --help`.\n");
    return 2;
  } catch (const std::bad_alloc &) {
    fmt::print(stderr, "cleave: error: out of memory\n");
    return 1;
  } catch (const std::exception &error) {
    print(stderr, fmt::format("cleave: internal error: {}\n", error.what()));
    return 1;
  }
  return status;
}
