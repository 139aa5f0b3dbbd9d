#include "runtime/plan/fault.h"
#include <fmt/format.h>

namespace cleave::runtime {

std::string notFiniteText(const plan::CheckFinite &check) {
  return fmt::format("{} is not finite (infinity or NaN): lower the learning rate, clip gradients (clip_norm), or "
                     "check the data",
                     check.what().empty() ? "a value" : check.what());
}

const plan::Command *faultyCommand(const plan::Program &program, int32_t code) {
  for (const plan::Fragment &fragment : program.fragments()) {
    if (code >= 1 && code <= fragment.commands_size()) return &fragment.commands(code - 1);
    code -= fragment.commands_size();
  }
  return nullptr;
}

std::string faultText(const plan::Command &command) {
  if (command.has_check_finite()) return notFiniteText(command.check_finite());
  if (command.has_gather() || command.has_scatter_add()) {
    int64_t rows = command.has_gather() ? command.gather().global_rows() : command.scatter_add().global_rows();
    return fmt::format("an index is outside of the table's {} rows", rows);
  }
  if (command.has_grouped_contract())
    return fmt::format("a row's group is outside of the {} groups", command.grouped_contract().global_groups());
  return "a kernel found a value that must not be";
}

} // namespace cleave::runtime
