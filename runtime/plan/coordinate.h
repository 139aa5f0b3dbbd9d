// Mesh coordinates of the plan: the mesh itself and affine functions of a device's coordinate.
//
//   mesh dp=2, tp=4; affine {base 3, {axes tp, stride 10}}: device 6 (dp=1, tp=2) has 23; range over the mesh [3, 33]
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/boxes.h"
#include "runtime/base/sharding/mesh.h"
#include "runtime/base/status.h"
#include <utility>

namespace cleave::runtime {

// Error: no axes with a size of at least 1, a repeated axis, or more than 2^20 devices.
Result<dist::Mesh> meshOf(const plan::Mesh &mesh);

template <typename Names> dist::Axes axesOf(const Names &names) { return {names.begin(), names.end()}; }

int64_t evaluate(const plan::AffineOfCoordinate &affine, const dist::Mesh &mesh, int64_t device);

// The affine function as one factor for each axis of the mesh: value = base + sum of factor * coordinate. Error:
// unknown axis, or overflow.
Result<std::vector<int64_t>> factorsOf(const plan::AffineOfCoordinate &affine, const dist::Mesh &mesh);

// Least and greatest value over all devices, in time linear in the axes. Error: unknown axis, or overflow.
Result<std::pair<int64_t, int64_t>> rangeOf(const plan::AffineOfCoordinate &affine, const dist::Mesh &mesh);

// Slice of a tensor that `device` holds. Error: unknown axis, an axis used twice, or a dimension that does not divide.
Result<Shard> shardOf(const google::protobuf::RepeatedField<int64_t> &shape,
                      const google::protobuf::RepeatedPtrField<plan::DimSharding> &dims, const dist::Mesh &mesh,
                      int64_t device);

// Of all devices' memory, padding included.
const google::protobuf::RepeatedField<int64_t> &paddedShape(const plan::Parameter &parameter);
// The block of a persistent tensor in a device's memory, padding included: the same shape on all devices.
Result<std::vector<int64_t>> blockOf(const plan::Parameter &parameter, const dist::Mesh &mesh);
// Its bytes; the verifier has checked that there is one.
int64_t blockBytes(const plan::Parameter &parameter, const dist::Mesh &mesh);
// What the block holds of the stored tensor; nothing where all of it is padding.
Result<Shard> shardOf(const plan::Parameter &parameter, const dist::Mesh &mesh, int64_t device);

} // namespace cleave::runtime
