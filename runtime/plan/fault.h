// What a command that checks its operands says when it finds what must not be.
//   gather: "an index is outside of the table's 50257 rows"
#pragma once
#include "plan/plan.pb.h"
#include <string>

namespace cleave::runtime {

std::string faultText(const plan::Command &command);
// "the loss is not finite (infinity or NaN): ..."
std::string notFiniteText(const plan::CheckFinite &check);

} // namespace cleave::runtime
