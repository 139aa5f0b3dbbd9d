#include "tools/cleave/shell.h"

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

std::string singleQuoted(const std::string &text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

} // namespace cleave::tool
