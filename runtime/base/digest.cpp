#include "runtime/base/digest.h"
#include <fmt/format.h>

namespace cleave::runtime {

Digest::Digest() { crypto_generichash_init(&state, nullptr, 0, crypto_generichash_BYTES); }

Digest &Digest::add(std::string_view bytes) {
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size());
  return *this;
}

std::string Digest::finish() {
  std::string out(crypto_generichash_BYTES, '\0');
  crypto_generichash_final(&state, reinterpret_cast<unsigned char *>(out.data()), out.size());
  return out;
}

std::string hexOf(std::string_view bytes) {
  std::string out;
  for (unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

} // namespace cleave::runtime
