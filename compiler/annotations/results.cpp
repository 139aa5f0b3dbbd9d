#include "compiler/annotations/results.h"

namespace cleave::annotations {

std::unordered_map<std::string, size_t> lastOperations(const planner::Problem &problem) {
  std::unordered_map<std::string, size_t> last;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const std::string &name = problem.nodes[i].name;
    last[name] = i;
    if (const size_t colon = name.rfind(':'); colon != std::string::npos) last[name.substr(0, colon)] = i;
  }
  return last;
}

} // namespace cleave::annotations
