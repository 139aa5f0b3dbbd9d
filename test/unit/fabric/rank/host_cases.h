// What processes do together beside their steps, and how the others learn that one of them fails: on the fabric itself.
#pragma once
#include "runtime/base/status.h"
#include <string>

namespace cleave::runtime::test {

// "control", "abort", "killed", "stopped", "other collective", "other size". `folder`: where survivors tell each other
// that they have seen the failure, so that none ends before.
Status runHostCase(const std::string &name, const std::string &folder);

} // namespace cleave::runtime::test
