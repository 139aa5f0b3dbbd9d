// Plans that nothing executes yet, as rows of the table: what they would bring.
#pragma once
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/search/driver/search_case.h"
#include <optional>

namespace cleave::planner {

// Stages of different device counts, where the splits that were asked for leave that open: what they would bring. They
// are no plan to choose, as nothing executes them.
std::optional<Alternative> unequalStages(const SearchCase &asked, Decision &decision);
// A batch that does not divide over the devices it would be fastest on. Samples that depend on each other need all of
// them anyway.
std::optional<Alternative> unevenBatch(const SearchCase &asked, Decision &decision);

} // namespace cleave::planner
