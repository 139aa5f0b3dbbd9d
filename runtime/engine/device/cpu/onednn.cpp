#include "runtime/engine/device/cpu/onednn.h"
#include "runtime/base/threads/openmp.h"
#include <dnnl_debug.h>
#include <fmt/format.h>

namespace cleave::runtime {

Status openOneDnn() {
  static const Status opened = openmp::bind(dnnl_version());
  return opened;
}

const dnnl::engine &cpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type dnnlType(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return dnnl::memory::data_type::f32;
  case plan::BF16:
    return dnnl::memory::data_type::bf16;
  case plan::F16:
    return dnnl::memory::data_type::f16;
  default:
    return dnnl::memory::data_type::undef;
  }
}

void BoundPrimitive::bind(int argument, const dnnl::memory::desc &desc, void *address) {
  memories.emplace_back(desc, cpuEngine(), address);
  arguments.push_back({argument, memories.back().get()});
}

void BoundPrimitive::bindScratch(int argument, const dnnl::memory::desc &desc, size_t offset) {
  inScratch.emplace_back(memories.size(), offset);
  bind(argument, desc, nullptr);
}

void BoundPrimitive::place(const Scratch &scratch) {
  for (auto [index, offset] : inScratch) memories[index].set_data_handle(scratch.base + offset);
}

Status BoundPrimitive::execute(dnnl_stream_t stream) const {
  dnnl_status_t status =
      dnnl_primitive_execute(primitive.get(), stream, static_cast<int>(arguments.size()), arguments.data());
  if (status != dnnl_success) return runError(fmt::format("oneDNN: {}", dnnl_status2str(status)));
  return Status::ok();
}

} // namespace cleave::runtime
