#include "runtime/train/run_record.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

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

Status agreeOn(ControlPlane &control, const RunRecord &mine, TimeLimit limit) {
  CLEAVE_ASSIGN_OR_RETURN(std::string text, control.fromRank0(nlohmann::json(mine).dump(), limit));
  return control.outcome(compare(text, mine), limit);
}

} // namespace cleave::runtime
