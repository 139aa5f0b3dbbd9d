// A command whose floats have 16 bits, computed in f32: what it reads is widened into the scratch, what it writes is
// rounded from there, once.
//
//   widened(cumSum, context, {&plan::CumSum::mutable_input}, {&plan::CumSum::mutable_output}, prepareCumSum)
#pragma once
#include "runtime/engine/device/cpu/widen.h"
#include "runtime/plan/dtype.h"

namespace cleave::runtime {

inline bool hasSixteenBits(const plan::Buffer &buffer) {
  return buffer.dtype() == plan::F16 || buffer.dtype() == plan::BF16;
}

template <typename Message> class WidenedCommand final : public ScratchCommand {
public:
  using Operand = plan::Buffer *(Message::*)();
  using Builder = Result<Prepared> (*)(const Message &, const CpuContext &);

  WidenedCommand(const Message &command, const CpuContext &context, Builder build)
      : command(command), context(context), build(build) {}

  // The operand becomes its f32 copy, in the scratch.
  void widen(Operand operand, Conversion::Direction direction) {
    plan::Buffer &buffer = *(command.*operand)();
    const int64_t count = elementCount(buffer.shape());
    (direction == Conversion::Widen ? before : after)
        .push_back(std::make_unique<Conversion>(buffer.dtype(), direction, context.at(buffer), scratchBytes,
                                                std::vector<int64_t>{count}, std::vector<int64_t>{1},
                                                std::vector<int64_t>{1}));
    buffer.set_dtype(plan::F32);
    buffer.set_on_host(true); // where the builder finds the scratch
    buffer.set_offset(static_cast<int64_t>(scratchBytes));
    scratchBytes += (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
    context.scratch->need(scratchBytes);
  }

  void place(const Scratch &scratch) override {
    context.host = scratch.base;
    inScratch = build(command, context);
    for (auto *conversions : {&before, &after})
      for (auto &conversion : *conversions) conversion->place(scratch);
  }
  Status run() override {
    if (!inScratch) return inScratch.status();
    for (auto &conversion : before) CLEAVE_RETURN_IF_ERROR(conversion->run());
    CLEAVE_RETURN_IF_ERROR((*inScratch)->run());
    for (auto &conversion : after) CLEAVE_RETURN_IF_ERROR(conversion->run());
    return Status::ok();
  }

private:
  Message command;
  CpuContext context;
  Builder build;
  std::vector<std::unique_ptr<Conversion>> before, after;
  size_t scratchBytes = 0;
  Result<Prepared> inScratch = Prepared();
};

template <typename Message>
Prepared widened(const Message &command, const CpuContext &context,
                 const std::vector<typename WidenedCommand<Message>::Operand> &reads,
                 const std::vector<typename WidenedCommand<Message>::Operand> &writes,
                 typename WidenedCommand<Message>::Builder build) {
  auto made = std::make_unique<WidenedCommand<Message>>(command, context, build);
  for (auto operand : reads) made->widen(operand, Conversion::Widen);
  for (auto operand : writes) made->widen(operand, Conversion::Narrow);
  return made;
}

} // namespace cleave::runtime
