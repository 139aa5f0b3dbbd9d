// Who made a plan: Ed25519 signatures by libsodium, over a plan's digest (plan_file.h).
//
//   CLEAVE_RETURN_IF_ERROR(makeKeys("me.key"));                   // me.key (0600, secret) and me.key.pub
//   Result<SecretKey> key = readSecretKey("me.key");
//   Signature made = sign(digest, *key);
//   Result<std::vector<std::string>> trusted = readPublicKeys("me.key.pub");
//   isSignedBy(made, digest, *trusted)
//
// A key file is text: one key a line, "cleave-ed25519 HEX" (public; blank lines and those that begin with # are
// skipped, so that a file may hold the keys of many) or "cleave-ed25519-secret HEX".
#pragma once
#include "runtime/base/status.h"
#include <string>
#include <vector>

namespace cleave::runtime {

constexpr size_t publicKeyBytes = 32, signatureBytes = 64;

struct Signature {
  std::string key;   // public, 32 bytes
  std::string bytes; // 64
};
struct SecretKey {
  std::string bytes; // 64: the seed and the public key
};

// Error: a file of one of the names is there, or cannot be written.
Status makeKeys(const std::string &path);
// Error: the file can be read by others than its owner, and tells what to do.
Status checkSecret(const std::string &path);
// Error: it cannot be read, holds no secret key, or others may read it.
Result<SecretKey> readSecretKey(const std::string &path);
// Error: it cannot be read, holds no key, or a secret one.
Result<std::vector<std::string>> readPublicKeys(const std::string &path);

Signature sign(const std::string &digest, const SecretKey &key);
// Whether it is the signature of its own key.
bool isValid(const Signature &signature, const std::string &digest);
bool isSignedBy(const Signature &signature, const std::string &digest, const std::vector<std::string> &keys);

} // namespace cleave::runtime
