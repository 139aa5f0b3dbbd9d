#include "runtime/base/checksum.h"
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cleave::runtime {

std::string checksumOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

} // namespace cleave::runtime
