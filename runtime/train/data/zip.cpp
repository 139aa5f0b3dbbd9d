#include "runtime/train/data/zip.h"
#include <climits>
#include <cstring>
#include <fmt/format.h>
#include <zlib.h>

namespace cleave::runtime {
namespace {

constexpr uint32_t endSignature = 0x06054b50, end64Signature = 0x06064b50, locator64Signature = 0x07064b50;
constexpr uint32_t centralSignature = 0x02014b50, localSignature = 0x04034b50;

// Reads little-endian numbers; outside of the bytes it reads 0 and remembers.
class Reader {
public:
  explicit Reader(std::string_view bytes) : bytes(bytes) {}
  template <typename Number> Number at(uint64_t offset) {
    Number value = 0;
    if (offset > bytes.size() || bytes.size() - offset < sizeof value)
      outside = true;
    else
      std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  std::string_view range(uint64_t offset, uint64_t length) {
    if (offset > bytes.size() || bytes.size() - offset < length) {
      outside = true;
      return {};
    }
    return bytes.substr(offset, length);
  }
  bool outside = false;

private:
  std::string_view bytes;
};

bool inflateRaw(std::string_view compressed, std::string &out) {
  z_stream stream = {};
  if (compressed.size() > UINT_MAX || inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  size_t done = 0;
  int result = Z_OK;
  while (result == Z_OK && done < out.size()) {
    auto room = static_cast<uInt>(std::min<size_t>(out.size() - done, UINT_MAX));
    stream.next_out = reinterpret_cast<Bytef *>(out.data() + done);
    stream.avail_out = room;
    result = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (stream.avail_out == room && result == Z_OK) break;
  }
  inflateEnd(&stream);
  return done == out.size() && (result == Z_OK || result == Z_STREAM_END);
}

} // namespace

Result<std::vector<ZipEntry>> readZip(std::string_view archive, const std::string &path) {
  Reader reader(archive);
  // The end record lies in the last 64 KiB, behind it only a comment.
  uint64_t end = UINT64_MAX;
  for (uint64_t back = 22; back <= std::min<uint64_t>(archive.size(), 22 + 65535); ++back)
    if (reader.at<uint32_t>(archive.size() - back) == endSignature) {
      end = archive.size() - back;
      break;
    }
  if (end == UINT64_MAX) return inputError(path + ": is not a zip archive (.npz), or is cut off");
  uint64_t count = reader.at<uint16_t>(end + 10), at = reader.at<uint32_t>(end + 16);
  if (end >= 20 && reader.at<uint32_t>(end - 20) == locator64Signature) {
    uint64_t end64 = reader.at<uint64_t>(end - 12);
    if (reader.at<uint32_t>(end64) == end64Signature) {
      count = reader.at<uint64_t>(end64 + 32);
      at = reader.at<uint64_t>(end64 + 48);
    }
  }
  std::vector<ZipEntry> entries;
  uint64_t room = archive.size(); // that entries before have not taken
  for (uint64_t i = 0; i < count && !reader.outside; ++i) {
    if (reader.at<uint32_t>(at) != centralSignature) return inputError(path + ": the archive's directory is damaged");
    uint16_t flags = reader.at<uint16_t>(at + 8), method = reader.at<uint16_t>(at + 10);
    uint32_t checksum = reader.at<uint32_t>(at + 16);
    uint64_t compressed = reader.at<uint32_t>(at + 20), size = reader.at<uint32_t>(at + 24);
    uint64_t nameLength = reader.at<uint16_t>(at + 28), extraLength = reader.at<uint16_t>(at + 30);
    uint64_t commentLength = reader.at<uint16_t>(at + 32), local = reader.at<uint32_t>(at + 42);
    ZipEntry entry;
    entry.name = reader.range(at + 46, nameLength);
    for (uint64_t extra = at + 46 + nameLength, stop = extra + extraLength; extra + 4 <= stop && !reader.outside;) {
      uint64_t field = extra + 4;
      if (reader.at<uint16_t>(extra) == 1) // zip64: the values that did not fit, in this order
        for (uint64_t *value : {&size, &compressed, &local})
          if (*value == UINT32_MAX) {
            *value = reader.at<uint64_t>(field);
            field += 8;
          }
      extra += 4 + reader.at<uint16_t>(extra + 2);
    }
    at += 46 + nameLength + extraLength + commentLength;
    if (reader.at<uint32_t>(local) != localSignature)
      return inputError(fmt::format("{}: entry '{}' is damaged", path, entry.name));
    uint64_t data = local + 30 + reader.at<uint16_t>(local + 26) + reader.at<uint16_t>(local + 28);
    entry.stored = reader.range(data, compressed);
    if (reader.outside) break;
    // Or a small archive could unpack the same bytes thousands of times.
    if (compressed > room)
      return inputError(fmt::format("{}: entry '{}' is damaged: entries share their bytes", path, entry.name));
    room -= compressed;
    if (flags & 1) return inputError(fmt::format("{}: entry '{}' is encrypted", path, entry.name));
    if (method == 8) {
      if (size > (uint64_t(1) << 40) || size / 1100 > compressed + 1) // deflate packs at most 1032 to 1
        return inputError(fmt::format("{}: entry '{}' claims an impossible size", path, entry.name));
      entry.inflated.emplace(size, '\0');
      if (!inflateRaw(entry.stored, *entry.inflated))
        return inputError(fmt::format("{}: entry '{}' cannot be unpacked", path, entry.name));
    } else if (method != 0) {
      return inputError(
          fmt::format("{}: entry '{}' is compressed by method {}; numpy's savez and savez_compressed are read", path,
                      entry.name, method));
    }
    std::string_view content = entry.inflated ? std::string_view(*entry.inflated) : entry.stored;
    if (crc32_z(0, reinterpret_cast<const Bytef *>(content.data()), content.size()) != checksum)
      return inputError(fmt::format("{}: entry '{}' is damaged (its checksum differs)", path, entry.name));
    entries.push_back(std::move(entry));
  }
  if (reader.outside) return inputError(path + ": the archive is cut off");
  return entries;
}

} // namespace cleave::runtime
