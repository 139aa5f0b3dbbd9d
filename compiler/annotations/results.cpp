#include "compiler/annotations/results.h"
#include "compiler/planner/problem/pins.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>

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

std::string pinResults(const std::vector<ResultLayout> &results, const planner::Problem &problem,
                       planner::Constraints &constraints) {
  if (results.empty()) return "";
  const auto last = lastOperations(problem);
  auto pinned = [&](const ResultLayout &result) {
    auto operation = last.find(result.node);
    if (operation == last.end()) return false;
    const planner::Tensor &tensor = problem.tensors[static_cast<size_t>(problem.nodes[operation->second].results[0])];
    const auto rank = static_cast<int64_t>(tensor.dims.size());
    planner::Pin pin{"the annotation of '" + result.node + "'", tensor.name, {}, {}};
    pin.dims.resize(tensor.dims.size());
    for (const auto &[dim, axes] : result.dims) {
      if (dim < -rank || dim >= rank) return false;
      pin.dims[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = axes;
    }
    if (!planner::checkPins(problem, {pin})) return false;
    constraints.pins.push_back(pin);
    return true;
  };
  const auto left = std::ranges::count_if(results, std::not_fn(pinned));
  if (left == 0) return "";
  return fmt::format("the annotations of {} results are left to the search: the step computes them in another form",
                     left);
}

} // namespace cleave::annotations
