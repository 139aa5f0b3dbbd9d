// Units are computed again as a whole. The table has what each choice of a way takes and saves, for the units of one
// kind on a rank.
//
//   3 units of 1 GB a microbatch, with slots for 4, 2, 2 microbatches; a second to compute one again
//     (0 s, 0)   (1 s, 4 GB)   (2 s, 6 GB)   (3 s, 8 GB)      to save 5 GB takes 2 s, where 1.5 would do in parts
#pragma once
#include <vector>

namespace cleave::planner {

// A way to compute a unit again.
struct AgainWay {
  double seconds = 0;
  double saved = 0;       // bytes of each microbatch that the unit's stage has slots for
  double savedOfLast = 0; // and of one more: bytes to take off
};

// The sum of the ways for all units.
struct AgainChoice {
  double seconds = 0, saved = 0; // bytes
};

// For every number of units that each way has, the choice that saves most. `slots`: of each unit's stage.
std::vector<AgainChoice> wholeRecomputation(std::vector<AgainWay> ways, std::vector<double> slots);

} // namespace cleave::planner
