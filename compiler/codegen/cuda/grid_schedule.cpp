#include "compiler/codegen/cuda/grid_schedule.h"
#include "compiler/codegen/cuda/grid_builder.h"
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr int64_t flatThreads = 256;   // a multiple of every width keeps blocks on whole vectors
constexpr int64_t warpRow = 1024;      // rows up to here are a warp's: 32 elements a lane, no barrier
constexpr int64_t blockRow = 8192;     // rows up to here stay in the registers of 256 threads
constexpr int64_t registersOfRow = 32; // elements of one row that a thread keeps
constexpr int64_t readOfColumns = 64;  // numbers that a thread has in flight; one of 512 has 128 registers
constexpr int64_t writtenOut = 3000;   // operations a kernel may grow to by writing its items out
constexpr int64_t longRowThreads = 512, rowThreads = 256;
constexpr int64_t blocksOfLongRows = 2;  // on a multiprocessor: one reads its row while another computes
constexpr int64_t columnTeam = 16;       // rows that a block of column sums reads at a time
constexpr int64_t widestAccumulator = 8; // bytes, f64
constexpr int64_t sharedAlignment = 128; // bytes: all banks

int64_t product(const KernelSchedule &s, ArrayRef<int64_t> factors) {
  int64_t count = 1;
  for (int64_t factor : factors) count *= s.sizes[factor];
  return count;
}

int64_t powerOfTwoUpTo(int64_t limit, int64_t most) {
  int64_t power = 1;
  while (power * 2 <= std::min(limit, most)) power *= 2;
  return power;
}

// As many neighbours as one 16-byte access holds of the widest tensor that is read or written along the vector factor.
int64_t chooseWidth(plan::KernelOp kernel, const KernelSchedule &s) {
  if (s.vector < 0) return 1;
  int64_t widest = 0;
  for (const KernelNode &node : s.nodes) {
    if (node.kind != KernelNode::Load && node.kind != KernelNode::Store) continue;
    if (node.form.strides[s.vector] != 1) continue;
    auto type = cast<RankedTensorType>(node.op->getResult(0).getType());
    widest = std::max(widest, onnx::elementBytes(type.getElementType()));
  }
  int64_t width = widest == 0 ? 1 : std::min<int64_t>(8, vectorBytes / widest);
  // A range of any length has a tail of its own; elsewhere a thread's chunk must not end in the middle.
  if (!s.rangeIsVector)
    while (s.sizes[s.vector] % width != 0) width /= 2;
  return width;
}

bool isUnrolled(const KernelSchedule &s, const GridSchedule &grid) {
  int64_t elements = grid.items * grid.width;
  return elements <= registersOfRow && elements * static_cast<int64_t>(s.nodes.size()) <= writtenOut;
}

// The sums and stores of a phase.
SmallVector<int> targetsOf(const KernelSchedule &s, int phase) {
  SmallVector<int> targets;
  for (auto [number, node] : llvm::enumerate(s.nodes))
    if (node.level == phase && (node.kind == KernelNode::Reduce || node.kind == KernelNode::Store))
      targets.push_back(static_cast<int>(number));
  return targets;
}

// Keeps in shared memory the loads of a row that several phases need, if their elements are floats of 16 bits or more:
// a softmax needs its row for the maximum, the sum and the result. A row that does not fit into `sharedLimit` bytes
// keeps its first steps.
void keepRowInSharedMemory(const KernelSchedule &s, int64_t sharedLimit, GridSchedule &grid) {
  SmallVector<SmallVector<char>> needs; // by phase and node
  for (int phase = 0; phase < s.phases; ++phase) needs.push_back(neededBy(s, targetsOf(s, phase)));
  FactorSet rowFactors = FactorSet(1) << s.vector;
  for (int64_t factor : s.inner) rowFactors |= FactorSet(1) << factor;
  SmallVector<int64_t> bytesPerStep; // by load
  int64_t totalBytesPerStep = 0;
  for (auto [number, node] : llvm::enumerate(s.nodes)) {
    if (node.kind != KernelNode::Load || (node.set & rowFactors) != rowFactors) continue;
    Type element = cast<RankedTensorType>(node.op->getResult(0).getType()).getElementType();
    if (!isa<FloatType>(element) || element.getIntOrFloatBitWidth() < 16) continue;
    SmallVector<int> phases;
    for (int phase = 0; phase < s.phases; ++phase)
      if (needs[phase][number]) phases.push_back(phase);
    if (phases.size() < 2) continue;
    grid.kept.push_back({static_cast<int>(number), phases.front(), /*offset=*/0});
    bytesPerStep.push_back(grid.width * onnx::elementBytes(element));
    totalBytesPerStep += bytesPerStep.back();
  }
  if (grid.kept.empty()) return;
  const int64_t begin = (grid.sharedBytes + sharedAlignment - 1) / sharedAlignment * sharedAlignment;
  const int64_t padding = sharedAlignment * static_cast<int64_t>(grid.kept.size());
  grid.keptSteps = std::min(s.rowElements() / grid.width, (sharedLimit - begin - padding) / totalBytesPerStep);
  if (grid.keptSteps < grid.team) { // less than one step per thread
    grid.kept.clear();
    grid.keptSteps = 0;
    return;
  }
  int64_t offset = begin;
  for (auto [load, bytes] : llvm::zip_equal(grid.kept, bytesPerStep)) {
    load.offset = offset;
    offset = (offset + grid.keptSteps * bytes + sharedAlignment - 1) / sharedAlignment * sharedAlignment;
  }
  grid.sharedBytes = offset;
  grid.blocks = blocksOfLongRows;
}

// Threads of a team read a row's or a column's own values at different times: only what one thread alone reads and
// writes may be written in place. That is an element, or a value of which one thread makes the row's or column's
// results at the end of a phase and no other makes anything.
bool isSafeInPlace(const KernelSchedule &s, int64_t input) {
  if (s.reduced == 0) return true;
  for (auto [number, load] : llvm::enumerate(s.nodes)) {
    if (load.kind != KernelNode::Load || load.buffer != input || (load.set & s.reduced) == s.reduced) continue;
    if ((load.set & s.reduced) != 0) return false;
    SmallVector<char> needs(s.nodes.size(), 0);
    needs[number] = 1;
    for (size_t i = number + 1; i < s.nodes.size(); ++i) {
      const KernelNode &node = s.nodes[i];
      for (int producer : node.producers) needs[i] |= needs[producer];
      if (needs[i] && (node.kind == KernelNode::Reduce || (node.set & s.reduced) != 0)) return false;
    }
  }
  return true;
}

} // namespace

SmallVector<char> neededBy(const KernelSchedule &s, ArrayRef<int> targets) {
  SmallVector<char> needs(s.nodes.size(), 0);
  for (int target : targets) needs[target] = 1;
  for (int i = static_cast<int>(s.nodes.size()) - 1; i >= 0; --i) {
    if (!needs[i] || (s.nodes[i].kind == KernelNode::Reduce && !llvm::is_contained(targets, i))) continue;
    for (int producer : s.nodes[i].producers) needs[producer] = 1;
  }
  return needs;
}

// Shared memory of a multiprocessor, of which each block takes 1 KiB more than it asks for (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability").
int64_t sharedOfBlock(StringRef target) {
  const int64_t kib = llvm::StringSwitch<int64_t>(target)
                          .StartsWith("sm_70", 96)
                          .StartsWith("sm_75", 64)
                          .StartsWith("sm_80", 164)
                          .StartsWith("sm_87", 164)
                          .StartsWith("sm_90", 228)
                          .StartsWith("sm_10", 228)
                          .Default(100);
  return (kib / blocksOfLongRows - 1) << 10;
}

GridSchedule GridSchedule::of(plan::KernelOp kernel, const KernelSchedule &s, int64_t sharedLimit) {
  GridSchedule grid;
  grid.shape = s.shape;
  grid.width = chooseWidth(kernel, s);
  int64_t rows = product(s, s.outer), vector = s.vector >= 0 ? s.sizes[s.vector] : 1;
  if (s.shape == KernelSchedule::Flat) {
    grid.threads = flatThreads;
    grid.extent = rows * vector;
    grid.grain = grid.threads * grid.width;
  } else if (s.shape == KernelSchedule::Rows) {
    int64_t chunks = s.rowElements() / grid.width;
    if (s.rowElements() <= warpRow) {
      grid.team = warp;
      grid.threads = rows >= 4 ? 4 * warp : warp;
    } else {
      grid.team = grid.threads = s.rowElements() <= blockRow ? rowThreads : longRowThreads;
    }
    grid.items = (chunks + grid.team - 1) / grid.team;
    grid.unrolled = isUnrolled(s, grid);
    grid.extent = rows;
    grid.grain = grid.threads / grid.team;
    if (grid.team > warp) grid.sharedBytes = (grid.team / warp) * widestAccumulator;
    if (!grid.unrolled && grid.team == grid.threads && s.phases > 1) keepRowInSharedMemory(s, sharedLimit, grid);
  } else {
    // Where many tensors are read on the way, a thread has fewer columns of each, and a block fewer rows.
    const int64_t loads = llvm::count_if(
        s.nodes, [&](const KernelNode &node) { return node.kind == KernelNode::Load && (node.set & s.reduced) != 0; });
    while (grid.width > 4 && grid.width * loads >= readOfColumns / 2) grid.width /= 2;
    int64_t depth = product(s, s.inner), chunks = vector / grid.width;
    grid.lanes = powerOfTwoUpTo(2 * chunks - 1, warp);
    const int64_t rowsOfBlock = grid.width * loads < readOfColumns / 2 ? columnTeam : columnTeam / 2;
    grid.team = powerOfTwoUpTo(std::max<int64_t>(1, depth / 2), rowsOfBlock * warp / grid.lanes);
    grid.threads = grid.lanes * grid.team;
    grid.items = (depth + grid.team - 1) / grid.team;
    grid.unrolled = isUnrolled(s, grid) && grid.items * grid.width * loads < readOfColumns;
    grid.extent = rows * ((chunks + grid.lanes - 1) / grid.lanes);
    grid.grain = 1;
    if (grid.team > 1) grid.sharedBytes = grid.threads * grid.width * widestAccumulator;
  }
  for (size_t i = 0; i < s.inplace.size(); i += 2)
    if (isSafeInPlace(s, s.inplace[i])) grid.inplace.append({s.inplace[i], s.inplace[i + 1]});
  return grid;
}

} // namespace cleave::codegen
