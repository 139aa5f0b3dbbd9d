#include "compiler/planner/problem/pins.h"
#include "runtime/base/names/glob.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

namespace cleave::planner {
namespace {

int64_t product(const std::vector<int64_t> &sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>());
}

} // namespace

size_t dimensionOf(const Pin &pin, const Tensor &tensor, size_t dim) {
  if (pin.sizes.empty()) return dim;
  const int64_t before = product({pin.sizes.begin(), pin.sizes.begin() + int64_t(dim)});
  int64_t here = 1;
  size_t at = 0;
  while (at < tensor.dims.size() && (here < before || tensor.dims[at] == 1)) here *= tensor.dims[at++];
  return here == before ? at : tensor.dims.size();
}

Status checkPins(const Problem &problem, const std::vector<Pin> &pins) {
  if (pins.empty()) return Status::ok();
  std::vector<int64_t> batchDims = problem.batchDims();
  for (const Pin &pin : pins) {
    bool matches = false;
    auto wrong = [&](const std::string &why) {
      return Status(ErrorKind::Usage, fmt::format("--pin {}: {}", pin.text, why));
    };
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      const Tensor &tensor = problem.tensors[t];
      if (!names::matchGlob(pin.glob, tensor.name)) continue;
      matches = true;
      if (pin.sizes.empty() ? tensor.dims.size() != pin.dims.size() : product(tensor.dims) != product(pin.sizes))
        return wrong(fmt::format(
            "'{}' has {} dimensions, the pin {}; heads count for themselves where they are split: it is [{}]",
            tensor.name, tensor.dims.size(), pin.dims.size(), fmt::join(tensor.dims, ", ")));
      for (size_t dim = 0; dim < pin.dims.size(); ++dim)
        for (const std::string &axis : pin.dims[dim]) {
          const size_t at = dimensionOf(pin, tensor, dim);
          if (at >= tensor.dims.size())
            return wrong(fmt::format("dimension {} of the pin begins inside of one of '{}', which is [{}]", dim,
                                     tensor.name, fmt::join(tensor.dims, ", ")));
          if (axis == "tp" || batchDims[t] == int64_t(at)) continue;
          return wrong(fmt::format("axis '{}' splits samples, and dimension {} of '{}' does not count them{}", axis,
                                   dim, tensor.name,
                                   tensor.kind == TensorKind::Parameter ? "; --zero 3 splits parameters over it" : ""));
        }
    }
    if (!matches) {
      std::vector<std::string> known;
      for (const Tensor &tensor : problem.tensors) known.push_back(tensor.name);
      return wrong(fmt::format("no tensor or parameter matches '{}'{}", pin.glob, names::suggestion(pin.glob, known)));
    }
  }
  return Status::ok();
}

} // namespace cleave::planner
