#include "runtime/base/strided_copy.h"
#include "runtime/base/threads/parallel.h"
#include <algorithm>
#include <cstring>

namespace cleave::runtime {

StridedCopy::StridedCopy(std::vector<int64_t> sizes, std::vector<int64_t> sourceStrides,
                         std::vector<int64_t> targetStrides, int64_t elementBytes)
    : element(elementBytes) {
  std::vector<Dim> dims;
  totalBytes = elementBytes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    totalBytes *= sizes[d];
    if (sizes[d] != 1) dims.push_back({sizes[d], sourceStrides[d] * elementBytes, targetStrides[d] * elementBytes});
  }
  if (totalBytes == 0) return;
  // The target's order decides the loops; dimensions that run on in both are one.
  std::sort(dims.begin(), dims.end(), [](const Dim &a, const Dim &b) {
    return a.target != b.target ? a.target > b.target : a.source > b.source;
  });
  std::vector<Dim> merged;
  for (const Dim &dim : dims) {
    if (!merged.empty() && merged.back().source == dim.source * dim.size &&
        merged.back().target == dim.target * dim.size)
      merged.back() = {merged.back().size * dim.size, dim.source, dim.target};
    else
      merged.push_back(dim);
  }
  width = elementBytes;
  if (!merged.empty()) {
    Dim last = merged.back();
    if (last.source == elementBytes && last.target == elementBytes) {
      width = last.size * elementBytes;
      merged.pop_back();
    } else {
      inner = Row;
      width = last.size, rowSource = last.source, rowTarget = last.target;
      merged.pop_back();
      for (size_t d = 0; d < merged.size(); ++d) {
        if (merged[d].source != elementBytes || last.target != elementBytes) continue;
        inner = Transpose; // the source runs along this dimension, the target along `last`
        height = merged[d].size, heightTarget = merged[d].target;
        merged.erase(merged.begin() + static_cast<ptrdiff_t>(d));
        break;
      }
    }
  }
  if (inner == Transpose && height > 64) { // cut tall tiles so that there is something to share among threads
    int64_t block = 64, blocks = height / block;
    if (height % block == 0) {
      merged.push_back({blocks, block * elementBytes, block * heightTarget});
      height = block;
    }
  }
  outer = std::move(merged);
  for (const Dim &dim : outer) outerCount *= dim.size;
  if (outerCount == 1 && inner == Contiguous && width > (1 << 18)) { // one long run: cut it too
    int64_t block = 1 << 16;
    while (block > 1 && width % block) block /= 2;
    if (block >= 4096) {
      outer.push_back({width / block, block, block});
      outerCount = width / block;
      width = block;
    }
  }
}

template <typename Element>
static void copyRow(const std::byte *source, std::byte *target, int64_t count, int64_t from, int64_t to) {
  for (int64_t i = 0; i < count; ++i)
    *reinterpret_cast<Element *>(target + i * to) = *reinterpret_cast<const Element *>(source + i * from);
}

template <typename Element>
static void transposeTile(const std::byte *source, std::byte *target, int64_t width, int64_t from, int64_t height,
                          int64_t to) {
  constexpr int64_t block = 16; // a block's cache lines stay in L1 on both sides
  for (int64_t w = 0; w < width; w += block)
    for (int64_t h = 0; h < height; h += block) {
      int64_t wEnd = std::min(width, w + block), hEnd = std::min(height, h + block);
      for (int64_t y = h; y < hEnd; ++y) {
        auto *row = reinterpret_cast<Element *>(target + y * to);
        for (int64_t x = w; x < wEnd; ++x) row[x] = *(reinterpret_cast<const Element *>(source + x * from) + y);
      }
    }
}

void StridedCopy::runTile(const std::byte *source, std::byte *target) const {
  auto typed = [&](auto zero) {
    using Element = decltype(zero);
    if (inner == Row)
      copyRow<Element>(source, target, width, rowSource, rowTarget);
    else
      transposeTile<Element>(source, target, width, rowSource, height, heightTarget);
  };
  if (inner == Contiguous)
    std::memcpy(target, source, static_cast<size_t>(width));
  else if (element == 4)
    typed(uint32_t{});
  else if (element == 8)
    typed(uint64_t{});
  else if (element == 2)
    typed(uint16_t{});
  else
    typed(uint8_t{});
}

void StridedCopy::run(const std::byte *source, std::byte *target) const {
  if (totalBytes == 0) return;
  int64_t grain =
      std::max<int64_t>(1, (int64_t(1) << 15) * outerCount / std::max<int64_t>(1, totalBytes)); // 32 KiB a share
  parallelFor(outerCount, grain, [&](int64_t begin, int64_t end) {
    constexpr size_t most = 32;
    int64_t index[most] = {};
    const std::byte *from = source;
    std::byte *to = target;
    int64_t rest = begin;
    for (size_t d = outer.size(); d-- > 0;) {
      index[d] = rest % outer[d].size, rest /= outer[d].size;
      from += index[d] * outer[d].source, to += index[d] * outer[d].target;
    }
    for (int64_t i = begin; i < end; ++i) {
      runTile(from, to);
      for (size_t d = outer.size(); d-- > 0;) {
        from += outer[d].source, to += outer[d].target;
        if (++index[d] < outer[d].size) break;
        from -= outer[d].source * outer[d].size, to -= outer[d].target * outer[d].size;
        index[d] = 0;
      }
    }
  });
}

} // namespace cleave::runtime
