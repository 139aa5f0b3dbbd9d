// Kernels that use shared memory without a barrier where one must be: the emulated grid finds them, whatever the order
// in which it runs the threads, and takes the same kernels with the barrier.
#include "compiler/codegen/cuda/cuda_kernels.h"
#include "compiler/codegen/cuda/grid_builder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/engine/device/cpu/kernel_object.h"
#include <functional>
#include <gtest/gtest.h>

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr int64_t raceThreads = 64;

// Runs a kernel of one block whose only buffer has a word for each thread.
class RacesDeathTest : public testing::Test {
protected:
  using Code = std::function<void(GridBuilder &)>;
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; } // other tests have begun threads
  std::vector<int32_t> run(const Code &code, int64_t sharedBytes = raceThreads * 4) {
    DialectRegistry registry;
    registerCudaDialects(registry);
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    context.loadAllAvailableDialects();
    OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
    GpuKernels kernels(*module);
    EXPECT_TRUE(succeeded(kernels.build()));
    GridBuilder grid(UnknownLoc::get(&context), kernels.gpuModule(), "k7_tested", 1, 0, raceThreads);
    code(grid);
    grid.finish();
    kernels.add({.symbol = "k7_tested", .grain = 1, .threads = raceThreads, .sharedBytes = sharedBytes, .buffers = 1});
    auto library = kernels.compile({.target = "sm_80", .emulate = true, .assemble = false});
    EXPECT_TRUE(succeeded(library));
    if (failed(library)) return {};
    plan::Plan plan;
    plan.add_kernels()->set_symbol("k7_tested");
    plan.set_kernel_object(library->emulation);
    plan.set_kernel_target(library->emulationTarget.cpu);
    auto object = runtime::KernelObject::load(plan);
    EXPECT_TRUE(object) << object.status().message();
    std::vector<int32_t> words(raceThreads, -1);
    void *buffers[] = {words.data()};
    (*object)->function(0)(0, 1, buffers, nullptr);
    return words;
  }
  static Value word(GridBuilder &grid, Value number) {
    return grid.make<arith::TruncIOp>(grid.here().getI32Type(), number);
  }
  static Value read(GridBuilder &grid, Value at) {
    return grid.load(grid.shared(), grid.here().getI32Type(), at).front();
  }
  static Value neighbour(GridBuilder &grid) { return grid.make<arith::XOrIOp>(grid.thread(), grid.number(1)); }
};

TEST_F(RacesDeathTest, ReadsOfWhatAnotherThreadWrites) {
  auto exchange = [](bool waits) {
    return [waits](GridBuilder &grid) {
      grid.store(word(grid, grid.thread()), grid.shared(), grid.thread());
      if (waits) grid.barrier();
      grid.store(read(grid, neighbour(grid)), grid.buffer(0), grid.thread());
    };
  };
  std::vector<int32_t> words = run(exchange(true));
  for (int32_t i = 0; i < raceThreads; ++i) EXPECT_EQ(words[static_cast<size_t>(i)], i ^ 1);
  EXPECT_DEATH(run(exchange(false)), "race in kernel 'k7_tested': thread (0 reads and thread 1 writes word 1|"
                                     "63 reads and thread 62 writes word 62) of shared memory, and no barrier is");
}

TEST_F(RacesDeathTest, WritesToWhatAnotherThreadReads) {
  auto reuse = [](bool waits) {
    return [waits](GridBuilder &grid) {
      grid.store(word(grid, grid.thread()), grid.shared(), grid.thread());
      grid.barrier();
      Value other = read(grid, grid.number(5)); // all threads read one word, which is no race
      if (waits) grid.barrier();
      grid.store(other, grid.shared(), grid.thread());
      grid.store(read(grid, grid.thread()), grid.buffer(0), grid.thread());
    };
  };
  EXPECT_EQ(run(reuse(true)), std::vector<int32_t>(raceThreads, 5));
  EXPECT_DEATH(run(reuse(false)), "race in kernel 'k7_tested': thread .* reads and thread 5 writes word 5 of|"
                                  "thread 5 writes and thread .* reads word 5 of");
}

TEST_F(RacesDeathTest, TwoWritesOfTheSameValue) {
  EXPECT_DEATH(run([](GridBuilder &grid) { grid.store(word(grid, grid.number(1)), grid.shared(), grid.number(3)); }),
               "thread .* writes and thread .* writes word 3 of shared memory, and no barrier is between them");
}

TEST_F(RacesDeathTest, AShuffleIsNoBarrier) {
  EXPECT_DEATH(run([](GridBuilder &grid) {
                 Value own = word(grid, grid.thread());
                 grid.store(own, grid.shared(), grid.thread());
                 Value told = grid.shuffle(own, 1);
                 Value sum = grid.make<arith::AddIOp>(told, read(grid, neighbour(grid)));
                 grid.store(sum, grid.buffer(0), grid.thread());
               }),
               "race in kernel 'k7_tested': thread .* writes and thread .* reads word");
}

TEST_F(RacesDeathTest, HalvesOfAWordAreOfTwoThreads) {
  std::vector<int32_t> words = run([](GridBuilder &grid) {
    Type half = grid.here().getI16Type();
    grid.store(grid.make<arith::TruncIOp>(half, grid.thread()), grid.shared(), grid.thread());
    grid.barrier();
    Value other = grid.load(grid.shared(), half, neighbour(grid)).front();
    grid.store(grid.make<arith::ExtUIOp>(grid.here().getI32Type(), other), grid.buffer(0), grid.thread());
  });
  for (int32_t i = 0; i < raceThreads; ++i) EXPECT_EQ(words[static_cast<size_t>(i)], i ^ 1);
}

TEST_F(RacesDeathTest, MoreThanTheBlockHas) {
  EXPECT_DEATH(run([](GridBuilder &grid) { grid.store(word(grid, grid.thread()), grid.shared(), grid.thread()); }, 128),
               "kernel 'k7_tested': thread .* touches byte .* of 128 bytes of shared memory");
}

} // namespace
} // namespace cleave::codegen
