// oneDNN primitives bound to arena addresses: created once, executed every step without allocation of our own.
//
// All primitives of a device share one scratchpad (its commands run one after another), allocated after the last one is
// created; `Scratch` hands out its address then.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <dnnl.hpp>
#include <memory>
#include <vector>

namespace cleave::runtime {

// Scratch memory of a device: the largest request, allocated once.
struct Scratch {
  size_t bytes = 0;
  std::byte *base = nullptr; // set by the device when all commands are prepared
  void need(size_t request) { bytes = request > bytes ? request : bytes; }
};

// oneDNN's loops run on the threads of threads/team.h. Error: its library is built with another OpenMP than GCC's.
Status openOneDnn();
const dnnl::engine &cpuEngine();
// memory::data_type of a floating-point dtype; undef for others.
dnnl::memory::data_type dnnlType(plan::DType dtype);

// One execution of a primitive. Arguments either have a fixed address or lie at an offset of the scratch.
class BoundPrimitive {
public:
  BoundPrimitive() = default;
  explicit BoundPrimitive(dnnl::primitive primitive) : primitive(std::move(primitive)) {}
  void bind(int argument, const dnnl::memory::desc &desc, void *address);
  void bindScratch(int argument, const dnnl::memory::desc &desc, size_t offset);
  // Fills in scratch addresses; call before the first execute.
  void place(const Scratch &scratch);
  Status execute(dnnl_stream_t stream) const;

private:
  dnnl::primitive primitive;
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
  std::vector<std::pair<size_t, size_t>> inScratch; // index into memories, offset
};

} // namespace cleave::runtime
