#include "compiler/normalize/window.h"

using namespace mlir;
namespace cleave::normalize {

Window windowOf(Node &n, ArrayRef<int64_t> input, ArrayRef<int64_t> kernel) {
  size_t rank = input.size();
  Window w{Dims(kernel),  n.ints("strides", Dims(rank, 1)),   Dims(rank, 0),
           Dims(rank, 0), n.ints("dilations", Dims(rank, 1)), Dims(rank, 0)};
  if (n.ints("kernel_shape", kernel) != Dims(kernel)) n.fail("its kernel_shape is not that of its weight");
  if (kernel.size() != rank || w.strides.size() != rank || w.dilations.size() != rank)
    n.fail("its kernel, strides or dilations do not fit " + Twine(rank) + " spatial dimensions");
  for (size_t d = 0; d < rank; ++d)
    if (w.strides[d] < 1 || w.dilations[d] < 1 || kernel[d] < 1)
      n.fail("its kernel, strides and dilations must be positive");
  std::string automatic = n.text("auto_pad", "NOTSET");
  if (automatic == "NOTSET" || automatic.empty()) {
    Dims pads = n.ints("pads", Dims(2 * rank, 0));
    if (pads.size() != 2 * rank) n.fail("needs two pads for each spatial dimension");
    w.padsBegin.assign(pads.begin(), pads.begin() + int64_t(rank));
    w.padsEnd.assign(pads.begin() + int64_t(rank), pads.end());
  } else if (automatic != "VALID") {
    for (size_t d = 0; d < rank; ++d) {
      int64_t extent = (kernel[d] - 1) * w.dilations[d] + 1, outputs = (input[d] + w.strides[d] - 1) / w.strides[d];
      int64_t total = std::max<int64_t>((outputs - 1) * w.strides[d] + extent - input[d], 0);
      w.padsBegin[d] = automatic == "SAME_LOWER" ? (total + 1) / 2 : total / 2;
      w.padsEnd[d] = total - w.padsBegin[d];
    }
  }
  if (n.integer("ceil_mode", 0))
    for (size_t d = 0; d < rank; ++d) {
      int64_t room = input[d] + w.padsBegin[d] + w.padsEnd[d] - (kernel[d] - 1) * w.dilations[d] - 1;
      int64_t last = (room + w.strides[d] - 1) / w.strides[d]; // index of the last window
      // a window must not start in the padding behind the input
      if (last * w.strides[d] >= input[d] + w.padsBegin[d]) --last;
      w.extraEnd[d] = std::max<int64_t>(last * w.strides[d] - room, 0);
      w.padsEnd[d] += w.extraEnd[d];
    }
  return w;
}

} // namespace cleave::normalize
