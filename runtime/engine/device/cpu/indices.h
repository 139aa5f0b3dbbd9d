// Numbers in a tensor that name rows of a table, of which this device may have a part.
#pragma once
#include "runtime/engine/device/cpu/commands.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <fmt/format.h>

namespace cleave::runtime {

struct Indices {
  const std::byte *data;
  bool wide; // i64, else i32
  int64_t count, start, rows, globalRows;

  int64_t raw(int64_t i) const {
    return wide ? reinterpret_cast<const int64_t *>(data)[i] : reinterpret_cast<const int32_t *>(data)[i];
  }
  // Local row, or -1 when another device has it. Out of range everywhere: `bad` is set.
  int64_t row(int64_t i, bool &bad) const {
    int64_t index = raw(i);
    if (index < 0) index += globalRows;
    if (index < 0 || index >= globalRows) bad = true;
    int64_t local = index - start;
    return local < 0 || local >= rows ? -1 : local;
  }
  Status complain() const {
    for (int64_t i = 0; i < count; ++i)
      if (raw(i) < -globalRows || raw(i) >= globalRows)
        return runError(fmt::format("index {} (element {}) is outside of the {} rows", raw(i), i, globalRows));
    return runError("an index is out of range");
  }
};

// `rows` of the table's `globalRows` lie here, from `start` on.
inline Result<Indices> indicesOf(const plan::Buffer &numbers, const plan::AffineOfCoordinate &start, int64_t rows,
                                 int64_t globalRows, const CpuContext &context) {
  if (numbers.dtype() != plan::I64 && numbers.dtype() != plan::I32)
    return inputError(fmt::format("indices of type {}", name(numbers.dtype())));
  return Indices{context.at(numbers),
                 numbers.dtype() == plan::I64,
                 elementCount(numbers.shape()),
                 evaluate(start, context.mesh, context.device),
                 rows,
                 globalRows};
}

} // namespace cleave::runtime
