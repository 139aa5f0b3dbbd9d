#include "compiler/planner/problem/decision.h"
#include "compiler/planner/problem/text_reader.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::planner {
namespace {

constexpr const char *offloadNames[] = {"none", "optimizer", "activations", "all"};
constexpr const char *recomputeNames[] = {"none", "activations", "selective", "full"};

template <typename Enum, size_t N> bool parseName(const char *const (&names)[N], const std::string &text, Enum &value) {
  const auto *found = std::ranges::find(names, text);
  if (found != std::end(names)) value = Enum(found - names);
  return found != std::end(names);
}

std::string axesText(const dist::Axes &axes) { return axes.empty() ? "-" : fmt::format("{}", fmt::join(axes, "+")); }

dist::Axes parseAxes(const std::string &text) { return text == "-" ? dist::Axes() : splitAt(text, '+'); }

dist::Sharding readSharding(TextReader &reader) {
  const std::string text = reader.word();
  dist::Sharding sharding;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']')
    reader.fail(fmt::format("'{}' is no sharding such as [dp,-]", text));
  else if (text.size() > 2)
    for (const std::string &axes : splitAt(text.substr(1, text.size() - 2), ','))
      sharding.dims.push_back(parseAxes(axes));
  return sharding;
}

// An entry a factor, then what differs from the common case.
NodeDecision readDecidedNode(TextReader &reader) {
  NodeDecision node;
  node.node = reader.quoted();
  while (reader.more()) {
    const std::string word = reader.word();
    if (word == "stage")
      node.stage = int(reader.integer());
    else if (word == "segment") {
      node.segment = int(reader.integer());
      node.again = true;
    } else if (word == "keeps")
      node.again = false;
    else if (word == "passes")
      node.passesPartial = parseAxes(reader.word());
    else
      node.split.push_back(parseAxes(word));
  }
  return node;
}

// Axes of a parameter's layout: known, used once, dividing evenly.
Status checkLayout(const dist::Mesh &mesh, const dist::Sharding &sharding, const Tensor &tensor, const char *what) {
  std::vector<int64_t> local;
  std::string error;
  for (const dist::Axes &axes : sharding.dims)
    for (const std::string &axis : axes) {
      bool known = false;
      for (const dist::MeshAxis &meshAxis : mesh.axes) known = known || meshAxis.name == axis;
      if (!known)
        return inputError(
            fmt::format("parameter '{}': {} uses axis '{}', which mesh {} lacks", tensor.name, what, axis, mesh.str()));
    }
  if (!dist::localShape(mesh, sharding, tensor.dims, local, error))
    return inputError(fmt::format("parameter '{}': {} {}: {}", tensor.name, what, sharding.str(), error));
  return Status::ok();
}

} // namespace

const char *name(Offload offload) { return offloadNames[size_t(offload)]; }
bool parseOffload(const std::string &text, Offload &offload) { return parseName(offloadNames, text, offload); }

const char *name(Recompute recompute) { return recomputeNames[size_t(recompute)]; }
bool parseRecompute(const std::string &text, Recompute &how) { return parseName(recomputeNames, text, how); }

Result<Decision> Decision::parse(const std::string &text, const std::string &file) {
  Decision decision;
  TextReader reader(text, file, "cleave-decision 2");
  while (reader.nextLine()) {
    const std::string key = reader.word();
    if (key == "mesh") {
      std::string error;
      if (!dist::Mesh::parse(reader.word(), decision.mesh, error)) reader.fail(error);
    } else if (key == "batch-axes")
      decision.batchAxes = parseAxes(reader.word());
    else if (key == "zero") {
      decision.zero = int(reader.integer());
      decision.zeroAxes = parseAxes(reader.word());
    } else if (key == "stages")
      decision.stages = int(reader.integer());
    else if (key == "microbatches")
      decision.microbatches = reader.integer();
    else if (key == "chunks")
      decision.chunks = reader.integer();
    else if (key == "gathers-again")
      decision.gathersAgain = true;
    else if (key == "node")
      decision.nodes.push_back(readDecidedNode(reader));
    else if (key == "parameter") {
      ParameterDecision &parameter = decision.parameters.emplace_back();
      parameter.name = reader.quoted();
      for (dist::Sharding *sharding : {&parameter.parameter, &parameter.gradient, &parameter.state})
        *sharding = readSharding(reader);
    } else
      reader.fail(fmt::format("unknown word '{}'", key));
  }
  if (!reader.status()) return reader.status();
  return decision;
}

namespace {

// Stages exist, and values only pass from a stage to itself or a later one.
Status verifyStages(const Problem &problem, const Decision &decision) {
  int64_t ranks = decision.mesh.axisSize(dist::pipelineAxis);
  if (decision.stages < 1 || decision.stages % ranks != 0)
    return inputError(fmt::format("{} stages do not lie evenly on the {} ranks of axis pp", decision.stages, ranks));
  std::vector<int> producers = problem.producers();
  std::vector<bool> used(size_t(decision.stages), false);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    int stage = decision.nodes[i].stage;
    if (stage < 0 || stage >= decision.stages)
      return inputError(fmt::format("node '{}' is in stage {} of {}", problem.nodes[i].name, stage, decision.stages));
    used[size_t(stage)] = true;
    for (int tensor : problem.nodes[i].operands)
      if (int producer = producers[size_t(tensor)]; producer >= 0 && decision.nodes[size_t(producer)].stage > stage)
        return inputError(fmt::format("node '{}' in stage {} reads '{}', which stage {} makes", problem.nodes[i].name,
                                      stage, problem.tensors[size_t(tensor)].name,
                                      decision.nodes[size_t(producer)].stage));
  }
  for (size_t stage = 0; stage < used.size() && !problem.nodes.empty(); ++stage)
    if (!used[stage]) return inputError(fmt::format("stage {} has no node", stage));
  return Status::ok();
}

} // namespace

Status verify(const Problem &problem, const Decision &decision) {
  if (decision.nodes.size() != problem.nodes.size())
    return inputError(
        fmt::format("the decision has {} nodes, the problem {}", decision.nodes.size(), problem.nodes.size()));
  int64_t samples = problem.batch / std::max<int64_t>(1, decision.microbatches);
  if (samples * decision.microbatches != problem.batch)
    return inputError(
        fmt::format("{} microbatches do not divide the batch of {}", decision.microbatches, problem.batch));
  std::vector<int64_t> batchDims = problem.batchDims();
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    const NodeDecision &chosen = decision.nodes[i];
    auto wrong = [&](const std::string &why) {
      return inputError(fmt::format("node '{}' ({}): {}", node.name, node.op, why));
    };
    if (chosen.node != node.name) return wrong(fmt::format("the decision has '{}' in its place", chosen.node));
    if (chosen.split.size() != node.rule.factors.size())
      return wrong(
          fmt::format("{} factors are decided, the rule has {}", chosen.split.size(), node.rule.factors.size()));
    int64_t batchFactor = Problem::batchFactor(node, batchDims);
    std::set<std::string> used;
    for (size_t f = 0; f < chosen.split.size(); ++f) {
      for (const std::string &axis : chosen.split[f])
        if (!used.insert(axis).second) return wrong(fmt::format("axis '{}' splits two factors", axis));
      if (int64_t(f) == batchFactor) { // built at another number of samples, perhaps
        int64_t size = node.rule.factors[f].size;
        if (size * samples % problem.samples != 0 ||
            size * samples / problem.samples % decision.mesh.groupSize(chosen.split[f]) != 0)
          return wrong(fmt::format("its samples do not divide over {}", axesText(chosen.split[f])));
      } else if (!dist::canSplit(decision.mesh, node.rule, int64_t(f), chosen.split[f]))
        return wrong(fmt::format("factor {} of size {} cannot be split over {}", f, node.rule.factors[f].size,
                                 axesText(chosen.split[f])));
    }
    for (const std::string &axis : chosen.passesPartial) {
      if (used.count(axis)) return wrong(fmt::format("axis '{}' splits a factor and is passed as a partial sum", axis));
      if (node.rule.linearity == dist::FactorRule::NotLinear)
        return wrong("a partial sum cannot pass through an operation that is not linear");
    }
  }
  CLEAVE_RETURN_IF_ERROR(verifyStages(problem, decision));
  size_t at = 0;
  for (const Tensor &tensor : problem.tensors) {
    if (tensor.kind != TensorKind::Parameter) continue;
    if (at >= decision.parameters.size() || decision.parameters[at].name != tensor.name)
      return inputError(fmt::format("parameter '{}' is missing from the decision, or not in its place", tensor.name));
    const ParameterDecision &chosen = decision.parameters[at++];
    CLEAVE_RETURN_IF_ERROR(checkLayout(decision.mesh, chosen.parameter, tensor, "its own layout"));
    CLEAVE_RETURN_IF_ERROR(checkLayout(decision.mesh, chosen.gradient, tensor, "its gradient's layout"));
    CLEAVE_RETURN_IF_ERROR(checkLayout(decision.mesh, chosen.state, tensor, "its state's layout"));
  }
  if (at != decision.parameters.size())
    return inputError(
        fmt::format("the decision has a parameter '{}' that the problem lacks", decision.parameters[at].name));
  return Status::ok();
}

} // namespace cleave::planner
