#include "compiler/planner/pipeline/stage_transfers.h"
#include "compiler/planner/infinity.h"
#include <algorithm>

namespace cleave::planner {

GroupShape pairOfEnds(const StageProblem &problem) {
  const SplitModel &model = *problem.model;
  return pairAcross(
      model.setting.tierBetweenRanks(*model.cluster, problem.rankOf(0), problem.rankOf(problem.stages() - 1)));
}

LeastTransfers leastTransfers(const StageProblem &problem) {
  const std::vector<double> &forward = problem.activity->forwardCrossing,
                            &backward = problem.activity->backwardCrossing;
  const SplitModel &model = *problem.model;
  const size_t count = model.layout->units.size();
  const int stages = problem.stages();
  LeastTransfers least;
  least.sendForward.assign(size_t(stages), 0.0);
  least.sendBackward.assign(size_t(stages), 0.0);
  if (problem.ranks() == 1 || count < 2) return least;
  const ptrdiff_t end = ptrdiff_t(count);
  const double in = *std::min_element(forward.begin() + 1, forward.begin() + end);
  const double back = *std::min_element(backward.begin() + 1, backward.begin() + end);
  for (int s = 0; s + 1 < stages; ++s) {
    const int rank = problem.rankOf(s), next = problem.rankOf(s + 1);
    if (rank == next) continue;
    const Tier tier = problem.tierBetween(rank, next);
    if (in > 0) least.sendForward[size_t(s)] = sendSeconds(*model.cluster, tier, in);
    if (back > 0) least.sendBackward[size_t(s) + 1] = sendSeconds(*model.cluster, tier, back);
  }
  least.buffer = infinity;
  for (size_t u = 1; u < count; ++u) least.buffer = std::min(least.buffer, borderBytes(problem, int(u)));
  least.received = in;
  least.returned = back;
  return least;
}

// The part that several units wait is no less than that of the one that waits least. More bytes hold for longer
// while passes take longer than the messages.
std::vector<LeastHeld> leastHeld(const StageProblem &problem) {
  const SplitModel &model = *problem.model;
  const Cluster &cluster = *model.cluster;
  const std::vector<Unit> &units = model.layout->units;
  const int stages = problem.stages(), count = int(units.size());
  std::vector<LeastHeld> held(static_cast<size_t>(stages));
  if (problem.ranks() == 1 || count < stages || cluster.node.topology == Link::Topology::Memory) return held;
  struct Part {
    double node = infinity, network = infinity; // of a unit's seconds, waited for collectives on a link
    double seconds = infinity;
  };
  std::vector<Part> ofKind(size_t(model.layout->kinds));
  std::vector<std::vector<int>> unitsOfKind(ofKind.size());
  for (int u = 0; u < count; ++u) unitsOfKind[size_t(units[size_t(u)].kind)].push_back(u);
  for (size_t kind = 0; kind < ofKind.size(); ++kind)
    for (Recompute how : everyRecompute) {
      const Cost &one = problem.activity->of(int(kind), how);
      if (one.seconds() <= 0) continue;
      Part &part = ofKind[kind];
      part.node = std::min(part.node, one.links.node / one.seconds());
      part.network = std::min(part.network, one.links.network / one.seconds());
      part.seconds = std::min(part.seconds, one.seconds());
    }
  const auto range = [&](const std::vector<double> &crossing) {
    const auto [least, most] = std::minmax_element(crossing.begin() + 1, crossing.begin() + count);
    return std::pair(*least, *most);
  };
  const auto forward = range(problem.activity->forwardCrossing), backward = range(problem.activity->backwardCrossing);
  for (int s = 0; s < stages; ++s) {
    LinkSeconds least, most;
    std::array<std::pair<double, double>, 2> sends; // least and most, forward and backward
    for (int way : {0, 1}) {
      const int other = way == 0 ? s + 1 : s - 1;
      const auto [few, many] = way == 0 ? forward : backward;
      if (other < 0 || other >= stages || problem.rankOf(other) == problem.rankOf(s)) continue;
      const Tier tier = problem.tierBetween(problem.rankOf(s), problem.rankOf(other));
      least.add(linkSeconds(cluster, tier, few));
      most.add(linkSeconds(cluster, tier, many));
      sends[size_t(way)] = {few > 0 ? sendSeconds(cluster, tier, few) : 0,
                            many > 0 ? sendSeconds(cluster, tier, many) : 0};
    }
    Part part;
    for (size_t kind = 0; kind < ofKind.size(); ++kind) {
      const auto next = std::ranges::lower_bound(unitsOfKind[kind], s);
      if (next == unitsOfKind[kind].end() || *next > count - stages + s) continue; // each stage has a unit
      const Part &one = ofKind[kind];
      part.node = std::min(part.node, one.node);
      part.network = std::min(part.network, one.network);
      part.seconds = std::min(part.seconds, one.seconds);
    }
    if (part.seconds == infinity || most.node + most.network > part.seconds) continue;
    const double seconds = least.node * part.node + least.network * part.network;
    // Both messages take as much longer together.
    auto partOf = [&](int way) {
      const double own = sends[size_t(way)].first;
      return own > 0 ? own / (own + sends[size_t(1 - way)].second) : 0;
    };
    held[size_t(s)] = {seconds, seconds * partOf(0), seconds * partOf(1)};
  }
  return held;
}

double LeastTransfers::bytesOf(const StageProblem &problem, int stage) const {
  double bytes = 0;
  if (stage > 0) bytes += buffer + problem.live(stage) * received;
  if (stage + 1 < problem.stages()) bytes += buffer + problem.live(stage) * returned;
  return bytes;
}

} // namespace cleave::planner
