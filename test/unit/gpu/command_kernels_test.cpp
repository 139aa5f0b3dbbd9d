// Commands by their GPU kernels on an emulated grid, beside the CPU's own implementation of the same commands.
#include "compiler/codegen/cuda/command_kernels.h"
#include "compiler/codegen/cuda/ptx.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/base/elements.h"
#include "runtime/engine/device/cpu/cpu_device.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/verify/verify.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace cleave::codegen {
namespace {

class Commands : public testing::Test {
protected:
  Commands() {
    plan::MeshAxis &axis = *plan.mutable_mesh()->add_axes();
    axis.set_name("dp");
    axis.set_size(1);
    plan.add_programs()->add_fragments()->set_name("final");
  }
  plan::Buffer buffer(plan::DType dtype, std::vector<int64_t> shape, int64_t shift = 0) {
    plan::Buffer made;
    made.set_offset(buffers++ * slot + shift);
    made.set_dtype(dtype);
    for (int64_t size : shape) made.add_shape(size);
    return made;
  }
  plan::Command &command() { return *plan.mutable_programs(0)->mutable_fragments(0)->add_commands(); }

  // Floats in (-2, 2); `indices`: i64 in [low, high).
  void fillIndices(const plan::Buffer &indices, int64_t low, int64_t high) { ranges.push_back({indices, low, high}); }
  void fillWith(const plan::Buffer &buffer, std::string bytes) { contents.emplace_back(buffer.offset(), bytes); }
  std::vector<std::byte> memory() const {
    std::mt19937 generator(7);
    std::vector<std::byte> bytes(static_cast<size_t>(buffers * slot + 64));
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      float value = std::uniform_real_distribution<float>(-2, 2)(generator);
      std::memcpy(bytes.data() + i, &value, 4);
    }
    for (const auto &[indices, low, high] : ranges)
      for (int64_t i = 0; i < indices.shape(0); ++i) {
        int64_t value = std::uniform_int_distribution<int64_t>(low, high - 1)(generator);
        std::memcpy(bytes.data() + indices.offset() + i * 8, &value, 8);
      }
    for (const auto &[offset, content] : contents) std::memcpy(bytes.data() + offset, content.data(), content.size());
    std::memset(bytes.data() + bytes.size() - 64, 0, 64);
    return bytes;
  }

  // The arena after all commands; empty when one reports `failure`.
  std::vector<std::byte> run(const plan::Plan &which, Status *failure = nullptr) {
    auto kernels = runtime::KernelObject::load(which);
    EXPECT_TRUE(kernels) << kernels.status().message();
    if (!kernels) return {};
    auto device = runtime::openCpuDevice(dist::Mesh{{{"dp", 1}}}, {0, 2, std::move(*kernels)});
    std::vector<std::byte> bytes = memory();
    const auto known = static_cast<int64_t>(bytes.size());
    const int64_t scratch = std::max<int64_t>(0, which.programs(0).arena_bytes() - known);
    EXPECT_TRUE(device->allocate(known + scratch));
    EXPECT_TRUE(device->write(0, bytes.data(), known));
    const std::vector<std::byte> garbage(static_cast<size_t>(scratch), std::byte{0xa5});
    EXPECT_TRUE(device->write(known, garbage.data(), scratch));
    std::vector<runtime::Prepared> prepared;
    for (const plan::Command &one : which.programs(0).fragments(0).commands()) {
      auto made = device->prepare(one);
      EXPECT_TRUE(made) << made.status().message();
      if (!made) return {};
      prepared.push_back(std::move(*made));
    }
    EXPECT_TRUE(device->finishPreparing());
    for (auto &one : prepared)
      if (Status status = one->run(); !status) {
        EXPECT_TRUE(failure) << status.message();
        if (failure) *failure = status;
        return {};
      }
    EXPECT_TRUE(device->read(0, bytes.data(), static_cast<int64_t>(bytes.size())));
    return bytes;
  }

  plan::Plan forGpu() {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
    plan::Plan gpu = plan;
    gpu.mutable_programs(0)->set_arena_bytes(buffers * slot);
    GpuKernels kernels(*module);
    EXPECT_TRUE(succeeded(kernels.build()));
    EXPECT_TRUE(succeeded(addCommandKernels(gpu, kernels)));
    auto library = kernels.compile({.target = "sm_80", .emulate = true, .assemble = false});
    EXPECT_TRUE(succeeded(library));
    if (failed(library)) return gpu;
    gpu.set_kernel_object(library->emulation);
    gpu.set_kernel_target(library->emulationTarget.cpu);
    gpu.mutable_cuda()->set_ptx(library->ptx);
    if (findPtxas()) {
      auto cubin = assemblePtx(library->ptx, "sm_80");
      EXPECT_TRUE(static_cast<bool>(cubin)) << llvm::toString(cubin.takeError()) << library->ptx;
    }
    return gpu;
  }

  void expectSame(double tolerance = 0) {
    std::vector<std::byte> expected = run(plan), got = run(forGpu());
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i + 4 <= expected.size() - 64; i += 4) {
      if (std::memcmp(expected.data() + i, got.data() + i, 4) == 0) continue;
      float a, b;
      std::memcpy(&a, expected.data() + i, 4);
      std::memcpy(&b, got.data() + i, 4);
      ASSERT_LE(std::abs(a - b), tolerance) << "buffer " << i / slot << " element " << i % slot / 4;
    }
  }
  void expectFault(const char *message) {
    Status failure;
    run(forGpu(), &failure);
    EXPECT_EQ(failure.message(), message);
  }
  // A gather or its gradient: rows `start` to `start + rows` of a table are here.
  template <typename Command>
  static void setRows(Command &made, int64_t outer, int64_t rows, int64_t inner, int64_t globalRows, int64_t start) {
    made.set_outer(outer), made.set_rows(rows), made.set_inner(inner), made.set_global_rows(globalRows);
    made.mutable_start()->set_base(start);
  }
  plan::Plan plan;
  int64_t slot = 1 << 16; // bytes of the arena for each buffer
  int64_t buffers = 0;

private:
  struct Range {
    plan::Buffer indices;
    int64_t low, high;
  };
  std::vector<Range> ranges;
  std::vector<std::pair<int64_t, std::string>> contents; // with their offsets
};

TEST_F(Commands, StridedCopies) {
  auto copy = [&](plan::DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> from, std::vector<int64_t> to,
                  int64_t sourceOffset = 0, int64_t shift = 0) {
    plan::Copy &made = *command().mutable_copy();
    *made.mutable_source() = buffer(dtype, {4000}, shift);
    *made.mutable_target() = buffer(dtype, {4000});
    for (int64_t size : sizes) made.add_sizes(size);
    for (int64_t stride : from) made.add_source_strides(stride);
    for (int64_t stride : to) made.add_target_strides(stride);
    made.mutable_source_offset()->set_base(sourceOffset);
    made.mutable_target_offset();
  };
  copy(plan::F32, {4000}, {1}, {1});                      // all at once
  copy(plan::F32, {3999}, {1}, {1}, 1);                   // not aligned
  copy(plan::F32, {1000}, {1}, {1}, 0, 4);                // a buffer that begins anywhere
  copy(plan::F32, {20, 30, 6}, {6, 120, 1}, {180, 6, 1}); // a transpose of rows
  copy(plan::F32, {64, 32}, {1, 64}, {32, 1});            // a transpose of elements
  copy(plan::F32, {10, 8}, {0, 1}, {8, 1});               // a broadcast
  copy(plan::I64, {5, 7}, {14, 2}, {7, 1});               // a slice with steps
  copy(plan::BOOL, {17, 3}, {3, 1}, {1, 17});
  copy(plan::BF16, {33, 8}, {16, 1}, {8, 1});
  expectSame();
}

TEST_F(Commands, Fills) {
  auto fill = [&](plan::DType dtype, int64_t count, std::string value) {
    plan::Fill &made = *command().mutable_fill();
    *made.mutable_target() = buffer(dtype, {count});
    made.set_value(value);
  };
  fill(plan::F32, 1025, std::string("\x00\x00\x80\x3f", 4));
  fill(plan::I64, 3, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  fill(plan::BOOL, 37, "\x01");
  fill(plan::F16, 2000, std::string("\x00\x3c", 2));
  expectSame();
}

TEST_F(Commands, Gathers) {
  for (int64_t inner : {1, 24, 7}) {
    plan::Gather &made = *command().mutable_gather();
    *made.mutable_table() = buffer(plan::F32, {2, 30, inner});
    *made.mutable_indices() = buffer(plan::I64, {50});
    *made.mutable_out() = buffer(plan::F32, {2, 50, inner});
    fillIndices(made.indices(), -60, 60);
    setRows(made, 2, 30, inner, 60, 20); // rows 20 to 49 of 60 are here
  }
  expectSame();
}

TEST_F(Commands, AGatherOutsideOfItsTableIsAFault) {
  plan::Gather &made = *command().mutable_gather();
  *made.mutable_table() = buffer(plan::F32, {30, 4});
  *made.mutable_indices() = buffer(plan::I64, {5});
  *made.mutable_out() = buffer(plan::F32, {5, 4});
  fillIndices(made.indices(), 30, 31);
  setRows(made, 1, 30, 4, 30, 0);
  expectFault("an index is outside of the table's 30 rows");
}

// A number of a buffer, and how it lies there; bf16 rounds to the nearest even.
template <typename Number> std::string inBuffer(plan::DType dtype, Number number) {
  auto bytes = [](auto value) { return std::string(reinterpret_cast<const char *>(&value), sizeof value); };
  if (dtype == plan::I64) return bytes(static_cast<int64_t>(number));
  if (dtype == plan::I32) return bytes(static_cast<int32_t>(number));
  if (dtype == plan::F64) return bytes(static_cast<double>(number));
  if (dtype == plan::F32) return bytes(static_cast<float>(number));
  auto value = static_cast<float>(number);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bytes(static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
}

// Gradients of tables, beside a plain loop. Updates are multiples of 1/64 up to 1, so their sums have no rounding in
// f32: the same bits, whatever the order, and one rounding to bf16.
struct Table {
  const char *name;
  plan::DType dtype, indices;
  int64_t outer, count, rows, inner, first = 0, globalRows = 0; // 0: all rows are here
  int64_t repeated = 0; // tokens in a row that have one index, from 0 on; 0: random ones
};
class TableGradients : public Commands, public testing::WithParamInterface<Table> {};

TEST_P(TableGradients, AreTheSumsOfTheirTokens) {
  const Table &t = GetParam();
  const int64_t globalRows = t.globalRows ? t.globalRows : t.rows;
  slot = 1 << 20;
  plan::ScatterAdd &made = *command().mutable_scatter_add();
  *made.mutable_indices() = buffer(t.indices, {t.count});
  *made.mutable_updates() = buffer(t.dtype, {t.outer, t.count, t.inner});
  *made.mutable_out() = buffer(t.dtype, {t.outer, t.rows, t.inner});
  setRows(made, t.outer, t.rows, t.inner, globalRows, t.first);
  std::mt19937 generator(11);
  std::vector<double> sums(static_cast<size_t>(t.outer * t.rows * t.inner));
  std::string indices, updates, expected;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < t.count; ++i) {
    int64_t row = t.repeated ? i / t.repeated % globalRows : int64_t(generator() % uint64_t(globalRows));
    rows.push_back(row - t.first);
    indices += inBuffer(t.indices, generator() % 8 == 0 ? row - globalRows : row); // some count from the end
  }
  for (int64_t o = 0; o < t.outer; ++o)
    for (int64_t i = 0; i < t.count; ++i)
      for (int64_t x = 0; x < t.inner; ++x) {
        double update = double(int64_t(generator() % 129) - 64) / 64;
        if (t.dtype == plan::I32 || t.dtype == plan::I64) update *= 64;
        updates += inBuffer(t.dtype, update);
        if (rows[size_t(i)] >= 0 && rows[size_t(i)] < t.rows)
          sums[size_t((o * t.rows + rows[size_t(i)]) * t.inner + x)] += update;
      }
  for (double sum : sums) expected += inBuffer(t.dtype, sum);
  ASSERT_LE(int64_t(std::max(updates.size(), expected.size())), slot);
  fillWith(made.indices(), indices);
  fillWith(made.updates(), updates);
  std::vector<std::byte> got = run(forGpu());
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(std::memcmp(got.data() + made.out().offset(), expected.data(), expected.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Commands, TableGradients,
                         testing::Values(Table{"one_token", plan::F32, plan::I64, 1, 1, 5, 4},
                                         Table{"part_of_a_table", plan::F32, plan::I64, 2, 300, 30, 24, 5, 40},
                                         Table{"of_many_axes", plan::F32, plan::I32, 3, 257, 65, 7},
                                         Table{"two_rows_of_thousands", plan::BF16, plan::I64, 1, 5000, 2, 8},
                                         Table{"two_rows_in_turn", plan::F32, plan::I64, 1, 3000, 2, 4, 0, 0, 3},
                                         Table{"one_row", plan::BF16, plan::I32, 1, 4100, 1, 16},
                                         Table{"letters", plan::BF16, plan::I64, 1, 2049, 65, 24},
                                         Table{"more_rows_than_tokens", plan::F32, plan::I64, 1, 3001, 60000, 1},
                                         Table{"sorted_positions", plan::F32, plan::I64, 1, 4096, 128, 8, 0, 0, 32},
                                         Table{"merged_twice", plan::F32, plan::I64, 1, 40000, 1000, 2},
                                         Table{"merged_twice_few", plan::BF16, plan::I64, 1, 40000, 3, 2},
                                         Table{"integers", plan::I32, plan::I64, 1, 500, 9, 6},
                                         Table{"doubles", plan::F64, plan::I64, 2, 500, 9, 6},
                                         Table{"all_elsewhere", plan::F32, plan::I64, 1, 100, 4, 4, 50, 60, 1}),
                         [](const auto &info) { return info.param.name; });

// Updates whose sums are rounded: every run has one order.
TEST_F(Commands, GradientsOfTablesHaveTheSameBitsInEveryRun) {
  slot = 1 << 18;
  plan::ScatterAdd &made = *command().mutable_scatter_add();
  *made.mutable_indices() = buffer(plan::I64, {6000});
  *made.mutable_updates() = buffer(plan::F32, {6000, 8});
  *made.mutable_out() = buffer(plan::F32, {40, 8});
  fillIndices(made.indices(), 0, 40);
  setRows(made, 1, 40, 8, 40, 0);
  plan::Plan gpu = forGpu();
  EXPECT_EQ(run(gpu), run(gpu));
}

TEST_F(Commands, AGradientOutsideOfItsTableIsAFault) {
  plan::ScatterAdd &made = *command().mutable_scatter_add();
  *made.mutable_indices() = buffer(plan::I64, {5});
  *made.mutable_updates() = buffer(plan::F32, {5, 4});
  *made.mutable_out() = buffer(plan::F32, {30, 4});
  fillIndices(made.indices(), 30, 31);
  setRows(made, 1, 30, 4, 30, 0);
  expectFault("an index is outside of the table's 30 rows");
}

// Rows by the matrices of their groups, and the gradients of both. Operands are multiples of 1/4 up to 1 and never 0, so
// their sums have no rounding in f32: the same bits as on the CPU.
struct Grouped {
  const char *name;
  plan::DType dtype, result;
  enum Form { Plain, Transposed, Sums } form;
  int64_t rows, repeated; // rows that there are, and how often each
  int64_t k, n, groups;
  int64_t first = 0, globalGroups = 0; // 0: all groups are here
  plan::DType indices = plan::I64;
  int64_t used = 0; // groups that have rows, from 0 on; 0: all
};
class GroupedProducts : public Commands, public testing::WithParamInterface<Grouped> {
protected:
  void fillOperand(const plan::Buffer &operand) {
    constexpr double numbers[] = {-1, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1};
    std::string bytes;
    for (int64_t i = 0; i < runtime::elementCount(operand.shape()); ++i)
      if (const double number = numbers[generator() % 8]; operand.dtype() == plan::F16)
        bytes += inBuffer(plan::I32, runtime::floatToFp16(float(number))).substr(0, 2);
      else
        bytes += inBuffer(operand.dtype(), number);
    ASSERT_LE(int64_t(bytes.size()), slot);
    fillWith(operand, bytes);
  }
  void make(const Grouped &g) {
    slot = 1 << 20;
    plan::GroupedContract &c = *command().mutable_grouped_contract();
    const bool sums = g.form == Grouped::Sums;
    const int64_t globalGroups = g.globalGroups ? g.globalGroups : g.groups, count = g.rows * g.repeated;
    c.add_rows(g.rows), c.add_rows(g.repeated);
    c.set_k(g.k), c.set_n(g.n), c.set_groups(g.groups), c.set_global_groups(globalGroups);
    c.mutable_start()->set_base(g.first);
    c.set_sums_rows(sums), c.set_transposed(g.form == Grouped::Transposed);
    *c.mutable_group_of_row() = buffer(g.indices, {count});
    *c.mutable_lhs() = buffer(g.dtype, {g.rows, g.k}); // each row as often as it is repeated
    c.add_lhs_strides(g.k), c.add_lhs_strides(0);
    *c.mutable_rhs() = sums ? buffer(g.dtype, {g.repeated, g.rows, g.n}) : buffer(g.dtype, {g.groups, g.k, g.n});
    if (sums) c.add_rhs_strides(g.n), c.add_rhs_strides(g.rows * g.n);
    *c.mutable_out() = sums ? buffer(g.result, {g.groups, g.k, g.n}) : buffer(g.result, {count, g.n});
    std::string groups;
    for (int64_t row = 0; row < count; ++row) {
      const auto group = int64_t(generator() % uint64_t(g.used ? g.used : globalGroups));
      groups += inBuffer(g.indices, generator() % 4 == 0 ? group - globalGroups : group); // some count from the end
    }
    fillWith(c.group_of_row(), groups);
    fillOperand(c.lhs()), fillOperand(c.rhs());
    ASSERT_LE(runtime::byteSize(c.out()), slot);
  }
  std::mt19937 generator{5};
};

TEST_P(GroupedProducts, AreThoseOfTheCpu) {
  make(GetParam());
  const plan::Buffer &out = plan.programs(0).fragments(0).commands(0).grouped_contract().out();
  const plan::Plan gpu = forGpu();
  for (const plan::Launch &launch : gpu.programs(0).fragments(0).commands(0).launches())
    EXPECT_TRUE(runtime::verifyLaunch(launch, gpu, dist::Mesh{{{"dp", 1}}}));
  const std::vector<std::byte> expected = run(plan), got = run(gpu);
  ASSERT_EQ(expected.size(), got.size());
  const int64_t bytes = runtime::byteSize(out), element = runtime::byteSize(out.dtype());
  for (int64_t i = 0; i < bytes; i += element)
    ASSERT_EQ(std::memcmp(expected.data() + out.offset() + i, got.data() + out.offset() + i, size_t(element)), 0)
        << "element " << i / element;
}

INSTANTIATE_TEST_SUITE_P(
    Commands, GroupedProducts,
    testing::Values(
        Grouped{"one_row", plan::F32, plan::F32, Grouped::Plain, 1, 1, 5, 3, 4},
        Grouped{"part", plan::F32, plan::F32, Grouped::Plain, 7, 3, 5, 3, 3, 4, 9},
        Grouped{"part_transposed", plan::F32, plan::F32, Grouped::Transposed, 45, 2, 20, 70, 3, 0, 6, plan::I32},
        Grouped{"part_sums", plan::F32, plan::F32, Grouped::Sums, 45, 2, 70, 20, 3, 3, 6},
        Grouped{"doubles", plan::F64, plan::F64, Grouped::Plain, 33, 1, 18, 66, 2},
        Grouped{"sums_of_doubles", plan::F64, plan::F64, Grouped::Sums, 33, 1, 18, 66, 2},
        Grouped{"few_of_many_groups", plan::F32, plan::F32, Grouped::Plain, 140, 1, 8, 4, 300, 0, 0, plan::I64, 2},
        Grouped{"bf16", plan::BF16, plan::BF16, Grouped::Plain, 150, 2, 72, 136, 3},
        Grouped{"bf16_transposed", plan::BF16, plan::BF16, Grouped::Transposed, 150, 2, 72, 136, 3},
        Grouped{"bf16_sums", plan::BF16, plan::BF16, Grouped::Sums, 150, 2, 136, 72, 3},
        Grouped{"bf16_odd", plan::BF16, plan::F32, Grouped::Plain, 35, 2, 37, 19, 3, 1, 5},
        Grouped{"bf16_odd_transposed", plan::BF16, plan::BF16, Grouped::Transposed, 35, 2, 37, 19, 3, 1, 5},
        Grouped{"bf16_odd_sums", plan::BF16, plan::F32, Grouped::Sums, 35, 2, 37, 19, 3, 1, 5},
        Grouped{"pairs", plan::F16, plan::F16, Grouped::Plain, 64, 1, 34, 70, 2},
        Grouped{"pairs_transposed", plan::F16, plan::F32, Grouped::Transposed, 64, 1, 34, 70, 2},
        Grouped{"pairs_sums", plan::F16, plan::F16, Grouped::Sums, 64, 1, 34, 70, 2},
        Grouped{"large_tiles", plan::BF16, plan::BF16, Grouped::Plain, 300, 1, 40, 1160, 2},
        Grouped{"merged", plan::BF16, plan::BF16, Grouped::Plain, 2500, 2, 8, 8, 5},
        Grouped{"merged_sums", plan::BF16, plan::F32, Grouped::Sums, 2500, 2, 8, 8, 5},
        Grouped{"empty_groups", plan::F16, plan::F16, Grouped::Sums, 40, 1, 16, 16, 4, 0, 0, plan::I64, 2},
        Grouped{"all_elsewhere", plan::BF16, plan::BF16, Grouped::Plain, 40, 1, 16, 16, 4, 4, 8, plan::I64, 3}),
    [](const auto &info) { return info.param.name; });

TEST_F(GroupedProducts, ARowOfNoGroupIsAFault) {
  make({"", plan::F32, plan::F32, Grouped::Plain, 5, 1, 4, 4, 3});
  fillWith(plan.programs(0).fragments(0).commands(0).grouped_contract().group_of_row(), inBuffer(plan::I64, 3));
  expectFault("a row's group is outside of the 3 groups");
}

TEST_F(Commands, Pools) {
  for (int kind = 0; kind <= plan::Pool::AVERAGE_INCLUDE_PAD_GRAD; ++kind) {
    plan::Pool &made = *command().mutable_pool();
    made.set_kind(static_cast<plan::Pool::Kind>(kind));
    *made.mutable_input() = buffer(plan::F32, {2, 3, 9, 8});
    *made.mutable_output() = buffer(plan::F32, {2, 3, 5, 4});
    if (kind >= plan::Pool::MAX_GRAD) *made.mutable_grad_input() = buffer(plan::F32, {2, 3, 9, 8});
    for (int64_t value : {3, 2}) made.add_kernel(value);
    for (int64_t value : {2, 2}) made.add_strides(value);
    for (int64_t value : {1, 0}) made.add_pads_begin(value), made.add_pads_end(value);
    for (int64_t value : {1, 1}) made.add_dilations(value);
  }
  expectSame(1e-6);
}

TEST_F(Commands, CumulativeSums) {
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      plan::CumSum &made = *command().mutable_cumsum();
      *made.mutable_input() = buffer(plan::F32, {3, 20, 5});
      *made.mutable_output() = buffer(plan::F32, {3, 20, 5});
      made.set_outer(3), made.set_length(20), made.set_inner(5);
      made.set_exclusive(exclusive), made.set_reverse(reverse);
    }
  expectSame();
}

TEST_F(Commands, ALossThatIsNoNumberIsAFault) {
  plan::Fill &fill = *command().mutable_fill();
  *fill.mutable_target() = buffer(plan::F32, {1});
  fill.set_value(std::string("\x00\x00\x80\x7f", 4)); // infinity
  plan::CheckFinite &check = *command().mutable_check_finite();
  *check.mutable_buffer() = fill.target();
  check.set_what("the loss");
  Status failure;
  run(forGpu(), &failure);
  EXPECT_EQ(failure.message().rfind("the loss is not finite", 0), 0u) << failure.message();
}

} // namespace
} // namespace cleave::codegen
