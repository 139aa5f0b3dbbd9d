// The kinds of collectives and what they combine with; their names in the IR, in reports and in measured figures.
//
//   name(Collective::AllReduce)      "all_reduce"
//   collectiveNamed("all_gather")    Collective::AllGather
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace cleave::dist {

// Those before OwnPart as plan.proto has them. OwnPart: each keeps its part of what all have, without traffic.
enum class Collective : uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, Shift, OwnPart };
const char *name(Collective kind);
std::optional<Collective> collectiveNamed(std::string_view name);

enum class Reduction : uint8_t { Sum, Max, Min }; // as plan.proto has them
const char *name(Reduction reduction);            // "sum", ...
std::optional<Reduction> reductionNamed(std::string_view name);

} // namespace cleave::dist
