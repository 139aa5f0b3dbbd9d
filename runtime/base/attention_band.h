// Which keys the queries of an attention see: a band along the diagonal of their scores, as cuDNN's bounds of it.
//
//   AttentionBand{.right = 0}                  causal: query 3 sees keys 0 1 2 3
//   AttentionBand{.left = 2, .right = 0}       a sliding window of two keys: query 3 sees keys 2 3
//   AttentionBand{.right = keys - queries}     causal, the last query beside the last key
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

namespace cleave::runtime {

// Query s sees the keys t with s - left < t <= s + right; none: no bound.
struct AttentionBand {
  std::optional<int64_t> left = std::nullopt, right = std::nullopt;

  bool operator==(const AttentionBand &) const = default;
  bool isBounded() const { return left || right; }
  bool isCausal() const { return right == 0 && !left; }
  bool sees(int64_t query, int64_t key) const {
    return (!left || key > query - *left) && (!right || key <= query + *right);
  }
  // No query is left without a key, and each bound hides some pair.
  bool fits(int64_t queries, int64_t keys) const {
    return (!left || (*left >= 1 && *left < queries && queries <= keys)) && (!right || (*right >= 0 && *right < keys));
  }
  // What both let a query see.
  AttentionBand within(const AttentionBand &other) const {
    auto closer = [](std::optional<int64_t> a, std::optional<int64_t> b) {
      return a && b ? std::min(*a, *b) : a ? a : b;
    };
    return {closer(left, other.left), closer(right, other.right)};
  }
  // What of all pairs lies in a tile of `tile` queries and as many keys with a pair that is seen: at most 1.
  double part(int64_t queries, int64_t keys, int64_t tile = 1) const {
    double pairs = 0;
    for (int64_t first = 0; first < queries; first += tile) {
      const int64_t end = std::min(first + tile, queries);
      const int64_t from = left ? std::max<int64_t>(0, first - *left + 1) / tile * tile : 0;
      const int64_t to = right ? std::min(keys, (end - 1 + *right + tile) / tile * tile) : keys;
      pairs += static_cast<double>(end - first) * static_cast<double>(std::max<int64_t>(0, to - from));
    }
    return queries > 0 && keys > 0 ? pairs / static_cast<double>(queries) / static_cast<double>(keys) : 0;
  }
};

} // namespace cleave::runtime
