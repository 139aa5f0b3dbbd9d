#include "runtime/executor/run_record.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

Result<std::string> Ranks::fromRank0(std::string text) const {
  if (processes == 1) return text;
  Result<std::vector<std::string>> all = fabric.allGather(fabric.localDevices().front() == 0 ? text : "", seconds);
  if (!all) return all.status();
  return all->front();
}

Status Ranks::outcome(const Status &mine) const {
  if (processes == 1) return mine;
  Result<std::vector<std::string>> all =
      fabric.allGather(mine ? "" : fmt::format("{:04}{}", mine.exitStatus(), mine.message()), seconds);
  if (!mine) return mine;
  if (!all) return all.status();
  for (size_t rank = 0; rank < all->size(); ++rank)
    if (const std::string &text = (*all)[rank]; text.size() >= 4)
      return {static_cast<ErrorKind>(std::atoi(text.substr(0, 4).c_str())),
              fmt::format("rank {}: {}", rank, text.substr(4))};
  return Status::ok();
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
