#include "compiler/planner/search/moves/plan_improvement.h"
#include <algorithm>
#include <set>

namespace cleave::planner {
namespace {

class Improvement {
public:
  Improvement(const StageProblem &stages, const StagePlan &plan, int64_t prices, std::vector<int> &choice,
              PlanEvaluation &evaluation, const SearchClock &clock)
      : stages(stages), model(*stages.model), plan(plan), pricesLeft(prices), choice(choice), evaluation(evaluation),
        clock(clock) {}

  void run() {
    std::set<std::pair<int, int>> neighbours;
    for (const Flow &flow : model.flows)
      for (const Flow::Read &read : flow.reads)
        if (flow.producer >= 0 && flow.producer != read.variable) neighbours.insert({flow.producer, read.variable});
    for (bool improved = true; improved;) {
      improved = false;
      for (size_t v = 0; v < choice.size(); ++v) improved = tryAll(v) || improved;
      for (auto at = neighbours.begin(); at != neighbours.end() && !improved; ++at)
        improved = tryPairs(size_t(at->first), size_t(at->second));
    }
  }

private:
  bool tryAll(size_t v) {
    bool improved = false;
    int was = choice[v];
    for (int d = 0; d < int(model.variables[v].domain()); ++d) {
      if (d == was) continue;
      choice[v] = d;
      if (accept()) {
        improved = true;
        was = d;
      }
    }
    choice[v] = was;
    return improved;
  }

  bool tryPairs(size_t a, size_t b) {
    int was = choice[a];
    for (int d = 0; d < int(model.variables[a].domain()); ++d) {
      if (d == was) continue;
      choice[a] = d;
      if (tryAll(b)) return true;
    }
    choice[a] = was;
    return false;
  }

  bool accept() {
    if (pricesLeft-- <= 0 || clock.isOver() || !evaluate(model, choice).isPossible) return false;
    ActivityCosts activity = costActivity(model, choice);
    StateCosts state = costState(model, choice);
    StageProblem changed = stages;
    changed.activity = &activity;
    changed.state = &state;
    PlanEvaluation other = evaluatePlan(changed, plan);
    if (!other.fits || !(other.predicted.stepSeconds < evaluation.predicted.stepSeconds * (1 - leastGain)))
      return false;
    evaluation = std::move(other);
    return true;
  }

  const StageProblem &stages;
  const SplitModel &model;
  const StagePlan &plan;
  int64_t pricesLeft;
  std::vector<int> &choice;
  PlanEvaluation &evaluation;
  const SearchClock &clock;
};

} // namespace

void improvePlan(const StageProblem &stages, const StagePlan &plan, int64_t mostPrices, std::vector<int> &choice,
                 PlanEvaluation &evaluation, const SearchClock &clock) {
  Improvement(stages, plan, mostPrices, choice, evaluation, clock).run();
}

} // namespace cleave::planner
