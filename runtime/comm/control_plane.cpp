#include "runtime/comm/control_plane.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {
namespace {

constexpr double secondsPerLevel = 0.25; // that a rank waits longer than its children, so that they tell who is silent

template <typename T> std::string bytesOf(const T &value) {
  return {reinterpret_cast<const char *>(&value), sizeof value};
}

template <typename T> bool take(std::string_view &text, T &value) {
  if (text.size() < sizeof value) return false;
  std::memcpy(&value, text.data(), sizeof value);
  text.remove_prefix(sizeof value);
  return true;
}

std::string concatenate(const std::vector<std::string> &parts) { return fmt::format("{}", fmt::join(parts, "")); }

} // namespace

Result<std::string> ControlPlane::run(std::string mine, TreeOperation::Combine combine, double seconds) {
  TreeOperation operation(endpoint, std::move(mine), std::move(combine));
  const int rank = endpoint.rank(), size = endpoint.size(), depth = heightOf(0, size);
  const Patience up(abort, seconds + secondsPerLevel * heightOf(rank, size)),
      down(abort, seconds + secondsPerLevel * (2 * depth + 2 - heightOf(rank, size)));
  for (int64_t idle = 0; !operation.advance();) {
    idle = endpoint.progress() ? 0 : idle + 1;
    if (idle == 0) continue;
    if (abort.raised()) return runError("the run was aborted");
    if ((operation.isGoingUp() ? up : down).isOver())
      operation.giveUp(fmt::format("rank {} does not answer for {:.1f} s (--step-timeout)",
                                   fmt::join(operation.awaited(), ", rank "), seconds));
    else if (whileWaiting)
      whileWaiting();
    else
      endpoint.wait(idle);
  }
  if (!operation.failure()) return operation.failure();
  return operation.result();
}

Status ControlPlane::barrier(double seconds) {
  return run("", [](const std::vector<std::string> &) { return std::string(); }, seconds).status();
}

Result<bool> ControlPlane::allEqual(uint64_t digest, double seconds) {
  auto same = [](const std::vector<std::string> &all) {
    return std::ranges::count(all, all.front()) == std::ssize(all) ? all.front() : std::string("different");
  };
  Result<std::string> result = run(bytesOf(digest), same, seconds);
  if (!result) return result.status();
  return *result == bytesOf(digest);
}

Result<uint64_t> ControlPlane::allReduceMax(uint64_t mine, double seconds) {
  auto largest = [](const std::vector<std::string> &all) {
    uint64_t most = 0;
    for (std::string_view text : all) {
      uint64_t value = 0;
      if (take(text, value)) most = std::max(most, value);
    }
    return bytesOf(most);
  };
  Result<std::string> result = run(bytesOf(mine), largest, seconds);
  if (!result) return result.status();
  uint64_t value = 0;
  std::string_view text = *result;
  if (!take(text, value)) return runError("rank 0 sent no number");
  return value;
}

Status ControlPlane::broadcast(std::span<std::byte> bytes, double seconds) {
  std::string mine = endpoint.rank() == 0 ? std::string(reinterpret_cast<char *>(bytes.data()), bytes.size()) : "";
  auto first = [&](const std::vector<std::string> &all) { return endpoint.rank() == 0 ? all.front() : std::string(); };
  Result<std::string> result = run(std::move(mine), first, seconds);
  if (!result) return result.status();
  if (result->size() != bytes.size())
    return runError(fmt::format("rank 0 sent {} bytes where {} are expected", result->size(), bytes.size()));
  std::memcpy(bytes.data(), result->data(), bytes.size());
  return Status::ok();
}

Result<std::vector<std::string>> ControlPlane::allGather(const std::string &mine, double seconds) {
  Result<std::string> all =
      run(bytesOf(int32_t(endpoint.rank())) + bytesOf(int64_t(std::ssize(mine))) + mine, concatenate, seconds);
  if (!all) return all.status();
  std::vector<std::string> byRank(static_cast<size_t>(endpoint.size()));
  for (std::string_view rest = *all; !rest.empty();) {
    int32_t rank = 0;
    int64_t bytes = 0;
    if (!take(rest, rank) || !take(rest, bytes) || rank < 0 || rank >= endpoint.size() || bytes < 0 ||
        bytes > std::ssize(rest))
      return runError("what the ranks gathered cannot be read");
    byRank[static_cast<size_t>(rank)] = rest.substr(0, static_cast<size_t>(bytes));
    rest.remove_prefix(static_cast<size_t>(bytes));
  }
  return byRank;
}

} // namespace cleave::runtime
