// A tensor of a convolution or pool in the order [N, C, spatial], or [O, I, kernel] of a weight, wherever its channels
// lie in memory (Convolution.channels_last, Convolution.weight_channels_last, Pool.channels_last).
//
//   imageShape(buffer of shape {8, 32, 32, 3}, true)     // sizes {8, 3, 32, 32}, strides {3072, 1, 96, 3}
#pragma once
#include "plan/plan.pb.h"
#include <algorithm>
#include <vector>

namespace cleave::runtime {

struct ImageShape {
  std::vector<int64_t> sizes, strides; // elements
};

// The buffer has two dimensions or more; products of sizes are not checked.
inline ImageShape imageShape(const plan::Buffer &buffer, bool isLast) {
  ImageShape shape{{buffer.shape().begin(), buffer.shape().end()}, {}};
  shape.strides.assign(shape.sizes.size(), 1);
  for (size_t i = shape.sizes.size(); i-- > 1;) shape.strides[i - 1] = shape.strides[i] * shape.sizes[i];
  if (isLast && shape.sizes.size() > 2)
    for (std::vector<int64_t> *list : {&shape.sizes, &shape.strides})
      std::rotate(list->begin() + 1, list->end() - 1, list->end());
  return shape;
}

} // namespace cleave::runtime
