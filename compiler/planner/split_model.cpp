#include "compiler/planner/split_model.h"
#include "compiler/planner/split_candidates.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

namespace cleave::planner {
namespace {

int64_t majorFactor(const dist::FactorRule &rule, const std::vector<int64_t> &factors) {
  for (int64_t factor : factors)
    if (rule.factors[size_t(factor)].size > 1) return factor;
  return -1;
}

// The sequence: the dimension of a matrix product with a weight that is neither the sample nor in the weight. It flows
// from there to every tensor the factor rules connect.
std::vector<int64_t> findSequenceDims(const Problem &problem, const std::vector<int64_t> &batchFactors) {
  std::vector<int64_t> dims(problem.tensors.size(), -1);
  auto mark = [&](const Node &node, int64_t factor) {
    for (size_t o = 0; o < node.operands.size(); ++o)
      for (size_t dim = 0; dim < node.rule.operands[o].size(); ++dim)
        if (majorFactor(node.rule, node.rule.operands[o][dim]) == factor && dims[size_t(node.operands[o])] < 0 &&
            problem.tensors[size_t(node.operands[o])].kind == TensorKind::Activation)
          dims[size_t(node.operands[o])] = int64_t(dim);
    for (size_t r = 0; r < node.results.size(); ++r)
      for (size_t dim = 0; dim < node.rule.results[r].size(); ++dim)
        if (majorFactor(node.rule, node.rule.results[r][dim]) == factor && dims[size_t(node.results[r])] < 0)
          dims[size_t(node.results[r])] = int64_t(dim);
  };
  for (int pass = 0; pass < 2; ++pass) { // the second reaches what stands before the first product
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[pass == 0 ? i : problem.nodes.size() - 1 - i];
      size_t index = pass == 0 ? i : problem.nodes.size() - 1 - i;
      std::set<int64_t> inWeight;
      bool hasWeight = false;
      for (size_t o = 0; o < node.operands.size(); ++o) {
        const Tensor &tensor = problem.tensors[size_t(node.operands[o])];
        if (tensor.kind != TensorKind::Parameter || tensor.dims.size() < 2 || node.cheap) continue;
        hasWeight = true;
        for (const auto &factors : node.rule.operands[o]) inWeight.insert(factors.begin(), factors.end());
      }
      for (size_t f = 0; hasWeight && f < node.rule.factors.size(); ++f)
        if (!inWeight.count(int64_t(f)) && int64_t(f) != batchFactors[index] && node.rule.factors[f].size > 1 &&
            node.rule.factors[f].kind == dist::Factor::Parallel)
          mark(node, int64_t(f));
      for (size_t o = 0; o < node.operands.size(); ++o) {
        int64_t dim = dims[size_t(node.operands[o])];
        if (dim >= 0 && !hasWeight) mark(node, majorFactor(node.rule, node.rule.operands[o][size_t(dim)]));
      }
      for (size_t r = 0; r < node.results.size(); ++r) {
        int64_t dim = dims[size_t(node.results[r])];
        if (dim >= 0) mark(node, majorFactor(node.rule, node.rule.results[r][size_t(dim)]));
      }
    }
  }
  return dims;
}

// Where a node stands in the repeated blocks.
struct Place {
  int run = -1, instance = 0, offset = 0;
};

std::vector<Place> places(const Problem &problem, const std::vector<Repeat> &repeats) {
  std::vector<Place> result(problem.nodes.size());
  for (size_t run = 0; run < repeats.size(); ++run)
    for (int i = repeats[run].first; i < repeats[run].end(); ++i)
      result[size_t(i)] = {int(run), (i - repeats[run].first) / repeats[run].period,
                           (i - repeats[run].first) % repeats[run].period};
  return result;
}

// Pins and batch factors that differ between repetitions forbid tying them together.
bool areAlike(const Problem &problem, const ProblemFacts &facts, const Constraints &constraints, const Repeat &repeat) {
  auto signature = [&](int index) {
    const Node &node = problem.nodes[size_t(index)];
    std::vector<int64_t> values = {facts.batchFactors[size_t(index)]};
    auto add = [&](int tensor) {
      Layout layout = whole;
      bool isPinned = pinnedLayout(constraints, problem.tensors[size_t(tensor)], layout);
      values.push_back(isPinned ? layout : -100);
      values.push_back(facts.sequenceDims[size_t(tensor)]);
    };
    for (int tensor : node.operands) add(tensor);
    for (int tensor : node.results) add(tensor);
    return values;
  };
  for (int i = repeat.first + repeat.period; i < repeat.end(); ++i)
    if (signature(i) != signature(i - repeat.period)) return false;
  return true;
}

} // namespace

dist::Mesh Setting::mesh() const {
  dist::Mesh mesh;
  if (pp > 1) mesh.axes.push_back({"pp", pp});
  mesh.axes.push_back({"dp", dp});
  if (fsdp > 1) mesh.axes.push_back({"fsdp", fsdp});
  mesh.axes.push_back({"tp", tp});
  return mesh;
}

dist::Axes Setting::batchAxes() const {
  if (!batchDivides) return {};
  dist::Axes axes;
  if (dp > 1) axes.push_back("dp");
  if (fsdp > 1) axes.push_back("fsdp");
  return axes;
}

dist::Axes Setting::zeroAxes() const { return {fsdp > 1 ? "fsdp" : "dp"}; }

std::string Setting::str() const {
  return fmt::format("{} zero {} microbatches {} recompute {}{}", mesh().str(), zero, microbatches, name(recompute),
                     pp > 1 ? " schedule " + schedule : "");
}

double SplitModel::localBytes(int tensor) const {
  double bytes = problem->tensors[size_t(tensor)].bytes();
  if (batchDims[size_t(tensor)] < 0) return bytes;
  return bytes * double(problem->batch) / double(setting.microbatches) / double(problem->samples) /
         double(setting.batchWays());
}

ProblemFacts gatherFacts(const Problem &problem, const Constraints &constraints) {
  ProblemFacts facts;
  facts.batchDims = problem.batchDims();
  for (const Node &node : problem.nodes) facts.batchFactors.push_back(Problem::batchFactor(node, facts.batchDims));
  facts.sequenceDims = findSequenceDims(problem, facts.batchFactors);
  facts.needsGradient = problem.needsGradient();
  facts.producers = problem.producers();
  facts.readers.resize(problem.tensors.size());
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    for (size_t o = 0; o < problem.nodes[i].operands.size(); ++o)
      facts.readers[size_t(problem.nodes[i].operands[o])].emplace_back(int(i), o);
  for (const Node &node : problem.nodes)
    if (!node.cheap) facts.expensiveFlops = std::max(facts.expensiveFlops, node.flops / 20);
  facts.repeats = problem.findRepeats();
  std::erase_if(facts.repeats, [&](const Repeat &repeat) { return !areAlike(problem, facts, constraints, repeat); });
  return facts;
}

namespace {

class Builder {
public:
  Builder(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const Constraints &constraints,
          const Setting &setting)
      : problem(problem), facts(facts), constraints(constraints), place(places(problem, facts.repeats)) {
    model.problem = &problem;
    model.cluster = &cluster;
    model.setting = setting;
    model.batchDims = facts.batchDims;
    model.batchFactors = facts.batchFactors;
    model.repeats = facts.repeats;
  }

  Result<SplitModel> build() {
    CLEAVE_RETURN_IF_ERROR(addNodes());
    CLEAVE_RETURN_IF_ERROR(addHomes());
    addFlows();
    addBatchCollectives();
    return std::move(model);
  }

private:
  // A part of the samples (a slice of the batch) may not divide where the batch does.
  Status checkBatchFactor(size_t i) {
    int64_t factor = facts.batchFactors[i];
    if (factor < 0) return Status::ok();
    int64_t samples = problem.batch / model.setting.microbatches;
    int64_t size = problem.nodes[i].rule.factors[size_t(factor)].size * samples;
    if (size % problem.samples == 0 && size / problem.samples % model.setting.batchWays() == 0) return Status::ok();
    return {ErrorKind::Usage,
            fmt::format(
                "the samples of node '{}' ({} of {}) do not divide over the batch axes of mesh {} with {} microbatches",
                problem.nodes[i].name, problem.nodes[i].rule.factors[size_t(factor)].size, problem.samples,
                model.setting.mesh().str(), model.setting.microbatches)};
  }

  Status addNodes() {
    model.variableOfNode.resize(problem.nodes.size());
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Place &at = place[i];
      CLEAVE_RETURN_IF_ERROR(checkBatchFactor(i));
      if (at.run >= 0 && at.instance > 0) {
        int first = facts.repeats[size_t(at.run)].first + at.offset;
        model.variableOfNode[i] = model.variableOfNode[size_t(first)];
        ++model.variables[size_t(model.variableOfNode[i])].count;
        continue;
      }
      Variable variable;
      variable.index = int(i);
      variable.inBlock = at.run >= 0;
      variable.candidates = nodeCandidates(problem, facts, *model.cluster, constraints, model.setting, int(i));
      if (variable.candidates.empty())
        return {ErrorKind::Usage,
                fmt::format("no split of node '{}' ({}) gives the results their pinned layout on mesh {}",
                            problem.nodes[i].name, problem.nodes[i].op, model.setting.mesh().str())};
      model.variableOfNode[i] = int(model.variables.size());
      model.variables.push_back(std::move(variable));
    }
    return Status::ok();
  }

  Status addHomes() {
    model.variableOfTensor.assign(problem.tensors.size(), -1);
    std::map<std::vector<std::pair<int, size_t>>, int> tied; // by the first repetition's reads
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      if (problem.tensors[t].kind != TensorKind::Parameter) continue;
      std::vector<std::pair<int, size_t>> reads;
      bool canTie = !facts.readers[t].empty();
      int instance = -1, run = -1;
      for (auto [node, operand] : facts.readers[t]) {
        const Place &at = place[size_t(node)];
        canTie = canTie && at.run >= 0 && (instance < 0 || (instance == at.instance && run == at.run));
        instance = at.instance;
        run = at.run;
        reads.emplace_back(model.variableOfNode[size_t(node)], operand);
      }
      if (canTie) {
        auto [found, isNew] = tied.try_emplace(reads, int(model.variables.size()));
        if (!isNew) {
          model.variableOfTensor[t] = found->second;
          ++model.variables[size_t(found->second)].count;
          continue;
        }
      }
      Variable variable;
      variable.isHome = true;
      variable.index = int(t);
      variable.inBlock = canTie;
      std::set<Layout> homes = {whole};
      for (auto [reader, operand] : reads)
        for (const Candidate &candidate : model.variables[size_t(reader)].candidates)
          if (candidate.uses[operand].layout >= 0) homes.insert(candidate.uses[operand].layout);
      Layout pinned = whole;
      if (pinnedLayout(constraints, problem.tensors[t], pinned)) {
        const Tensor &tensor = problem.tensors[t];
        if (pinned >= 0 &&
            (size_t(pinned) >= tensor.dims.size() || tensor.dims[size_t(pinned)] % model.setting.tp != 0))
          return {ErrorKind::Usage, fmt::format("parameter '{}' cannot be split over tp={} in dimension {} as pinned",
                                                tensor.name, model.setting.tp, int(pinned))};
        homes = {model.setting.tp > 1 ? pinned : whole};
      }
      variable.homes.assign(homes.begin(), homes.end());
      model.variableOfTensor[t] = int(model.variables.size());
      model.variables.push_back(std::move(variable));
    }
    return Status::ok();
  }

  void addFlows() {
    std::map<std::vector<int64_t>, size_t> tied;
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      const Tensor &tensor = problem.tensors[t];
      Flow flow;
      flow.tensor = int(t);
      int producer = facts.producers[t];
      if (producer >= 0) {
        const Node &node = problem.nodes[size_t(producer)];
        flow.producer = model.variableOfNode[size_t(producer)];
        flow.result = size_t(std::find(node.results.begin(), node.results.end(), int(t)) - node.results.begin());
        flow.cheap = node.cheap;
      } else if (tensor.kind == TensorKind::Parameter)
        flow.producer = model.variableOfTensor[t];
      flow.anyLayout = tensor.kind != TensorKind::Parameter && tensor.kind != TensorKind::Activation;
      flow.bytes = model.localBytes(int(t));
      flow.gradient = facts.needsGradient[t];
      flow.saved = tensor.saved;
      flow.inBlock = producer >= 0 && place[size_t(producer)].run >= 0;
      for (auto [reader, operand] : facts.readers[t]) {
        const Place &at = place[size_t(reader)];
        bool sameInstance = producer >= 0 && at.run >= 0 && at.run == place[size_t(producer)].run &&
                            at.instance == place[size_t(producer)].instance;
        if (!sameInstance) {
          flow.inBlock = false;
          if (at.run >= 0 || (producer >= 0 && place[size_t(producer)].run >= 0)) flow.leavesBlock = true;
        }
        Flow::Read read{model.variableOfNode[size_t(reader)], operand};
        if (std::find(flow.reads.begin(), flow.reads.end(), read) == flow.reads.end()) flow.reads.push_back(read);
      }
      std::vector<int64_t> key = {flow.producer,    int64_t(flow.result), flow.gradient,
                                  flow.saved,       flow.anyLayout,       flow.inBlock,
                                  flow.leavesBlock, int64_t(flow.bytes),  flow.producer < 0 ? int64_t(t) : -1};
      for (const Flow::Read &read : flow.reads) {
        key.push_back(read.variable);
        key.push_back(int64_t(read.operand));
      }
      auto [found, isNew] = tied.try_emplace(std::move(key), model.flows.size());
      if (isNew)
        model.flows.push_back(std::move(flow));
      else
        ++model.flows[found->second].count;
    }
  }

  // Operands whose sample dimension is not where the node wants it are gathered; results that sum over the samples are
  // reduced.
  void addBatchCollectives() {
    const Setting &setting = model.setting;
    int64_t ways = setting.batchWays();
    if (ways <= 1) return;
    GroupShape group = groupAlong(*model.cluster, ways, setting.tp);
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      int64_t factor = facts.batchFactors[i];
      for (size_t o = 0; o < node.operands.size(); ++o) {
        int64_t dim = facts.batchDims[size_t(node.operands[o])];
        if (dim < 0) continue;
        const auto &factors = node.rule.operands[o][size_t(dim)];
        if (!factors.empty() && factors[0] == factor) continue;
        double bytes = model.localBytes(node.operands[o]) * double(ways);
        model.batchSeconds += collectiveSeconds(*model.cluster, Collective::AllGather, group, bytes);
        if (facts.needsGradient[size_t(node.operands[o])])
          model.batchSeconds += collectiveSeconds(*model.cluster, Collective::ReduceScatter, group, bytes);
      }
      if (factor < 0 || node.rule.factors[size_t(factor)].kind != dist::Factor::Reduced) continue;
      for (int tensor : node.results)
        model.batchSeconds += collectiveSeconds(*model.cluster, Collective::AllReduce, group, model.localBytes(tensor));
    }
  }

  const Problem &problem;
  const ProblemFacts &facts;
  const Constraints &constraints;
  std::vector<Place> place;
  SplitModel model;
};

} // namespace

Result<SplitModel> buildModel(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                              const Constraints &constraints, const Setting &setting) {
  return Builder(problem, facts, cluster, constraints, setting).build();
}

} // namespace cleave::planner
