#include "runtime/plan/signature.h"
#include "runtime/base/digest.h"
#include "runtime/base/mapped_file.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

static_assert(publicKeyBytes == crypto_sign_PUBLICKEYBYTES && signatureBytes == crypto_sign_BYTES);

constexpr const char *publicWord = "cleave-ed25519", *secretWord = "cleave-ed25519-secret";
constexpr const char *purpose = "cleave plan 1\n"; // what a signature is for is signed, too

const unsigned char *raw(const std::string &bytes) { return reinterpret_cast<const unsigned char *>(bytes.data()); }
unsigned char *raw(std::string &bytes) { return reinterpret_cast<unsigned char *>(bytes.data()); }

std::string signedText(const std::string &digest) { return purpose + digest; }

// Empty: it is no such number of bytes.
std::string fromHex(const std::string &text, size_t bytes) {
  std::string out(bytes, '\0');
  size_t made = 0;
  if (text.size() != 2 * bytes ||
      sodium_hex2bin(raw(out), bytes, text.data(), text.size(), nullptr, &made, nullptr) != 0 || made != bytes)
    return {};
  return out;
}

Status writeNew(const std::string &path, const std::string &text, mode_t mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return inputError(fmt::format("{}: cannot be made: {}", path, std::strerror(errno)));
  const bool isWritten = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int failure = errno;
  if (::close(file) == 0 && isWritten) return Status::ok();
  ::unlink(path.c_str());
  return inputError(fmt::format("{}: cannot be written: {}", path, std::strerror(failure)));
}

struct KeyLine {
  std::string word, hex;
};
Result<std::vector<KeyLine>> linesOf(const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  std::istringstream text{std::string(file->bytes().substr(0, 1 << 20))};
  std::vector<KeyLine> lines;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    KeyLine read;
    if (!(words >> read.word) || read.word.starts_with('#')) continue;
    words >> read.hex;
    lines.push_back(read);
  }
  return lines;
}

} // namespace

Status makeKeys(const std::string &path) {
  if (sodium_init() < 0) return runError("libsodium does not start");
  std::string open(publicKeyBytes, '\0'), secret(crypto_sign_SECRETKEYBYTES, '\0');
  crypto_sign_keypair(raw(open), raw(secret));
  CLEAVE_RETURN_IF_ERROR(writeNew(path, fmt::format("{} {}\n", secretWord, hexOf(secret)), 0600));
  Status written = writeNew(path + ".pub", fmt::format("{} {}\n", publicWord, hexOf(open)), 0644);
  if (!written) ::unlink(path.c_str());
  return written;
}

Status checkSecret(const std::string &path) {
  struct stat known{};
  if (::stat(path.c_str(), &known) != 0 || (known.st_mode & 077) == 0) return Status::ok();
  return inputError(fmt::format("{}: others may read this secret: chmod 600 {}", path, path));
}

Result<SecretKey> readSecretKey(const std::string &path) {
  CLEAVE_RETURN_IF_ERROR(checkSecret(path));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<KeyLine> lines, linesOf(path));
  for (const KeyLine &line : lines)
    if (line.word == secretWord)
      if (std::string bytes = fromHex(line.hex, crypto_sign_SECRETKEYBYTES); !bytes.empty()) return SecretKey{bytes};
  return inputError(fmt::format("{}: is no secret key; `cleave keygen` makes one", path));
}

Result<std::vector<std::string>> readPublicKeys(const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<KeyLine> lines, linesOf(path));
  std::vector<std::string> keys;
  for (const KeyLine &line : lines) {
    if (line.word == secretWord)
      return inputError(fmt::format("{}: is a secret key; the public one is in the .pub file beside it", path));
    std::string bytes = line.word == publicWord ? fromHex(line.hex, publicKeyBytes) : "";
    if (bytes.empty()) return inputError(fmt::format("{}: '{} {}' is no public key", path, line.word, line.hex));
    keys.push_back(bytes);
  }
  if (keys.empty()) return inputError(path + ": holds no public key");
  return keys;
}

Signature sign(const std::string &digest, const SecretKey &key) {
  Signature made{key.bytes.substr(crypto_sign_SECRETKEYBYTES - publicKeyBytes), std::string(signatureBytes, '\0')};
  const std::string text = signedText(digest);
  crypto_sign_detached(raw(made.bytes), nullptr, raw(text), text.size(), raw(key.bytes));
  return made;
}

bool isValid(const Signature &signature, const std::string &digest) {
  const std::string text = signedText(digest);
  return signature.key.size() == publicKeyBytes && signature.bytes.size() == signatureBytes &&
         crypto_sign_verify_detached(raw(signature.bytes), raw(text), text.size(), raw(signature.key)) == 0;
}

bool isSignedBy(const Signature &signature, const std::string &digest, const std::vector<std::string> &keys) {
  return std::find(keys.begin(), keys.end(), signature.key) != keys.end() && isValid(signature, digest);
}

} // namespace cleave::runtime
