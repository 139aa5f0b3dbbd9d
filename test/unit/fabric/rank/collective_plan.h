// A plan of nothing but collectives, of all kinds, groups, shapes and types, on two lanes at once; and their results by
// plain loops over the global tensors.
//
//   CollectivePlan made;
//   executor: for each of made.tensors fill or expect
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"
#include <string>
#include <vector>

namespace cleave::runtime::test {

struct CollectivePart {
  plan::DType dtype = plan::F32;
  std::vector<int64_t> shape; // of the input, three dimensions
  int64_t dim = 0, splitDim = 0;
  bool isInPlace = false;
};

struct CollectiveCase {
  plan::Collective::Op op;
  std::vector<std::string> axes;
  std::vector<CollectivePart> parts;
  plan::Collective::Reduce reduce = plan::Collective::SUM;
};

// An input or a result of the plan, a parameter of it by this name.
struct CollectiveTensor {
  std::string name;
  int64_t number = 0; // of the part, over all cases
  const CollectiveCase *of = nullptr;
  const CollectivePart *part = nullptr;
  std::vector<int64_t> shape;
  bool isInput = false, isOutput = false; // both: in place
};

struct CollectivePlan {
  // `isWhole`: over every set of axes, and with some of several MiB.
  CollectivePlan(const dist::Mesh &mesh, bool isWhole);
  CollectivePlan(const CollectivePlan &) = delete;
  // What the device's result holds after the step.
  std::vector<double> expected(const CollectiveTensor &tensor, int64_t device, int64_t step) const;

  const dist::Mesh mesh;
  std::vector<CollectiveCase> cases;
  std::vector<CollectiveTensor> tensors;
  plan::Plan plan;
};

// The mesh as a plan has it.
plan::Mesh planMesh(const dist::Mesh &mesh);
// A persistent tensor of the plan, the same shape on all devices that hold it, behind those before: `top` grows.
plan::Buffer addTensor(plan::Plan &plan, const std::string &name, plan::DType dtype, const std::vector<int64_t> &shape,
                       int64_t &top);
// Ends the programs' arenas at `top`; with a module for the fake GPU, or a real one.
void finishPlan(plan::Plan &plan, int64_t top, const std::string &gpu);

} // namespace cleave::runtime::test
