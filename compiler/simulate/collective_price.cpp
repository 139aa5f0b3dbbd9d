#include "compiler/simulate/collective_price.h"
#include "compiler/simulate/command_work.h"
#include <algorithm>

namespace cleave::simulate {
namespace {

planner::GroupShape groupOf(const plan::Collective &collective, const planner::Cluster &cluster,
                            const dist::Mesh &mesh) {
  std::vector<planner::AxisPlace> places; // innermost first
  int64_t stride = 1;
  for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); stride *= axis->size, ++axis)
    if (axis->size > 1 && std::ranges::count(collective.axes(), axis->name)) places.push_back({axis->size, stride});
  return planner::groupAlong(cluster, places, mesh.numDevices());
}

} // namespace

CollectivePrice priceOf(const plan::Collective &collective, const planner::Cluster &cluster, const dist::Mesh &mesh) {
  CollectivePrice price{groupOf(collective, cluster, mesh)};
  for (const plan::Buffer &input : collective.inputs()) price.bytes += bytesOf(input);
  const bool isOfParts =
      collective.op() == plan::Collective::ALL_GATHER || collective.op() == plan::Collective::ALL_TO_ALL;
  if (isOfParts) price.bytes *= double(price.group.size);
  auto like = [&](planner::Collective kind) {
    return planner::collectiveSeconds(cluster, kind, price.group, price.bytes);
  };
  if (collective.op() == plan::Collective::SHIFT) // as slow as the slowest hop of its ring
    price.seconds =
        price.group.size > 1 ? planner::sendSeconds(cluster, planner::tierOf(cluster, price.group), price.bytes) : 0;
  else if (collective.op() == plan::Collective::BROADCAST) // as much goes to each as in a gather
    price.seconds = like(planner::Collective::AllGather);
  else
    price.seconds = like(static_cast<planner::Collective>(collective.op()));
  return price;
}

} // namespace cleave::simulate
