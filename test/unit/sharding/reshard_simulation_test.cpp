// Every reshard against brute force: a random global tensor is laid out on all devices of a mesh, the steps are carried
// out by simulated collectives, and what the devices then hold must be the direct layout of the same tensor.
#include "runtime/base/sharding/sharding.h"
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>

namespace cleave::dist {
namespace {

struct Block {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

int64_t count(const std::vector<int64_t> &shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

// Part `index` of `parts` along `dim`.
Block part(const Block &block, size_t dim, int64_t index, int64_t parts) {
  Block result{block.shape, {}};
  result.shape[dim] /= parts;
  int64_t inner = 1;
  for (size_t d = dim + 1; d < block.shape.size(); ++d) inner *= block.shape[d];
  int64_t run = result.shape[dim] * inner, outer = count(block.shape) / (block.shape[dim] * inner);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < run; ++i)
      result.values.push_back(block.values[o * block.shape[dim] * inner + index * run + i]);
  return result;
}

Block joined(const std::vector<Block> &parts, size_t dim) {
  Block result{parts[0].shape, {}};
  int64_t inner = 1;
  for (size_t d = dim; d < result.shape.size(); ++d) inner *= result.shape[d];
  int64_t outer = count(result.shape) / inner;
  for (int64_t o = 0; o < outer; ++o)
    for (const Block &p : parts)
      result.values.insert(result.values.end(), p.values.begin() + o * inner, p.values.begin() + (o + 1) * inner);
  result.shape[dim] *= static_cast<int64_t>(parts.size());
  return result;
}

double combine(Reduction reduction, double a, double b) {
  return reduction == Reduction::Sum ? a + b : reduction == Reduction::Max ? std::max(a, b) : std::min(a, b);
}

Block combined(const std::vector<Block> &blocks, Reduction reduction) {
  Block result = blocks[0];
  for (size_t b = 1; b < blocks.size(); ++b)
    for (size_t i = 0; i < result.values.size(); ++i)
      result.values[i] = combine(reduction, result.values[i], blocks[b].values[i]);
  return result;
}

std::vector<Block> run(const Mesh &mesh, const ReshardStep &step, const std::vector<Block> &now) {
  std::vector<Block> next(now.size());
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    std::vector<Block> group;
    for (int64_t member : mesh.group(device, step.axes)) group.push_back(now[member]);
    int64_t index = mesh.indexAlong(device, step.axes), n = mesh.groupSize(step.axes);
    switch (step.kind) {
    case Collective::AllReduce:
      next[device] = combined(group, step.reduction);
      break;
    case Collective::ReduceScatter:
      next[device] = part(combined(group, step.reduction), step.dim, index, n);
      break;
    case Collective::AllGather:
      next[device] = joined(group, step.dim);
      break;
    case Collective::OwnPart:
      next[device] = part(now[device], step.dim, index, n);
      break;
    case Collective::AllToAll: {
      std::vector<Block> arriving;
      for (const Block &block : group) arriving.push_back(part(block, step.splitDim, index, n));
      next[device] = joined(arriving, step.dim);
      break;
    }
    }
  }
  return next;
}

// The layout of `whole`; over `layout.partial` the devices hold random values that combine to it. Devices that differ
// only in other axes must hold equal values, so randomness is drawn by position in `partial`.
std::vector<Block> layOut(const Mesh &mesh, const Block &whole, const Sharding &layout, std::mt19937 &random) {
  int64_t n = mesh.groupSize(layout.partial);
  std::vector<Block> summands(n, whole);
  std::uniform_int_distribution<int> value(-50, 50);
  if (layout.reduction == Reduction::Sum) {
    for (int64_t s = 1; s < n; ++s)
      for (size_t i = 0; i < whole.values.size(); ++i) {
        summands[s].values[i] = value(random);
        summands[0].values[i] -= summands[s].values[i];
      }
  } else {
    int sign = layout.reduction == Reduction::Max ? -1 : 1;
    for (size_t i = 0; i < whole.values.size(); ++i) {
      int64_t holder = std::uniform_int_distribution<int64_t>(0, n - 1)(random);
      for (int64_t s = 0; s < n; ++s)
        if (s != holder) summands[s].values[i] += sign * std::abs(value(random));
    }
  }
  std::vector<Block> result;
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    Block block = summands[mesh.indexAlong(device, layout.partial)];
    for (size_t dim = 0; dim < layout.dims.size(); ++dim)
      block = part(block, dim, mesh.indexAlong(device, layout.dims[dim]), mesh.groupSize(layout.dims[dim]));
    result.push_back(block);
  }
  return result;
}

// Each axis goes to a dimension, to partial or nowhere; the order within a dimension is random.
Sharding randomLayout(const Mesh &mesh, const std::vector<int64_t> &shape, const Axes &mayBePartial,
                      std::mt19937 &random) {
  Sharding layout = Sharding::replicated(shape.size());
  std::vector<std::string> names;
  for (const MeshAxis &axis : mesh.axes) names.push_back(axis.name);
  std::shuffle(names.begin(), names.end(), random);
  for (const std::string &name : names) {
    int64_t choice = std::uniform_int_distribution<int64_t>(-2, static_cast<int64_t>(shape.size()) - 1)(random);
    if (choice == -1 && std::find(mayBePartial.begin(), mayBePartial.end(), name) != mayBePartial.end())
      layout.partial.push_back(name);
    if (choice < 0) continue;
    Axes &axes = layout.dims[choice];
    if (shape[choice] % (mesh.groupSize(axes) * mesh.axisSize(name)) == 0) axes.push_back(name);
  }
  return layout;
}

void check(const Mesh &mesh, const std::vector<int64_t> &shape, const Sharding &from, const Sharding &to,
           std::mt19937 &random) {
  SCOPED_TRACE(mesh.str() + ": " + from.str() + " -> " + to.str());
  Block whole{shape, {}};
  for (int64_t i = 0; i < count(shape); ++i)
    whole.values.push_back(std::uniform_int_distribution<int>(-99, 99)(random));
  std::vector<Block> now = layOut(mesh, whole, from, random);
  double bytes = static_cast<double>(now[0].values.size());
  for (const ReshardStep &step : reshard(mesh, from, to)) {
    now = run(mesh, step, now);
    bytes = bytesAfter(mesh, step, bytes);
    ASSERT_EQ(bytes, static_cast<double>(now[0].values.size()));
    ASSERT_GE(trafficBytes(mesh, step, bytes), 0);
  }
  // Axes that stay partial are combined here, then cut directly.
  Sharding whole_to = to;
  whole_to.partial.clear();
  std::vector<Block> wanted = layOut(mesh, whole, whole_to, random);
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    std::vector<Block> group;
    for (int64_t member : mesh.group(device, to.partial)) group.push_back(now[member]);
    Block got = combined(group, from.reduction);
    ASSERT_EQ(got.shape, wanted[device].shape) << "device " << device;
    ASSERT_EQ(got.values, wanted[device].values) << "device " << device;
  }
}

TEST(Reshard, randomLayoutsArriveAsTheDirectLayout) {
  std::mt19937 random(7);
  const std::vector<std::string> meshes = {"dp=2",        "dp=4",        "dp=2,tp=2", "dp=2,tp=3",
                                           "a=2,b=2,c=2", "a=2,b=1,c=4", "a=3,b=2"};
  const std::vector<std::vector<int64_t>> shapes = {{8}, {24}, {8, 12}, {12, 8, 6}, {2, 4, 6, 2}, {}};
  int steps = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    Mesh mesh;
    std::string error;
    ASSERT_TRUE(Mesh::parse(meshes[trial % meshes.size()], mesh, error)) << error;
    const std::vector<int64_t> &shape = shapes[(trial / meshes.size()) % shapes.size()];
    Axes all;
    for (const MeshAxis &axis : mesh.axes) all.push_back(axis.name);
    Sharding from = randomLayout(mesh, shape, all, random);
    from.reduction = static_cast<Reduction>(trial % 3);
    Sharding to = randomLayout(mesh, shape, from.partial, random);
    to.reduction = from.reduction;
    check(mesh, shape, from, to, random);
    if (HasFatalFailure()) return;
    steps += static_cast<int>(reshard(mesh, from, to).size());
  }
  EXPECT_GT(steps, 5000) << "the random layouts hardly differ: the test tests nothing";
}

TEST(Reshard, theSimulationCanFail) { // a wrong order of axes is seen
  Mesh mesh{{{"a", 2}, {"b", 2}}};
  std::mt19937 random(1);
  Block whole{{4}, {1, 2, 3, 4}};
  std::vector<Block> ab = layOut(mesh, whole, {{{"a", "b"}}, {}, {}}, random);
  std::vector<Block> ba = layOut(mesh, whole, {{{"b", "a"}}, {}, {}}, random);
  EXPECT_EQ(ab[1].values, std::vector<double>{2});
  EXPECT_EQ(ba[1].values, std::vector<double>{3});
}

} // namespace
} // namespace cleave::dist
