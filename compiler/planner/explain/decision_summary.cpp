#include "compiler/planner/explain/decision_summary.h"
#include "compiler/planner/problem/text_reader.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <tuple>

namespace cleave::planner {
namespace {

// Six digits show a change of 0.001 %.
std::string figure(double value) { return fmt::format("{:.6g}", value); }

std::string joined(const dist::Axes &axes) { return axes.empty() ? "-" : fmt::format("{}", fmt::join(axes, "+")); }

// "0-11,14": whole numbers in rising order.
std::string ranges(const std::vector<int64_t> &numbers) {
  std::string text;
  for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
    for (end = first + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[first]);
    if (end - first > 1) text += fmt::format("-{}", numbers[end - 1]);
  }
  return text;
}

std::string memoryLine(const MemoryBreakdown &memory) {
  std::string text = fmt::format("{} B: parameters {}, gradients {}, optimizer {}, activations {}, workspace {}",
                                 figure(memory.total()), figure(memory.parameters), figure(memory.gradients),
                                 figure(memory.optimizer), figure(memory.activations), figure(memory.workspace));
  return memory.host > 0 ? text + fmt::format("; host {}", figure(memory.host)) : text;
}

// Where a thing stands: the same place of each block of a repetition is one, of so many blocks.
struct Place {
  int64_t repeat = -1, offset = 0, of = 0; // outside repetitions: -1, and a number of its own
  auto operator<=>(const Place &) const = default;
};

// Things that were decided alike at the same place of repeated blocks, in the order of the first of them.
class Groups {
public:
  void add(const Place &place, int64_t block, const std::string &head, const std::string &decided) {
    auto [entry, isNew] = known.try_emplace({place, decided}, groups.size());
    if (isNew) groups.push_back({head, decided, {}});
    groups[entry->second].blocks.push_back(block);
    ++members[place];
    if (isNew) groups.back().place = place;
  }

  std::string text() const {
    std::string out;
    for (const Group &group : groups) {
      const size_t all = members.at(group.place), here = group.blocks.size();
      out += group.head;
      if (all > 1 && here == all) out += fmt::format(" x{}", all);
      if (all > 1 && here < all) out += fmt::format(" in blocks {}", ranges(group.blocks));
      out += fmt::format(": {}\n", group.decided);
    }
    return out;
  }

private:
  struct Group {
    std::string head, decided;
    std::vector<int64_t> blocks;
    Place place = {};
  };
  std::vector<Group> groups;
  std::map<std::pair<Place, std::string>, size_t> known;
  std::map<Place, size_t> members;
};

// Each node's place and block.
std::vector<std::pair<Place, int64_t>> placesOf(const Problem &problem) {
  std::vector<std::pair<Place, int64_t>> places(problem.nodes.size());
  for (size_t i = 0; i < places.size(); ++i) places[i].first.offset = int64_t(i);
  const std::vector<Repeat> repeats = problem.findRepeats();
  for (size_t r = 0; r < repeats.size(); ++r)
    for (int i = repeats[r].first; i < repeats[r].end(); ++i) {
      const int from = i - repeats[r].first;
      places[size_t(i)] = {{int64_t(r), from % repeats[r].period, 0}, from / repeats[r].period};
    }
  return places;
}

std::string nodeLine(const Node &node, const NodeDecision &chosen, Recompute most) {
  std::string text;
  for (size_t f = 0; f < chosen.split.size(); ++f) {
    text += fmt::format("{}{}", f ? " " : "", node.rule.factors[f].size);
    if (!chosen.split[f].empty()) text += "/" + joined(chosen.split[f]);
  }
  if (!chosen.passesPartial.empty()) text += ", passes " + joined(chosen.passesPartial);
  if (chosen.recompute != most) text += fmt::format(", recompute {}", name(chosen.recompute));
  if (chosen.segment >= 0) text += chosen.again ? ", again" : ", kept";
  return text.empty() ? "-" : text;
}

std::string layoutText(const dist::Sharding &layout) {
  std::vector<std::string> dims;
  for (const dist::Axes &axes : layout.dims) dims.push_back(joined(axes));
  return fmt::format("[{}]", fmt::join(dims, ","));
}

std::string nodeLines(const Problem &problem, const Decision &decision) {
  const auto places = placesOf(problem);
  Groups nodes;
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    nodes.add(places[i].first, places[i].second,
              fmt::format("node {} {}", quote(problem.nodes[i].name), problem.nodes[i].op),
              nodeLine(problem.nodes[i], decision.nodes[i], decision.recompute));
  return nodes.text();
}

// A parameter stands where the first operation that reads it does.
std::string parameterLines(const Problem &problem, const Decision &decision) {
  const auto places = placesOf(problem);
  std::vector<std::pair<Place, int64_t>> ofTensor(problem.tensors.size(), {{-1, 0, -1}, 0});
  for (size_t i = problem.nodes.size(); i-- > 0;)
    for (size_t o = 0; o < problem.nodes[i].operands.size(); ++o) {
      auto &of = ofTensor[size_t(problem.nodes[i].operands[o])];
      of = places[i];
      of.first.of = int64_t(o);
    }
  Groups parameters;
  size_t at = 0;
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    if (problem.tensors[t].kind != TensorKind::Parameter) continue;
    const ParameterDecision &chosen = decision.parameters[at++];
    if (ofTensor[t].first.of < 0) ofTensor[t].first.offset = int64_t(t); // nothing reads it
    parameters.add(ofTensor[t].first, ofTensor[t].second, "parameter " + quote(chosen.name),
                   fmt::format("{} gradient {} state {}", layoutText(chosen.parameter), layoutText(chosen.gradient),
                               layoutText(chosen.state)));
  }
  return parameters.text();
}

std::string stageLines(const Decision &decision) {
  std::string out;
  for (size_t s = 0; s < decision.stageDecisions.size(); ++s) {
    const StageDecision &stage = decision.stageDecisions[s];
    std::vector<int64_t> nodes;
    for (size_t i = 0; i < decision.nodes.size(); ++i)
      if (decision.nodes[i].stage == int(s)) nodes.push_back(int64_t(i));
    out +=
        fmt::format("stage {} on rank {}: {} devices, {} nodes ({}), {} blocks, {} activations, {} selective, {} full, "
                    "{} elements\n",
                    s, stage.rank, stage.devices, stage.nodes, ranges(nodes), stage.blocks, stage.activationBlocks,
                    stage.selectiveBlocks, stage.recomputedBlocks, figure(stage.parameters));
    out += fmt::format("  a microbatch, s: forward {}, backward {} + {}, of these communication {}, recomputation {}; "
                       "sends {} and {}\n",
                       figure(stage.forward), figure(stage.backwardInput), figure(stage.backwardWeight),
                       figure(stage.communication), figure(stage.recompute), figure(stage.sendForward),
                       figure(stage.sendBackward));
    out += fmt::format("  a step, s: reduction {}, update {}; memory {}\n", figure(stage.reduction),
                       figure(stage.update), memoryLine(stage.memory));
  }
  return out;
}

std::string alternativeLine(const Alternative &row) {
  std::string text = fmt::format("alternative {}", quote(row.name));
  if (row.stepSeconds > 0)
    text += fmt::format(": {} s, {} B, mesh {} zero {} microbatches {} recompute {} schedule {} offload {}{}",
                        figure(row.stepSeconds), figure(row.memoryBytes), row.mesh.str(), row.zero, row.microbatches,
                        name(row.recompute), row.schedule, name(row.offload), row.fits ? "" : ", does not fit");
  return text + (row.whyNot.empty() ? "\n" : fmt::format(": {}\n", row.whyNot));
}

std::string splitLines(const Decision &decision) {
  std::string out = fmt::format("mesh {}\nzero {}", decision.mesh.str(), decision.zero);
  if (!decision.zeroAxes.empty()) out += " over " + joined(decision.zeroAxes);
  out += fmt::format("\nbatch over {}\nmicrobatches {}\nrecompute {}{}\nschedule {}", joined(decision.batchAxes),
                     decision.microbatches, name(decision.recompute),
                     decision.exceptLast ? ", but not of the last microbatch" : "", decision.schedule);
  out += decision.stages > 1 ? fmt::format(" of {} stages\n", decision.stages) : "\n";
  if (decision.mesh.axisSize("cp") > 1)
    out += fmt::format("attention {}\n", decision.attention == AttentionSplit::Ring ? "ring" : "ulysses");
  if (decision.gathersAgain) out += "gathers again in the backward pass\n";
  if (decision.offload != Offload::None) out += fmt::format("offload {}\n", name(decision.offload));
  if (decision.chunks > 1) out += fmt::format("loss in {} chunks\n", decision.chunks);
  if (!decision.like.empty()) out += fmt::format("like {}\n", decision.like);
  return out;
}

} // namespace

std::string summaryText(const Problem &problem, const Cluster &cluster, const Decision &decision) {
  const Predicted &predicted = decision.predicted;
  std::string out =
      fmt::format("problem {} batch {} precision {}: {} nodes, {} tensors\ncluster {}\n", quote(problem.name),
                  problem.batch, problem.precision, problem.nodes.size(), problem.tensors.size(), quote(cluster.name));
  out += splitLines(decision);
  out += fmt::format("step {} s: compute {}, exposed {}, bubble {}, hidden {}", figure(predicted.stepSeconds),
                     figure(predicted.computeSeconds), figure(predicted.exposedCommunicationSeconds),
                     figure(predicted.bubbleSeconds), figure(predicted.hiddenCommunicationSeconds));
  if (predicted.hostSeconds > 0)
    out += fmt::format(", copies {} of which exposed {}", figure(predicted.hostSeconds),
                       figure(predicted.exposedHostSeconds));
  out += fmt::format("\nmemory {}\ngap {:.4f}\n", memoryLine(predicted.memory), decision.gap);
  if (decision.twiceMemorySeconds > 0)
    out += fmt::format("with twice the memory {} s\n", figure(decision.twiceMemorySeconds));
  out += stageLines(decision) + nodeLines(problem, decision) + parameterLines(problem, decision);
  for (const Alternative &row : decision.alternatives) out += alternativeLine(row);
  for (const std::string &note : decision.notes) out += fmt::format("note {}\n", note);
  return out;
}

} // namespace cleave::planner
