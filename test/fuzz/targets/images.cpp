// Pictures: decoded as large as their headers say, or refused with a word; and brought to a model's size.
#include "runtime/train/data/image.h"
#include "test/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace cleave;
  const std::string_view bytes(reinterpret_cast<const char *>(data), size);
  auto claimed = runtime::imageSize(bytes, "picture");
  if (!claimed) return fuzz::refused(claimed.status());
  auto image = runtime::decodeImage(bytes, "picture");
  if (!image) return fuzz::refused(image.status());
  fuzz::require(image->size == *claimed, "is not as large as its header says");
  fuzz::require(image->pixels.size() == size_t(3 * claimed->height * claimed->width), "has other pixels than its size");
  const runtime::Image fitted = runtime::cropCentre(runtime::resize(*image, {9, 7}), {5, 6});
  fuzz::require(fitted.pixels.size() == 3 * 5 * 6, "has another size than it was brought to");
  return 0;
}
