// Gather and its transpose. Sums are in index order whatever the thread count: threads share the outer and inner
// dimensions, never the indices of one element.
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/indices.h"
#include "runtime/engine/device/cpu/widened_command.h"
#include "runtime/plan/dtype.h"
#include <atomic>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

template <typename Message> Result<Indices> indicesOf(const Message &command, const CpuContext &context) {
  return indicesOf(command.indices(), command.start(), command.rows(), command.global_rows(), context);
}

template <typename Element>
Prepared scatter(const plan::ScatterAdd &command, const CpuContext &context, const Indices &indices) {
  auto *updates = reinterpret_cast<const Element *>(context.at(command.updates()));
  auto *out = reinterpret_cast<Element *>(context.at(command.out()));
  int64_t outer = command.outer(), rows = command.rows(), inner = command.inner();
  return prepared([=] {
    parallelFor(outer * rows * inner, 1 << 14, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<void *>(out + begin), 0, static_cast<size_t>(end - begin) * sizeof(Element));
    });
    std::atomic<bool> failed{false};
    auto add = [&](int64_t outerBegin, int64_t outerEnd, int64_t innerBegin, int64_t innerEnd) {
      bool bad = false;
      for (int64_t o = outerBegin; o < outerEnd; ++o)
        for (int64_t i = 0; i < indices.count; ++i) {
          int64_t row = indices.row(i, bad);
          if (row < 0) continue;
          const Element *from = updates + (o * indices.count + i) * inner;
          Element *to = out + (o * rows + row) * inner;
          for (int64_t x = innerBegin; x < innerEnd; ++x) to[x] += from[x];
        }
      if (bad) failed = true;
    };
    if (outer >= currentThreads() || inner < 64)
      parallelFor(outer, 1, [&](int64_t begin, int64_t end) { add(begin, end, 0, inner); });
    else
      parallelFor(inner, 32, [&](int64_t begin, int64_t end) { add(0, outer, begin, end); });
    return failed ? indices.complain() : Status::ok();
  });
}

} // namespace

Result<Prepared> prepareGather(const plan::Gather &command, const CpuContext &context) {
  Result<Indices> indices = indicesOf(command, context);
  if (!indices) return indices.status();
  const std::byte *table = context.at(command.table());
  std::byte *out = context.at(command.out());
  int64_t outer = command.outer(), rows = command.rows(), width = command.inner() * byteSize(command.out().dtype());
  return prepared([=, indices = *indices] {
    std::atomic<bool> failed{false};
    int64_t grain = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, width));
    parallelFor(outer * indices.count, grain, [&](int64_t begin, int64_t end) {
      bool bad = false;
      for (int64_t at = begin; at < end; ++at) {
        int64_t row = indices.row(at % indices.count, bad);
        std::byte *to = out + at * width;
        if (row < 0)
          std::memset(to, 0, static_cast<size_t>(width));
        else if (width == 4)
          std::memcpy(to, table + (at / indices.count * rows + row) * 4, 4);
        else
          std::memcpy(to, table + (at / indices.count * rows + row) * width, static_cast<size_t>(width));
      }
      if (bad) failed = true;
    });
    return failed ? indices.complain() : Status::ok();
  });
}

Result<Prepared> prepareScatterAdd(const plan::ScatterAdd &command, const CpuContext &context) {
  if (hasSixteenBits(command.out()))
    return widened(command, context, {&plan::ScatterAdd::mutable_updates}, {&plan::ScatterAdd::mutable_out},
                   prepareScatterAdd);
  CLEAVE_ASSIGN_OR_RETURN(Indices indices, indicesOf(command, context));
  switch (command.out().dtype()) {
  case plan::F32:
    return scatter<float>(command, context, indices);
  case plan::F64:
    return scatter<double>(command, context, indices);
  case plan::I64:
    return scatter<int64_t>(command, context, indices);
  case plan::I32:
    return scatter<int32_t>(command, context, indices);
  default:
    return inputError(fmt::format("no scatter-add of {}", name(command.out().dtype())));
  }
}

} // namespace cleave::runtime
