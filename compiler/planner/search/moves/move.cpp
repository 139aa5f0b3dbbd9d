#include "compiler/planner/search/moves/move.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

constexpr Move moves[] = {
    {"cuts", "cutting the best pipelines", cutAgain},
    {"splits", "the best splits again", splitAgain},
    {"bounds", "bounds of pipelines", raiseBounds},
    {"units", "moving units between stages", moveUnits},
    {"schedules", "schedules that follow the stages", followSchedules},
    {"zero", "ZeRO stages by group", mixZeroStages},
};
// Pipelines that a move works on, of so many meshes.
constexpr size_t mostPipelines = 3;

} // namespace

std::span<const Move> allMoves() { return moves; }

Status checkMoves(const std::vector<std::string> &names) {
  for (const std::string &name : names) {
    if (name == "none" || std::ranges::find(moves, name, &Move::name) != std::end(moves)) continue;
    std::vector<std::string> known = {"none"};
    for (const Move &move : moves) known.emplace_back(move.name);
    return {ErrorKind::Usage, fmt::format("--search-moves: '{}' is none of {}", name, fmt::join(known, ", "))};
  }
  return Status::ok();
}

std::vector<Solution> bestPipelines(const Search &search) {
  std::vector<Solution> pipelines = search.found.fastestFirst();
  std::erase_if(pipelines, [](const Solution &solution) { return solution.model->setting.pp == 1; });
  const int64_t top = search.space.options.top;
  const size_t asked = top > 0 ? size_t(top) + 1 : 0; // the best, and runners-up
  const size_t most = std::max(mostPipelines, asked);
  if (pipelines.size() > most) pipelines.resize(most);
  while (pipelines.size() > asked && pipelines.back().seconds() > worthRefining * search.found.incumbent())
    pipelines.pop_back();
  return pipelines;
}

} // namespace cleave::planner
