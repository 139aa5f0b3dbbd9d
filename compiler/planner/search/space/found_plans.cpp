#include "compiler/planner/search/space/found_plans.h"
#include "compiler/planner/infinity.h"
#include <algorithm>

namespace cleave::planner {

bool sameMesh(const Setting &a, const Setting &b) {
  return a.pp == b.pp && a.dp == b.dp && a.fsdp == b.fsdp && a.cp == b.cp && a.ep == b.ep && a.tp == b.tp;
}

void FoundPlans::record(Solution solution) {
  if (!solution.evaluation.fits) {
    if (!leastMemory || solution.bytes() < leastMemory->bytes()) leastMemory = std::move(solution);
    return;
  }
  auto same = std::find_if(byMesh.begin(), byMesh.end(), [&](const Solution &other) {
    return sameMesh(other.model->setting, solution.model->setting);
  });
  if (same == byMesh.end())
    byMesh.push_back(solution);
  else if (solution.seconds() < same->seconds())
    *same = solution;
  if (!best || solution.seconds() < best->seconds()) best = std::move(solution);
}

bool FoundPlans::hasAny() const { return best || leastMemory || options.worth < infinity; }

double FoundPlans::incumbent() const { return best ? std::min(best->seconds(), options.worth) : options.worth; }

double FoundPlans::worthTrying() const {
  if (options.top <= 0) return incumbent();
  std::vector<double> seconds;
  for (const Solution &solution : byMesh) seconds.push_back(solution.seconds());
  if (int64_t(seconds.size()) <= options.top) return infinity;
  std::nth_element(seconds.begin(), seconds.begin() + options.top, seconds.end());
  return seconds[size_t(options.top)];
}

double FoundPlans::slowestAsked() const {
  double worth = worthTrying();
  if (worth < infinity) return worth;
  for (const Solution &solution : byMesh) worth = std::max(worth < infinity ? worth : 0, solution.seconds());
  return worth;
}

const Solution *FoundPlans::bestOf(const Setting &setting) const {
  for (const Solution &solution : byMesh)
    if (sameMesh(solution.model->setting, setting)) return &solution;
  return nullptr;
}

double FoundPlans::secondsOf(const Setting &setting) const {
  const Solution *known = bestOf(setting);
  return known ? known->seconds() : infinity;
}

std::vector<Solution> FoundPlans::fastestFirst() const {
  std::vector<Solution> plans = byMesh;
  std::sort(plans.begin(), plans.end(), [](const Solution &a, const Solution &b) { return a.seconds() < b.seconds(); });
  return plans;
}

} // namespace cleave::planner
