#include "compiler/report/split_map.h"
#include "compiler/planner/explain/display_names.h"
#include "compiler/report/pricing_source.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace cleave::report {
namespace {

std::string dimensionWords(size_t dim, size_t rank, int64_t sampleDim) {
  if (int64_t(dim) == sampleDim) return "samples";
  if (rank == 1) return "elements";
  if (rank == 2) return dim == 0 ? "rows" : "columns";
  return dim + 1 == rank ? "last dimension" : fmt::format("dimension {} of {}", dim + 1, rank);
}

// Goes through the report's operations; all else follows from the problem that it was made from.
class Mapping {
public:
  Mapping(const Report &report, const planner::Problem &problem)
      : report(report), problem(problem), producers(problem.producers()), batchDims(problem.batchDims()),
        names(problem), operationOf(problem.nodes.size(), -1), firstNodes(report.nodes.size(), -1),
        places(report.nodes.size()) {}

  std::vector<MapPart> list() {
    findNodes();
    for (size_t i = 0; i < report.nodes.size(); ++i) addOperation(int(i));
    findReaders();
    addCollectives();
    addStages();
    return std::move(parts);
  }

private:
  struct Place {
    size_t part = 0, operation = 0;
  };

  void findNodes() {
    std::map<std::string, int> indices;
    for (size_t i = 0; i < problem.nodes.size(); ++i) indices.emplace(problem.nodes[i].name, int(i));
    for (size_t i = 0; i < report.nodes.size(); ++i)
      for (const std::string &name : report.nodes[i].choice.nodes) {
        const auto found = indices.find(name);
        if (found == indices.end()) continue;
        operationOf[size_t(found->second)] = int(i);
        if (firstNodes[i] < 0) firstNodes[i] = found->second;
      }
    for (const ParameterLayout &row : report.parameters) layouts.emplace(row.name, &row);
  }

  MapOperation &at(int operation) {
    const Place &place = places[size_t(operation)];
    return parts[place.part].operations[place.operation];
  }

  void addOperation(int index) {
    const ReportedNode &node = report.nodes[size_t(index)];
    if (parts.empty() || parts.back().name != node.part) parts.emplace_back().name = node.part;
    MapPart &part = parts.back();
    places[size_t(index)] = {parts.size() - 1, part.operations.size()};
    MapOperation &operation = part.operations.emplace_back();
    operation.choice = &node.choice;
    operation.name = nameOf(node.choice);
    const auto chosen = std::ranges::find(node.choice.candidates, true, &planner::CandidateCost::chosen);
    if (chosen == node.choice.candidates.end() || firstNodes[size_t(index)] < 0) return;
    for (const dist::MeshAxis &axis : report.mesh.axes)
      if (std::ranges::any_of(chosen->split,
                              [&](const dist::Axes &axes) { return std::ranges::count(axes, axis.name); }))
        operation.axes.push_back(axis.name);
    addTensors(operation, problem.nodes[size_t(firstNodes[size_t(index)])], chosen->split);
  }

  void addTensors(MapOperation &operation, const planner::Node &node, const dist::FactorSharding &split) {
    std::set<int> known;
    for (size_t k = 0; k < node.operands.size(); ++k) {
      const planner::Tensor &tensor = problem.tensors[size_t(node.operands[k])];
      if (!known.insert(node.operands[k]).second || tensor.kind == planner::TensorKind::Constant) continue;
      const dist::Sharding layout = dist::operandSharding(node.rule, split, k);
      if (tensor.kind == planner::TensorKind::Parameter)
        operation.parameters.push_back({tensor.name, parameterText(tensor, layout)});
      else
        operation.reads.push_back({nameOf(node.operands[k]), text(node.operands[k], layout)});
    }
    for (size_t k = 0; k < node.results.size(); ++k)
      operation.makes.push_back({"", text(node.results[k], dist::resultSharding(node.rule, split, k))});
  }

  std::string nameOf(int tensor) const {
    const int producer = producers[size_t(tensor)];
    const int operation = producer < 0 ? -1 : operationOf[size_t(producer)];
    return operation < 0 ? problem.tensors[size_t(tensor)].name : nameOf(report.nodes[size_t(operation)].choice);
  }
  std::string nameOf(const planner::NodeExplanation &choice) const {
    return names.of(choice.nodes[0], int64_t(choice.nodes.size()));
  }
  std::string text(int tensor, const dist::Sharding &layout) const {
    return fmt::format("{}: {}", dims(problem.tensors[size_t(tensor)]),
                       layoutInWords(layout, batchDims[size_t(tensor)]));
  }
  static std::string dims(const planner::Tensor &tensor) {
    return tensor.dims.empty() ? "a number" : fmt::format("{}", fmt::join(tensor.dims, " x "));
  }
  // As the operation reads it, and how gradient and state lie between steps where that is another way.
  std::string parameterText(const planner::Tensor &tensor, const dist::Sharding &read) const {
    std::string out = fmt::format("{}: {}", dims(tensor), layoutInWords(read));
    const auto row = layouts.find(tensor.name);
    if (row == layouts.end()) return out;
    auto add = [&](const char *what, const std::string &layout) {
      dist::Sharding parsed;
      std::string error;
      if (!layout.empty() && dist::Sharding::parse(layout, parsed, error) && !(parsed == read))
        out += fmt::format("; {} {}", what, layoutInWords(parsed));
    };
    add("between steps", row->second->parameter);
    add("gradient", row->second->gradient);
    add("optimizer state", row->second->state);
    return row->second->state.empty() ? out + "; frozen" : out;
  }

  void findReaders() {
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      for (int tensor : problem.nodes[i].operands) {
        const int producer = producers[size_t(tensor)];
        const int reader = operationOf[i], maker = producer < 0 ? -1 : operationOf[size_t(producer)];
        if (reader < 0 || maker < 0) continue;
        const Place &from = places[size_t(maker)], &to = places[size_t(reader)];
        if (from.part == to.part && from.operation < to.operation) {
          std::vector<int> &readers = at(maker).readers;
          if (!std::ranges::count(readers, int(to.operation))) readers.push_back(int(to.operation));
        } else if (from.part != to.part || maker != reader) {
          at(maker).readBelow = true;
          at(reader).readsFromAbove = true;
        }
      }
  }

  // At the operation that makes the tensor, or is the first to read the parameter.
  void addCollectives() {
    std::map<std::string, int> owners;
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      if (operationOf[i] < 0) continue;
      owners.emplace(problem.nodes[i].name, operationOf[i]);
      for (int tensor : problem.nodes[i].operands)
        if (problem.tensors[size_t(tensor)].kind == planner::TensorKind::Parameter)
          owners.emplace(problem.tensors[size_t(tensor)].name, operationOf[i]);
    }
    for (const planner::TensorCollective &row : report.tensorCollectives)
      if (const auto owner = owners.find(row.tensor); owner != owners.end())
        at(owner->second).collectives.push_back(&row);
  }

  // Stages follow each other in the order of execution.
  void addStages() {
    int64_t nodes = 0;
    for (const Stage &stage : report.stages) nodes += stage.nodes;
    if (report.stages.size() < 2 || nodes != int64_t(problem.nodes.size())) return;
    size_t node = 0;
    for (int64_t s = 0; s < int64_t(report.stages.size()); ++s)
      for (int64_t end = int64_t(node) + report.stages[size_t(s)].nodes; int64_t(node) < end; ++node) {
        if (operationOf[node] < 0) continue;
        MapPart &part = parts[places[size_t(operationOf[node])].part];
        if (part.firstStage < 0) part.firstStage = s;
        part.lastStage = s;
      }
  }

  const Report &report;
  const planner::Problem &problem;
  const std::vector<int> producers;
  const std::vector<int64_t> batchDims;
  const planner::DisplayNames names;
  std::vector<int> operationOf; // by node
  std::vector<int> firstNodes;  // by operation
  std::vector<Place> places;    // by operation
  std::map<std::string, const ParameterLayout *> layouts;
  std::vector<MapPart> parts;
};

} // namespace

std::string layoutInWords(const dist::Sharding &layout, int64_t sampleDim) {
  std::vector<std::string> words;
  for (size_t dim = 0; dim < layout.dims.size(); ++dim)
    if (!layout.dims[dim].empty())
      words.push_back(fmt::format("{} over {}", dimensionWords(dim, layout.dims.size(), sampleDim),
                                  fmt::join(layout.dims[dim], " and ")));
  if (!layout.partial.empty())
    words.push_back(fmt::format("{} over {}",
                                layout.reduction == dist::Reduction::Sum   ? "partial sums"
                                : layout.reduction == dist::Reduction::Max ? "partial maxima"
                                                                           : "partial minima",
                                fmt::join(layout.partial, " and ")));
  return words.empty() ? "whole on every device" : fmt::format("{}", fmt::join(words, ", "));
}

std::vector<MapPart> splitMap(const Report &report) {
  Result<PricingSource> source = unpackSource(report.source);
  if (!source) return {};
  return Mapping(report, source->problem).list();
}

} // namespace cleave::report
