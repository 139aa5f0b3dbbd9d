// Mixup (Zhang et al., 2017) and CutMix (Yun et al., 2019) of a batch: each sample with the one before it in the global
// batch, the first with the last, as torchvision.transforms.v2's MixUp and CutMix. One part lambda ~ Beta(alpha, alpha)
// counts for the whole batch; with both, a batch has one of them, at even chances.
//
//     data.mixup: 0.2        x = lambda x[i] + (1 - lambda) x[i - 1], labels alike
//     data.cutmix: 1.0       a box of x[i - 1] in x[i]; labels by area
#pragma once
#include "runtime/train/data/dataset.h"
#include "runtime/train/data/draws.h"
#include "runtime/train/data/settings.h"

namespace cleave::runtime {

// The box of CutMix: rows [top, bottom), columns [left, right).
struct MixedBox {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};
struct Mix {
  double part = 1; // of the sample itself: of its labels, and without a box of its numbers
  bool isCut = false;
  MixedBox box = {};
};

class Mixing {
public:
  Mixing(const DataSettings &settings, uint64_t seed) : mixup(settings.mixup), cutmix(settings.cutmix), seed(seed) {}
  // Error: labels that are class numbers, inputs that cannot be mixed.
  static Status check(const DataSettings &settings, const std::vector<Field> &fields);

  // How a batch is mixed whose first sample is number `turn` of the training, and whose images are of `size`.
  Mix mixOf(uint64_t turn, int64_t height, int64_t width) const;
  // As Dataset::fillTraining, of the samples [begin, begin + count) of the global batch.
  Status fill(const Dataset &from, size_t field, std::span<const int64_t> batch, uint64_t turn, size_t begin,
              size_t count, std::byte *out) const;

private:
  double mixup, cutmix;
  uint64_t seed;
};

} // namespace cleave::runtime
