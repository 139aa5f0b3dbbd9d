// Reductions over the members of a group, in their order.
//   reduceFunction(plan::F32, plan::Collective::SUM)(out, inputs, members, count);
#pragma once
#include "plan/plan.pb.h"
#include <cstddef>
#include <cstdint>

namespace cleave::runtime {

// out[i] = in[0][i] + in[1][i] + ... in that order (or max, min); `out` may be one of the inputs.
using ReduceFunction = void (*)(std::byte *out, const std::byte *const *inputs, int64_t members, int64_t count);
// Null for a dtype that cannot be reduced.
ReduceFunction reduceFunction(plan::DType dtype, plan::Collective::Reduce reduce);

} // namespace cleave::runtime
