// The costs that the search prices once for many settings, against pricing it anew for each.
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/space/cells.h"
#include "compiler/planner/search/space/setting_trials.h"
#include "compiler/planner/search/space/settings.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <gmock/gmock.h>
#include <random>

namespace cleave::planner {
namespace {

std::vector<double> numbersOf(const Cost &unit) {
  return {unit.kept,          unit.held,           unit.keptOnHost,    unit.largestLeaving,
          unit.transient,     unit.keptOfLast,     unit.sums,          unit.combined,
          unit.workspace,     unit.beside,         unit.unitsAgain,    unit.forward,
          unit.backwardInput, unit.backwardWeight, unit.communication, unit.communicationForward,
          unit.again,         unit.waiting};
}

void expectSame(const ActivityCosts &known, const ActivityCosts &own, const std::string &where) {
  ASSERT_EQ(known.kinds.size(), own.kinds.size());
  for (size_t kind = 0; kind < own.kinds.size(); ++kind)
    for (size_t how = 0; how < 3; ++how) {
      const std::vector<double> a = numbersOf(known.kinds[kind][how]), b = numbersOf(own.kinds[kind][how]);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_NEAR(a[i], b[i], 1e-9 * std::abs(b[i]))
            << where << " kind " << kind << " way " << how << " number " << i;
    }
  EXPECT_EQ(known.forwardCrossing, own.forwardCrossing) << where;
  EXPECT_EQ(known.backwardCrossing, own.backwardCrossing) << where;
  EXPECT_EQ(known.passing, own.passing) << where;
}

// Layers with a constant each.
Problem deep(int layers) {
  testing::ProblemBuilder b("deep", 64);
  int x = b.input("x", {64, 128});
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = "layer" + std::to_string(layer);
    const int scale = b.input(at + "/scale", {128}, TensorKind::Constant);
    x = b.op(at + "/up", "Contract", "bk,kn->bn", {x, b.parameter(at + ".weight", {128, 128})});
    x = b.op(at + "/scaled", "Mul", "bn,n->bn", {x, scale});
  }
  b.op("loss", "ReduceSum", "bn->b", {x});
  return b.problem;
}

TEST(Cells, AModelIsNoLargerForMoreRepetitions) {
  const Constraints constraints;
  const Problem few = deep(6), many = deep(24);
  const ProblemFacts ofFew = gatherFacts(few, Device(), constraints), ofMany = gatherFacts(many, Device(), constraints);
  EXPECT_EQ(ofFew.structure->variables.size(), ofMany.structure->variables.size());
  EXPECT_EQ(ofFew.structure->flows.size(), ofMany.structure->flows.size());
  double tensors = 0; // each is in one of them
  for (const Flow &flow : ofMany.structure->flows) tensors += flow.count;
  EXPECT_EQ(tensors, many.tensors.size());
}

// A search that asks for the best alone leaves out runners-up, not what may be the best.
TEST(Cells, TheBestAloneIsTheBestOfAll) {
  for (const char *on : {"a100-80g:8x8", "v100-16g:4x8"})
    for (int64_t layers : {8, 20}) {
      const Problem problem = testing::gpt({256, 256, 2048, 16, layers, 4096});
      Result<Cluster> cluster = parseCluster(on);
      ASSERT_TRUE(cluster);
      const Constraints constraints;
      const ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
      SearchOptions options{.certifies = false};
      const Outcome all = searchSettings(problem, facts, *cluster, constraints, options);
      options.onlyBest = true;
      const Outcome alone = searchSettings(problem, facts, *cluster, constraints, options);
      ASSERT_TRUE(all.best && alone.best) << on;
      EXPECT_NEAR(alone.best->seconds(), all.best->seconds(), 1e-9 * all.best->seconds()) << on << " " << layers;
      EXPECT_LE(alone.byMesh.size(), all.byMesh.size());
    }
}

// Settings of one cell have other batch axes, stages, microbatches and ZeRO stages.
TEST(Cells, WhatIsPricedOnceIsWhatEachSettingCosts) {
  size_t asked = 0, priced = 0;
  for (const char *like : {"", "megatron-2021", "megatron-sp"})
    for (const char *on : {"a100-80g:4x4", "cpu:8"}) {
      const Problem problem = testing::gpt({32, 64, 128, 8, 4, 512});
      Result<Cluster> cluster = parseCluster(on);
      ASSERT_TRUE(cluster);
      Result<Constraints> constraints = parseConstraints({.like = like}, *cluster);
      ASSERT_TRUE(constraints) << constraints.status().message();
      for (std::optional<int64_t> *size : {&constraints->dp, &constraints->tp, &constraints->pp}) size->reset();
      const ProblemFacts facts = gatherFacts(problem, cluster->device, *constraints);
      Cells cells(problem, facts, *cluster, *constraints);
      for (Setting setting : openSettings(problem, facts, *cluster, *constraints, true)) {
        Cell &cell = cells.at(setting);
        cells.solve(cell);
        for (int zero : openZeroStages(*constraints, setting))
          for (size_t v = 0; v < cell.variants.size(); ++v) {
            setting.zero = zero;
            const SplitModel model = cells.modelFor(cell, setting);
            const size_t before = cell.variants[v].activities.size();
            const ActivityCosts &known = cells.activityOf(cell, v, model);
            priced += cell.variants[v].activities.size() > before;
            ++asked;
            expectSame(known, costActivity(model, cell.variants[v].choice), setting.str() + " " + like + " " + on);
            if (HasFailure()) return;
          }
      }
    }
  EXPECT_GT(asked, 5 * priced);
}

// Pins and presets leave every operation a way that takes what a neighbour may have: no split of a model contradicts
// itself.
TEST(Cells, EveryOperationHasAWayThatGoesWithItsNeighbours) {
  std::mt19937 random(7);
  const Problem problem = testing::gpt({8, 32, 60, 6, 2, 90}); // not everything divides
  int built = 0;
  for (int round = 0; round < 200; ++round) {
    const char *likes[] = {"", "megatron-2021", "megatron-sp", "ddp", "zero3"};
    Result<Cluster> cluster = parseCluster(round % 2 ? "cpu:6" : "a100-80g:1x8");
    ASSERT_TRUE(cluster);
    Result<Constraints> constraints = parseConstraints({.like = likes[random() % 5]}, *cluster);
    ASSERT_TRUE(constraints);
    for (int pins = int(random() % 4); pins > 0; --pins) {
      const Tensor &tensor = problem.tensors[random() % problem.tensors.size()];
      Pin pin{"", tensor.name, std::vector<dist::Axes>(tensor.dims.size())};
      if (!pin.dims.empty() && random() % 3) pin.dims[random() % pin.dims.size()] = {"tp"};
      constraints->pins.push_back(pin);
    }
    const ProblemFacts facts = gatherFacts(problem, cluster->device, *constraints);
    Setting setting;
    setting.tp = int64_t(1) + int64_t(random() % 4);
    Result<SplitModel> model = buildModel(problem, facts, *cluster, *constraints, setting);
    if (!model) continue; // a pin that nothing can follow
    ++built;
    for (const Variable &variable : model->variables) {
      if (variable.isHome) continue;
      EXPECT_TRUE(std::ranges::any_of(variable.candidates, [](const Candidate &candidate) {
        return std::ranges::none_of(candidate.uses, [](const Use &use) { return use.layout == partialSum; });
      })) << problem.nodes[size_t(variable.index)].name;
    }
    EXPECT_LT(InnerProblem(*model).fastest().value, std::numeric_limits<double>::infinity()) << "round " << round;
  }
  EXPECT_GT(built, 100);
}

// Every layer reads all layers before it: many of them are too wide to eliminate.
Problem denselyConnected(int layers) {
  testing::ProblemBuilder b("dense", 16);
  std::vector<int> made = {b.input("x", {16, 8, 8})};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = "layer" + std::to_string(layer);
    std::string subscripts;
    for (size_t i = 0; i < made.size(); ++i) subscripts += i == 0 ? "bsk" : ",bsk";
    const int sum = b.op(at + "/sum", "Sum", subscripts + "->bsk", made);
    made.push_back(b.op(at + "/up", "Contract", "bsk,kh->bsh", {sum, b.parameter(at + ".w", {8, 8})}));
  }
  b.op("loss", "Sum", "bsh->", {made.back()});
  return b.problem;
}

// Where no choice goes with its neighbours', or improvement in turns finds none, a search ends with a reason.
TEST(Cells, WithoutAnyChoiceTheSearchSaysSo) {
  for (int layers : {2, 24}) {
    const Problem problem = denselyConnected(layers);
    Result<Cluster> cluster = parseCluster("cpu:4");
    ASSERT_TRUE(cluster);
    Constraints constraints;
    constraints.tp = 4;
    const ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
    Cells cells(problem, facts, *cluster, constraints);
    const std::vector<Setting> settings = openSettings(problem, facts, *cluster, constraints, true);
    ASSERT_FALSE(settings.empty());
    for (const Setting &setting : settings) {
      Cell &cell = cells.at(setting);
      ASSERT_TRUE(cell.model) << cell.reason.message();
      auto model = std::make_shared<SplitModel>(*cell.model);
      for (Variable &variable : model->variables.edit())
        if (!variable.isHome && problem.nodes[size_t(variable.index)].name == "layer1/up")
          for (Candidate &candidate : variable.candidates) candidate.uses[1].layout = partialSum; // of a parameter
      cell.model = model;
    }
    const SearchOptions options;
    const Outcome outcome = searchSettings(problem, facts, *cluster, constraints, options, cells);
    EXPECT_EQ(cells.at(settings[0]).isExact, layers == 2);
    EXPECT_FALSE(outcome.best);
    EXPECT_FALSE(outcome.leastMemory);
    EXPECT_EQ(outcome.reason.exitStatus(), int(ErrorKind::NoFit));
    EXPECT_THAT(outcome.reason.message(), ::testing::HasSubstr("no split of dense was found"));

    SearchSpace space(problem, facts, *cluster, constraints, options);
    FoundPlans found(options);
    const SearchClock clock;
    SettingTrials trials(space, cells, found, clock);
    trials.offer(*cells.at(settings[0]).model, {});
    EXPECT_FALSE(found.hasAny());
  }
}

} // namespace
} // namespace cleave::planner
