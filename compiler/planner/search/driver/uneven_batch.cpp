#include "compiler/planner/search/driver/uneven_batch.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cleave::planner {
namespace {

constexpr double mostMore = 1.25;
constexpr size_t mostBatches = 6;

} // namespace

std::string UnevenBatch::str(int64_t batch) const {
  return fmt::format("{} samples over {} devices{}, at most {:.0f} on each", batch, setting.batchWays(),
                     setting.microbatches > 1 ? fmt::format(" in {} microbatches", setting.microbatches) : "",
                     setting.localSamples(priced));
}

std::vector<int64_t> nextBatches(int64_t batch, int64_t devices) {
  std::set<int64_t> found;
  for (int64_t ways : divisors(devices)) {
    const int64_t next = (batch + ways - 1) / ways * ways;
    if (ways <= batch && next != batch && double(next) <= mostMore * double(batch)) found.insert(next);
  }
  std::vector<int64_t> batches(found.begin(), found.end());
  if (batches.size() > mostBatches) batches.resize(mostBatches);
  return batches;
}

UnevenSearch bestUnevenBatch(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                             double worth, const SearchOptions &options) {
  UnevenSearch found;
  const std::vector<int64_t> batches = nextBatches(problem.batch, cluster.numDevices());
  SearchOptions one = options;
  one.seconds /= double(std::max<size_t>(1, batches.size()));
  one.undivided = problem.batch;
  for (int64_t batch : batches) {
    if (constraints.microbatches && batch % *constraints.microbatches != 0) continue;
    Problem larger = problem;
    larger.batch = batch;
    one.worth = worth;
    const Outcome outcome = searchSettings(larger, gatherFacts(larger, constraints), cluster, constraints, one);
    found.wasStopped = found.wasStopped || outcome.wasStopped;
    if (!outcome.best || outcome.best->seconds() >= worth) continue;
    worth = outcome.best->seconds();
    found.best =
        UnevenBatch{batch, outcome.best->model->setting, mostRecomputed(*outcome.best), worth, outcome.best->bytes()};
  }
  return found;
}

} // namespace cleave::planner
