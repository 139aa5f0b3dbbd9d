// How the processes of a run that meet over TCP know each other, and where they listen (docs/internals/network.md).
//
//   CLEAVE_SECRET, or CLEAVE_SECRET_FILE      what all ranks of a run know and nobody else does
//   CLEAVE_INTERFACE                          a network interface's name, or an address of this host
//   CLEAVE_SHARED_MEMORY=0                    ranks of one host send over TCP, too
//   CLEAVE_INSECURE_NETWORK=1                 addresses beyond this host without a secret
#pragma once
#include "runtime/base/status.h"
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cleave::runtime {

// As a caller gives them; what is empty or false is as the variables say.
struct NetworkOptions {
  std::string secretFile = {}, interface = {};
  bool isInsecure = false;
  double meetingSeconds = 120; // for all processes to come
};

using RunSecret = std::array<std::byte, 32>;

struct Network {
  std::optional<RunSecret> secret = {};
  std::string interface = {}; // empty: the one that reaches rank 0
  bool isInsecure = false;
  double meetingSeconds = 120;
  bool sharesMemory = true; // between ranks of one host
};

constexpr size_t leastSecret = 16; // characters

// Error: a secret that is too short or told twice, a file that cannot be read or that others can read.
// `variable` gives a variable's value or null, as std::getenv does.
Result<Network> readNetwork(const NetworkOptions &options, const std::function<const char *(const char *)> &variable);
Result<Network> readNetwork(const NetworkOptions &options); // of this process
// What ranks at these addresses risk without a secret; empty: they have one, or are all on this host.
std::string exposure(const Network &network, const std::vector<std::string> &hosts);

} // namespace cleave::runtime
