// The label of a place that stays empty, of losses that have no class to ignore. It is exact in i64, f32 and bf16.
#pragma once

namespace cleave::runtime {

inline constexpr double emptyLabel = -0x1p62;

} // namespace cleave::runtime
