// A device mesh: named axes over devices numbered row-major, the first axis outermost.
//
//   Mesh m = {{"dp", 2}, {"tp", 4}};   // 8 devices; device 5 is dp=1, tp=1
//
// The sharding algebra (this folder) is free of MLIR: the planner, the partitioner and the tests share it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::dist {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis &) const = default;
};

// Axis names, major first. Empty: not split.
using Axes = std::vector<std::string>;

// Between its ranks programs differ; all other axes split tensors.
inline constexpr const char *pipelineAxis = "pp";
inline bool isPipelineAxis(std::string_view axis) { return axis == pipelineAxis; }
bool hasPipelineAxis(const Axes &axes);

struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t numDevices() const;
  // Size of one axis; 1 for an axis the mesh does not have.
  int64_t axisSize(const std::string &name) const;
  // Product of the sizes.
  int64_t groupSize(const Axes &group) const;
  std::vector<int64_t> coordinate(int64_t device) const;
  // Row-major index of the device's coordinate along `group`.
  int64_t indexAlong(int64_t device, const Axes &group) const;
  // The devices that differ from `device` only along `group`, in row-major order of `group`.
  std::vector<int64_t> group(int64_t device, const Axes &group) const;
  // "dp=2,tp=4"; axes of size 1 are kept.
  std::string str() const;
  // Parses str()'s form. False, with a reason, on a malformed text, a repeated axis or a size below 1.
  static bool parse(const std::string &text, Mesh &mesh, std::string &error);
  bool operator==(const Mesh &) const = default;
};

} // namespace cleave::dist
