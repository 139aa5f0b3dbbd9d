#include "compiler/planner/cells.h"
#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <string_view>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
// What a step's time may grow by to save all of the memory, for the splits between the fastest and the leanest.
constexpr double memoryPrices[] = {0.05, 0.5, 5};

} // namespace

Status Cells::nothingAllowed(const InnerProblem &inner, const Setting &setting) const {
  std::string where = inner.contradiction(), asked = constraints.like.empty() ? "" : "--like " + constraints.like;
  for (const Pin &pin : constraints.pins) asked += (asked.empty() ? "--pin " : ", --pin ") + pin.text;
  if (constraints.like.empty() && constraints.sequenceSplit == SequenceSplit::On)
    asked += asked.empty() ? "--sequence-parallel" : ", --sequence-parallel";
  return {ErrorKind::NoFit,
          fmt::format("{} on mesh {} leaves {} no split that fits what its neighbours make and read; choose another "
                      "--mesh, or leave it out",
                      asked.empty() ? "the model" : asked, setting.mesh().str(),
                      where.empty() ? "some operation" : where)};
}

Cell &Cells::at(const Setting &setting) {
  auto [found, isNew] = cells.try_emplace({setting.tp, setting.cp, setting.ep, setting.localSamples(problem.batch),
                                           setting.batchDivides, setting.batchWays() > 1});
  Cell &cell = found->second;
  if (!isNew) return cell;
  Result<SplitModel> model = buildModel(problem, facts, cluster, constraints, setting);
  if (!model) {
    cell.reason = model.status();
    cell.secondsBound = infinity;
    return cell;
  }
  cell.secondsBound = leastPassSeconds(*model, Recompute::None) / double(setting.microbatches);
  cell.model = std::make_shared<SplitModel>(std::move(*model));
  return cell;
}

namespace {

// What a cell's shardings are chosen by: the setting with nothing that only counts once a step or for a pipeline.
SplitModel plainModel(const Cell &cell) {
  SplitModel model = *cell.model;
  model.setting.zero = 0;
  model.setting.recompute = Recompute::None;
  model.setting.pp = 1;
  model.setting.schedule = "none";
  return model;
}

void add(Cell &cell, const SplitModel &model, Result<Minimum> minimum) {
  if (!minimum || minimum->value == infinity) return;
  for (const CellVariant &variant : cell.variants)
    if (variant.choice == minimum->assignment) return;
  ActivityCosts activity = costActivity(model, minimum->assignment);
  cell.variants.push_back({std::move(minimum->assignment), std::move(activity)});
}

} // namespace

void Cells::solve(Cell &cell) {
  if (cell.isSolved || !cell.model) return;
  cell.isSolved = true;
  SplitModel model = plainModel(cell);
  InnerProblem inner(model, 0);
  Result<Minimum> fastest = inner.fastest();
  if (!fastest || fastest->value == infinity) {
    cell.reason = fastest ? nothingAllowed(inner, model.setting) : fastest.status();
    cell.secondsBound = infinity;
    return;
  }
  cell.isExact = inner.wasExact();
  // Where the preset's wish for all-reduces could not be met, its weight is part of the minimum.
  Price price = evaluate(model, fastest->assignment).price;
  double seconds = price.forward + price.backward + price.update + price.exposed;
  cell.secondsBound = std::max(cell.secondsBound, (std::min(fastest->bound, seconds) - inner.mostUpdateSeconds()) /
                                                      double(model.setting.microbatches));
  cell.fastestValue = fastest->value;
  add(cell, model, std::move(fastest));
}

void Cells::addLeaner(Cell &cell) {
  if (cell.hasLeaner || cell.variants.empty()) return;
  cell.hasLeaner = true;
  SplitModel model = plainModel(cell);
  InnerProblem inner(model, 0);
  double memory = evaluate(model, cell.variants[0].choice).predicted.memory.total();
  for (double price : memoryPrices) add(cell, model, inner.weighted(price * cell.fastestValue / std::max(1.0, memory)));
  add(cell, model, inner.leanest());
}

SplitModel Cells::modelFor(const Cell &cell, const Setting &setting) const {
  SplitModel model = *cell.model;
  int64_t before = model.setting.batchWays(), ways = setting.batchWays();
  bool sameGroup = before == ways && model.setting.batchStride() == setting.batchStride();
  model.setting = setting;
  if (sameGroup) return model;
  // Collectives over the samples inside operations: the group is another, and what is gathered has more parts.
  GroupShape group = groupAlong(cluster, ways, setting.batchStride());
  for (Variable &variable : model.variables.edit())
    for (Candidate &candidate : variable.candidates)
      for (Exchange &exchange : candidate.exchanges) {
        if (std::string_view(exchange.axis) != "batch") continue;
        exchange.group = group;
        if (exchange.collective != Collective::AllReduce) exchange.bytes *= double(ways) / double(before);
      }
  return model;
}

} // namespace cleave::planner
