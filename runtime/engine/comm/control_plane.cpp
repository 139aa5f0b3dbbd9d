#include "runtime/engine/comm/control_plane.h"
#include "runtime/base/packed.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

namespace cleave::runtime {
namespace {

constexpr double secondsPerLevel = 0.25; // that a rank waits longer than its children, so that they tell who is silent

std::string concatenate(const std::vector<std::string> &parts) { return fmt::format("{}", fmt::join(parts, "")); }

} // namespace

Result<std::string> ControlPlane::run(std::string mine, TreeOperation::Combine combine, TimeLimit limit) {
  if (!endpoint) return combine({std::move(mine)});
  if (!lost) return lost;
  TreeOperation operation(*endpoint, std::move(mine), std::move(combine));
  const int depth = heightOf(0, size()), height = heightOf(rank(), size());
  const AbortFlag never;
  // Each way has the limit: the way down counts from where this rank has sent its own up.
  const Deadline up(never, limit.seconds + secondsPerLevel * height),
      down(never, limit.seconds + secondsPerLevel * (2 * depth + 2 - height));
  std::optional<Deadline> aborted;
  for (int64_t idle = 0; !operation.advance();) {
    idle = endpoint->progress() ? 0 : idle + 1;
    if (idle == 0) continue;
    if (abort->raised() && !aborted) aborted.emplace(never, grace);
    if (aborted && aborted->isOver()) return lost = runError("the run was aborted");
    if ((operation.isGoingUp() ? up : down).isOver())
      operation.giveUp(
          fmt::format("rank {} does not answer for {}", fmt::join(operation.awaited(), ", rank "), limit.text()));
    else if (whileWaiting)
      whileWaiting();
    else
      endpoint->wait(idle);
  }
  lost = operation.failure();
  if (!lost) return lost;
  return operation.result();
}

Status ControlPlane::barrier(TimeLimit limit) {
  return run("", [](const std::vector<std::string> &) { return std::string(); }, limit).status();
}

Result<bool> ControlPlane::allEqual(uint64_t digest, TimeLimit limit) {
  auto same = [](const std::vector<std::string> &all) {
    return std::ranges::count(all, all.front()) == std::ssize(all) ? all.front() : std::string("different");
  };
  Result<std::string> result = run(packed(digest), same, limit);
  if (!result) return result.status();
  return *result == packed(digest);
}

Result<uint64_t> ControlPlane::allReduceMax(uint64_t mine, TimeLimit limit) {
  auto largest = [](const std::vector<std::string> &all) {
    uint64_t most = 0;
    for (std::string_view text : all) {
      uint64_t value = 0;
      if (unpack(text, value)) most = std::max(most, value);
    }
    return packed(most);
  };
  Result<std::string> result = run(packed(mine), largest, limit);
  if (!result) return result.status();
  uint64_t value = 0;
  std::string_view text = *result;
  if (!unpack(text, value)) return runError("rank 0 sent no number");
  return value;
}

Status ControlPlane::broadcast(std::span<std::byte> bytes, TimeLimit limit) {
  std::string mine = rank() == 0 ? std::string(reinterpret_cast<char *>(bytes.data()), bytes.size()) : "";
  auto first = [&](const std::vector<std::string> &all) { return rank() == 0 ? all.front() : std::string(); };
  Result<std::string> result = run(std::move(mine), first, limit);
  if (!result) return result.status();
  if (result->size() != bytes.size())
    return runError(fmt::format("rank 0 sent {} bytes where {} are expected", result->size(), bytes.size()));
  std::memcpy(bytes.data(), result->data(), bytes.size());
  return Status::ok();
}

Result<std::vector<std::string>> ControlPlane::allGather(const std::string &mine, TimeLimit limit) {
  Result<std::string> all = run(packed(int32_t(rank())) + packed(int64_t(std::ssize(mine))) + mine, concatenate, limit);
  if (!all) return all.status();
  std::vector<std::string> byRank(static_cast<size_t>(size()));
  for (std::string_view rest = *all; !rest.empty();) {
    int32_t rank = 0;
    int64_t bytes = 0;
    if (!unpack(rest, rank) || !unpack(rest, bytes) || rank < 0 || rank >= size() || bytes < 0 ||
        bytes > std::ssize(rest))
      return runError("what the ranks gathered cannot be read");
    byRank[static_cast<size_t>(rank)] = rest.substr(0, static_cast<size_t>(bytes));
    rest.remove_prefix(static_cast<size_t>(bytes));
  }
  return byRank;
}

Result<std::string> ControlPlane::fromRank0(const std::string &text, TimeLimit limit) {
  Result<std::vector<std::string>> all = allGather(rank() == 0 ? text : "", limit);
  if (!all) return all.status();
  return all->front();
}

Status ControlPlane::outcome(const Status &mine, TimeLimit limit) {
  if (size() == 1) return mine;
  Result<std::vector<std::string>> all =
      allGather(mine ? "" : fmt::format("{:04}{}", mine.exitStatus(), mine.message()), limit);
  if (!mine) return mine;
  if (!all) return all.status();
  for (size_t rank = 0; rank < all->size(); ++rank)
    if (const std::string &text = (*all)[rank]; text.size() >= 4)
      return {static_cast<ErrorKind>(std::atoi(text.substr(0, 4).c_str())),
              fmt::format("rank {}: {}", rank, text.substr(4))};
  return Status::ok();
}

} // namespace cleave::runtime
