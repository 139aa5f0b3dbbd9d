// What each single choice of one report would be worth in another one's place.
#include "compiler/report/single_changes.h"
#include "compiler/planner/search.h"
#include "compiler/report/pricing_source.h"
#include <fmt/format.h>

namespace cleave::report {
namespace {

// The split flags that stand for a report's choices; the shardings of operations are chosen again.
planner::SplitFlags flagsOf(const Report &report) {
  planner::SplitFlags flags;
  flags.mesh = report.mesh.str();
  flags.zero = fmt::format("{}", report.zero);
  flags.microbatches = fmt::format("{}", report.microbatches);
  flags.schedule = report.schedule;
  flags.recompute = report.recompute;
  return flags;
}

SingleChange price(const PricingSource &source, const std::string &what, const planner::SplitFlags &flags) {
  SingleChange row{what, 0, 0, ""};
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
  row.stepSeconds = decision->predicted.stepSeconds;
  row.memoryBytes = decision->predicted.memory.total();
  if (row.memoryBytes > source.cluster.device.memoryBytes) row.whyNot = "does not fit";
  return row;
}

} // namespace

Result<std::vector<SingleChange>> priceSingleChanges(const Report &left, const Report &right) {
  Result<PricingSource> source = unpackSource(left.source);
  if (!source) return source.status();
  const planner::SplitFlags mine = flagsOf(left), theirs = flagsOf(right);
  std::vector<SingleChange> rows = {price(*source, "as it is", mine)};
  auto change = [&](const char *what, std::string planner::SplitFlags::*choice) {
    if (mine.*choice == theirs.*choice) return;
    planner::SplitFlags flags = mine;
    flags.*choice = theirs.*choice;
    // A mesh with pipeline stages needs a schedule and one without has none.
    bool isStaged = right.mesh.axisSize("pp") > 1, wasStaged = left.mesh.axisSize("pp") > 1;
    if (choice == &planner::SplitFlags::mesh && isStaged != wasStaged) flags.schedule = theirs.schedule;
    if (choice == &planner::SplitFlags::schedule && isStaged != wasStaged) return;
    rows.push_back(price(*source, fmt::format("{} {}", what, theirs.*choice), flags));
  };
  change("mesh", &planner::SplitFlags::mesh);
  change("zero", &planner::SplitFlags::zero);
  change("microbatches", &planner::SplitFlags::microbatches);
  change("schedule", &planner::SplitFlags::schedule);
  change("recompute", &planner::SplitFlags::recompute);
  if (rows.size() > 2) rows.push_back(price(*source, "all of these", theirs));
  if (left.cluster != right.cluster || left.batch != right.batch) {
    Result<PricingSource> other = unpackSource(right.source);
    if (!other) return other.status();
    PricingSource changed = *source;
    if (left.cluster != right.cluster) {
      changed.cluster = other->cluster;
      rows.push_back(price(changed, "cluster " + right.cluster, mine));
    }
    if (left.batch != right.batch) {
      changed = *source;
      changed.problem.batch = right.batch;
      rows.push_back(price(changed, fmt::format("batch {}", right.batch), mine));
    }
  }
  return rows;
}

} // namespace cleave::report
