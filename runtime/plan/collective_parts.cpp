#include "runtime/plan/collective_parts.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {
bool isReducible(plan::DType dtype) { return dtype != plan::I16 && dtype != plan::U16 && byteSize(dtype) > 0; }
} // namespace

Result<std::vector<CollectivePart>> partsOf(const plan::Collective &collective, int64_t members) {
  std::vector<CollectivePart> parts;
  if (collective.inputs_size() != collective.outputs_size())
    return inputError(fmt::format("{} inputs and {} outputs", collective.inputs_size(), collective.outputs_size()));
  const auto op = collective.op();
  for (int i = 0; i < collective.inputs_size(); ++i) {
    const plan::Buffer &in = collective.inputs(i), &out = collective.outputs(i);
    auto refuse = [&](const std::string &why) {
      return inputError(fmt::format("part {}: {}; input {}, output {}", i, why, describe(in), describe(out)));
    };
    bool inPlace = in.in_slot() == out.in_slot() && in.offset() == out.offset();
    CollectivePart part;
    part.dtype = in.dtype();
    part.inputOffset = in.offset(), part.outputOffset = out.offset();
    part.inputShape = {in.shape().begin(), in.shape().end()},
    part.outputShape = {out.shape().begin(), out.shape().end()};
    if (in.dtype() != out.dtype()) return refuse("dtypes differ");
    std::vector<int64_t> expected = part.inputShape;
    const bool reduces = op == plan::Collective::ALL_REDUCE || op == plan::Collective::REDUCE_SCATTER;
    if (reduces && !isReducible(in.dtype())) return refuse("this dtype cannot be reduced");
    if (op == plan::Collective::ALL_REDUCE || op == plan::Collective::BROADCAST || op == plan::Collective::SHIFT) {
      part.length = elementCount(part.inputShape);
      if (op == plan::Collective::SHIFT) {
        if (i >= collective.dims_size()) return refuse("its distance is missing");
        part.distance = (collective.dims(i) % members + members) % members;
        if (inPlace && part.distance != 0) return refuse("a shift in place");
      }
    } else {
      if (i >= collective.dims_size()) return refuse("its dimension is missing");
      part.dim = collective.dims(i);
      auto inside = [&](int64_t dim) { return dim >= 0 && dim < in.shape_size(); };
      if (!inside(part.dim)) return refuse(fmt::format("it has no dimension {}", part.dim));
      auto d = static_cast<size_t>(part.dim);
      if (op == plan::Collective::ALL_TO_ALL) {
        if (i >= collective.split_dims_size()) return refuse("its split dimension is missing");
        part.splitDim = collective.split_dims(i);
        if (!inside(part.splitDim)) return refuse(fmt::format("it has no dimension {}", part.splitDim));
        auto s = static_cast<size_t>(part.splitDim);
        if (expected[s] % members) return refuse(fmt::format("dimension {} does not divide by {}", s, members));
        expected[s] /= members;
      } else if (op == plan::Collective::REDUCE_SCATTER) {
        if (expected[d] % members) return refuse(fmt::format("dimension {} does not divide by {}", d, members));
        expected[d] /= members;
      }
      if (op != plan::Collective::REDUCE_SCATTER) expected[d] *= members;
      const std::vector<int64_t> &piece = op == plan::Collective::REDUCE_SCATTER ? part.outputShape : part.inputShape;
      if (piece.size() != expected.size()) return refuse("ranks differ");
      for (size_t x = 0; x < piece.size(); ++x) (x < d ? part.outer : x == d ? part.length : part.inner) *= piece[x];
    }
    if (part.outputShape != expected) return refuse(fmt::format("the shapes do not fit a group of {}", members));
    if (op == plan::Collective::ALL_TO_ALL && inPlace && members > 1) return refuse("an all-to-all in place");
    parts.push_back(std::move(part));
  }
  return parts;
}

PartRange ownPiece(const CollectivePart &part, int64_t members, int64_t self) {
  const int64_t total = part.elements(), piece = ((total + members - 1) / members + 15) / 16 * 16,
                begin = std::min(total, self * piece);
  return {begin, std::min(total, begin + piece) - begin};
}

Result<CollectiveGroup> groupOf(const plan::Collective &collective, const dist::Mesh &mesh, int64_t device) {
  CollectiveGroup group{.members = mesh.group(device, axesOf(collective.axes()))};
  group.self = std::ranges::find(group.members, device) - group.members.begin();
  CLEAVE_ASSIGN_OR_RETURN(group.parts, partsOf(collective, group.count()));
  return group;
}

int64_t sentBytes(plan::Collective::Op op, const CollectiveGroup &group) {
  int64_t bytes = 0;
  for (const CollectivePart &part : group.parts) {
    const int64_t members = group.count(), others = members - 1, whole = part.elements();
    const int64_t own = ownPiece(part, members, group.self).count;
    bytes += byteSize(part.dtype) * (op == plan::Collective::ALL_REDUCE   ? whole - own + others * own
                                     : op == plan::Collective::ALL_TO_ALL ? others * whole / members
                                     : op == plan::Collective::SHIFT      ? (part.distance ? whole : 0)
                                     : op == plan::Collective::BROADCAST  ? (group.self == 0 ? others * whole : 0)
                                                                          : others * whole);
  }
  return bytes;
}

} // namespace cleave::runtime
