// Builders of the CPU device's commands, by family; each has its own source file.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/engine/device/cpu/kernel_object.h"
#include "runtime/engine/device/cpu/onednn.h"
#include "runtime/engine/device/device.h"

namespace cleave::runtime {

// The means of a builder. Addresses are final: the arena is allocated before commands are prepared.
struct CpuContext {
  std::byte *arena = nullptr, *host = nullptr;
  dist::Mesh mesh;
  int64_t device = 0; // id in the mesh
  const KernelObject *kernels = nullptr;
  std::shared_ptr<Scratch> scratch;
  dnnl::stream stream;

  std::byte *at(const plan::Buffer &buffer) const { return (buffer.on_host() ? host : arena) + buffer.offset(); }
};

// A command that needs scratch; `place` is called when that has its address.
class ScratchCommand : public PreparedCommand {
public:
  virtual void place(const Scratch &scratch) = 0;
};

// A command that executes oneDNN primitives in order.
class PrimitiveSequence final : public ScratchCommand {
public:
  explicit PrimitiveSequence(dnnl::stream stream) : stream(std::move(stream)) {}
  void place(const Scratch &scratch) override {
    for (BoundPrimitive &call : calls) call.place(scratch);
  }
  Status run() override {
    for (const BoundPrimitive &call : calls) CLEAVE_RETURN_IF_ERROR(call.execute(stream.get()));
    return Status::ok();
  }
  dnnl::stream stream;
  std::vector<BoundPrimitive> calls;
};

Result<Prepared> prepareContract(const plan::Contract &command, const CpuContext &context);
// The product and then what a GPU's library does at its end: `product` is of the command without its epilogue.
bool hasEpilogue(const plan::Contract &command);
Prepared withEpilogue(const plan::Contract &command, const CpuContext &context, Prepared product);
Result<Prepared> prepareGroupedContract(const plan::GroupedContract &command, const CpuContext &context);
Result<Prepared> prepareConvolution(const plan::Convolution &command, const CpuContext &context);
Prepared convolutionInLoops(const plan::Convolution &command, const CpuContext &context); // of float64
Result<Prepared> prepareAttention(const plan::Attention &command, const CpuContext &context);
Result<Prepared> preparePool(const plan::Pool &command, const CpuContext &context);
Result<Prepared> prepareGather(const plan::Gather &command, const CpuContext &context);
Result<Prepared> prepareScatterAdd(const plan::ScatterAdd &command, const CpuContext &context);
Result<Prepared> prepareCopy(const plan::Copy &command, const CpuContext &context);
Result<Prepared> prepareFill(const plan::Fill &command, const CpuContext &context);
Result<Prepared> prepareCumSum(const plan::CumSum &command, const CpuContext &context);
Result<Prepared> prepareCheckFinite(const plan::CheckFinite &command, const CpuContext &context);
Result<Prepared> prepareLaunch(const plan::Launch &command, const CpuContext &context);
// A command of a GPU's plan by the launches that do it, on an emulated grid.
Result<Prepared> prepareEmulated(const plan::Command &command, const CpuContext &context);

// A command that is one call of a callable: `prepared([=] { ...; return Status::ok(); })`.
template <typename Body> class CallCommand final : public PreparedCommand {
public:
  explicit CallCommand(Body body) : body(std::move(body)) {}
  Status run() override { return body(); }

private:
  Body body;
};
template <typename Body> Prepared prepared(Body body) { return std::make_unique<CallCommand<Body>>(std::move(body)); }

} // namespace cleave::runtime
