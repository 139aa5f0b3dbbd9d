// cleave completion SHELL and cleave man: made from the commands and options themselves.
#include "runtime/base/names/shell_word.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/shell.h"
#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <memory>

namespace cleave::tool {
namespace {

std::vector<const CLI::App *> commandsOf(const CLI::App &app) {
  return app.get_subcommands([](const CLI::App *command) { return !command->get_name().empty(); });
}

std::string words(const CLI::App &command) {
  std::vector<std::string> names;
  for (const CLI::Option *option : optionsOf(command))
    for (std::string &name : namesOf(*option)) names.push_back(std::move(name));
  return fmt::format("{}", fmt::join(names, " "));
}

std::string bash(const CLI::App &app) {
  std::vector<std::string> names;
  std::string cases;
  for (const CLI::App *command : commandsOf(app)) {
    names.push_back(command->get_name());
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), words(*command));
  }
  return fmt::format(R"(# cleave's commands and options; source this, or put it into bash-completion's folder
_cleave() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words
  case "${{COMP_WORDS[1]}}" in
{}    *) words='{} {}' ;;
  esac
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "$words" -- "$word")); fi
}}
complete -o default -F _cleave cleave
)",
                     cases, fmt::join(names, " "), words(app));
}

// One line of text, for a completion or a man page.
std::string oneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}
std::string fish(const CLI::App &app) {
  std::string out = "# cleave's commands and options, for ~/.config/fish/completions/cleave.fish\n";
  for (const CLI::App *command : commandsOf(app)) {
    out += fmt::format("complete -c cleave -n __fish_use_subcommand -f -a {} -d {}\n", command->get_name(),
                       names::singleQuoted(oneLine(command->get_description())));
    for (const CLI::Option *option : optionsOf(*command)) {
      std::string names;
      for (const std::string &name : option->get_snames()) names += " -s " + name;
      for (const std::string &name : option->get_lnames()) names += " -l " + name;
      if (names.empty()) continue;
      out += fmt::format("complete -c cleave -n '__fish_seen_subcommand_from {}'{}{} -d {}\n", command->get_name(),
                         names, option->get_items_expected_max() > 0 ? " -r" : "",
                         names::singleQuoted(oneLine(option->get_description())));
    }
  }
  return out;
}

std::string zsh(const CLI::App &app) {
  // In _arguments and _describe a colon ends a part, and brackets enclose the description.
  auto described = [](const std::string &text) {
    std::string out;
    for (char c : oneLine(text)) {
      if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  };
  std::string list, cases;
  for (const CLI::App *command : commandsOf(app)) {
    list += "    " + names::singleQuoted(command->get_name() + ":" + described(command->get_description())) + "\n";
    cases += fmt::format("    {}) _arguments", command->get_name());
    for (const CLI::Option *option : optionsOf(*command))
      for (const std::string &name : namesOf(*option))
        cases += " " + names::singleQuoted(fmt::format("{}[{}]{}", name, described(option->get_description()),
                                                       option->get_items_expected_max() > 0 ? ":value:_files" : ""));
    cases += " '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef cleave
_cleave() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then _describe command commands; return; fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _cleave ]; then _cleave "$@"; else compdef _cleave cleave; fi
)",
                     list, cases);
}

// Text of a man page: a line does not begin with a dot or a quote, and a dash is one.
std::string roff(const std::string &text) {
  std::string out;
  for (char c : oneLine(text)) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (out.starts_with('.') || out.starts_with('\'')) out = "\\&" + out;
  return out;
}

std::string manPage(const CLI::App &app) {
  std::string out = fmt::format(".TH CLEAVE 1\n.SH NAME\ncleave \\- {}\n.SH SYNOPSIS\n.B cleave\nCOMMAND [OPTIONS]\n"
                                ".SH COMMANDS\n",
                                roff(app.get_description()));
  for (const CLI::App *command : commandsOf(app)) {
    std::string places;
    for (const CLI::Option *option : optionsOf(*command))
      if (option->get_positional()) places += " " + roff(option->get_name(true));
    out += fmt::format(".SS cleave {}{}\n{}\n", command->get_name(), places, roff(command->get_description()));
    for (const CLI::Option *option : optionsOf(*command)) {
      const std::vector<std::string> names = namesOf(*option);
      const std::string name = names.empty() ? option->get_name(true) : fmt::format("{}", fmt::join(names, ", "));
      out += fmt::format(".TP\n.B {}\n{}\n", roff(name), roff(option->get_description()));
    }
  }
  return out + ".SH EXIT STATUS\n0 done; 1 the input is wrong; 2 the command line is wrong; 3 no plan fits; 4 a run "
               "failed; 75 a signal ended the run after a snapshot.\n";
}

} // namespace

void addCompletion(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("completion", "Write what a shell needs to complete commands and options");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish, or man: the manual's page")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  command->callback([&app, shell, &status] {
    Status written = writeText("", *shell == "bash"   ? bash(app)
                                   : *shell == "zsh"  ? zsh(app)
                                   : *shell == "fish" ? fish(app)
                                                      : manPage(app));
    status = written ? 0 : fail(written);
  });
}

} // namespace cleave::tool
