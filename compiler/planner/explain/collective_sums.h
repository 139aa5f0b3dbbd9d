// The collectives of a step summed by kind, axes and reason: of a decision as it is estimated, or of a plan's commands.
//
//     CollectiveSums sums(names);
//     sums.add("all_reduce", {"dp"}, "gradients", {.bytes = 4e6, .seconds = 1e-3, .times = 12, .isBeside = true},
//              {{"h.0.up.weight", 12, 4e6}});
//     sums.list(4)      // means of 4 ranks, what takes longest first
#pragma once
#include "compiler/planner/explain/breakdown.h"
#include "compiler/planner/explain/display_names.h"
#include <map>
#include <set>
#include <tuple>

namespace cleave::planner {

class CollectiveSums {
public:
  explicit CollectiveSums(const DisplayNames &names) : names(names) {} // which outlive it
  struct Share {
    double bytes = 0, seconds = 0; // of all times together
    double times = 1;
    bool isBeside = false;            // compute
    double forward = 0, backward = 0; // parts of the bytes that go in such passes
  };
  // `tensors`: what they move; of those with one name bytes add up.
  void add(const std::string &op, const dist::Axes &axes, const std::string &why, const Share &share,
           const std::vector<MovedTensor> &tensors);
  std::vector<CollectiveTotal> list(double ranks) const;
  // Those of each tensor, by its name; seconds in proportion to bytes.
  std::vector<TensorCollective> byTensor(double ranks) const;

private:
  struct Sum {
    double bytes = 0, seconds = 0, times = 0, besideBytes = 0, forwardBytes = 0, backwardBytes = 0;
    std::map<std::string, MovedTensor> tensors; // by name
    std::vector<MovedTensor> shown(const DisplayNames &names, double ranks) const;
    std::set<std::string> reasons; // as they were given: alike but for the repetition
  };
  const DisplayNames &names;
  std::map<std::tuple<std::string, dist::Axes, std::string>, Sum> sums; // the reason with each name's first repetition
};

} // namespace cleave::planner
