// Pictures: PNG and JPEG files as 8-bit RGB, and resized.
//
//     Result<Image> image = decodeImage(bytes, "cats/tom.jpg");       // image->pixels: height x width x 3
//     Image small = cropCentre(resize(*image, {256, 341}), {224, 224});
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::runtime {

struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize &) const = default;
};

struct Image {
  ImageSize size;
  std::vector<uint8_t> pixels; // rows of red, green, blue
};

// The size that a file's header gives. Errors name `path`: neither PNG nor JPEG, a damaged header, sizes of no image.
Result<ImageSize> imageSize(std::string_view bytes, const std::string &path);
// Every kind of PNG of up to 8 bits a sample (transparency is dropped) and every JPEG of grey levels or colours; the
// orientation that a camera noted is not applied. Errors name `path`: as above, cut off, damaged, 16 bits, CMYK.
Result<Image> decodeImage(std::string_view bytes, const std::string &path);

// ITU-R 601 of a pixel in 16 bits after the point, as Pillow's convert("L").
inline uint8_t grey(const uint8_t *rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}
// Bilinear with a filter as wide as a pixel of the result, in the arithmetic of Pillow's Image.resize up to version 12
// (22 bits after the point, rounded to 8 bits after the rows and again after the columns), so that the result is the
// same bits.
Image resize(const Image &image, ImageSize size);
// The middle, `size` or smaller of each: as torchvision's CenterCrop, whose halves are rounded to even.
Image cropCentre(const Image &image, ImageSize size);

} // namespace cleave::runtime
