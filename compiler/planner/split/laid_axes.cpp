#include "compiler/planner/split/laid_axes.h"
#include "compiler/planner/split/laying.h"
#include "compiler/planner/split/pricing.h"
#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cleave::planner {
namespace {

bool isAmong(const dist::Axes &axes, const std::string &axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

void dropAxes(dist::Sharding &sharding, const dist::Axes &axes) {
  for (dist::Axes &dim : sharding.dims)
    std::erase_if(dim, [&](const std::string &axis) { return isAmong(axes, axis); });
  std::erase_if(sharding.partial, [&](const std::string &axis) { return isAmong(axes, axis); });
}

// Prices the changes of layout of one model and puts them where they happen.
class Exchanges {
public:
  Exchanges(SplitModel &model, const ProblemFacts &facts)
      : model(model), facts(facts), problem(*model.problem), mesh(model.setting.mesh()),
        batchAxes(model.setting.batchAxes()), lies(model.laidHomes) {}

  void run() {
    std::vector<Made> ofVariable(model.variables.size());
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const size_t v = size_t(model.variableOfNode[i]);
      // The first repetition may find its operands as it wants them, or bring them there for those behind it, which
      // are like the second.
      const int repetition = facts.places[i].repetition, count = model.variables[v].count;
      if (repetition > 1) continue;
      part = count == 1 ? 1 : double(repetition == 0 ? 1 : count - 1) / double(count);
      const Made one = exchangesOf(i);
      Made &all = ofVariable[v];
      all.exchanges.insert(all.exchanges.end(), one.exchanges.begin(), one.exchanges.end());
      all.values = std::max(all.values, one.values);
      all.gradients = std::max(all.gradients, one.gradients);
    }
    for (size_t v = 0; v < ofVariable.size(); ++v)
      for (Candidate &candidate : model.variables.edit()[v].candidates) {
        const Made &made = ofVariable[v];
        candidate.exchanges.insert(candidate.exchanges.end(), made.exchanges.begin(), made.exchanges.end());
        candidate.values += made.values;
        candidate.gradients += made.gradients;
      }
  }

private:
  // The exchanges of an operation. Bytes of activations: as it has them in hand, beside how they lie between
  // operations.
  struct Made {
    std::vector<Exchange> exchanges;
    double values = 0, gradients = 0; // forward and backward pass
  };

  Made exchangesOf(size_t i) {
    const Node &node = problem.nodes[i];
    dist::FactorSharding split = laidSplit(model, int(i));
    Made made;
    for (size_t o = 0; o < node.operands.size(); ++o) {
      size_t t = size_t(node.operands[o]);
      const Tensor &tensor = problem.tensors[t];
      bool isParameter = tensor.kind == TensorKind::Parameter;
      if (!isParameter && tensor.kind != TensorKind::Activation) continue;
      dist::Sharding wanted = dist::operandSharding(node.rule, split, o);
      if (isParameter) dropAxes(wanted, batchAxes);
      if (!seen.insert({int(t), wanted.str()}).second) continue; // others want the same
      add(made, t, lies[t], wanted, 1, 0, "a split tensor is brought to the layout of an operation");
      if (!facts.needsGradient[t] || node.stopsGradient) continue;
      dist::Sharding gradient = wanted;
      for (const dist::Axes &axes : split)
        for (const std::string &axis : axes)
          if (!wanted.uses(axis) && !isAmong(batchAxes, axis)) gradient.partial.push_back(axis);
      if (isParameter && gradient.dims == lies[t].dims && gradient.partial == dist::Axes{"ep"}) {
        model.sumsOverExperts.edit()[t] = true; // together with the sum over the batch axes
        continue;
      }
      const size_t before = made.exchanges.size();
      add(made, t, gradient, lies[t], 0, 1, "gradients are brought back to the layout of their tensor");
      const bool isCut = isParameter && model.zeroDimension(int(t), whole) >= 0;
      for (size_t e = before; e < made.exchanges.size(); ++e) {
        made.exchanges[e].onceAStep = isParameter;
        made.exchanges[e].isCut = isCut && made.exchanges[e].collective == Collective::AllReduce;
      }
    }
    for (size_t r = 0; r < node.results.size(); ++r) {
      size_t t = size_t(node.results[r]);
      dist::Sharding result = dist::resultSharding(node.rule, split, r);
      std::erase_if(result.partial, [&](const std::string &axis) { return isAmong(batchAxes, axis); });
      if (result.partial.empty()) continue;
      add(made, t, result, lies[t], 1, 0, "partial results are summed up");
      result.partial.clear();
      if (facts.needsGradient[t]) add(made, t, lies[t], result, 0, 1, "gradients are brought to the operation");
    }
    return made;
  }

  void add(Made &made, size_t t, const dist::Sharding &from, const dist::Sharding &to, double forward, double backward,
           const char *why) {
    const Tensor &tensor = problem.tensors[t];
    const bool toOperation = from == lies[t];
    double bytes = tensor.bytes();
    if (facts.batchDims[t] >= 0)
      bytes *= double(problem.batch) / double(model.setting.microbatches) / double(problem.samples);
    for (const dist::Axes &axes : from.dims) bytes /= double(mesh.groupSize(axes));
    for (const dist::ReshardStep &step : dist::reshard(mesh, from, to)) {
      double now = bytes, n = double(mesh.groupSize(step.axes));
      bytes = dist::bytesAfter(mesh, step, bytes);
      if (!areLaid(step.axes) || step.kind == Collective::OwnPart) continue;
      const AxisSet over = setOfNames(step.axes);
      const GroupShape group = model.setting.group(*model.cluster, over);
      bool again = step.kind == Collective::AllGather && forward > 0 && gathersAgain(model) &&
                   tensor.kind == TensorKind::Activation;
      Exchange exchange{.collective = step.kind,
                        .axes = over,
                        .group = group,
                        .bytes = now,
                        .forward = part * forward,
                        .backward = part * (backward + (again ? 1 : 0)),
                        .why = why,
                        .tensors = {int(t), -1, -1, -1}};
      if (step.kind == Collective::AllGather || step.kind == Collective::AllToAll) exchange.bytes *= n;
      made.exchanges.push_back(exchange);
      if (tensor.kind != TensorKind::Activation) continue;
      const double inHand = toOperation ? bytes : now;
      made.values += exchange.forward > 0 ? inHand : 0;
      made.gradients += exchange.backward > 0 ? inHand : 0;
    }
  }

  bool areLaid(const dist::Axes &axes) const { // one of them at least
    return std::ranges::any_of(model.laid, [&](const LaidAxis &axis) { return isAmong(axes, axis.name); });
  }

  SplitModel &model;
  const ProblemFacts &facts;
  const Problem &problem;
  dist::Mesh mesh;
  dist::Axes batchAxes;
  SharedTable<dist::Sharding> lies; // per tensor
  std::set<std::pair<int, std::string>> seen;
  double part = 1; // of the repetitions of an operation that those of the one at hand stand for
};

} // namespace

Result<std::vector<LaidAxis>> layAxes(const Problem &problem, const ProblemFacts &facts, const Setting &setting) {
  std::vector<LaidAxis> axes = setting.laidAxes();
  if (axes.empty()) return axes;
  Laying laying(problem, facts, setting, axes);
  if (setting.grid != TensorGrid::None)
    layGrid(laying);
  else
    CLEAVE_RETURN_IF_ERROR(layExperts(laying));
  laying.followReaders();
  laying.followOperands();
  return axes;
}

dist::FactorSharding laidSplit(const SplitModel &model, int node) {
  dist::FactorSharding split(model.problem->nodes[size_t(node)].rule.factors.size());
  if (int64_t factor = model.batchFactors[size_t(node)]; factor >= 0) split[size_t(factor)] = model.setting.batchAxes();
  for (const LaidAxis &axis : model.laid)
    if (int64_t factor = axis.factors[size_t(node)]; factor >= 0) split[size_t(factor)].push_back(axis.name);
  return split;
}

std::vector<dist::Sharding> laidLayouts(const SplitModel &model, const ProblemFacts &facts) {
  const Problem &problem = *model.problem;
  dist::Axes batchAxes = model.setting.batchAxes();
  std::vector<dist::Sharding> layouts;
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const Tensor &tensor = problem.tensors[t];
    auto asRead = [&](const std::pair<int, size_t> &reader) {
      return dist::operandSharding(problem.nodes[size_t(reader.first)].rule, laidSplit(model, reader.first),
                                   reader.second);
    };
    dist::Sharding layout = dist::Sharding::replicated(tensor.dims.size());
    if (tensor.kind == TensorKind::Parameter && !facts.readers[t].empty()) {
      layout = asRead(facts.readers[t][0]);
      dropAxes(layout, batchAxes);
    } else if (const Node *node = facts.producerOf(int(t))) {
      layout = dist::resultSharding(node->rule, laidSplit(model, facts.producers[t]), facts.resultIndex(int(t)));
      const bool isSummed =
          std::ranges::any_of(model.laid, [&](const LaidAxis &axis) { return isAmong(layout.partial, axis.name); });
      if (isSummed && !facts.readers[t].empty()) layout = asRead(facts.readers[t][0]);
      layout.partial.clear();
    }
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

void addLaidExchanges(SplitModel &model, const ProblemFacts &facts) {
  if (!model.laid.empty()) Exchanges(model, facts).run();
}

} // namespace cleave::planner
