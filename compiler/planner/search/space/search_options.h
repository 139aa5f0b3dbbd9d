// How a search is to be done, and what it tells while it goes on.
#pragma once
#include "compiler/planner/infinity.h"
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cleave::planner {

// How far the search is, for people who wait.
struct SearchProgress {
  double seconds = 0;     // since its start
  double best = 0;        // seconds of a step of the best plan found; 0: none yet
  double bound = 0;       // no plan is faster
  int64_t candidates = 0; // priced
  size_t left = 0;        // settings that may still be the best
  std::string doing = {}; // what comes after those: "bounds of pipelines", "pricing megatron"; empty: still at them
};

struct SearchOptions {
  bool alternatives = true; // price every preset too
  double seconds = 0;       // stop searching after so long with the best found; 0: search to the end
  int64_t top = 0;          // so many runners-up, each the best of another mesh; 0: those that were met anyway
  int64_t refine = 1;       // so many of the fastest plans as whole decisions: Decision::runnersUp, and the choice
  std::function<void(const SearchProgress &)> progress = {}; // called about ten times a second
  // Plans that are not faster than so many seconds are of no use, and left out as far as that is known of them.
  double worth = infinity;
  bool certifies = true; // raise the bound until it is close to the best plan; else it is what is known anyway
  std::vector<std::string> moves = {}; // by name; empty: all
  bool onlyBest = false;               // the best of other meshes are of no interest
};

} // namespace cleave::planner
