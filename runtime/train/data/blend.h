// Which source of a mixture each sample comes from. After any n samples a source of share w has given the whole number
// below n w or the one above it: Balinski and Young's quota method, whose turns follow from n alone.
//
//     Blend blend({0.7, 0.3});
//     blend.next();      // {source 0, its sample number 0}, then {1, 0}, {0, 1}, ...
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cleave::runtime {

// A source: `samples` of all, behind those of the sources before it.
struct Share {
  int64_t samples = 0;
  double weight = 1;
};

class Blend {
public:
  // Positive, at most 1e6 each. Nine digits after the point count.
  explicit Blend(const std::vector<double> &weights);
  struct Turn {
    size_t source;
    int64_t number; // of the source's samples, from 0
  };
  Turn next();
  // The next turn is number `turn` of all. Weights of few digits repeat their turns soon, which makes this quick.
  void seek(int64_t turn);

private:
  std::vector<int64_t> weights, given; // shares of `total`; turns that each source had
  int64_t total = 0, turns = 0;
};

} // namespace cleave::runtime
