#include "compiler/planner/problem/decision.h"
#include "compiler/planner/problem/text_reader.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::planner {
namespace {

constexpr const char *offloadNames[] = {"none", "optimizer", "activations", "all"};
constexpr const char *recomputeNames[] = {"none", "selective", "full"};
constexpr const char *attentionNames[] = {"ring", "ulysses"};

std::string axesText(const dist::Axes &axes) { return axes.empty() ? "-" : fmt::format("{}", fmt::join(axes, "+")); }

dist::Axes parseAxes(const std::string &text) {
  dist::Axes axes;
  for (size_t at = 0; text != "-" && at <= text.size();) {
    size_t plus = std::min(text.find('+', at), text.size());
    axes.push_back(text.substr(at, plus - at));
    at = plus + 1;
  }
  return axes;
}

std::string shardingText(const dist::Sharding &sharding) {
  std::string text = "[";
  for (size_t i = 0; i < sharding.dims.size(); ++i) text += (i ? "," : "") + axesText(sharding.dims[i]);
  return text + "]";
}

Status readSharding(TextReader &reader, dist::Sharding &sharding) {
  std::string text;
  CLEAVE_RETURN_IF_ERROR(reader.word(text));
  if (text.size() < 2 || text.front() != '[' || text.back() != ']')
    return reader.error(fmt::format("'{}' is no sharding such as [dp,-]", text));
  for (size_t at = 1; at + 1 < text.size();) {
    size_t comma = std::min(text.find(',', at), text.size() - 1);
    sharding.dims.push_back(parseAxes(text.substr(at, comma - at)));
    at = comma + 1;
  }
  return Status::ok();
}

// After the name: an entry a factor, then what differs from the common case.
Status readNode(TextReader &reader, NodeDecision &node) {
  while (reader.more()) {
    std::string word;
    int64_t number = 0;
    CLEAVE_RETURN_IF_ERROR(reader.word(word));
    if (word == "stage") {
      CLEAVE_RETURN_IF_ERROR(reader.integer(number));
      node.stage = int(number);
    } else if (word == "recompute") {
      CLEAVE_RETURN_IF_ERROR(reader.choice(recomputeNames, number));
      node.recompute = Recompute(number);
    } else if (word == "segment") {
      CLEAVE_RETURN_IF_ERROR(reader.integer(number));
      node.segment = int(number);
      node.again = true;
    } else if (word == "keeps") {
      node.again = false;
    } else if (word == "passes") {
      CLEAVE_RETURN_IF_ERROR(reader.word(word));
      node.passesPartial = parseAxes(word);
    } else
      node.split.push_back(parseAxes(word));
  }
  return Status::ok();
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

bool parseOffload(const std::string &text, Offload &offload) {
  for (size_t i = 0; i < std::size(offloadNames); ++i)
    if (text == offloadNames[i]) {
      offload = Offload(i);
      return true;
    }
  return false;
}

const char *name(Recompute recompute) { return recomputeNames[size_t(recompute)]; }

bool parseRecompute(const std::string &text, Recompute &recompute) {
  for (size_t i = 0; i < 3; ++i)
    if (text == recomputeNames[i]) {
      recompute = Recompute(i);
      return true;
    }
  return false;
}

const NodeDecision *Decision::findNode(const std::string &node) const {
  for (const NodeDecision &decision : nodes)
    if (decision.node == node) return &decision;
  return nullptr;
}

const ParameterDecision *Decision::findParameter(const std::string &parameter) const {
  for (const ParameterDecision &decision : parameters)
    if (decision.name == parameter) return &decision;
  return nullptr;
}

std::string Decision::text() const {
  const MemoryBreakdown &memory = predicted.memory;
  std::string out = fmt::format(
      "cleave-decision 2\nmesh {}\nbatch-axes {}\nzero {} {}\nmicrobatches {}\nrecompute {}\nschedule {} {}\n"
      "predicted step {} compute {} exposed {} hidden {} bubble {}\nmemory {} {} {} {} {}\nrate {} "
      "{}\nsearch {} {} {}\n",
      mesh.str(), axesText(batchAxes), zero, axesText(zeroAxes), microbatches, name(recompute), schedule, stages,
      predicted.stepSeconds, predicted.computeSeconds, predicted.exposedCommunicationSeconds,
      predicted.hiddenCommunicationSeconds, predicted.bubbleSeconds, memory.parameters, memory.gradients,
      memory.optimizer, memory.activations, memory.workspace, predicted.tflopsPerDevice, predicted.mfu, searchSeconds,
      gap, candidates);
  if (mesh.axisSize("cp") > 1) out += fmt::format("attention {}\n", attentionNames[size_t(attention)]);
  if (gathersAgain) out += "gathers-again 1\n";
  if (exceptLast) out += "keeps last-microbatch\n";
  if (offload != Offload::None)
    out += fmt::format("offload {} host {} seconds {} {}\n", name(offload), memory.host, predicted.hostSeconds,
                       predicted.exposedHostSeconds);
  if (!like.empty()) out += fmt::format("like {}\n", quote(like));
  for (const std::string &note : notes) out += fmt::format("note {}\n", quote(note));
  for (const NodeDecision &node : nodes) {
    out += "node " + quote(node.node);
    for (const dist::Axes &axes : node.split) out += " " + axesText(axes);
    if (node.stage > 0) out += fmt::format(" stage {}", node.stage);
    if (node.recompute != recompute) out += fmt::format(" recompute {}", name(node.recompute));
    if (node.segment >= 0) out += fmt::format(" segment {}{}", node.segment, node.again ? "" : " keeps");
    if (!node.passesPartial.empty()) out += " passes " + axesText(node.passesPartial);
    out += "\n";
  }
  for (const ParameterDecision &parameter : parameters)
    out += fmt::format("parameter {} {} {} {}\n", quote(parameter.name), shardingText(parameter.parameter),
                       shardingText(parameter.gradient), shardingText(parameter.state));
  return out;
}

Result<Decision> Decision::parse(const std::string &text, const std::string &file) {
  Decision decision;
  TextReader reader(text, file);
  CLEAVE_RETURN_IF_ERROR(reader.header("cleave-decision", 2));
  while (reader.nextLine()) {
    std::string key, value;
    int64_t number = 0;
    CLEAVE_RETURN_IF_ERROR(reader.word(key));
    if (key == "mesh") {
      std::string error;
      CLEAVE_RETURN_IF_ERROR(reader.word(value));
      if (!dist::Mesh::parse(value, decision.mesh, error)) return reader.error(error);
    } else if (key == "batch-axes") {
      CLEAVE_RETURN_IF_ERROR(reader.word(value));
      decision.batchAxes = parseAxes(value);
    } else if (key == "zero") {
      CLEAVE_RETURN_IF_ERROR(reader.integer(number));
      CLEAVE_RETURN_IF_ERROR(reader.word(value));
      decision.zero = int(number);
      decision.zeroAxes = parseAxes(value);
    } else if (key == "microbatches")
      CLEAVE_RETURN_IF_ERROR(reader.integer(decision.microbatches));
    else if (key == "recompute") {
      CLEAVE_RETURN_IF_ERROR(reader.choice(recomputeNames, number));
      decision.recompute = Recompute(number);
    } else if (key == "schedule") {
      CLEAVE_RETURN_IF_ERROR(reader.word(decision.schedule));
      CLEAVE_RETURN_IF_ERROR(reader.integer(number));
      decision.stages = int(number);
    } else if (key == "predicted") {
      Predicted &p = decision.predicted;
      for (auto [word, slot] : {std::pair{"step", &p.stepSeconds},
                                {"compute", &p.computeSeconds},
                                {"exposed", &p.exposedCommunicationSeconds},
                                {"hidden", &p.hiddenCommunicationSeconds},
                                {"bubble", &p.bubbleSeconds}}) {
        CLEAVE_RETURN_IF_ERROR(reader.expect(word));
        CLEAVE_RETURN_IF_ERROR(reader.number(*slot));
      }
    } else if (key == "memory") {
      MemoryBreakdown &m = decision.predicted.memory;
      for (double *slot : {&m.parameters, &m.gradients, &m.optimizer, &m.activations, &m.workspace})
        CLEAVE_RETURN_IF_ERROR(reader.number(*slot));
    } else if (key == "rate") {
      CLEAVE_RETURN_IF_ERROR(reader.number(decision.predicted.tflopsPerDevice));
      CLEAVE_RETURN_IF_ERROR(reader.number(decision.predicted.mfu));
    } else if (key == "search") {
      CLEAVE_RETURN_IF_ERROR(reader.number(decision.searchSeconds));
      CLEAVE_RETURN_IF_ERROR(reader.number(decision.gap));
      CLEAVE_RETURN_IF_ERROR(reader.integer(decision.candidates));
    } else if (key == "attention") {
      CLEAVE_RETURN_IF_ERROR(reader.choice(attentionNames, number));
      decision.attention = AttentionSplit(number);
    } else if (key == "gathers-again") {
      CLEAVE_RETURN_IF_ERROR(reader.integer(number));
      decision.gathersAgain = number != 0;
    } else if (key == "offload") {
      CLEAVE_RETURN_IF_ERROR(reader.choice(offloadNames, number));
      decision.offload = Offload(number);
      CLEAVE_RETURN_IF_ERROR(reader.expect("host"));
      CLEAVE_RETURN_IF_ERROR(reader.number(decision.predicted.memory.host));
      CLEAVE_RETURN_IF_ERROR(reader.expect("seconds"));
      CLEAVE_RETURN_IF_ERROR(reader.number(decision.predicted.hostSeconds));
      CLEAVE_RETURN_IF_ERROR(reader.number(decision.predicted.exposedHostSeconds));
    } else if (key == "keeps") {
      CLEAVE_RETURN_IF_ERROR(reader.expect("last-microbatch"));
      decision.exceptLast = true;
    } else if (key == "like")
      CLEAVE_RETURN_IF_ERROR(reader.quoted(decision.like));
    else if (key == "note") {
      CLEAVE_RETURN_IF_ERROR(reader.quoted(value));
      decision.notes.push_back(value);
    } else if (key == "node") {
      NodeDecision node;
      CLEAVE_RETURN_IF_ERROR(reader.quoted(node.node));
      node.recompute = decision.recompute;
      CLEAVE_RETURN_IF_ERROR(readNode(reader, node));
      decision.nodes.push_back(std::move(node));
    } else if (key == "parameter") {
      ParameterDecision parameter;
      CLEAVE_RETURN_IF_ERROR(reader.quoted(parameter.name));
      for (dist::Sharding *sharding : {&parameter.parameter, &parameter.gradient, &parameter.state})
        CLEAVE_RETURN_IF_ERROR(readSharding(reader, *sharding));
      decision.parameters.push_back(std::move(parameter));
    } else
      return reader.error(fmt::format("unknown word '{}'", key));
    CLEAVE_RETURN_IF_ERROR(reader.endOfLine());
  }
  return decision;
}

namespace {

// Stages exist, and values only pass from a stage to itself or a later one.
Status verifyStages(const Problem &problem, const Decision &decision) {
  int64_t ranks = decision.mesh.axisSize("pp");
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
