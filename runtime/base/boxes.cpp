#include "runtime/base/boxes.h"
#include <algorithm>
#include <cstring>

namespace cleave::runtime {

std::vector<int64_t> rowMajorStrides(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

bool isInside(const Shard &box, std::span<const int64_t> shape) {
  bool inside = box.begin.size() == shape.size() && box.size.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d)
    inside = box.begin[d] >= 0 && box.size[d] >= 0 && box.begin[d] <= shape[d] - box.size[d];
  return inside;
}

std::optional<Shard> intersection(const Shard &a, const Shard &b) {
  if (a.begin.size() != b.begin.size() || b.size.size() != b.begin.size()) return std::nullopt;
  Shard common;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    const int64_t begin = std::max(a.begin[d], b.begin[d]);
    const int64_t end = std::min(a.begin[d] + a.size[d], b.begin[d] + b.size[d]);
    if (begin >= end) return std::nullopt;
    common.begin.push_back(begin);
    common.size.push_back(end - begin);
  }
  return common;
}

void copyBox(std::span<const int64_t> size, const BoxPlace &source, const std::byte *from, const BoxPlace &target,
             std::byte *to, int64_t elementBytes) {
  forEachRun(size, source, target, [&](int64_t read, int64_t written, int64_t run) {
    std::memcpy(to + written * elementBytes, from + read * elementBytes, static_cast<size_t>(run * elementBytes));
  });
}

} // namespace cleave::runtime
