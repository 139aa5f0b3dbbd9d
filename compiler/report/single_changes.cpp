// What each single choice of one report would be worth in another one's place.
#include "compiler/report/single_changes.h"
#include "compiler/planner/search.h"
#include "compiler/planner/search_space.h"
#include "compiler/report/pricing_source.h"
#include "compiler/report/tables.h"
#include <fmt/ranges.h>
#include <set>

namespace cleave::report {
namespace {

// Its axes from the outermost; those of a grid are tp.
std::string orderOf(const dist::Mesh &mesh) {
  std::string order;
  for (planner::Axis axis : planner::orderOf(mesh)) order += (order.empty() ? "" : ",") + std::string(name(axis));
  return order;
}

// "full", or what each block does where they differ: "full,selective,none".
std::string recomputationOf(const Report &report) {
  std::vector<std::string> blocks;
  for (const Stage &stage : report.stages) {
    blocks.insert(blocks.end(), size_t(stage.recomputedBlocks), "full");
    blocks.insert(blocks.end(), size_t(stage.selectiveBlocks), "selective");
    blocks.insert(blocks.end(), size_t(stage.blocks - stage.recomputedBlocks - stage.selectiveBlocks), "none");
  }
  if (std::set<std::string>(blocks.begin(), blocks.end()).size() <= 1) return report.recompute;
  const size_t suffix = std::min(report.recompute.size(), report.recompute.find(':')); // ":except-last"
  return fmt::format("{}{}", fmt::join(blocks, ","), report.recompute.substr(suffix));
}

// The split flags that stand for a report's choices; the shardings of operations are chosen again, and so are ZeRO
// stages that were mixed, as the memory asks for. Of presets only those that no other flag says: grids, heads in place
// of positions, operations split as Megatron-LM does.
planner::SplitFlags flagsOf(const Report &report, const planner::Cluster &cluster) {
  planner::SplitFlags flags;
  flags.mesh = report.mesh.str();
  flags.meshOrder = orderOf(report.mesh);
  if (auto preset = planner::parseConstraints({.like = report.like}, cluster); preset && !report.like.empty()) {
    const bool isGrid = preset->grid != planner::TensorGrid::None;
    if (isGrid || preset->attentionSplit != planner::Constraints().attentionSplit ||
        preset->tensorSplit == planner::TensorSplit::Megatron)
      flags.like = report.like;
    if (isGrid) { // asked for as tp
      dist::Mesh mesh;
      int64_t tp = 1;
      for (const auto &axis : report.mesh.axes)
        if (axis.name.starts_with("tp"))
          tp *= axis.size;
        else
          mesh.axes.push_back(axis);
      mesh.axes.push_back({"tp", tp});
      flags.mesh = mesh.str();
    }
  }
  if (report.lowerZero < 0) flags.zero = fmt::format("{}", report.zero);
  flags.microbatches = fmt::format("{}", report.microbatches);
  flags.schedule = report.schedule;
  flags.recompute = recomputationOf(report);
  flags.offload = report.offload;
  return flags;
}

SingleChange price(const PricingSource &source, const std::string &what, const planner::SplitFlags &flags) {
  SingleChange row{what, 0, 0, ""};
  Result<planner::Constraints> constraints = planner::parseConstraints(flags, source.cluster);
  planner::Cluster roomy = source.cluster; // what does not fit is priced too, and said
  if (!flags.zero.empty()) roomy.device.memoryBytes *= 1e3;
  Result<planner::Decision> decision =
      constraints ? planner::solve(source.problem, roomy, *constraints, {.alternatives = false})
                  : Result<planner::Decision>(constraints.status());
  if (!decision) {
    row.whyNot = decision.status().message();
    row.whyNot.resize(std::min(row.whyNot.size(), row.whyNot.find('\n')));
    return row;
  }
  row.stepSeconds = decision->predicted.stepSeconds;
  row.memoryBytes = decision->predicted.memory.total();
  if (row.memoryBytes > planner::usableMemory(source.cluster)) row.whyNot = "does not fit";
  return row;
}

} // namespace

Result<std::vector<SingleChange>> priceSingleChanges(const Report &left, const Report &right) {
  Result<PricingSource> source = unpackSource(left.source);
  if (!source) return source.status();
  PricingSource all = *source; // with the right one's machines and batch
  if (left.cluster != right.cluster) {
    Result<PricingSource> other = unpackSource(right.source);
    if (!other) return other.status();
    all.cluster = other->cluster;
  }
  all.problem.batch = right.batch;
  const planner::SplitFlags mine = flagsOf(left, source->cluster), theirs = flagsOf(right, all.cluster);
  std::vector<SingleChange> rows = {price(*source, "as it is", mine)};
  auto change = [&](const char *what, std::string planner::SplitFlags::*choice) {
    const bool isMesh = choice == &planner::SplitFlags::mesh; // with the preset that says how its axes are used
    if (mine.*choice == theirs.*choice && !(isMesh && mine.like != theirs.like)) return;
    planner::SplitFlags flags = mine;
    flags.*choice = theirs.*choice;
    if (isMesh) flags.like = theirs.like, flags.meshOrder = theirs.meshOrder;
    // A mesh with pipeline stages needs a schedule and one without has none.
    bool isStaged = right.mesh.axisSize("pp") > 1, wasStaged = left.mesh.axisSize("pp") > 1;
    if (isMesh && isStaged != wasStaged) flags.schedule = theirs.schedule;
    if (choice == &planner::SplitFlags::schedule && isStaged != wasStaged) return;
    // Told otherwise than it is asked for.
    const bool isRecompute = choice == &planner::SplitFlags::recompute, isZero = choice == &planner::SplitFlags::zero;
    std::string name = fmt::format("{} {}", what,
                                   isRecompute ? recomputeText(right)
                                   : isZero    ? zeroText(right)
                                               : theirs.*choice);
    if (isMesh && !theirs.like.empty()) name += " like " + theirs.like;
    rows.push_back(price(*source, name, flags));
  };
  change("mesh", &planner::SplitFlags::mesh);
  change("zero", &planner::SplitFlags::zero);
  change("microbatches", &planner::SplitFlags::microbatches);
  change("schedule", &planner::SplitFlags::schedule);
  change("recompute", &planner::SplitFlags::recompute);
  change("offload", &planner::SplitFlags::offload);
  PricingSource changed = *source;
  if (left.cluster != right.cluster) {
    changed.cluster = all.cluster;
    rows.push_back(price(changed, "cluster " + right.cluster, mine));
    changed.cluster = source->cluster;
  }
  if (left.batch != right.batch) {
    changed.problem.batch = right.batch;
    rows.push_back(price(changed, fmt::format("batch {}", right.batch), mine));
  }
  if (rows.size() > 2) rows.push_back(price(all, "all of these", theirs));
  return rows;
}

} // namespace cleave::report
