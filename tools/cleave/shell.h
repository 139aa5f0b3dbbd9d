// The command line as shells see it: the options of a command, and this process's own.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cleave::tool {

// The options of a command and of its groups.
std::vector<const CLI::Option *> optionsOf(const CLI::App &command);
// "-o", "--output"; none for what is told by its place.
std::vector<std::string> namesOf(const CLI::Option &option);

// The command line of this process but its --output: what a report says that it was made by.
std::string ownCommand();

} // namespace cleave::tool
