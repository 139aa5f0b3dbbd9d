#include "compiler/planner/explain/collective_sums.h"
#include <algorithm>

namespace cleave::planner {

void CollectiveSums::add(const std::string &op, const dist::Axes &axes, const std::string &why, const Share &share,
                         const std::vector<MovedTensor> &tensors) {
  auto firstOf = [&](const std::string &name) { return names.firstOf(name); };
  Sum &sum = sums[{op, axes, names.replaced(why, firstOf)}];
  sum.reasons.insert(why);
  sum.bytes += share.bytes;
  sum.seconds += share.seconds;
  sum.times += share.times;
  if (share.isBeside) sum.besideBytes += share.bytes;
  sum.forwardBytes += share.forward * share.bytes;
  sum.backwardBytes += share.backward * share.bytes;
  for (const MovedTensor &tensor : tensors) {
    MovedTensor &known = sum.tensors.try_emplace(tensor.name, MovedTensor{tensor.name, 1, 0}).first->second;
    known.alike = std::max(known.alike, tensor.alike);
    known.bytes += tensor.bytes;
  }
}

// Repetitions together, those with most bytes first.
std::vector<MovedTensor> CollectiveSums::Sum::shown(const DisplayNames &names, double ranks) const {
  std::map<std::string, MovedTensor> together;
  for (const auto &[name, tensor] : tensors) {
    MovedTensor &one = together.try_emplace(names.firstOf(name), MovedTensor{name, 0, 0}).first->second;
    one.alike += tensor.alike;
    one.bytes += tensor.bytes / ranks;
  }
  std::vector<MovedTensor> list;
  for (const auto &[first, one] : together)
    list.push_back({one.name, one.alike, one.bytes, names.of(one.name, one.alike)});
  std::ranges::sort(list, [](const MovedTensor &a, const MovedTensor &b) {
    return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
  });
  return list;
}

std::vector<CollectiveTotal> CollectiveSums::list(double ranks) const {
  std::vector<CollectiveTotal> result;
  for (const auto &[key, sum] : sums) {
    CollectiveTotal &total = result.emplace_back();
    std::tie(total.op, total.axes, total.why) = key;
    const bool isRepeated = sum.reasons.size() > 1;
    if (!isRepeated) total.why = *sum.reasons.begin();
    total.shown = names.replaced(
        total.why, [&](const std::string &name) { return names.of(name, isRepeated ? names.repetitions(name) : 1); });
    total.bytes = sum.bytes / ranks;
    total.seconds = sum.seconds / ranks;
    total.count = std::max<int64_t>(1, int64_t(sum.times / ranks + 0.5));
    total.hidden = sum.besideBytes > sum.bytes / 2;
    total.forwardBytes = sum.forwardBytes / ranks;
    total.backwardBytes = sum.backwardBytes / ranks;
    total.tensors = sum.shown(names, ranks);
    if (total.tensors.size() <= mostMovedTensors) continue;
    total.tensorsMore = int64_t(total.tensors.size() - mostMovedTensors);
    total.tensors.resize(mostMovedTensors);
  }
  std::sort(result.begin(), result.end(), [](const CollectiveTotal &a, const CollectiveTotal &b) {
    return std::tie(b.seconds, b.bytes, a.op, a.why) < std::tie(a.seconds, a.bytes, b.op, b.why);
  });
  return result;
}

std::vector<TensorCollective> CollectiveSums::byTensor(double ranks) const {
  std::vector<TensorCollective> result;
  for (const auto &[key, sum] : sums)
    for (const auto &[name, tensor] : sum.tensors) {
      const double seconds = sum.bytes > 0 ? sum.seconds * tensor.bytes / sum.bytes : 0;
      const auto &[op, axes, why] = key;
      result.push_back({name, tensor.alike, op, axes, why, tensor.bytes / ranks, seconds / ranks});
    }
  std::ranges::stable_sort(result, {}, &TensorCollective::tensor);
  return result;
}

} // namespace cleave::planner
