#include "runtime/executor/run_record.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

Result<std::string> Ranks::fromRank0(std::string text) const {
  uint64_t size = text.size();
  CLEAVE_RETURN_IF_ERROR(fabric.share(std::as_writable_bytes(std::span(&size, 1)), seconds));
  constexpr uint64_t limit = 1 << 20;
  if (size > limit) return runError("rank 0 sent something else than what it has chosen");
  text.resize(size);
  if (size > 0) CLEAVE_RETURN_IF_ERROR(fabric.share(std::as_writable_bytes(std::span(text)), seconds));
  return text;
}

Status Ranks::outcome(const Status &mine) const {
  if (processes == 1) return mine;
  const int64_t self = fabric.localDevices().front();
  Result<uint64_t> last = fabric.largest(mine ? 0 : static_cast<uint64_t>(self) + 1, seconds); // that failed
  if (!last) return mine ? last.status() : mine;
  if (*last == 0) return Status::ok();
  const auto failed = static_cast<int>(*last - 1);
  std::vector<Letter> letters;
  if (failed == self)
    for (int rank = 0; rank < processes; ++rank)
      if (rank != failed)
        letters.push_back({rank, fmt::format("{:04}rank {}: {}", mine.exitStatus(), self, mine.message())});
  const std::vector<int> from(failed == self ? 0 : 1, failed);
  Result<std::vector<std::string>> received = fabric.swap(letters, from, seconds);
  if (!mine) return mine;
  if (!received) return received.status();
  const std::string &text = received->front();
  if (text.size() < 4) return runError(fmt::format("rank {} failed", failed));
  return {static_cast<ErrorKind>(std::atoi(text.substr(0, 4).c_str())), text.substr(4)};
}

namespace {

// Why `mine` is not what rank 0 says.
Status compare(const std::string &text, const RunRecord &mine) {
  const nlohmann::json theirs = nlohmann::json::parse(text, nullptr, false);
  if (!theirs.is_array() || theirs.size() != mine.size()) return inputError("rank 0 runs another version of Cleave");
  for (size_t i = 0; i < mine.size(); ++i)
    if (theirs[i] != nlohmann::json(mine[i]))
      return inputError(fmt::format("{} is '{}', and on rank 0 {}: all ranks of a run need the same", mine[i].first,
                                    mine[i].second, theirs[i].back().dump()));
  return Status::ok();
}

} // namespace

Status Ranks::agreeOn(const RunRecord &mine) const {
  Result<std::string> text = fromRank0(nlohmann::json(mine).dump());
  if (!text) return text.status();
  return outcome(compare(*text, mine));
}

} // namespace cleave::runtime
