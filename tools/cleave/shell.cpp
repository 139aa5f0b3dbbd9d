#include "tools/cleave/shell.h"
#include <algorithm>
#include <cctype>
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

std::string singleQuoted(const std::string &text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string shellWord(const std::string &word) {
  const bool isPlain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./=:,+@%").find(char(c)) != std::string_view::npos;
  });
  return isPlain ? word : singleQuoted(word);
}

std::string ownCommand() {
  std::ifstream file("/proc/self/cmdline");
  std::string text = "cleave", word;
  std::getline(file, word, '\0'); // how it was called
  while (std::getline(file, word, '\0'))
    if (word == "-o" || word == "--output")
      std::getline(file, word, '\0');
    else if (!word.starts_with("--output="))
      text += " " + shellWord(word);
  return text;
}

} // namespace cleave::tool
