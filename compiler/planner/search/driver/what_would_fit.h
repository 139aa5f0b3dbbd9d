// Where nothing fits: the hosts' memory is opened, if they are known; else the message says what to change.
//
//   no plan fits: the leanest split found (dp=8,tp=1 zero 3 ...) needs 41.2 GiB on a device (...), of 32 GiB it can use
//   30.1 GiB
//     without --recompute: dp=8,tp=1 zero 3 microbatches 4 recompute full fits with 22.4 GiB, 1.93 s a step
#pragma once
#include "compiler/planner/search/driver/search_case.h"
#include <functional>

namespace cleave::planner {

// "dp=2,tp=4 zero 0 microbatches 1 recompute full": with what most blocks do, and how many do something else.
std::string splitText(const Solution &solution);

// The plan that fits with state, or all that can leave, in the hosts' memory, where nothing fits without, the hosts are
// known and nothing was asked for; else `without`. `leastBytes` is the least that any split found needs on a device.
Outcome openHosts(const SearchCase &asked, const std::function<SearchOptions()> &how, Outcome without,
                  double &leastBytes);

// Nothing fits: what would, each priced. `leastBytes` as openHosts() has it.
Status whatWouldFit(const SearchCase &asked, const Outcome &outcome, double leastBytes);

} // namespace cleave::planner
