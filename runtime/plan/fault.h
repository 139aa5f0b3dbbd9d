// What a command that checks its operands says when it finds what must not be.
//   gather: "an index is out of range"
#pragma once
#include "plan/plan.pb.h"
#include <string>

namespace cleave::runtime {

std::string faultText(const plan::Command &command);

} // namespace cleave::runtime
