#include "compiler/codegen/memory/memory_plan.h"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

namespace cleave::codegen {
namespace {

struct Placed {
  int64_t begin, end;  // bytes
  int64_t first, last; // positions
};

// Lowest offsets that fit, buffers taken in `order`. Returns the peak; gives up (returns `limit`) once past it, at the
// buffer with this place in the order.
int64_t firstFit(const std::vector<BufferInterval> &buffers, const std::vector<size_t> &order, int64_t limit,
                 std::vector<int64_t> &offsets, size_t &place) {
  std::vector<Placed> placed; // by begin
  placed.reserve(buffers.size());
  int64_t peak = 0;
  for (place = 0; place < order.size(); ++place) {
    const size_t index = order[place];
    const BufferInterval &buffer = buffers[index];
    int64_t bytes = alignUp(std::max<int64_t>(buffer.bytes, 1));
    int64_t offset = 0;
    for (const Placed &other : placed) {
      if (other.begin >= offset + bytes) break; // the gap before this and all later ones is large enough
      if (other.last >= buffer.first && other.first <= buffer.last) offset = std::max(offset, other.end);
    }
    offsets[index] = offset;
    peak = std::max(peak, offset + bytes);
    if (peak >= limit) return limit;
    Placed entry{offset, offset + bytes, buffer.first, buffer.last};
    auto where = std::upper_bound(placed.begin(), placed.end(), entry,
                                  [](const Placed &a, const Placed &b) { return a.begin < b.begin; });
    placed.insert(where, entry);
  }
  return peak;
}

// Further attempts from each of the three sorted orders on: a first fit of n buffers takes up to n^2 steps, and all
// together some hundred millions.
size_t turns(size_t buffers) {
  constexpr size_t most = 2000, steps = 100'000'000;
  return std::min(most, steps / std::max<size_t>(1, buffers * buffers));
}

} // namespace

MemoryBound boundMemory(const std::vector<BufferInterval> &buffers) {
  struct Change {
    int64_t position, bytes;
  };
  std::vector<Change> changes;
  changes.reserve(buffers.size() * 2);
  for (const BufferInterval &buffer : buffers) {
    int64_t bytes = alignUp(std::max<int64_t>(buffer.bytes, 1));
    changes.push_back({buffer.first, bytes});
    changes.push_back({buffer.last + 1, -bytes});
  }
  std::sort(changes.begin(), changes.end(), [](const Change &a, const Change &b) {
    return a.position != b.position ? a.position < b.position : a.bytes < b.bytes; // ends before starts
  });
  MemoryBound bound;
  int64_t alive = 0;
  for (const Change &change : changes) {
    alive += change.bytes;
    if (alive <= bound.bytes) continue;
    bound = {alive, change.position};
  }
  return bound;
}

MemoryPlan planMemory(const std::vector<BufferInterval> &buffers) {
  MemoryPlan plan;
  plan.bound = boundMemory(buffers);
  plan.offsets.assign(buffers.size(), 0);
  plan.peak = std::numeric_limits<int64_t>::max();

  std::vector<size_t> order(buffers.size());
  std::vector<std::vector<size_t>> sorted; // orders
  std::iota(order.begin(), order.end(), 0);
  std::vector<int64_t> offsets(buffers.size());
  size_t place = 0; // where the last attempt gave up
  auto tryOrder = [&] {
    const int64_t peak = firstFit(buffers, order, plan.peak, offsets, place);
    if (peak >= plan.peak) return;
    plan.peak = peak;
    plan.offsets = offsets;
  };
  auto attempt = [&](auto weight, auto tieBreak) { // decreasing
    if (plan.peak == plan.bound.bytes) return;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (weight(a) != weight(b)) return weight(a) > weight(b);
      return tieBreak(a) != tieBreak(b) ? tieBreak(a) > tieBreak(b) : a < b;
    });
    tryOrder();
    sorted.push_back(order);
  };
  auto size = [&](size_t i) { return buffers[i].bytes; };
  auto duration = [&](size_t i) { return buffers[i].last - buffers[i].first + 1; };
  auto area = [&](size_t i) { return double(size(i)) * double(duration(i)); };
  attempt(size, duration);
  attempt(area, size); // long-lived buffers at the bottom
  attempt(duration, size);
  // Buffers that did not fit move to an earlier place in the order, again and again.
  uint64_t random = 1; // Knuth's linear congruential generator (MMIX): the same numbers everywhere
  for (std::vector<size_t> &one : sorted) {
    order.swap(one);
    for (size_t turn = 0; turn < turns(buffers.size()) && plan.peak > plan.bound.bytes; ++turn) {
      tryOrder();
      if (place == 0 || place == order.size()) continue;
      const auto from = order.begin() + std::ptrdiff_t(place);
      random = random * 6364136223846793005 + 1442695040888963407;
      std::rotate(order.begin() + std::ptrdiff_t((random >> 32) % place), from, from + 1);
    }
  }
  return plan;
}

} // namespace cleave::codegen
