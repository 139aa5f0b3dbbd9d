#include "compiler/planner/search/space/cells.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

// The parts by which a step's time may grow to save all of the memory, for the splits between the fastest and the
// leanest.
constexpr double memoryPrices[] = {0.05, 0.5, 5};

bool cutsExchanges(const SplitModel &model) {
  auto isCut = [](const Exchange &exchange) { return exchange.isCut; };
  return std::ranges::any_of(model.variables, [&](const Variable &variable) {
    return std::ranges::any_of(variable.candidates, [&](const Candidate &candidate) {
      return std::ranges::any_of(candidate.exchanges, isCut);
    });
  });
}

} // namespace

Cell &Cells::at(const Setting &setting) {
  Placement placement = microbatchPlacement(cluster, setting);
  const Key key = {setting.tp,
                   setting.cp,
                   setting.ep,
                   setting.localSamples(problem.batch),
                   setting.batchDivides,
                   setting.batchWays() > 1,
                   placement};
  auto [found, isNew] = cells.try_emplace(key);
  Cell &cell = found->second;
  if (!isNew) return cell;
  // The time of collectives over tp is no part of a model, but on a grid.
  Key built = key;
  if (setting.grid == TensorGrid::None) std::get<Placement>(built)[size_t(Axis::Tensor)] = {};
  auto [same, isFirst] = models.try_emplace(built, nullptr);
  if (isFirst) {
    Result<SplitModel> model = buildModel(problem, facts, cluster, constraints, setting, likeOf[setting.cp].get());
    if (model)
      likeOf[setting.cp] = same->second = std::make_shared<SplitModel>(std::move(*model));
    else
      cell.reason = model.status();
  }
  if (!same->second) {
    cell.secondsBound = infinity;
    return cell;
  }
  cell.model = same->second;
  if (!isFirst) cell.model = std::make_shared<SplitModel>(modelFor(cell, setting));
  cell.cutsExchanges = cutsExchanges(*cell.model);
  cell.secondsBound = leastPassSeconds(*cell.model, Recompute::None) / double(cell.model->setting.microbatches);
  return cell;
}

namespace {

// The model that a cell's shardings are chosen by: the setting with nothing that only counts once a step or for a
// pipeline.
SplitModel plainModel(const Cell &cell) {
  SplitModel model = *cell.model;
  model.setting.zero = 0;
  model.setting.recompute = Recompute::None;
  model.setting.pp = 1;
  model.setting.schedule = "none";
  // Settings with other batch axes share the cell. All ways to split an operation have these exchanges nearly alike.
  auto ofBatch = [](const Exchange &exchange) { return exchange.isOverBatch(); };
  auto hasSome = [&](const Variable &variable) {
    return !variable.candidates.empty() && std::ranges::any_of(variable.candidates[0].exchanges, ofBatch);
  };
  if (std::ranges::any_of(model.variables, hasSome))
    for (Variable &variable : model.variables.edit())
      for (Candidate &candidate : variable.candidates) std::erase_if(candidate.exchanges, ofBatch);
  return model;
}

// Nothing where no choice is allowed, or none was found.
void add(Cell &cell, Minimum minimum) {
  if (minimum.value == infinity) return;
  for (const CellVariant &variant : cell.variants)
    if (variant.choice == minimum.assignment) return;
  const bool ofBatch = dependsOnBatchWays(*cell.model, minimum.assignment);
  cell.variants.push_back({std::move(minimum.assignment), ofBatch, {}});
}

// The most seconds of the exchanges of gradients that ZeRO cuts, where it does not: with it they take less.
double mostCutSeconds(const SplitModel &model) {
  double seconds = 0;
  for (const Variable &variable : model.variables) {
    double most = 0;
    for (const Candidate &candidate : variable.candidates) {
      double sum = 0;
      for (const Exchange &exchange : candidate.exchanges)
        if (exchange.isCut)
          sum += collectiveSeconds(*model.cluster, exchange.collective, exchange.group, exchange.bytes) *
                 (exchange.forward + exchange.backward);
      most = std::max(most, sum);
    }
    seconds += most * double(variable.count);
  }
  return seconds;
}

} // namespace

void Cells::solve(Cell &cell) {
  if (cell.isSolved || !cell.model) return;
  cell.isSolved = true;
  SplitModel model = plainModel(cell);
  InnerProblem inner(model, &plans);
  Minimum fastest = inner.fastest();
  cell.isExact = inner.wasExact();
  // Where the preset's wish for all-reduces could not be met, its weight is part of the minimum.
  const Cost cost = evaluate(model, fastest.assignment).cost;
  const double seconds = cost.seconds() + cost.update + cost.exposed;
  const double onceAStep = inner.mostUpdateSeconds() + mostCutSeconds(model);
  cell.secondsBound =
      std::max(cell.secondsBound, (std::min(fastest.bound, seconds) - onceAStep) / double(model.setting.microbatches));
  cell.fastestValue = fastest.value;
  add(cell, std::move(fastest));
  if (cell.variants.empty())
    cell.reason = {ErrorKind::NoFit,
                   fmt::format("on mesh {} no split of {} was found in which all operations go with their neighbours{}",
                               model.setting.mesh().str(), problem.name.empty() ? "the model" : problem.name,
                               constraints.str().empty() ? "" : "; asked for: " + constraints.str())};
}

void Cells::addLeaner(Cell &cell) {
  if (cell.hasLeaner || cell.variants.empty()) return;
  cell.hasLeaner = true;
  SplitModel model = plainModel(cell);
  InnerProblem inner(model, &plans);
  double memory = evaluate(model, cell.variants[0].choice).predicted.memory.total();
  for (double price : memoryPrices) add(cell, inner.weighted(price * cell.fastestValue / std::max(1.0, memory)));
  add(cell, inner.leanest());
}

void Cells::addForced(Cell &cell) {
  if (cell.hasForced || cell.variants.empty()) return;
  cell.hasForced = true;
  const SplitModel plain = plainModel(cell);
  for (size_t v = 0; v < plain.variables.size(); ++v) {
    const std::vector<Candidate> &all = plain.variables[v].candidates;
    for (size_t c = 0; c < all.size() && all.size() > 1; ++c) {
      SplitModel model = plain;
      model.variables.edit()[v].candidates = {all[c]};
      Minimum minimum = InnerProblem(model).fastest();
      minimum.assignment[v] = int(c);
      add(cell, std::move(minimum));
    }
  }
}

SplitModel Cells::modelFor(const Cell &cell, const Setting &setting) const {
  SplitModel model = *cell.model;
  model.setting = setting;
  return model;
}

const ActivityCosts &Cells::activityOf(Cell &cell, size_t variant, const SplitModel &model) const {
  CellVariant &of = cell.variants[variant];
  const Setting &setting = model.setting;
  // The last microbatch's kept activations count for more, the fewer microbatches there are.
  const GroupShape group = of.ofBatchWays ? setting.group(cluster, setting.batchSet()) : GroupShape{};
  const int64_t microbatches = setting.exceptLast ? setting.microbatches : 0;
  const int64_t shards = cell.cutsExchanges && setting.zero >= 1 ? setting.zeroWays() : 1;
  const int64_t sums = setting.zero >= 2 ? setting.zeroWays() : 0; // parts of a gradient's sum
  auto [found, isNew] =
      of.activities.try_emplace({group, microbatches, setting.pp > 1, setting.addsUpGradients(), sums, shards});
  if (isNew) found->second = costActivity(model, of.choice);
  return found->second;
}

} // namespace cleave::planner
