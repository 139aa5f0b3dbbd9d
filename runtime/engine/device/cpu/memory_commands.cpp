// Copies, fills, cumulative sums, the check for non-finite values, and launches of compiled kernels.
#include "runtime/base/strided_copy.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/widened_command.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/fault.h"
#include <atomic>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {

Result<Prepared> prepareCopy(const plan::Copy &command, const CpuContext &context) {
  int64_t element = byteSize(command.source().dtype());
  StridedCopy copy({command.sizes().begin(), command.sizes().end()},
                   {command.source_strides().begin(), command.source_strides().end()},
                   {command.target_strides().begin(), command.target_strides().end()}, element);
  const std::byte *source =
      context.at(command.source()) + evaluate(command.source_offset(), context.mesh, context.device) * element;
  std::byte *target =
      context.at(command.target()) + evaluate(command.target_offset(), context.mesh, context.device) * element;
  if (command.source().on_host() || command.target().on_host()) // one thread copies, as a GPU's copy engine does
    return prepared([=, bytes = static_cast<size_t>(copy.bytes())] {
      std::memcpy(target, source, bytes);
      return Status::ok();
    });
  return prepared([copy = std::move(copy), source, target] {
    copy.run(source, target);
    return Status::ok();
  });
}

namespace {
template <typename Element> Prepared fill(std::byte *target, const std::string &bytes, int64_t count) {
  Element value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return prepared([=, out = reinterpret_cast<Element *>(target)] {
    parallelFor(count, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = value;
    });
    return Status::ok();
  });
}

template <typename Element, typename Sum> Prepared cumulative(const plan::CumSum &command, const CpuContext &context) {
  auto *input = reinterpret_cast<const Element *>(context.at(command.input()));
  auto *output = reinterpret_cast<Element *>(context.at(command.output()));
  int64_t outer = command.outer(), length = command.length(), inner = command.inner();
  bool exclusive = command.exclusive(), reverse = command.reverse();
  return prepared([=] {
    parallelFor(outer * inner, 64, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        int64_t base = at / inner * length * inner + at % inner;
        Sum sum = 0;
        for (int64_t step = 0; step < length; ++step) {
          int64_t index = base + (reverse ? length - 1 - step : step) * inner;
          Sum value = static_cast<Sum>(input[index]);
          output[index] = static_cast<Element>(exclusive ? sum : sum + value);
          sum += value;
        }
      }
    });
    return Status::ok();
  });
}

// All exponent bits set: infinity or not a number.
template <typename Bits> Prepared finite(const plan::CheckFinite &command, const CpuContext &context, Bits exponent) {
  auto *data = reinterpret_cast<const Bits *>(context.at(command.buffer()));
  int64_t count = elementCount(command.buffer().shape());
  return prepared([=, fault = notFiniteText(command)] {
    std::atomic<bool> failed{false};
    parallelFor(count, 1 << 14, [&](int64_t begin, int64_t end) {
      bool bad = false;
      for (int64_t i = begin; i < end; ++i) bad |= (data[i] & exponent) == exponent;
      if (bad) failed = true;
    });
    if (!failed) return Status::ok();
    return runError(fault);
  });
}
} // namespace

Result<Prepared> prepareFill(const plan::Fill &command, const CpuContext &context) {
  std::byte *target = context.at(command.target());
  int64_t bytes = byteSize(command.target()), count = elementCount(command.target().shape());
  const std::string &value = command.value();
  if (value.find_first_not_of(value[0]) == std::string::npos)
    return prepared([=, byte = value[0]] {
      parallelFor(bytes, 1 << 16, [&](int64_t begin, int64_t end) {
        std::memset(target + begin, byte, static_cast<size_t>(end - begin));
      });
      return Status::ok();
    });
  switch (value.size()) {
  case 2:
    return fill<uint16_t>(target, value, count);
  case 4:
    return fill<uint32_t>(target, value, count);
  case 8:
    return fill<uint64_t>(target, value, count);
  default:
    return inputError(fmt::format("a fill value of {} bytes", value.size()));
  }
}

Result<Prepared> prepareCumSum(const plan::CumSum &command, const CpuContext &context) {
  if (hasSixteenBits(command.input()))
    return widened(command, context, {&plan::CumSum::mutable_input}, {&plan::CumSum::mutable_output}, prepareCumSum);
  switch (command.input().dtype()) {
  case plan::F32:
    return cumulative<float, float>(command, context);
  case plan::F64:
    return cumulative<double, double>(command, context);
  case plan::I64:
    return cumulative<int64_t, int64_t>(command, context);
  case plan::I32:
    return cumulative<int32_t, int32_t>(command, context);
  default:
    return inputError(fmt::format("no cumulative sum of {}", name(command.input().dtype())));
  }
}

Result<Prepared> prepareCheckFinite(const plan::CheckFinite &command, const CpuContext &context) {
  switch (command.buffer().dtype()) {
  case plan::F32:
    return finite<uint32_t>(command, context, 0x7f800000u);
  case plan::F64:
    return finite<uint64_t>(command, context, 0x7ff0000000000000ull);
  case plan::F16:
    return finite<uint16_t>(command, context, uint16_t{0x7c00});
  case plan::BF16:
    return finite<uint16_t>(command, context, uint16_t{0x7f80});
  default:
    return inputError(fmt::format("a check of {} for finite values", name(command.buffer().dtype())));
  }
}

Result<Prepared> prepareLaunch(const plan::Launch &command, const CpuContext &context) {
  if (!context.kernels) return inputError("a launch, and no kernels are loaded");
  KernelFunction function = context.kernels->function(command.kernel());
  std::vector<void *> buffers;
  for (const plan::Buffer &buffer : command.buffers()) buffers.push_back(context.at(buffer));
  std::vector<int64_t> scalars;
  for (const auto &scalar : command.scalars()) scalars.push_back(evaluate(scalar, context.mesh, context.device));
  return prepared([=, buffers = std::move(buffers), scalars = std::move(scalars), extent = command.extent(),
                   grain = command.grain()] {
    parallelFor(extent, grain,
                [&](int64_t begin, int64_t end) { function(begin, end, buffers.data(), scalars.data()); });
    return Status::ok();
  });
}

} // namespace cleave::runtime
