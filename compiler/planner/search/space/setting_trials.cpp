#include "compiler/planner/search/space/setting_trials.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// With at most so many open operations in all settings together, pipelines try each way to split each of them.
constexpr size_t mostForced = 1000;
// Where a step waits longer than such a part of it for gradients, parameters in more parts may be better: they have
// less to reduce, which a microbatch's own time does not show. (Without pipeline the inner problem knows the whole
// step.) Not where a preset says how they lie: Megatron-LM's do not.
constexpr double worthReducing = 0.02;

bool isReducing(const StageProblem &stages, double seconds) {
  const SplitModel &model = *stages.model;
  return model.setting.pp > 1 && !model.onlyAllReduces && leastNotHidden(stages) > worthReducing * seconds;
}

} // namespace

// Does trying it settle every split of its operations?
bool SettingTrials::isSettledBy(const Setting &setting, const SplitModel &model) const {
  if (setting.pp > 1) return space.coversAllSplits(model);
  return solvesSplits(setting, model) && space.openWays().size() == 1;
}

// Without pipeline, where the space is small, all ways to split the operations are solved for together. Blocks that are
// computed again in different ways are not.
bool SettingTrials::solvesSplits(const Setting &setting, const SplitModel &model) const {
  return setting.pp == 1 && space.isSmall() && space.constraints.recomputeOf.empty() && space.openOperations(model) > 0;
}

Status SettingTrials::trySetting(const Setting &setting, Cell &cell, double known) {
  if (cell.variants.empty()) { // that none was found need not mean that there is none
    bound = std::min(bound, known);
    return cell.reason;
  }
  if (Status given = space.givenRecomputation(setting).status(); !given) return given;
  if (setting.pp > 1 && !space.profileOf(setting)) { // no table for so many microbatches
    if (Status refusal = space.refusalOf(setting); !refusal) refusals.insert(refusal.message());
    return Status::ok();
  }
  double fastest = infinity; // of all ZeRO stages
  SplitModel model = cells.modelFor(cell, setting);
  std::vector<Recompute> ways = space.openWays();
  const bool isSettled = isSettledBy(setting, model), isSolved = solvesSplits(setting, model);
  if (setting.pp > 1 && isSettled && space.settings.size() * size_t(space.openOperations(model)) <= mostForced)
    cells.addForced(cell);
  const std::vector<int> zeros = openZeroStages(space.constraints, setting);
  std::vector<double> least;             // of each variant
  auto leave = [&](size_t v, int zero) { // too slow with any ZeRO stage
    if (isSettled || isSolved) return false;
    if (v == least.size()) least.push_back(leastOfVariant(setting, cell, v, zeros));
    const bool isLeft = least[v] >= std::max(worthPlanning(setting), found.worthTrying());
    candidates += isLeft && zero == zeros.front();
    return isLeft;
  };
  for (int zero : zeros) {
    if (clock.isOver() && (found.best || space.options.worth < infinity)) {
      bound = std::min(bound, known);
      return Status::ok();
    }
    model.setting.zero = zero;
    double ofStage = infinity;
    for (size_t v = 0; v < cell.variants.size(); ++v) {
      if (leave(v, zero)) continue;
      std::vector<int> choice = cell.variants[v].choice;
      StateCosts state = costState(model, choice);
      bool isTight = false; // the fastest variant recomputes, or does not fit: leaner ones may be better
      bool wantsLeaner = false;
      double cheap = infinity;
      // Once plans are known only what fits is of interest: what a microbatch costs need not be known of others.
      if (found.worthTrying() < infinity && !hasRoomForState(model, state, space.memoryLimit, setting.pp))
        ++candidates;
      else {
        const StageProblem stages = space.stagesOf(model, cells.activityOf(cell, v, model), state);
        cheap = tryPlan(stages, choice, cell.isExact, isTight);
        wantsLeaner =
            v == 0 && !cell.hasLeaner && !isSettled && isReducing(stages, std::min(known, found.worthTrying()));
      }
      ofStage = std::min(ofStage, cheap);
      if ((!isSettled || setting.pp > 1) && cheap < found.worthTrying())
        open.push_back({cheap, model.setting, &cell, v});
      if (v == 0 && (isTight || wantsLeaner)) cells.addLeaner(cell);
    }
    if (isSolved) {
      const double exact = solveExactly(model, ways);
      if (isSettled) ofStage = exact;
    }
    fastest = std::min(fastest, ofStage);
  }
  if (mixesZeroStages(space.constraints, setting))
    for (size_t v = 0; v < cell.variants.size(); ++v)
      mixes.push_back({v < least.size() ? std::max(known, least[v]) : known, setting, &cell, v});
  if (isSolved && isSettled) bound = std::min(bound, fastest);
  return Status::ok();
}

double SettingTrials::leastOfVariant(const Setting &setting, Cell &cell, size_t variant,
                                     const std::vector<int> &zeros) {
  if (zeros.size() == 1 || cell.cutsExchanges || found.worthTrying() == infinity) return 0;
  bool wantsLeaner = false;
  const double least = leastOfAnyZero(setting, cell, variant, wantsLeaner);
  if (variant == 0 && !cell.hasLeaner && wantsLeaner) cells.addLeaner(cell);
  return least;
}

namespace {

// Activations whose room gradients take (Cost::inRoom) are fewer where these are cut.
void takeLeastBytes(ActivityCosts &costs, const ActivityCosts &others) {
  for (size_t kind = 0; kind < costs.kinds.size(); ++kind)
    for (size_t how = 0; how < everyRecompute.size(); ++how) {
      Cost &one = costs.kinds[kind][how];
      const Cost &other = others.kinds[kind][how];
      one.kept = std::min(one.kept, other.kept);
      one.beside = std::min(one.beside, other.beside);
    }
}

} // namespace

// With the bytes of the highest ZeRO stage and what a microbatch costs with the lowest, which are the least.
double SettingTrials::leastOfAnyZero(const Setting &setting, Cell &cell, size_t variant, bool &wantsLeaner) const {
  const std::vector<int> zeros = openZeroStages(space.constraints, setting);
  SplitModel model = cells.modelFor(cell, setting);
  model.setting.zero = zeros.front();
  ActivityCosts activity = cells.activityOf(cell, variant, model);
  const double ofStep = stepPrice(model).exposed;
  model.setting.zero = zeros.back();
  if (!setting.addsUpGradients()) takeLeastBytes(activity, cells.activityOf(cell, variant, model));
  const StateCosts state = costState(model, cell.variants[variant].choice, ofStep);
  bool isTight = false;
  const StageProblem stages = space.stagesOf(model, activity, state);
  const double least = leastOfAnyStage(stages, worthPlanning(setting), isTight);
  wantsLeaner = isTight || isReducing(stages, found.worthTrying());
  return least;
}

double SettingTrials::tryPlan(const StageProblem &stages, const std::vector<int> &choice, bool isExact, bool &isTight) {
  ++candidates;
  const Setting &setting = stages.model->setting;
  std::optional<StagePlan> plan = planStages(stages, {worthPlanning(setting), worthCutting(setting)});
  if (!plan) return infinity;
  if (plan->isPruned) {
    isTight = plan->isTight;
    return plan->bound;
  }
  isTight = !plan->fits || (!stages.recompute && std::ranges::any_of(plan->recompute, [&](Recompute how) {
    return how != stages.allowed.front();
  }));
  consider(stages, choice, isExact, *plan);
  return plan->bound;
}

// Times the best plan: others that are slower are left.
double SettingTrials::worthKeeping(const Setting &setting) const {
  if (setting.pp == 1) return openZeroStages(space.constraints, setting).size() > 1 ? worthMixing : worthImproving;
  return space.options.onlyBest && !space.isSmall() ? worthRefining : worthImproving;
}

// Seconds: plans that are not faster are of no interest.
double SettingTrials::worthPlanning(const Setting &setting) const {
  return std::min(found.secondsOf(setting), worthKeeping(setting) * found.worthTrying());
}

// Seconds by formula: plans that are not faster are not simulated. A setting that is no candidate for the best plan has
// to be faster than its mesh's best by the formula already.
double SettingTrials::worthCutting(const Setting &setting) const {
  const double best = found.worthTrying(), ofMesh = found.secondsOf(setting);
  const double worth = space.isSmall() ? worthImproving * ofMesh : std::max(ofMesh, worthSimulating * best);
  return space.options.onlyBest ? std::min(worth, worthKeeping(setting) * best) : worth;
}

void SettingTrials::tryCuts(const StageProblem &stages, const std::vector<int> &choice, bool isExact,
                            const std::vector<TimedCut> &cuts) {
  if (!stages.firstUnits.empty()) return;
  for (const TimedCut &cut : cuts) {
    if (&cut != &cuts.front() && clock.isOver()) return;
    StagePlan plan = planCut(stages, cut.firstUnits);
    if (cut.fits) plan.seconds = cut.seconds; // the formula knows little of uneven chunks
    consider(stages, choice, isExact, plan);
  }
}

// Simulates a plan that may be the best of its mesh, or the one that needs least memory while nothing fits.
void SettingTrials::consider(const StageProblem &stages, const std::vector<int> &choice, bool isExact,
                             const StagePlan &plan) {
  if (plan.fits && plan.seconds >= worthCutting(stages.model->setting)) return;
  bool isLeaner = !found.leastMemory || plan.bytes < found.leastMemory->plan.bytes;
  if (!plan.fits && (found.best || !isLeaner)) return;
  if (plan.fits && plan.bound >= found.worthTrying() &&
      plan.seconds >= worthKeeping(stages.model->setting) * found.worthTrying())
    return;
  Solution solution{std::make_shared<SplitModel>(*stages.model), choice, plan, {}, isExact};
  solution.evaluation = evaluatePlan(stages, plan);
  // The bytes that the simulated schedule holds beyond the formula of the cut are left free.
  StageProblem tighter = stages;
  tighter.firstUnits = plan.firstUnits;
  for (int round = 0; round < 4 && solution.plan.fits && !solution.evaluation.fits; ++round) {
    tighter.memoryLimit -= (solution.bytes() - stages.memoryLimit) * (1 + 1e-9);
    std::optional<StagePlan> leaner = planStages(tighter);
    if (!leaner) break;
    solution.plan = std::move(*leaner);
    solution.evaluation = evaluatePlan(stages, solution.plan);
  }
  found.record(std::move(solution));
}

// Without pipeline the inner problem knows the whole step: hidden reductions and the memory too. Returns a bound.
double SettingTrials::solveExactly(SplitModel &model, const std::vector<Recompute> &ways) {
  double least = infinity;
  for (Recompute how : ways) {
    model.setting.recompute = how;
    const Assignment assignment = InnerProblem(model).solve(space.memoryLimit, found.incumbent(), clock);
    least = std::min(least, std::max(assignment.bound, leastPassSeconds(model, how) + leastUpdateSeconds(model)));
    if (assignment.isPruned || assignment.choice.empty()) continue;
    offer(model, assignment);
    model.setting.recompute = Recompute::None;
    if (ways.size() > 1) openBlocks(model, assignment);
  }
  model.setting.recompute = Recompute::None;
  return least;
}

// The same split with blocks computed again in different ways.
void SettingTrials::openBlocks(const SplitModel &model, const Assignment &assignment) {
  const PricedSplit split(space, model, assignment.choice);
  bool isTight = false;
  bound = std::min(bound, tryPlan(split.stages, assignment.choice, assignment.isExact, isTight));
}

void SettingTrials::offer(const SplitModel &model, const Assignment &assignment) {
  if (assignment.choice.empty()) return; // none was found
  Solution solution{std::make_shared<SplitModel>(model), assignment.choice, {}, {}, assignment.isExact};
  PricedSplit split(space, model, assignment.choice);
  StageProblem &stages = split.stages;
  stages.recompute = model.setting.recompute;
  std::optional<StagePlan> plan = planStages(stages);
  if (!plan) return;
  solution.plan = std::move(*plan);
  solution.evaluation = evaluatePlan(stages, solution.plan);
  found.record(std::move(solution));
}

} // namespace cleave::planner
