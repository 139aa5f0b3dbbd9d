// The predicted step as data for timeline.js, in a few bytes a pass: a step of 1 T parameters has 12,000 of them.
#include "compiler/report/page/charts.h"
#include "compiler/report/predicted_timeline.h"
#include "compiler/report/tables.h"
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t mostRanks = 64, mostPasses = 40'000; // that the page shows

// Times as whole numbers of a millionth of the step.
class Units {
public:
  explicit Units(double end) : seconds(end / 1e6) {}
  int64_t of(double time) const { return std::llround(time / seconds); }
  const double seconds;
};

std::string base36(int64_t number) {
  std::string digits;
  do digits.insert(digits.begin(), "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36]);
  while ((number /= 36) > 0);
  return digits;
}

// The passes of a rank as words, in order: the key 4 * (place of the stage in the rank) + kind in base 36, then
//   .N  its microbatch, where it is not the one after the last of this key (0 the first time)
//   +N  units that the rank waits before it
//   ~N  units that what it makes waits before it is sent
// Without these it begins when the one before ends. Waits below `least` are left out, and do not add up.
std::string passWords(const RankTimeline &rank, size_t count, const Units &units, const Json &stages) {
  constexpr int64_t least = 8;
  std::string words;
  std::map<int64_t, int64_t> next; // microbatch, by key
  int64_t now = 0;
  for (size_t i = 0; i < count; ++i) {
    const TimedPass &pass = rank.passes[i];
    const int64_t place = std::ranges::find(rank.stages, pass.action.stage) - rank.stages.begin();
    const int64_t key = 4 * place + int64_t(pass.action.kind);
    words += (words.empty() ? "" : " ") + base36(key);
    int64_t &microbatch = next[key];
    if (pass.action.microbatch != microbatch) words += "." + base36(pass.action.microbatch);
    microbatch = pass.action.microbatch + 1;
    if (const int64_t wait = units.of(pass.start) - now; wait >= least) {
      words += "+" + base36(wait);
      now += wait;
    }
    if (const int64_t wait = units.of(pass.sendStart - pass.end); pass.sendEnd > pass.sendStart && wait >= least)
      words += "~" + base36(wait);
    now += stages[size_t(pass.action.stage)]["passes"][size_t(pass.action.kind)].get<int64_t>();
  }
  return words;
}

Json stagesJson(const Report &report, const Units &units) {
  Json stages = Json::array();
  int64_t blocks = 0; // before
  for (const Stage &stage : report.stages) {
    Json json;
    if (stage.blocks > 0)
      json["blocks"] = stage.blocks == 1 ? fmt::format("block {}", blocks)
                                         : fmt::format("blocks {} to {}", blocks, blocks + stage.blocks - 1);
    blocks += stage.blocks;
    for (planner::ActionKind kind : {planner::ActionKind::Forward, planner::ActionKind::Backward,
                                     planner::ActionKind::BackwardInput, planner::ActionKind::BackwardWeight}) {
      json["passes"].push_back(units.of(stage.pass.of(kind)));
      json["collectives"].push_back(units.of(passCollectives(report, stage, kind)));
      json["sends"].push_back(units.of(passSend(stage, kind)));
    }
    json["bytes"] = {formatBytes(stage.sentForwardBytes), formatBytes(stage.sentBackwardBytes)};
    stages.push_back(std::move(json));
  }
  return stages;
}

} // namespace

std::string timeline(const Report &report) {
  const std::optional<PredictedTimeline> predicted = predictedTimeline(report);
  if (!predicted || !(predicted->end > 0)) return "";
  const Units units(predicted->end);
  const size_t ranks = std::min(mostRanks, predicted->ranks.size());
  size_t passes = 0, shown = 0;
  for (size_t r = 0; r < ranks; ++r) passes += predicted->ranks[r].passes.size();
  Json data = {{"unit", units.seconds},
               {"kinds", passNames},
               {"forward", collectiveLines(report, CollectivesOf::Forward)},
               {"backward", collectiveLines(report, CollectivesOf::Backward)},
               {"step", collectiveLines(report, CollectivesOf::Step)},
               {"stages", stagesJson(report, units)}};
  for (size_t r = 0; r < ranks; ++r) {
    const RankTimeline &rank = predicted->ranks[r];
    const size_t count = std::min(rank.passes.size(), mostPasses / ranks);
    shown += count;
    Json json = {{"stages", rank.stages}, {"passes", passWords(rank, count, units, data["stages"])}};
    if (count == rank.passes.size())
      json["after"] = {units.of(rank.reductionStart), units.of(rank.updateStart), units.of(rank.end)};
    data["ranks"].push_back(std::move(json));
  }
  std::string text = data.dump(); // as a script's text: no tag may end in it
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  std::string part;
  if (shown < passes) part += fmt::format("; the first {} of {} passes", shown, passes);
  if (ranks < predicted->ranks.size())
    part += fmt::format("; the first {} of {} ranks", ranks, predicted->ranks.size());
  return fmt::format(
      "<figure class=\"timeline\"><figcaption>The predicted step{}. The collectives of a pass stand together at its "
      "end; in the step each stands behind its layer.</figcaption><script type=\"application/json\">{}</script>"
      "<noscript><p>A script draws it.</p></noscript></figure>\n",
      part, text);
}

} // namespace cleave::report
