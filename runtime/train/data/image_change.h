// What is done to one image that trains: the numbers that augment.h's ranges give, and the arithmetic of torchvision's
// functional transforms on Pillow's images, to the bit.
//
//     ImageChange change = changeOf(augment, {480, 640}, {224, 224}, draws);
//     Image image = changed(resized, change);
#pragma once
#include "runtime/plan/augment.h"
#include "runtime/train/data/draws.h"
#include "runtime/train/data/image.h"
#include <array>

namespace cleave::runtime {

struct ImageBox {
  int64_t top = 0, left = 0;
  ImageSize size;
};
// Of an image of this size, as RandomResizedCrop.get_params: ten tries, else the middle.
ImageBox resizedCropOf(const ResizedCrop &crop, ImageSize image, Draws &draws);

enum class Colour { Brightness, Contrast, Saturation, Hue };
struct ColourChange {
  Colour colour;
  double factor; // of hue: turns
};
// Those that are not none, in a random order.
std::vector<ColourChange> colourChangesOf(const Augment &augment, Draws &draws);

// The box of an image; what lies outside of it is black.
Image cropBox(const Image &image, const ImageBox &box);
Image flipped(const Image &image);
Image recoloured(const Image &image, const ColourChange &change);

// All of it: `fit` scales an image to the model's `size` where it is not cut out at random.
template <typename Fit>
Image augmented(const Image &image, const Augment &augment, ImageSize size, Draws draws, Fit fit) {
  Image out;
  if (augment.resizedCrop)
    out = resize(cropBox(image, resizedCropOf(*augment.resizedCrop, image.size, draws)), size);
  else
    out = fit(image);
  if (const int64_t padding = augment.cropPadding; padding > 0) {
    const int64_t top = draws.below(2 * padding + 1), left = draws.below(2 * padding + 1);
    out = cropBox(out, {top - padding, left - padding, out.size});
  }
  if (draws.uniform() < augment.flip) out = flipped(out);
  for (const ColourChange &change : colourChangesOf(augment, draws)) out = recoloured(out, change);
  return out;
}

// The same of an image that has the model's size and lies by channel: `planes` is [channels, height, width], of 1
// (grey) or 3 channels, as the result.
std::vector<uint8_t> augmentedPlanes(const uint8_t *planes, int64_t channels, ImageSize size, const Augment &augment,
                                     const Draws &draws);

} // namespace cleave::runtime
