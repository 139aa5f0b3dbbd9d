// Axes of a mesh as annotations tell them: by the devices that hold each part of a tensor.
//
//   partsOf(mesh dp=2,tp=2, {"tp"}) == {0, 1, 0, 1}         device 2 holds part 0
//   axesOf({0, 1, 0, 1}, mesh) == {"tp"}
//   strideOf({0, 0, 1, 1}, 2) == 2                          neighbours along the axis are two devices apart
#pragma once
#include "runtime/base/sharding/mesh.h"
#include <optional>

namespace cleave::annotations {

// Axes that divide samples; parameters lie over them for ZeRO's sake alone.
inline bool isOfSamples(const std::string &axis) { return axis == "dp" || axis == "fsdp"; }

// The part of a dimension that each device has, by the device's number.
using Parts = std::vector<int64_t>;

Parts partsOf(const dist::Mesh &mesh, const dist::Axes &axes);
// Axes, major first, that give these parts; none if no axes do.
std::optional<dist::Axes> axesOf(const Parts &parts, const dist::Mesh &mesh);
// Devices between neighbours along the one axis of `count` parts; none if the parts do not follow one axis.
std::optional<int64_t> strideOf(const Parts &parts, int64_t count);

} // namespace cleave::annotations
