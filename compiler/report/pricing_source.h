// The problem and the cluster that a report was made from, packed into text that JSON can hold: what a choice is worth
// can be asked again where the model is not at hand. A problem repeats itself from block to block: 2.5 MB of a model
// with 128 layers become some 60 KB.
//
//   std::string packed = packSource(problem, cluster);
//   Result<PricingSource> source = unpackSource(packed);      // source->problem.text() == problem.text()
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/planner/explain/display_names.h"
#include "runtime/base/status.h"
#include <string>

namespace cleave::report {

struct PricingSource {
  planner::Problem problem;
  planner::Cluster cluster;
};

std::string packSource(const planner::Problem &problem, const planner::Cluster &cluster);
// Errors: text that packSource did not write.
Result<PricingSource> unpackSource(const std::string &packed);
// Those of the problem; where packSource did not write the text, every name is itself.
planner::DisplayNames displayNames(const std::string &packed);

} // namespace cleave::report
