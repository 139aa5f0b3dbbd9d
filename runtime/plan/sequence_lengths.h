// The routines of a plan whose samples may have several lengths (plan.proto, SequenceLength).
//
//   lengths 128, 512:  routineOf(plan, "step", 0) -> "step@128";  routineOf(plan, "step", 1) -> "step"
#pragma once
#include "plan/plan.pb.h"
#include <algorithm>
#include <string>
#include <string_view>

namespace cleave::runtime {

// The end of the names of a length's routines and fragments: "@128", and "" for the longest.
inline std::string shorterSuffix(int64_t length) { return "@" + std::to_string(length); }
inline std::string_view suffixIn(std::string_view name) { return name.substr(std::min(name.find('@'), name.size())); }
inline std::string suffixOf(const plan::Plan &plan, size_t length) {
  const auto number = static_cast<int>(length);
  return number + 1 >= plan.lengths_size() ? "" : shorterSuffix(plan.lengths(number).length());
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
inline double flopsOfStep(const plan::Plan &plan, size_t length) {
  const auto number = static_cast<int>(length);
  return number + 1 >= plan.lengths_size() ? plan.training().flops_per_step() : plan.lengths(number).flops_per_step();
}

} // namespace cleave::runtime
