#include "runtime/engine/comm/network.h"
#include "runtime/base/digest.h"
#include "runtime/engine/comm/tcp/address.h"
#include "runtime/plan/signature.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <sodium.h>
#include <string_view>

namespace cleave::runtime {
namespace {

constexpr size_t longestSecret = 4096; // characters

// Spaces and newlines at the ends are none of a secret: editors and `echo` leave them.
std::string_view trimmed(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

Result<RunSecret> keyOf(std::string_view secret, const std::string &from) {
  secret = trimmed(secret);
  if (secret.size() < leastSecret || secret.size() > longestSecret)
    return inputError(
        fmt::format("{} holds a secret of {} characters; {} to {} are taken, such as those of `openssl rand "
                    "-hex 16`",
                    from, secret.size(), leastSecret, longestSecret));
  RunSecret key;
  std::memcpy(key.data(), Digest().add(secret).finish().data(), key.size());
  return key;
}

Result<RunSecret> keyInFile(const std::string &path) {
  CLEAVE_RETURN_IF_ERROR(checkSecret(path));
  std::ifstream file(path, std::ios::binary);
  std::string text(longestSecret + 64, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.gcount() == 0 && !file.eof()))
    return inputError(fmt::format("{}: the secret's file cannot be read", path));
  text.resize(static_cast<size_t>(file.gcount()));
  return keyOf(text, path);
}

} // namespace

Result<Network> readNetwork(const NetworkOptions &options, const std::function<const char *(const char *)> &variable) {
  auto text = [&](const char *name) {
    const char *value = variable(name);
    return std::string(value ? value : "");
  };
  if (sodium_init() < 0) return runError("libsodium does not start");
  Network network{.meetingSeconds = options.meetingSeconds};
  network.interface = options.interface.empty() ? text("CLEAVE_INTERFACE") : options.interface;
  network.sharesMemory = text("CLEAVE_SHARED_MEMORY") != "0";
  network.isInsecure = options.isInsecure || text("CLEAVE_INSECURE_NETWORK") == "1";
  std::string secret = text("CLEAVE_SECRET"), path = text("CLEAVE_SECRET_FILE");
  if (options.secretFile.empty() && !secret.empty() && !path.empty())
    return inputError("CLEAVE_SECRET and CLEAVE_SECRET_FILE are both set: one of them tells the secret");
  if (!options.secretFile.empty()) path = options.secretFile;
  if (path.empty() && secret.empty()) return network;
  CLEAVE_ASSIGN_OR_RETURN(RunSecret key, path.empty() ? keyOf(secret, "CLEAVE_SECRET") : keyInFile(path));
  network.secret = key;
  return network;
}

std::string exposure(const Network &network, const std::vector<std::string> &hosts) {
  auto isBeyond = [](const std::string &host) {
    Result<std::vector<tcp::Address>> found = tcp::resolve(host, 0);
    return found && !found->front().isLoopback();
  };
  const auto beyond = std::ranges::find_if(hosts, isBeyond);
  if (network.secret || beyond == hosts.end()) return {};
  return fmt::format(
      "the ranks met at {} without a secret (--insecure-network): whoever reaches them can read and change "
      "the run; give all ranks the same CLEAVE_SECRET",
      *beyond);
}

Result<Network> readNetwork(const NetworkOptions &options) {
  return readNetwork(options, [](const char *name) -> const char * { return std::getenv(name); });
}

} // namespace cleave::runtime
