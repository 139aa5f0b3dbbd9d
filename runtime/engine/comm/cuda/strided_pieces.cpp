#include "runtime/engine/comm/cuda/strided_pieces.h"

namespace cleave::runtime::cuda {

std::vector<Rectangle> rectanglesOf(const std::vector<int64_t> &sizes, const std::vector<int64_t> &sourceStrides,
                                    const std::vector<int64_t> &targetStrides, int64_t element) {
  struct Dim {
    int64_t size, source, target; // bytes
  };
  std::vector<Dim> dims; // innermost first, merged where both sides run on
  int64_t width = element;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return {};
    if (sizes[i] == 1) continue;
    Dim dim{sizes[i], sourceStrides[i] * element, targetStrides[i] * element};
    if (dims.empty() && dim.source == width && dim.target == width)
      width *= dim.size;
    else if (!dims.empty() && dim.source == dims.back().source * dims.back().size &&
             dim.target == dims.back().target * dims.back().size)
      dims.back().size *= dim.size;
    else
      dims.push_back(dim);
  }
  Rectangle shape{0, 0, width, 1, width, width};
  size_t outer = 0;
  // A pitch is at least a row.
  if (!dims.empty() && dims[0].source >= width && dims[0].target >= width) {
    shape.height = dims[0].size, shape.sourcePitch = dims[0].source, shape.targetPitch = dims[0].target;
    outer = 1;
  }
  std::vector<Rectangle> all{shape};
  for (size_t d = outer; d < dims.size(); ++d) {
    size_t known = all.size();
    for (int64_t i = 1; i < dims[d].size; ++i)
      for (size_t r = 0; r < known; ++r) {
        Rectangle moved = all[r];
        moved.source += i * dims[d].source, moved.target += i * dims[d].target;
        all.push_back(moved);
      }
  }
  return all;
}

Status copyRectangle(const Gpu &gpu, const Rectangle &r, Address source, Address target, Stream stream) {
  Address from = source + static_cast<Address>(r.source), to = target + static_cast<Address>(r.target);
  if (from == to || r.width == 0) return Status::ok();
  if (r.height == 1)
    return gpu.check(gpu.driver.memcpyAsync(to, from, static_cast<size_t>(r.width), stream), "cannot copy on the GPU");
  Copy2d copy{};
  copy.sourceType = copy.targetType = memoryDevice;
  copy.sourceDevice = from, copy.targetDevice = to;
  copy.sourcePitch = static_cast<size_t>(r.sourcePitch), copy.targetPitch = static_cast<size_t>(r.targetPitch);
  copy.width = static_cast<size_t>(r.width), copy.height = static_cast<size_t>(r.height);
  return gpu.check(gpu.driver.memcpy2dAsync(&copy, stream), "cannot copy rows on the GPU");
}

} // namespace cleave::runtime::cuda
