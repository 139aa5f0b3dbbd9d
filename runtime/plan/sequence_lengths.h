// The routines of a plan whose samples may have several lengths (plan.proto, SequenceLength).
//
//   lengths 128, 512:  routineOf(plan, "step", 0) -> "step@128";  routineOf(plan, "step", 1) -> "step"
#pragma once
#include "plan/plan.pb.h"
#include <string>

namespace cleave::runtime {

// "@128"; of the longest "".
inline std::string suffixOf(const plan::Plan &plan, size_t length) {
  const auto number = static_cast<int>(length);
  return number + 1 >= plan.lengths_size() ? "" : "@" + std::to_string(plan.lengths(number).length());
}
inline std::string routineOf(const plan::Plan &plan, const std::string &routine, size_t length) {
  return routine + suffixOf(plan, length);
}
// How many; 1 where samples have one length.
inline size_t lengthsOf(const plan::Plan &plan) { return plan.lengths_size() > 1 ? size_t(plan.lengths_size()) : 1; }
// The unsplit step of a length.
inline const std::string &referenceOf(const plan::Plan &plan, size_t length) {
  const auto number = static_cast<int>(length);
  return number + 1 >= plan.lengths_size() ? plan.reference_graph() : plan.lengths(number).reference_graph();
}

} // namespace cleave::runtime
