#include "runtime/engine/device/emulation/grid_services.h"
#include "runtime/base/elements.h"
#include "runtime/engine/device/emulation/fiber.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>
#include <string_view>
#include <vector>

namespace cleave::runtime {
namespace {

constexpr int warp = 32;
// The content of memory before a kernel has written it: a NaN as a float or a double, so that no kernel relies on
// zeros.
constexpr int unwritten = 0xff;

[[noreturn]] void fault(std::string_view what) {
  fmt::print(stderr, "emulated grid: {}\n", what);
  std::abort();
}

// Which threads of a block have touched the bytes of its shared memory since its last barrier.
class SharedAccesses {
public:
  void prepare(int32_t bytes) {
    touched.resize(static_cast<size_t>(bytes));
    pass();
  }
  void pass() { ++phase; } // a barrier
  void add(const char *kernel, int64_t at, int64_t bytes, bool writes, int32_t thread) {
    if (at < 0 || at + bytes > static_cast<int64_t>(touched.size()))
      fault(fmt::format("kernel '{}': thread {} touches byte {} of {} bytes of shared memory", kernel, thread,
                        at < 0 ? at : at + bytes - 1, touched.size()));
    for (int64_t i = at; i < at + bytes; ++i) {
      Byte &byte = touched[static_cast<size_t>(i)];
      if (byte.written == phase && byte.writer != thread) race(kernel, i, byte.writer, true, thread, writes);
      if (writes) {
        if (byte.read == phase)
          for (int32_t reader : byte.readers)
            if (reader != thread) race(kernel, i, reader, false, thread, true);
        byte.written = phase, byte.writer = thread;
      } else if (byte.read != phase) {
        byte.read = phase, byte.readers[0] = byte.readers[1] = thread;
      } else if (byte.readers[0] != thread) {
        byte.readers[1] = thread;
      }
    }
  }

private:
  struct Byte {
    uint64_t written = 0, read = 0;          // phases
    int32_t writer = 0, readers[2] = {0, 0}; // the first reader and another one; the same twice: one only
  };
  [[noreturn]] static void race(const char *kernel, int64_t byte, int32_t first, bool firstWrites, int32_t second,
                                bool secondWrites) {
    auto does = [](bool writes) { return writes ? "writes" : "reads"; };
    fault(fmt::format("race in kernel '{}': thread {} {} and thread {} {} word {} of shared memory, and no barrier is "
                      "between them",
                      kernel, first, does(firstWrites), second, does(secondWrites), byte / 4));
  }
  std::vector<Byte> touched;
  uint64_t phase = 0;
};

class Block {
public:
  void run(GridThread thread, const void *context, int64_t number, int32_t threads, int32_t sharedBytes) {
    block = static_cast<int32_t>(number);
    prepareShared(sharedBytes);
    if (lanes.size() < static_cast<size_t>(threads)) lanes.resize(static_cast<size_t>(threads));
    for (int32_t i = 0; i < threads; ++i) {
      Lane &lane = lanes[static_cast<size_t>(i)];
      if (!lane.fiber) lane.fiber = std::make_unique<Fiber>();
      lane.state = Ready;
      lane.fiber->start(thread, context);
    }
    int32_t warps = (threads + warp - 1) / warp;
    for (int finished = 0; finished < threads;) {
      finished = 0;
      for (int32_t i = 0; i < warps; ++i) {
        int32_t begin = inTurn(i, warps) * warp;
        finished += runWarp(begin, std::min(threads, begin + warp));
      }
      if (finished != 0 && finished != threads)
        fault("some threads of a block wait at a barrier that others never reach");
      for (int32_t i = 0; finished == 0 && i < threads; ++i) lanes[static_cast<size_t>(i)].state = Ready;
      accesses.pass();
    }
  }
  // Threads that never wait for each other need no fibers.
  void runInTurn(GridThread thread, const void *context, int64_t number, int32_t threads) {
    block = static_cast<int32_t>(number);
    accesses.pass();
    for (int32_t i = 0; i < threads; ++i) {
      own = inTurn(i, threads);
      thread(context);
    }
  }
  // On a GPU any order is possible: every other launch has blocks, warps and lanes run from the last to the first, so
  // that a kernel which relies on an order gives wrong numbers here, too.
  template <typename Int> Int inTurn(Int i, Int count) const { return backwards ? count - 1 - i : i; }

  void wait(int state) {
    Lane &lane = lanes[static_cast<size_t>(own)];
    lane.state = state;
    lane.fiber->leave();
  }
  uint32_t shuffle(uint32_t value, int32_t mask) {
    Lane &lane = lanes[static_cast<size_t>(own)];
    lane.value = value;
    lane.mask = mask;
    wait(AtShuffle);
    return lane.value;
  }
  void loadMatrices(const void *row, uint32_t *matrices, bool transposed) {
    Lane &lane = lanes[static_cast<size_t>(own)];
    lane.row = static_cast<const uint16_t *>(row);
    lane.matrices = matrices;
    lane.flag = transposed;
    wait(AtMatrices);
  }
  void multiply(const uint32_t *operands, float *sums, bool isBf16) {
    Lane &lane = lanes[static_cast<size_t>(own)];
    lane.operands = operands;
    lane.sums = sums;
    lane.flag = isBf16;
    wait(AtProduct);
  }
  void prepareShared(int32_t bytes) {
    shared.resize((static_cast<size_t>(bytes) + sizeof(Aligned) - 1) / sizeof(Aligned));
    if (!shared.empty()) std::memset(static_cast<void *>(shared.data()), unwritten, shared.size() * sizeof(Aligned));
    accesses.prepare(bytes);
  }
  void touch(const char *kernel, const void *at, int64_t bytes, bool writes) {
    accesses.add(kernel,
                 static_cast<const unsigned char *>(at) - reinterpret_cast<const unsigned char *>(shared.data()), bytes,
                 writes, own);
  }
  void *sharedMemory() { return shared.data(); }

  enum State { Ready, AtBarrier, AtShuffle, AtMatrices, AtProduct }; // the last three with the lanes of a warp
  int32_t own = 0, block = 0;
  bool backwards = true;

private:
  struct Lane {
    std::unique_ptr<Fiber> fiber;
    int state = Ready;
    uint32_t value = 0; // of a shuffle
    int32_t mask = 0;
    const uint16_t *row = nullptr; // of a matrix
    uint32_t *matrices = nullptr;
    const uint32_t *operands = nullptr; // of a product
    float *sums = nullptr;
    bool flag = false;
  };

  // Runs the lanes until all wait at a barrier or are done; how many are done.
  int runWarp(int32_t begin, int32_t end) {
    for (;;) {
      int meeting = 0, done = 0, where = Ready;
      bool isOnePlace = true;
      for (int32_t i = 0; i < end - begin; ++i) {
        own = begin + inTurn(i, end - begin);
        Lane &lane = lanes[static_cast<size_t>(own)];
        if (!lane.fiber->isDone() && lane.state == Ready) lane.fiber->enter();
        done += lane.fiber->isDone();
        if (lane.fiber->isDone() || lane.state < AtShuffle) continue;
        isOnePlace = isOnePlace && (where == Ready || where == lane.state);
        where = lane.state;
        ++meeting;
      }
      if (meeting == 0) return done;
      if (meeting != end - begin || !isOnePlace)
        fault("some lanes of a warp are in a shuffle or a product that others are not in");
      if (where != AtShuffle && end - begin != warp) fault("a product of a warp that is not whole");
      if (where == AtShuffle) shuffle(begin, end);
      if (where == AtMatrices) loadMatrices(begin);
      if (where == AtProduct) multiply(begin);
      for (int32_t i = begin; i < end; ++i) lanes[static_cast<size_t>(i)].state = Ready;
    }
  }
  void shuffle(int32_t begin, int32_t end) {
    uint32_t values[warp];
    for (int32_t i = begin; i < end; ++i) {
      int32_t other = begin + ((i - begin) ^ lanes[static_cast<size_t>(i)].mask);
      if (other >= end) fault("a shuffle reads a lane that is not there");
      values[i - begin] = lanes[static_cast<size_t>(other)].value;
    }
    for (int32_t i = begin; i < end; ++i) lanes[static_cast<size_t>(i)].value = values[i - begin];
  }
  // PTX ISA, "ldmatrix": a lane has two neighbours of a row of each matrix, or of a column where they are transposed.
  void loadMatrices(int32_t begin) {
    for (size_t i = 0; i < warp; ++i) {
      Lane *all = &lanes[static_cast<size_t>(begin)];
      for (size_t matrix = 0; matrix < 4; ++matrix) {
        const Lane *rows = all + 8 * matrix;
        const size_t line = i / 4, pair = i % 4 * 2;
        const uint32_t low = all[i].flag ? rows[pair].row[line] : rows[line].row[pair],
                       high = all[i].flag ? rows[pair + 1].row[line] : rows[line].row[pair + 1];
        all[i].matrices[matrix] = low | high << 16;
      }
    }
  }
  // PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
  void multiply(int32_t begin) {
    Lane *all = &lanes[static_cast<size_t>(begin)];
    auto element = [&](size_t lane, size_t word, size_t half) {
      const auto bits = static_cast<uint16_t>(all[lane].operands[word] >> 16 * half);
      return all[lane].flag ? bf16ToFloat(bits) : fp16ToFloat(bits);
    };
    float a[16][16], b[16][8];
    for (size_t k = 0; k < 16; ++k) {
      for (size_t m = 0; m < 16; ++m) a[m][k] = element(m % 8 * 4 + k % 8 / 2, m / 8 + k / 8 * 2, k % 2);
      for (size_t n = 0; n < 8; ++n) b[k][n] = element(n * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    }
    for (size_t m = 0; m < 16; ++m)
      for (size_t n = 0; n < 8; ++n) {
        float &sum = all[m % 8 * 4 + n / 2].sums[n % 2 + m / 8 * 2];
        for (size_t k = 0; k < 16; ++k) sum += a[m][k] * b[k][n];
      }
  }

  std::vector<Lane> lanes;
  struct alignas(16) Aligned {
    unsigned char bytes[16];
  };
  std::vector<Aligned> shared;
  SharedAccesses accesses;
};

Block &current() {
  thread_local Block block;
  return block;
}

void runBlocks(GridThread thread, const void *context, int64_t first, int64_t last, int32_t threads,
               int32_t sharedBytes, int32_t synchronizes) {
  Block &block = current();
  block.backwards = !block.backwards;
  block.prepareShared(sharedBytes);
  for (int64_t i = 0; i < last - first; ++i) {
    int64_t number = first + block.inTurn(i, last - first);
    if (synchronizes)
      block.run(thread, context, number, threads, sharedBytes);
    else
      block.runInTurn(thread, context, number, threads);
  }
}

const GridServices services = {
    runBlocks,
    [] { return current().own; },
    [] { return current().block; },
    [] { current().wait(Block::AtBarrier); },
    [](uint32_t value, int32_t mask) { return current().shuffle(value, mask); },
    [] { return current().sharedMemory(); },
    [](const char *kernel, const void *at, int64_t bytes, int32_t writes) {
      current().touch(kernel, at, bytes, writes != 0);
    },
    [](const void *row, uint32_t *matrices, int32_t transposed) {
      current().loadMatrices(row, matrices, transposed != 0);
    },
    [](const uint32_t *operands, float *sums, int32_t isBf16) { current().multiply(operands, sums, isBf16 != 0); },
};

} // namespace

void attachGrid(void *object) {
  if (auto *table = static_cast<const GridServices **>(::dlsym(object, "cleave_grid_services"))) *table = &services;
}

} // namespace cleave::runtime
