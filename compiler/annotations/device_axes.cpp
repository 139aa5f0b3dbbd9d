#include "compiler/annotations/device_axes.h"
#include <algorithm>

namespace cleave::annotations {
namespace {

// Adds axes to `axes` until they give the parts: a mesh has a handful, of which few have the right product.
bool extend(const Parts &parts, int64_t count, const dist::Mesh &mesh, dist::Axes &axes) {
  const int64_t product = mesh.groupSize(axes);
  if (product == count) return partsOf(mesh, axes) == parts;
  for (const dist::MeshAxis &axis : mesh.axes) {
    if (axis.size == 1 || count % (product * axis.size) != 0) continue;
    if (std::ranges::find(axes, axis.name) != axes.end()) continue;
    axes.push_back(axis.name);
    if (extend(parts, count, mesh, axes)) return true;
    axes.pop_back();
  }
  return false;
}

} // namespace

Parts partsOf(const dist::Mesh &mesh, const dist::Axes &axes) {
  Parts parts(static_cast<size_t>(mesh.numDevices()));
  for (size_t device = 0; device < parts.size(); ++device)
    parts[device] = mesh.indexAlong(static_cast<int64_t>(device), axes);
  return parts;
}

std::optional<dist::Axes> axesOf(const Parts &parts, const dist::Mesh &mesh) {
  dist::Axes axes;
  const int64_t count = parts.empty() ? 1 : *std::ranges::max_element(parts) + 1;
  if (static_cast<int64_t>(parts.size()) != mesh.numDevices() || !extend(parts, count, mesh, axes)) return {};
  return axes;
}

std::optional<int64_t> strideOf(const Parts &parts, int64_t count) {
  const auto first = std::ranges::find(parts, 1);
  const int64_t stride = first - parts.begin();
  for (size_t device = 0; device < parts.size(); ++device)
    if (parts[device] != static_cast<int64_t>(device) / stride % count) return {};
  return first == parts.end() ? std::nullopt : std::optional(stride);
}

} // namespace cleave::annotations
