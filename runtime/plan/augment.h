// What may be done at random to images that train, in this order: torchvision's RandomResizedCrop or RandomCrop with
// padding, RandomHorizontalFlip, and ColorJitter (image_change.h does it).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace cleave::runtime {

// The part of the image's area and the ratio of its sides, width to height, from and to.
struct ResizedCrop {
  std::vector<double> scale = {0.08, 1}, ratio = {3.0 / 4, 4.0 / 3};
};

struct Augment {
  std::optional<ResizedCrop> resizedCrop;
  int64_t cropPadding = 0;                                      // black pixels around the image; 0: none
  double flip = 0;                                              // chance
  double brightness = 0, contrast = 0, saturation = 0, hue = 0; // as of ColorJitter
};

} // namespace cleave::runtime
