#include "compiler/planner/mixed_zero.h"
#include <algorithm>
#include <limits>

namespace cleave::planner {
namespace {

// A plan that is better by less than this part is the same one.
constexpr double leastGain = 1e-9;

class Mixing {
public:
  Mixing(const StageProblem &stages, const std::vector<int> &choice, int64_t prices, const StagePlan &given,
         const SearchClock &clock)
      : stages(stages), choice(choice), pricesLeft(prices), given(given), clock(clock) {}

  struct Mix {
    SplitModel model;
    StagePlan plan;
    PlanEvaluation evaluation;
    double seconds() const { return evaluation.predicted.stepSeconds; }
    double bytes() const { return evaluation.predicted.memory.total(); }
  };

  // Does memory keep the plan from this stage for all parameters, or make it compute something again that a higher
  // stage would leave room for?
  bool isWanted(const SplitModel &model, int zero, double seconds) {
    if (zero > model.setting.zero) {
      auto isAgain = [&](Recompute how) { return !stages.allowed.empty() && how != stages.allowed.front(); };
      return !stages.recompute && std::ranges::any_of(given.recompute, isAgain);
    }
    SplitModel other = model;
    other.setting.zero = zero;
    std::optional<Mix> mix = priced(other, std::numeric_limits<double>::infinity());
    return mix && mix->seconds() < seconds * (1 - leastGain);
  }

  // The fastest that was found for these two stages; `model`: of the plan to improve.
  std::optional<Mix> mix(const SplitModel &model, int lower, int upper) {
    SplitModel mixed = model;
    mixed.setting.zero = upper;
    mixed.setting.lowerZero = lower;
    mixed.lowers.edit().assign(model.problem->tensors.size(), false);
    std::optional<Mix> best = priced(mixed, stages.memoryLimit);
    if (!best || !best->evaluation.fits) return std::nullopt;
    // What each group by itself gains, and takes.
    struct Group {
      int tensor;
      double gain;
    };
    std::vector<Group> groups;
    for (size_t v = 0; v < mixed.variables.size(); ++v) {
      const Variable &variable = mixed.variables[v];
      if (!variable.isHome || !mixed.problem->tensors[size_t(variable.index)].trainable) continue;
      if (mixed.zeroDimension(variable.index, variable.homes[size_t(choice[v])]) < 0) continue;
      std::optional<Mix> one = withLowered(*best, variable.index);
      if (!one) return best;
      const double saved = best->seconds() - one->seconds(), bytes = std::max(1.0, one->bytes() - best->bytes());
      // Of one that does not fit by itself the time is not known: it comes last.
      groups.push_back({variable.index, one->evaluation.fits ? saved / bytes : -1});
    }
    std::stable_sort(groups.begin(), groups.end(), [](const Group &a, const Group &b) { return a.gain > b.gain; });
    for (const Group &group : groups) {
      std::optional<Mix> one = withLowered(*best, group.tensor);
      if (!one) break;
      if (one->evaluation.fits && one->seconds() < best->seconds() * (1 - leastGain)) best = std::move(one);
    }
    return best;
  }

private:
  std::optional<Mix> withLowered(const Mix &mix, int tensor) {
    SplitModel model = mix.model;
    model.lowers.edit()[size_t(tensor)] = true;
    return priced(model, stages.memoryLimit);
  }

  // Nothing when no more may be priced.
  std::optional<Mix> priced(const SplitModel &model, double limit) {
    if (pricesLeft-- <= 0 || clock.isOver()) return std::nullopt;
    Mix mix{model, {}, {}};
    const ActivityCosts activity = costActivity(mix.model, choice); // sums of gradients lie as the stage says
    const StateCosts state = costState(mix.model, choice);
    StageProblem problem = stages;
    problem.model = &mix.model;
    problem.activity = &activity;
    problem.state = &state;
    problem.memoryLimit = limit;
    mix.plan = planCut(problem, given.firstUnits);
    mix.evaluation = evaluatePlan(problem, mix.plan);
    // With other bytes another cut may be better.
    if (const std::optional<StagePlan> other = problem.ranks() > 1 ? planStages(problem) : std::nullopt) {
      PlanEvaluation evaluation = evaluatePlan(problem, *other);
      if (std::pair(!evaluation.fits, evaluation.predicted.stepSeconds) <
          std::pair(!mix.evaluation.fits, mix.seconds())) {
        mix.plan = *other;
        mix.evaluation = std::move(evaluation);
      }
    }
    mix.plan.bound = given.bound;
    return mix;
  }

  const StageProblem &stages;
  const std::vector<int> &choice;
  int64_t pricesLeft;
  const StagePlan &given;
  const SearchClock &clock;
};

} // namespace

double secondsWithoutLimit(const StageProblem &stages, const std::vector<int> &open, const std::vector<int> &choice,
                           const std::vector<int> &firstUnits) {
  double least = std::numeric_limits<double>::infinity();
  SplitModel model = *stages.model;
  for (int zero : open) {
    model.setting.zero = zero;
    const StateCosts state = costState(model, choice);
    StageProblem problem = stages;
    problem.model = &model;
    problem.state = &state;
    problem.memoryLimit = std::numeric_limits<double>::infinity();
    least = std::min(least, evaluatePlan(problem, planCut(problem, firstUnits)).predicted.stepSeconds);
  }
  return least;
}

void mixZero(const StageProblem &stages, const std::vector<int> &open, const std::vector<int> &choice,
             int64_t mostPrices, std::shared_ptr<SplitModel> &model, StagePlan &plan, PlanEvaluation &evaluation,
             const SearchClock &clock) {
  const StagePlan given = plan;
  const SplitModel from = *model;
  Mixing mixing(stages, choice, mostPrices, given, clock);
  auto mix = [&](int lower, int upper) {
    std::optional<Mixing::Mix> found = mixing.mix(from, lower, upper);
    if (!found || !(found->seconds() < evaluation.predicted.stepSeconds * (1 - leastGain))) return;
    model = std::make_shared<SplitModel>(std::move(found->model));
    plan = std::move(found->plan);
    evaluation = std::move(found->evaluation);
  };
  const double seconds = evaluation.predicted.stepSeconds;
  for (int other : open)
    if (other != from.setting.zero && mixing.isWanted(from, other, seconds))
      mix(std::min(other, from.setting.zero), std::max(other, from.setting.zero));
}

} // namespace cleave::planner
