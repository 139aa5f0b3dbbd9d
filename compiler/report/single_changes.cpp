// The worth of each single choice of one report in another one's place.
#include "compiler/report/single_changes.h"
#include "compiler/planner/explain/decided_model.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/space/search_space.h"
#include "compiler/report/pricing_source.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <tuple>

namespace cleave::report {
namespace {

// "full", or what each block does where they differ: "full,selective,none".
std::string recomputationOf(const Report &report) {
  if (!report.given.split.recompute.empty()) return report.given.split.recompute;
  std::vector<std::string> blocks;
  for (const Stage &stage : report.stages) {
    blocks.insert(blocks.end(), size_t(stage.recomputedBlocks), "full");
    blocks.insert(blocks.end(), size_t(stage.selectiveBlocks), "selective");
    blocks.insert(blocks.end(), size_t(stage.activationBlocks), "activations");
    blocks.resize(blocks.size() +
                      size_t(stage.blocks - stage.activationBlocks - stage.selectiveBlocks - stage.recomputedBlocks),
                  "none");
  }
  if (std::set<std::string>(blocks.begin(), blocks.end()).size() <= 1) return report.recompute;
  const size_t suffix = std::min(report.recompute.size(), report.recompute.find(':')); // ":except-last"
  return fmt::format("{}{}", fmt::join(blocks, ","), report.recompute.substr(suffix));
}

// The ZeRO stages of those parameters that are cut by one.
using ZeroStages = std::map<std::string, int>;
ZeroStages zeroStagesOf(const Report &report) {
  ZeroStages stages;
  for (const ParameterLayout &row : report.parameters)
    if (row.zero == report.zero || row.zero == report.lowerZero) stages[row.name] = row.zero;
  return stages;
}

// The ZeRO stages that a plan can have: one stage, or a lower one for some parameters.
struct ZeroMix {
  int zero = 0, lower = -1;
  std::set<std::string> lowers = {};
};
std::optional<ZeroMix> mixOf(const ZeroStages &stages, int zero) {
  ZeroMix mix{zero};
  for (const auto &[name, stage] : stages) mix.zero = std::max(mix.zero, stage);
  for (const auto &[name, stage] : stages) {
    if (stage == mix.zero) continue;
    if (mix.lower >= 0 && mix.lower != stage) return std::nullopt;
    mix.lower = stage;
    mix.lowers.insert(name);
  }
  return mix;
}
ZeroMix mixOf(const Report &report) {
  if (report.lowerZero < 0) return {report.zero};
  return mixOf(zeroStagesOf(report), report.zero).value_or(ZeroMix{report.zero});
}

// "layers.3.up.weight" as "layers.*.up.weight".
std::string withoutNumbers(const std::string &name) {
  std::string kind;
  for (char letter : name) {
    const bool isDigit = letter >= '0' && letter <= '9';
    if (!isDigit)
      kind += letter;
    else if (!kind.ends_with('*'))
      kind += '*';
  }
  return kind;
}

// The flags of a report's choices, which leave only the shardings of operations to the search. They name only the
// presets that no other flag says: grids, heads in place of positions, operations split as Megatron-LM does.
planner::SplitFlags flagsOf(const Report &report, const planner::Cluster &cluster) {
  planner::SplitFlags flags = requestOf(report).split;
  if (auto preset = planner::parseConstraints({.like = report.like}, cluster))
    if (preset->grid == planner::TensorGrid::None && preset->attentionSplit == planner::Constraints().attentionSplit &&
        preset->tensorSplit != planner::TensorSplit::Megatron)
      flags.like = "";
  flags.schedule = report.schedule;
  flags.recompute = recomputationOf(report);
  flags.offload = report.offload;
  return flags;
}

SingleChange price(const PricingSource &source, const std::string &what, planner::SplitFlags flags,
                   const ZeroMix &mix) {
  SingleChange row{what, 0, 0, ""};
  flags.zero = fmt::format("{}", mix.zero);
  Result<planner::Constraints> constraints = planner::parseConstraints(flags, source.cluster);
  planner::Cluster roomy = source.cluster; // what does not fit is priced too, and said
  roomy.device.memoryBytes *= 1e3;
  Result<planner::Decision> decision =
      constraints ? planner::solve(source.problem, roomy, *constraints, {.alternatives = false})
                  : Result<planner::Decision>(constraints.status());
  if (!decision) {
    row.whyNot = decision.status().message();
    row.whyNot.resize(std::min(row.whyNot.size(), row.whyNot.find('\n')));
    return row;
  }
  planner::Predicted predicted = decision->predicted;
  if (mix.lower >= 0) {
    Result<planner::DecidedModel> decided = planner::decidedModel(source.problem, roomy, *decision);
    if (!decided) return {what, 0, 0, decided.status().message()};
    predicted = decided->withLowerZero(mix.lower, mix.lowers).evaluate().predicted;
  }
  row.stepSeconds = predicted.stepSeconds;
  row.memoryBytes = predicted.memory.total();
  if (row.memoryBytes > source.cluster.device.usableBytes()) row.whyNot = "does not fit";
  return row;
}

// The right one's stages in the left one's place: of all parameters, and where they are mixed of each kind.
void addZeroRows(const PricingSource &source, const planner::SplitFlags &mine, const Report &left, const Report &right,
                 std::vector<SingleChange> &rows) {
  const std::vector<ZeroChange> changes = zeroChanges(left, right);
  if (changes.empty() && left.zero == right.zero) return;
  const bool isSame = zeroText(left) == zeroText(right); // but of other parameters
  rows.push_back(
      price(source, isSame ? "zero of all these parameters" : "zero " + zeroText(right), mine, mixOf(right)));
  for (size_t i = 0; i < std::min(changes.size(), mostZeroChanges) && changes.size() > 1; ++i) {
    ZeroStages stages = zeroStagesOf(left);
    for (const std::string &name : changes[i].names) stages[name] = changes[i].after;
    const std::string what = fmt::format("zero {} of {}", changes[i].after, changes[i].parameters);
    if (const std::optional<ZeroMix> mix = mixOf(stages, 0))
      rows.push_back(price(source, what, mine, *mix));
    else
      rows.push_back({what, 0, 0, "would be a third ZeRO stage"});
  }
}

} // namespace

std::vector<ZeroChange> zeroChanges(const Report &left, const Report &right) {
  if (left.lowerZero < 0 && right.lowerZero < 0) return {};
  const ZeroStages before = zeroStagesOf(left), after = zeroStagesOf(right);
  std::map<std::tuple<std::string, int, int>, ZeroChange> groups;
  for (const ParameterLayout &row : right.parameters) {
    const auto was = before.find(row.name), is = after.find(row.name);
    if (was == before.end() || is == after.end() || was->second == is->second) continue;
    const std::string kind = withoutNumbers(row.name);
    ZeroChange &group = groups[{kind, was->second, is->second}];
    group.before = was->second;
    group.after = is->second;
    group.names.insert(row.name);
    group.parameters = group.names.size() == 1 ? row.name : fmt::format("{} ({} x)", kind, group.names.size());
    double elements = 1;
    for (int64_t dim : row.dims) elements *= double(dim);
    group.elements += elements;
  }
  std::vector<ZeroChange> changes;
  changes.reserve(groups.size());
  for (auto &[key, group] : groups) changes.push_back(std::move(group));
  std::ranges::sort(changes, [](const ZeroChange &a, const ZeroChange &b) {
    return std::tie(b.elements, a.parameters) < std::tie(a.elements, b.parameters);
  });
  return changes;
}

Result<std::vector<SingleChange>> priceSingleChanges(const Report &left, const Report &right) {
  Result<PricingSource> source = unpackSource(left.source);
  if (!source) return source.status();
  PricingSource all = *source; // with the right one's machines and batch
  if (left.priced() != right.priced()) {
    Result<PricingSource> other = unpackSource(right.source);
    if (!other) return other.status();
    all.cluster = other->cluster;
  }
  all.problem.batch = right.batch;
  const planner::SplitFlags mine = flagsOf(left, source->cluster), theirs = flagsOf(right, all.cluster);
  const ZeroMix mix = mixOf(left);
  std::vector<SingleChange> rows = {price(*source, "as it is", mine, mix)};
  auto change = [&](const char *what, std::string planner::SplitFlags::*choice) {
    const bool isMesh = choice == &planner::SplitFlags::mesh; // with the preset that says how its axes are used
    if (mine.*choice == theirs.*choice && !(isMesh && mine.like != theirs.like)) return;
    planner::SplitFlags flags = mine;
    if (isMesh) { // with all that was asked for of it
      flags = theirs;
      flags.microbatches = mine.microbatches, flags.schedule = mine.schedule;
      flags.recompute = mine.recompute, flags.offload = mine.offload;
    }
    flags.*choice = theirs.*choice;
    if (choice == &planner::SplitFlags::schedule) flags.balance = theirs.balance, flags.splitAt = theirs.splitAt;
    // A mesh with pipeline stages needs a schedule and one without has none.
    bool isStaged = right.mesh.axisSize(dist::pipelineAxis) > 1, wasStaged = left.mesh.axisSize(dist::pipelineAxis) > 1;
    if (isMesh && isStaged != wasStaged) flags.schedule = theirs.schedule;
    if (choice == &planner::SplitFlags::schedule && isStaged != wasStaged) return;
    // Told otherwise than it is asked for.
    const bool isRecompute = choice == &planner::SplitFlags::recompute;
    std::string name = fmt::format("{} {}", what, isRecompute ? recomputeText(right) : theirs.*choice);
    if (isMesh && !theirs.like.empty()) name += " like " + theirs.like;
    rows.push_back(price(*source, name, flags, mix));
  };
  change("mesh", &planner::SplitFlags::mesh);
  addZeroRows(*source, mine, left, right, rows);
  change("microbatches", &planner::SplitFlags::microbatches);
  change("schedule", &planner::SplitFlags::schedule);
  change("recompute", &planner::SplitFlags::recompute);
  change("offload", &planner::SplitFlags::offload);
  PricingSource changed = *source;
  if (left.priced() != right.priced()) {
    changed.cluster = all.cluster;
    rows.push_back(
        price(changed, "cluster " + (left.cluster == right.cluster ? right.priced() : right.cluster), mine, mix));
    changed.cluster = source->cluster;
  }
  if (left.batch != right.batch) {
    changed.problem.batch = right.batch;
    rows.push_back(price(changed, fmt::format("batch {}", right.batch), mine, mix));
  }
  if (rows.size() > 2) rows.push_back(price(all, "all of these", theirs, mixOf(right)));
  return rows;
}

} // namespace cleave::report
