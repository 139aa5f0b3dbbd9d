#include "tools/cleave/shell.h"
#include "runtime/base/names/shell_word.h"
#include <fstream>

namespace cleave::tool {
namespace {

void addOptions(const CLI::App &command, std::vector<const CLI::Option *> &options) {
  for (const CLI::Option *option : command.get_options([](const CLI::Option *) { return true; }))
    if (!command.get_name().empty() || option != command.get_help_ptr())
      options.push_back(option); // a group has help too
  for (const CLI::App *group : command.get_subcommands([](const CLI::App *part) { return part->get_name().empty(); }))
    addOptions(*group, options);
}

} // namespace

std::vector<const CLI::Option *> optionsOf(const CLI::App &command) {
  std::vector<const CLI::Option *> options;
  addOptions(command, options);
  return options;
}

std::vector<std::string> namesOf(const CLI::Option &option) {
  std::vector<std::string> names;
  for (const std::string &name : option.get_snames()) names.push_back("-" + name);
  for (const std::string &name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string ownCommand() {
  std::ifstream file("/proc/self/cmdline");
  std::string text = "cleave", word;
  std::getline(file, word, '\0'); // how it was called
  while (std::getline(file, word, '\0'))
    if (word == "-o" || word == "--output")
      std::getline(file, word, '\0');
    else if (!word.starts_with("--output="))
      text += " " + names::shellWord(word);
  return text;
}

} // namespace cleave::tool
