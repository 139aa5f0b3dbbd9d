// Factors that are found equal or cut in two while the layouts of values are compared (see kernel_domain.h).
//
//   FactorSpace space;  int a = space.make(12), b = space.make(3), c = space.make(4);
//   space.unify({a}, {b, c});   // 12 = 3 x 4: a is now b, c
#pragma once
#include "llvm/ADT/SmallVector.h"
#include <cstdint>

namespace cleave::codegen {

class FactorSpace {
public:
  using List = llvm::SmallVector<int, 4>;

  int make(int64_t size);
  int64_t size(int factor) const { return nodes[factor].size; }
  // Makes two lists of factors, major first, mean the same. False if no cut makes their sizes line up.
  [[nodiscard]] bool unify(const List &a, const List &b);
  // The uncut factors a list stands for.
  List resolve(const List &factors) const;

private:
  struct Node {
    int64_t size;
    int same = -1;              // stands for this factor
    int major = -1, minor = -1; // cut into these
  };
  void resolve(int factor, List &leaves) const;
  void cut(int factor, int64_t majorSize);
  llvm::SmallVector<Node> nodes;
};

} // namespace cleave::codegen
