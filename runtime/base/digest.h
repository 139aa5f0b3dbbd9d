// Digests by libsodium: BLAKE2b of 32 bytes, which nobody can find a second input for.
//
//   Digest digest;
//   digest.add("plan").add(bytes);
//   hexOf(digest.finish())   // "9f86d081884c7d65..."
#pragma once
#include <sodium/crypto_generichash.h>
#include <string>
#include <string_view>

namespace cleave::runtime {

class Digest {
public:
  Digest();
  Digest &add(std::string_view bytes);
  std::string finish(); // 32 bytes

private:
  crypto_generichash_state state;
};

std::string hexOf(std::string_view bytes);

} // namespace cleave::runtime
