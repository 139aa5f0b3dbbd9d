// How fast can a pipeline at most be, however its units are cut into stages and recomputed, given that units are whole?
// Cheap: for the many settings of a search (stage_bound.h is sharper where cuts can be mixed, and dear).
//
// A rank is done no sooner than: the first microbatch's way to it, all its own work one after the other, the last
// gradient's way down to the first rank, and what it does once a step. Its own memory tells how much it must compute
// again; in a given cut these are whole units (whole_recomputation.h). With stages that follow each other on the ranks,
// this grows with a stage's units: whether any cut stays within a time is decided by giving each stage, from the last
// one on, as many units as it can take. Where ranks have several stages each, units of the commonest kind are counted:
// all ranks together must have room for them.
//
//   48 blocks of 1 s and a head of 0.6 s on 8 ranks:  some rank has 6.6 s or 7 s of each microbatch, never 48.6 / 8
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"

namespace cleave::planner {

// Seconds that no cut is faster than; as soon as that is at least `goal`, just that it is. Infinite: nothing fits.
double boundOfWholeUnits(const StageProblem &problem, double goal);

// Seconds of a microbatch that each rank computes again at least, with problem.firstUnits given.
std::vector<double> leastAgainOfCut(const StageProblem &problem);

} // namespace cleave::planner
