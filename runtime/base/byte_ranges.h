// Bytes of a memory as ranges, and sets of them.
//
//   ByteRanges written;
//   written.add({0, 64}), written.add({64, 96});
//   written.meets({95, 100})     // true: byte 95
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace cleave::runtime {

struct ByteRange {
  int64_t begin = 0, end = 0;
  bool meets(const ByteRange &other) const { return begin < other.end && other.begin < end; }
};

class ByteRanges {
public:
  void add(ByteRange range) {
    if (range.begin >= range.end) return;
    auto next = ends.upper_bound(range.begin); // the first that begins behind
    if (next != ends.begin() && std::prev(next)->second >= range.begin) range.begin = (--next)->first;
    while (next != ends.end() && next->first <= range.end) {
      range.end = std::max(range.end, next->second);
      next = ends.erase(next);
    }
    ends[range.begin] = range.end;
  }
  bool meets(const ByteRange &range) const {
    auto next = ends.lower_bound(range.end); // the first that begins no sooner than this ends
    return range.begin < range.end && next != ends.begin() && std::prev(next)->second > range.begin;
  }
  void clear() { ends.clear(); }

private:
  std::map<int64_t, int64_t> ends; // by where they begin; they do not touch
};

} // namespace cleave::runtime
