// Masks made of positions: tables of queries and keys whose entries depend on key - query alone. They are constants, or
// computed from comparisons of positions, as those of long sequences are.
//
//   Where(key <= query And key > query - 2, 0, -inf)  ->  band {left = 2, right = 0}, inside 0, outside -inf
#pragma once
#include "dialects/onnx/formula.h"
#include <optional>

namespace cleave::attention {

struct BandTable {
  runtime::AttentionBand band; // bounded
  double inside, outside;
};
// `row` and `column`: the dimensions of `value` that count queries and keys; it has to be the same along all others.
std::optional<BandTable> matchBandTable(mlir::Value value, int64_t row, int64_t column);

// `x` [.., queries, keys] where the band lets a query see a key, else `hidden`. `query` and `key`: positions [queries, keys].
mlir::Value hideOutside(onnx::Formula &f, const runtime::AttentionBand &band, mlir::Value query, mlir::Value key,
                        mlir::Value x, mlir::Value hidden);

// 0 1 2 ..., one-dimensional.
bool countsUp(mlir::Value value);

} // namespace cleave::attention
