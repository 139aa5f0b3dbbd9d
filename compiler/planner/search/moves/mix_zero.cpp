// ZeRO stages by group of parameters: those of one kind in all repetitions of a block, or one that stands alone. A
// stage's savings and its cost differ between them, and with one stage for all the memory that is left is not used.
//
//   ZeRO-3 fits with 20 GiB to spare, ZeRO-1 does not: the groups whose gathers cost most for each byte that they save
//   keep ZeRO-1 until the memory is full, the others ZeRO-3
//
// Two stages at a time (Setting::zero and lowerZero, SplitModel::lowers), the cut into stages as given or planned
// again, recomputation chosen again. Every set of up to six groups, with every two stages, is priced.
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/few_cuts.h"
#include "compiler/planner/search/moves/move.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Every set of no more groups is priced with every two stages and every cut; more groups are lowered one after the
// other, with the plan's stage and another.
constexpr size_t fewGroups = 6;

// The first parameter of each group that can be cut.
std::vector<int> groupsOf(const SplitModel &model, const std::vector<int> &choice) {
  std::vector<int> tensors;
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (!variable.isHome || !model.problem->tensors[size_t(variable.index)].trainable) continue;
    if (model.zeroDimension(variable.index, variable.homes[size_t(choice[v])]) >= 0) tensors.push_back(variable.index);
  }
  return tensors;
}

class Mixing {
public:
  const bool isSmall; // every set of groups is priced

  Mixing(const StageProblem &stages, const std::vector<int> &choice, int64_t prices, const StagePlan &given,
         const SearchClock &clock)
      : isSmall(groupsOf(*stages.model, choice).size() <= fewGroups), stages(stages), choice(choice),
        pricesLeft(prices), given(given), clock(clock) {}

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
    std::optional<Mix> mix = priced(other, infinity);
    return mix && mix->seconds() < seconds * (1 - leastGain);
  }

  // The fastest that was found for these two stages, if one is faster than `worth` seconds; `model`: of the plan to
  // improve.
  std::optional<Mix> mix(const SplitModel &model, int lower, int upper, double worth) {
    SplitModel mixed = model;
    mixed.setting.zero = upper;
    mixed.setting.lowerZero = lower;
    mixed.lowers.edit().assign(model.problem->tensors.size(), false);
    std::optional<Mix> best = priced(mixed, stages.memoryLimit, worth, true);
    if (!best || !best->evaluation.fits) return std::nullopt;
    const std::vector<int> tensors = groupsOf(mixed, choice);
    if (isSmall) return bestOfAll(tensors, std::move(*best), worth);
    // The seconds that each group by itself gains for each byte that it takes.
    struct Group {
      int tensor;
      double gain;
    };
    std::vector<Group> groups;
    for (int tensor : tensors) {
      std::optional<Mix> one = withLowered(*best, tensor);
      if (!one) return best;
      const double saved = best->seconds() - one->seconds(), bytes = std::max(1.0, one->bytes() - best->bytes());
      // The time of one that does not fit by itself is not known: it comes last.
      groups.push_back({tensor, one->evaluation.fits ? saved / bytes : -1});
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
  // Every set of groups; `best` has none of them lowered.
  std::optional<Mix> bestOfAll(const std::vector<int> &tensors, Mix best, double worth) {
    SplitModel model = best.model;
    for (unsigned set = 1; set < 1U << tensors.size(); ++set) {
      for (size_t t = 0; t < tensors.size(); ++t) model.lowers.edit()[size_t(tensors[t])] = set & (1U << t);
      std::optional<Mix> one = priced(model, stages.memoryLimit, std::min(worth, best.seconds()));
      if (!one) break;
      if (one->evaluation.fits && one->seconds() < best.seconds() * (1 - leastGain)) best = std::move(*one);
    }
    return best;
  }

  std::optional<Mix> withLowered(const Mix &mix, int tensor) {
    SplitModel model = mix.model;
    model.lowers.edit()[size_t(tensor)] = true;
    return priced(model, stages.memoryLimit);
  }

  // Nothing when no more may be priced. Where other cuts are few, only those that may take less than `worth` seconds
  // are looked at; all where nothing fits otherwise and it is asked for.
  std::optional<Mix> priced(const SplitModel &model, double limit, double worth = infinity, bool anyThatFits = false) {
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
    auto offer = [&](StagePlan other) {
      PlanEvaluation evaluation = evaluatePlan(problem, other);
      if (std::pair(!evaluation.fits, evaluation.predicted.stepSeconds) >=
          std::pair(!mix.evaluation.fits, mix.seconds()))
        return;
      mix.plan = std::move(other);
      mix.evaluation = std::move(evaluation);
    };
    if (problem.ranks() > 1) {
      if (std::optional<StagePlan> other = planStages(problem)) offer(std::move(*other));
      const double most = anyThatFits && !mix.evaluation.fits ? infinity : worth;
      const std::vector<TimedCut> timed =
          isSmall ? timeEachCut(problem, most, clock).value_or(std::vector<TimedCut>()) : std::vector<TimedCut>();
      if (const auto found = std::ranges::find_if(timed, &TimedCut::fits); found != timed.end())
        offer(planCut(problem, found->firstUnits));
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

void mixZero(const StageProblem &stages, const std::vector<int> &open, const std::vector<int> &choice,
             int64_t mostPrices, double worth, std::shared_ptr<SplitModel> &model, StagePlan &plan,
             PlanEvaluation &evaluation, const SearchClock &clock) {
  const StagePlan given = plan;
  const SplitModel from = *model;
  auto most = [&] { return std::min(worth, evaluation.predicted.stepSeconds); };
  Mixing mixing(stages, choice, mostPrices, given, clock);
  auto mix = [&](int lower, int upper) {
    std::optional<Mixing::Mix> found = mixing.mix(from, lower, upper, most());
    if (!found || !(found->seconds() < most() * (1 - leastGain))) return;
    model = std::make_shared<SplitModel>(std::move(found->model));
    plan = std::move(found->plan);
    evaluation = std::move(found->evaluation);
  };
  if (mixing.isSmall) {
    for (int lower : open)
      for (int upper : open)
        if (lower < upper) mix(lower, upper);
    return;
  }
  const double seconds = evaluation.predicted.stepSeconds;
  for (int other : open)
    if (other != from.setting.zero && mixing.isWanted(from, other, seconds))
      mix(std::min(other, from.setting.zero), std::max(other, from.setting.zero));
}

namespace {

// Stages are mixed in so many settings (orders of a mesh are one), with as many prices of each as make this many
// variables and microbatches; first in the best plans of so many meshes.
constexpr size_t mostMixed = 24, mostWhereOnlyBest = 6, mostOfBest = 3;
constexpr double mixingWork = 2e5;

void mixFrom(Search &search, Solution solution) {
  auto model = std::make_shared<SplitModel>(*solution.model);
  const SplitModel from = *model;
  const PricedSplit split(search.space, from, solution.choice);
  const double work = double(from.setting.microbatches * from.setting.pp) + double(solution.choice.size());
  mixZero(split.stages, openZeroStages(search.space.constraints, from.setting), solution.choice,
          int64_t(mixingWork / work), search.found.secondsOf(from.setting), model, solution.plan, solution.evaluation,
          search.clock);
  solution.model = std::move(model);
  search.found.record(std::move(solution));
}

// The fastest plan of the setting, with these shardings, that fits with one stage for all.
std::optional<Solution> uniform(const Search &search, const OpenPlan &plan) {
  std::optional<Solution> best;
  const CellVariant &variant = plan.cell->variants[plan.variant];
  for (int zero : openZeroStages(search.space.constraints, plan.setting)) {
    SplitModel model = search.cells.modelFor(*plan.cell, plan.setting);
    model.setting.zero = zero;
    const ActivityCosts &activity = search.cells.activityOf(*plan.cell, plan.variant, model);
    const StateCosts state = costState(model, variant.choice);
    const StageProblem stages = search.space.stagesOf(model, activity, state);
    std::optional<StagePlan> cut = planStages(stages);
    if (!cut || !cut->fits) continue;
    Solution solution{std::make_shared<SplitModel>(model), variant.choice, *cut, {}, plan.cell->isExact};
    solution.evaluation = evaluatePlan(stages, *cut);
    if (solution.evaluation.fits && (!best || solution.seconds() < best->seconds())) best = std::move(solution);
  }
  return best;
}

} // namespace

void mixZeroStages(Search &search) {
  FoundPlans &found = search.found;
  std::vector<Solution> best = found.fastestFirst();
  if (best.size() > mostOfBest) best.resize(mostOfBest);
  for (Solution &solution : best)
    if (mixesZeroStages(search.space.constraints, solution.model->setting) && !search.clock.isOver())
      mixFrom(search, std::move(solution));
  std::vector<OpenPlan> &open = search.trials.mixes;
  for (OpenPlan &plan : open) {
    bool wantsLeaner = false;
    if (plan.bound < found.incumbent() && !plan.cell->cutsExchanges && !search.clock.isOver())
      plan.bound =
          std::max(plan.bound, search.trials.leastOfAnyZero(plan.setting, *plan.cell, plan.variant, wantsLeaner));
  }
  std::ranges::stable_sort(open, {}, &OpenPlan::bound);
  std::vector<Setting> mixed;
  const size_t most = search.space.options.onlyBest ? mostWhereOnlyBest : mostMixed;
  for (const OpenPlan &plan : open) {
    if (plan.bound >= found.incumbent() || mixed.size() == most || search.clock.isOver()) break;
    auto isSame = [&](const Setting &other) {
      return sameMesh(other, plan.setting) && other.microbatches == plan.setting.microbatches &&
             other.schedule == plan.setting.schedule;
    };
    if (std::ranges::any_of(mixed, isSame)) continue;
    mixed.push_back(plan.setting);
    if (std::optional<Solution> from = uniform(search, plan)) mixFrom(search, std::move(*from));
  }
}

} // namespace cleave::planner
