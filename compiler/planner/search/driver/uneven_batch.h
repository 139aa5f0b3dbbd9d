// Batches that do not divide over the devices: some have a sample less than others. What nothing can execute yet, as
// all devices run one program on the same shapes; priced so that it is known what it would bring.
//
//   10 samples on 4 devices:   dp=2,tp=2 divides them;   dp=4 as 3+3+2+2 takes as long as 12 samples
//
// A step takes as long as its largest part. So it costs what the next batch costs that divides: those are searched, up
// to a quarter more than the samples that there are.
#pragma once
#include "compiler/planner/search/driver/outer_search.h"

namespace cleave::planner {

struct UnevenBatch {
  int64_t priced = 0; // samples that it takes as long as
  Setting setting;
  Recompute recompute = Recompute::None; // of most blocks
  double seconds = 0, bytes = 0;
  std::string str(int64_t batch) const; // "10 samples over 4 devices, at most 3 on each"
};

// Batches that divide over other axes' sizes than this one does, the smallest first; at most six.
std::vector<int64_t> nextBatches(int64_t batch, int64_t devices);

struct UnevenSearch {
  std::optional<UnevenBatch> best; // that fits and is faster than was asked for; none: there is none, or not found
  bool wasStopped = false;         // by the time limit, before all that may be faster was looked at
};
UnevenSearch bestUnevenBatch(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                             double worth, const SearchOptions &options);

} // namespace cleave::planner
