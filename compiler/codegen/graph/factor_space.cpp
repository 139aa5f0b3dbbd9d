#include "compiler/codegen/graph/factor_space.h"

namespace cleave::codegen {

int FactorSpace::make(int64_t size) {
  nodes.push_back({size});
  return static_cast<int>(nodes.size()) - 1;
}

void FactorSpace::resolve(int factor, List &leaves) const {
  const Node &node = nodes[factor];
  if (node.same >= 0) return resolve(node.same, leaves);
  if (node.major < 0) {
    leaves.push_back(factor);
    return;
  }
  resolve(node.major, leaves);
  resolve(node.minor, leaves);
}

FactorSpace::List FactorSpace::resolve(const List &factors) const {
  List leaves;
  for (int factor : factors) resolve(factor, leaves);
  return leaves;
}

void FactorSpace::cut(int factor, int64_t majorSize) {
  int major = make(majorSize), minor = make(nodes[factor].size / majorSize);
  nodes[factor].major = major;
  nodes[factor].minor = minor;
}

bool FactorSpace::unify(const List &a, const List &b) {
  // Stacks of what is still to be compared, the major end on top; entries are resolved when they come up.
  List left(a.rbegin(), a.rend()), right(b.rbegin(), b.rend());
  auto top = [&](List &stack) {
    List leaves;
    resolve(stack.pop_back_val(), leaves);
    for (size_t i = leaves.size(); i-- > 1;) stack.push_back(leaves[i]);
    return leaves.front();
  };
  while (!left.empty() && !right.empty()) {
    int x = top(left), y = top(right);
    if (x == y) continue;
    int64_t sizeX = nodes[x].size, sizeY = nodes[y].size;
    if (sizeX == sizeY) {
      nodes[y].same = x;
      continue;
    }
    int large = sizeX > sizeY ? x : y;
    int64_t small = std::min(sizeX, sizeY);
    if (nodes[large].size % small != 0) return false;
    cut(large, small);
    left.push_back(x);
    right.push_back(y);
  }
  return left.empty() && right.empty();
}

} // namespace cleave::codegen
