#include "runtime/train/data/image.h"
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <png.h>
#include <turbojpeg.h>

namespace cleave::runtime {
namespace {

constexpr std::string_view pngSignature = "\x89PNG\r\n\x1a\n", jpegSignature = "\xff\xd8\xff";
constexpr int64_t pixelLimit = int64_t(1) << 28; // of one image: a larger one is more likely damaged than wanted

Status fault(const std::string &path, const std::string &why) { return inputError(fmt::format("{}: {}", path, why)); }

Status checkSize(const ImageSize &size, const std::string &path) {
  if (size.height > 0 && size.width > 0 && size.height <= pixelLimit / size.width) return Status::ok();
  return fault(path, fmt::format("an image of {} x {} pixels cannot be read", size.height, size.width));
}

using Jpeg = std::unique_ptr<void, int (*)(tjhandle)>;

// Colour spaces of three components or one become RGB; four are ink.
Status readJpegHeader(const Jpeg &reader, std::string_view bytes, const std::string &path, ImageSize &size) {
  int width = 0, height = 0, subsampling = 0, colours = 0;
  auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
  if (!reader) return fault(path, "libjpeg-turbo cannot begin");
  if (tjDecompressHeader3(reader.get(), data, bytes.size(), &width, &height, &subsampling, &colours) != 0)
    return fault(path, fmt::format("is a damaged JPEG: {}", tjGetErrorStr2(reader.get())));
  if (width < 1 || height < 1) return fault(path, "is a damaged JPEG: its header has no size");
  if (colours == TJCS_CMYK || colours == TJCS_YCCK)
    return fault(path, "is a JPEG in CMYK, which is not supported; convert it to RGB");
  size = {height, width};
  return checkSize(size, path);
}

Result<Image> decodeJpeg(std::string_view bytes, const std::string &path) {
  Jpeg reader(tjInitDecompress(), tjDestroy);
  Image image;
  CLEAVE_RETURN_IF_ERROR(readJpegHeader(reader, bytes, path, image.size));
  image.pixels.resize(static_cast<size_t>(image.size.height * image.size.width * 3));
  auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
  // libjpeg-turbo only warns of data that is missing or wrong; the picture would be grey from there on. It stops there,
  // and after 500 scans: each pass over a large picture takes long and may have few bytes in the file.
  constexpr int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
  if (tjDecompress2(reader.get(), data, bytes.size(), image.pixels.data(), static_cast<int>(image.size.width), 0,
                    static_cast<int>(image.size.height), TJPF_RGB, flags) != 0)
    return fault(path, fmt::format("is a damaged JPEG: {}", tjGetErrorStr2(reader.get())));
  return image;
}

// libpng's side of one file: it leaves by longjmp, over frames that own nothing.
struct PngReader {
  std::string_view rest;
  char message[120] = "";
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void readBytes(png_structp png, png_bytep out, size_t count) {
  auto *reader = static_cast<PngReader *>(png_get_io_ptr(png));
  if (count > reader->rest.size()) png_error(png, "it is cut off");
  std::memcpy(out, reader->rest.data(), count);
  reader->rest.remove_prefix(count);
}
[[noreturn]] void fail(png_structp png, png_const_charp message) {
  auto *reader = static_cast<PngReader *>(png_get_error_ptr(png));
  std::strncpy(reader->message, message, sizeof reader->message - 1);
  png_longjmp(png, 1);
}
void ignore(png_structp, png_const_charp) {}

bool readPngHeader(PngReader &reader, png_uint_32 &height, png_uint_32 &width, int &depth) {
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, fail, ignore);
  if (!reader.png) return false;
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  reader.info = png_create_info_struct(reader.png);
  png_set_read_fn(reader.png, &reader, readBytes);
  png_read_info(reader.png, reader.info);
  int colours = 0;
  png_get_IHDR(reader.png, reader.info, &width, &height, &depth, &colours, nullptr, nullptr, nullptr);
  return true;
}

bool readPngRows(PngReader &reader, png_bytepp rows, size_t rowBytes) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_set_expand(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_strip_alpha(reader.png);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  if (png_get_rowbytes(reader.png, reader.info) != rowBytes) png_error(reader.png, "its rows are not of RGB");
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);
  return true;
}

Status pngSize(PngReader &reader, std::string_view bytes, const std::string &path, ImageSize &size) {
  reader.rest = bytes;
  png_uint_32 height = 0, width = 0;
  int depth = 0;
  if (!readPngHeader(reader, height, width, depth))
    return fault(path, fmt::format("is a damaged PNG: {}", reader.message));
  if (depth > 8) return fault(path, "is a PNG of 16 bits a sample, which is not supported; convert it to 8 bits");
  size = {height, width};
  return checkSize(size, path);
}

Result<Image> decodePng(std::string_view bytes, const std::string &path) {
  PngReader reader;
  Image image;
  CLEAVE_RETURN_IF_ERROR(pngSize(reader, bytes, path, image.size));
  auto rowBytes = static_cast<size_t>(image.size.width * 3);
  image.pixels.resize(static_cast<size_t>(image.size.height) * rowBytes);
  std::vector<png_bytep> rows;
  rows.reserve(static_cast<size_t>(image.size.height));
  for (int64_t row = 0; row < image.size.height; ++row)
    rows.push_back(image.pixels.data() + static_cast<size_t>(row) * rowBytes);
  if (!readPngRows(reader, rows.data(), rowBytes))
    return fault(path, fmt::format("is a damaged PNG: {}", reader.message));
  return image;
}

// The parts of one pixel of the result: `weights` of the source's pixels from `first` on.
struct Window {
  int64_t first = 0;
  std::vector<int> weights;
};
constexpr int precision = 22; // bits after the point

std::vector<Window> windowsOf(int64_t from, int64_t to) {
  double scale = static_cast<double>(from) / static_cast<double>(to), width = std::max(scale, 1.0);
  std::vector<Window> windows(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    double centre = (static_cast<double>(i) + 0.5) * scale, sum = 0;
    auto first = std::max<int64_t>(static_cast<int64_t>(std::floor(centre - width + 0.5)), 0);
    auto last = std::min(static_cast<int64_t>(std::floor(centre + width + 0.5)), from);
    std::vector<double> weights;
    for (int64_t at = first; at < last; ++at) {
      double distance = std::abs((static_cast<double>(at) - centre + 0.5) * (1.0 / width));
      weights.push_back(distance < 1 ? 1 - distance : 0);
      sum += weights.back();
    }
    Window &window = windows[static_cast<size_t>(i)];
    window.first = first;
    for (double weight : weights)
      window.weights.push_back(
          static_cast<int>(std::floor(0.5 + (sum == 0 ? weight : weight / sum) * (1 << precision))));
  }
  return windows;
}

// Along the rows: `lines` runs of `from` pixels of 3 values become runs of as many as there are windows.
std::vector<uint8_t> resizeRows(const std::vector<uint8_t> &pixels, int64_t lines, int64_t from,
                                const std::vector<Window> &windows) {
  std::vector<uint8_t> out(static_cast<size_t>(lines) * windows.size() * 3);
  uint8_t *to = out.data();
  for (int64_t line = 0; line < lines; ++line)
    for (const Window &window : windows)
      for (int channel = 0; channel < 3; ++channel) {
        const uint8_t *at = pixels.data() + (line * from + window.first) * 3 + channel;
        int sum = 1 << (precision - 1);
        for (size_t i = 0; i < window.weights.size(); ++i) sum += at[3 * i] * window.weights[i];
        *to++ = static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255));
      }
  return out;
}

// Along the columns: `width` pixels are summed at once.
std::vector<uint8_t> resizeColumns(const std::vector<uint8_t> &pixels, int64_t width,
                                   const std::vector<Window> &windows) {
  size_t row = static_cast<size_t>(width) * 3;
  std::vector<uint8_t> out(row * windows.size());
  std::vector<int> sums(row);
  uint8_t *to = out.data();
  for (const Window &window : windows) {
    std::fill(sums.begin(), sums.end(), 1 << (precision - 1));
    for (size_t i = 0; i < window.weights.size(); ++i) {
      const uint8_t *at = pixels.data() + (static_cast<size_t>(window.first) + i) * row;
      for (size_t x = 0; x < row; ++x) sums[x] += at[x] * window.weights[i];
    }
    for (int sum : sums) *to++ = static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255));
  }
  return out;
}

} // namespace

Result<ImageSize> imageSize(std::string_view bytes, const std::string &path) {
  ImageSize size;
  if (bytes.starts_with(pngSignature)) {
    PngReader reader;
    CLEAVE_RETURN_IF_ERROR(pngSize(reader, bytes, path, size));
    return size;
  }
  if (!bytes.starts_with(jpegSignature)) return fault(path, "is neither a PNG nor a JPEG");
  CLEAVE_RETURN_IF_ERROR(readJpegHeader(Jpeg(tjInitDecompress(), tjDestroy), bytes, path, size));
  return size;
}

Result<Image> decodeImage(std::string_view bytes, const std::string &path) {
  if (bytes.starts_with(pngSignature)) return decodePng(bytes, path);
  if (bytes.starts_with(jpegSignature)) return decodeJpeg(bytes, path);
  return fault(path, "is neither a PNG nor a JPEG");
}

Image resize(const Image &image, ImageSize size) {
  Image out = image;
  if (size.width != image.size.width)
    out.pixels = resizeRows(out.pixels, image.size.height, image.size.width, windowsOf(image.size.width, size.width));
  if (size.height != image.size.height)
    out.pixels = resizeColumns(out.pixels, size.width, windowsOf(image.size.height, size.height));
  out.size = size;
  return out;
}

Image cropCentre(const Image &image, ImageSize size) {
  size = {std::min(size.height, image.size.height), std::min(size.width, image.size.width)};
  auto half = [](int64_t rest) { return rest / 2 + (rest % 4 == 3 ? 1 : 0); }; // 0.5 goes to the even neighbour
  int64_t top = half(image.size.height - size.height), left = half(image.size.width - size.width);
  Image out{size, std::vector<uint8_t>(static_cast<size_t>(size.height * size.width * 3))};
  for (int64_t row = 0; row < size.height; ++row)
    std::memcpy(out.pixels.data() + row * size.width * 3,
                image.pixels.data() + ((top + row) * image.size.width + left) * 3, static_cast<size_t>(size.width * 3));
  return out;
}

} // namespace cleave::runtime
