// The message of a command that checks its operands and finds a fault.
//   gather: "an index is outside of the table's 50257 rows"
// On a GPU its kernel leaves the command's number in the word at Program.fault_offset: its place among the commands of
// all of the program's fragments, from 1.
#pragma once
#include "plan/plan.pb.h"
#include <string>

namespace cleave::runtime {

// Null: there is no command of that number.
const plan::Command *faultyCommand(const plan::Program &program, int32_t code);
std::string faultText(const plan::Command &command);
// "the loss is not finite (infinity or NaN): ..."
std::string notFiniteText(const plan::CheckFinite &check);

} // namespace cleave::runtime
