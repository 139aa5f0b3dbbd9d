#include "compiler/codegen/cuda/command_kernels.h"
#include "compiler/codegen/cuda/command_code.h"
#include "compiler/codegen/cuda/grid_schedule.h"
#include "compiler/codegen/cuda/grouped_code.h"
#include "compiler/codegen/cuda/scatter_code.h"
#include "compiler/codegen/memory/memory_plan.h"
#include "compiler/elements/element_data.h"
#include "runtime/plan/dtype.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr int64_t threads = 256;

plan::AffineOfCoordinate constant(int64_t value) {
  plan::AffineOfCoordinate affine;
  affine.set_base(value);
  return affine;
}

template <typename Field> SmallVector<int64_t> list(const Field &field) { return {field.begin(), field.end()}; }

class CommandKernels {
public:
  CommandKernels(plan::Plan &plan, GpuKernels &kernels) : plan(plan), kernels(kernels), module(kernels.gpuModule()) {}

  LogicalResult run() {
    for (plan::Program &program : *plan.mutable_programs()) {
      code = 0;
      program.set_fault_offset(alignUp(program.arena_bytes()));
      scratchBegin = program.fault_offset() + bufferAlignment;
      program.set_arena_bytes(scratchBegin + scratchBytes(program));
      fault.set_offset(program.fault_offset());
      fault.set_dtype(plan::I32);
      fault.clear_shape();
      fault.add_shape(1);
      for (plan::Fragment &fragment : *program.mutable_fragments()) {
        place = {&program, &fragment};
        for (plan::Command &command : *fragment.mutable_commands()) {
          ++code;
          if (failed(add(command))) return failure();
        }
      }
    }
    return success();
  }

private:
  LogicalResult add(plan::Command &command) {
    switch (command.kind_case()) {
    case plan::Command::kCopy:
      if (command.copy().source().on_host() || command.copy().target().on_host()) return success(); // a copy engine's
      addCopy(command, command.copy());
      return success();
    case plan::Command::kFill:
      addFill(command, command.fill().target(), command.fill().value());
      return success();
    case plan::Command::kGather:
      return addGather(command, command.gather());
    case plan::Command::kScatterAdd:
      return addScatterAdd(command, command.scatter_add());
    case plan::Command::kGroupedContract:
      return addGroupedContract(command, command.grouped_contract());
    case plan::Command::kPool:
      return addPool(command, command.pool());
    case plan::Command::kCumsum:
      return addCumSum(command, command.cumsum());
    case plan::Command::kCheckFinite:
      return addCheck(command, command.check_finite());
    case plan::Command::kLaunchGroup:
      return addGroup(command, command.launch_group());
    default:
      return success();
    }
  }

  static LogicalResult refuse(const plan::Command &command, const plan::Buffer &buffer, Location loc) {
    return emitError(loc) << "node '" << command.name() << "': no GPU kernel for " << runtime::name(buffer.dtype())
                          << " elements";
  }

  // The elements [0, elements) of a buffer, as plan.KernelBuffer has them.
  static plan::KernelBuffer reach(plan::DType dtype, int64_t elements, int64_t per = 0) {
    plan::KernelBuffer reached;
    reached.set_element_bytes(static_cast<int32_t>(runtime::byteSize(dtype)));
    reached.set_elements(elements);
    reached.set_per(per);
    return reached;
  }
  static plan::KernelBuffer inVectors(plan::KernelBuffer reached, int64_t width) {
    reached.set_alignment(static_cast<int32_t>(reached.element_bytes() * width));
    return reached;
  }
  // One side of a copy.
  static plan::KernelBuffer reach(plan::DType dtype, const StridedLoops &loops, int64_t StridedLoops::Loop::*stride,
                                  int scalar, int64_t width) {
    plan::KernelBuffer reached = inVectors(reach(dtype, 1), width);
    for (const StridedLoops::Loop &loop : loops.all()) {
      int64_t far = (loop.size - 1) * (loop.*stride);
      if (far < 0)
        reached.set_first(reached.first() + far);
      else
        reached.set_elements(reached.elements() + far);
    }
    reached.set_shift(scalar);
    return reached;
  }

  // A launch of the kernel that `key` describes; `build` is called with a symbol when it is the first.
  plan::Launch &launch(plan::Command &command, const std::string &key, ArrayRef<plan::KernelBuffer> reached,
                       int64_t scalars, int outputs, int64_t extent, int64_t grain, int64_t blockThreads,
                       int64_t sharedBytes, llvm::function_ref<void(GridBuilder &)> build) {
    auto buffers = static_cast<int64_t>(reached.size());
    auto [known, isNew] = kernelNumbers.try_emplace(key, plan.kernels_size());
    if (isNew) {
      std::string kind = key.substr(0, key.find(' '));
      std::string symbol = fmt::format("{}_{}", kind, plan.kernels_size());
      plan::Kernel &kernel = *plan.add_kernels();
      kernel.mutable_buffers()->Assign(reached.begin(), reached.end());
      kernel.set_grain(grain);
      if (llvm::all_of(reached, [](const plan::KernelBuffer &buffer) { return buffer.per() == 0; }))
        kernel.set_extent(extent);
      kernel.set_symbol(symbol);
      kernel.set_num_buffers(buffers);
      kernel.set_num_scalars(scalars);
      kernel.set_num_outputs(outputs);
      kernel.set_description(key);
      kernel.set_threads(static_cast<int32_t>(blockThreads));
      kernel.set_shared_bytes(static_cast<int32_t>(sharedBytes));
      kernels.add(
          {.symbol = symbol, .grain = grain, .threads = blockThreads, .sharedBytes = sharedBytes, .buffers = buffers});
      GridBuilder grid(module.getLoc(), module, symbol, buffers, scalars, blockThreads);
      build(grid);
      grid.finish();
    }
    plan::Launch &made = *command.add_launches();
    made.set_kernel(known->second);
    made.set_extent(extent);
    made.set_grain(grain);
    return made;
  }

  // Adds arguments to a launch.
  static void addArguments(plan::Launch &launch, std::initializer_list<const plan::Buffer *> buffers,
                           std::initializer_list<plan::AffineOfCoordinate> scalars = {}) {
    for (const plan::Buffer *buffer : buffers) *launch.add_buffers() = *buffer;
    for (const plan::AffineOfCoordinate &scalar : scalars) *launch.add_scalars() = scalar;
  }

  // Integers and booleans as the bits they have in memory.
  Type elementOf(const plan::Buffer &buffer) {
    Type type = elementTypeOf(module.getContext(), buffer.dtype());
    if (isa<FloatType>(type)) return type;
    return IntegerType::get(module.getContext(), static_cast<unsigned>(8 * runtime::byteSize(buffer.dtype())));
  }
  // Elements as bits, for what only moves them.
  Type bitsOf(const plan::Buffer &buffer) {
    return IntegerType::get(module.getContext(), static_cast<unsigned>(8 * runtime::byteSize(buffer.dtype())));
  }
  // Neighbours that one 16-byte access moves, if `length` and all `offsets` (elements) allow it.
  static int64_t widthFor(const plan::Buffer &a, const plan::Buffer &b, int64_t length, ArrayRef<int64_t> offsets) {
    int64_t bytes = runtime::byteSize(a.dtype()), width = vectorBytes / bytes;
    auto fits = [&](int64_t wide) {
      return length % wide == 0 && a.offset() % (wide * bytes) == 0 && b.offset() % (wide * bytes) == 0 &&
             llvm::all_of(offsets, [&](int64_t offset) { return offset % wide == 0; });
    };
    while (width > 1 && !fits(width)) width /= 2;
    return width;
  }

  void addCopy(plan::Command &command, const plan::Copy &copy) {
    StridedLoops loops(list(copy.sizes()), list(copy.source_strides()), list(copy.target_strides()));
    if (loops.count() == 0) return;
    SmallVector<int64_t> offsets;
    for (const plan::AffineOfCoordinate *affine : {&copy.source_offset(), &copy.target_offset()}) {
      offsets.push_back(affine->base());
      for (const auto &term : affine->terms()) offsets.push_back(term.stride());
    }
    int64_t width = loops.isContiguous() ? widthFor(copy.source(), copy.target(), loops.innermost(), offsets) : 1;
    for (int64_t stride : loops.outerStrides())
      while (stride % width != 0) width /= 2;
    std::string key =
        fmt::format("copy {} bytes, {} x{}", runtime::byteSize(copy.source().dtype()), loops.text(), width);
    Type element = bitsOf(copy.source());
    plan::DType dtype = copy.source().dtype();
    constexpr int64_t line = vectorBytes; // of a product's operand in 8 bits
    if (runtime::byteSize(dtype) == 1 && loops.isTransposeOfBytes() && copy.source().offset() % line == 0 &&
        copy.target().offset() % line == 0 && llvm::all_of(offsets, [](int64_t at) { return at % line == 0; })) {
      plan::Launch &made = launch(command, "transpose bytes, " + loops.text(),
                                  {reach(dtype, loops, &StridedLoops::Loop::source, 1, line),
                                   reach(dtype, loops, &StridedLoops::Loop::target, 2, line)},
                                  2, 1, transposeTiles(loops), 1, transposeThreads, transposeSharedBytes,
                                  [&](GridBuilder &grid) { transposeCode(grid, loops); });
      return addArguments(made, {&copy.source(), &copy.target()}, {copy.source_offset(), copy.target_offset()});
    }
    plan::Launch &made = launch(command, key,
                                {reach(dtype, loops, &StridedLoops::Loop::source, 1, width),
                                 reach(dtype, loops, &StridedLoops::Loop::target, 2, width)},
                                2, 1, loops.count(), threads * width, threads, 0,
                                [&](GridBuilder &grid) { copyCode(grid, element, loops, width, threads); });
    addArguments(made, {&copy.source(), &copy.target()}, {copy.source_offset(), copy.target_offset()});
  }

  void addFill(plan::Command &command, const plan::Buffer &target, const std::string &value) {
    int64_t count = runtime::elementCount(target.shape());
    if (count == 0) return;
    int64_t width = widthFor(target, target, vectorBytes, {});
    uint64_t bits = 0;
    for (size_t i = value.size(); i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(value[i]);
    std::string key = fmt::format("fill {} bytes, {:#x} x{}", value.size(), bits, width);
    Type element = bitsOf(target);
    plan::Launch &made =
        launch(command, key, {inVectors(reach(target.dtype(), 1, 1), width)}, 0, 1, count, threads * width, threads, 0,
               [&](GridBuilder &grid) { fillCode(grid, element, static_cast<int64_t>(bits), width, threads); });
    addArguments(made, {&target});
  }

  LogicalResult addGather(plan::Command &command, const plan::Gather &gather) {
    IndexedRows rows = rowsOf(gather);
    int64_t total = rows.outer * rows.count * rows.inner;
    if (total == 0) return success();
    int64_t width = widthFor(gather.table(), gather.out(), rows.inner, {});
    std::string key =
        fmt::format("gather {} bytes, {} x{}", runtime::byteSize(gather.out().dtype()), rows.text(), width);
    Type element = bitsOf(gather.out());
    plan::DType dtype = gather.out().dtype();
    plan::Launch &made = launch(command, key,
                                {inVectors(reach(dtype, rows.outer * rows.rows * rows.inner), width),
                                 reach(gather.indices().dtype(), rows.count), inVectors(reach(dtype, total), width),
                                 reach(plan::I32, 1)},
                                2, 2, total, threads * width, threads, 0,
                                [&](GridBuilder &grid) { gatherCode(grid, element, rows, width, threads); });
    addArguments(made, {&gather.table(), &gather.indices(), &gather.out(), &fault}, {gather.start(), constant(code)});
    return success();
  }

  static ScatterPlan planOf(const plan::ScatterAdd &scatter) {
    constexpr int64_t mostSums = 8; // that a thread has
    IndexedRows rows = rowsOf(scatter);
    return {rows, std::min(mostSums, widthFor(scatter.updates(), scatter.out(), rows.inner, {}))};
  }
  static bool isEmpty(const IndexedRows &rows) { return rows.outer * rows.count * rows.inner == 0; }
  GroupedPlan planOf(const plan::GroupedContract &c) const {
    SmallVector<int64_t> lhs(c.lhs_strides().begin(), c.lhs_strides().end()),
        rhs(c.rhs_strides().begin(), c.rhs_strides().end());
    constexpr int64_t neighbours = 2; // of a result that a lane has
    const GroupedWidths widths{.lhs = widthFor(c.lhs(), c.lhs(), c.k(), lhs),
                               .rhs = widthFor(c.rhs(), c.rhs(), c.transposed() ? c.k() : c.n(), rhs),
                               .out = std::min(neighbours, widthFor(c.out(), c.out(), c.n(), {}))};
    return {c, kernels.hasTensorCores(), widths};
  }
  static bool isEmpty(const plan::GroupedContract &c) {
    return runtime::elementCount(c.rows()) * c.k() * c.n() * c.groups() == 0;
  }
  static plan::Buffer scratchBuffer(plan::DType dtype, int64_t elements, int64_t offset) {
    plan::Buffer made;
    made.set_offset(offset);
    made.set_dtype(dtype);
    made.add_shape(elements);
    return made;
  }
  static plan::DType sumsOf(plan::DType dtype) {
    return runtime::isFloat(dtype) && runtime::byteSize(dtype) < 4 ? plan::F32 : dtype;
  }
  // Pairs, the pairs when they are merged, and what is made from them; from `offset` on.
  struct SortScratch {
    plan::Buffer pairs[2], made;
    int64_t end;
  };
  static SortScratch scratchOf(const ScatterPlan &how, plan::DType dtype, int64_t elements, int64_t offset) {
    SortScratch scratch;
    for (plan::Buffer &pairs : scratch.pairs) {
      pairs = scratchBuffer(plan::I64, how.rows.count, offset);
      offset = alignUp(offset + runtime::byteSize(pairs));
      if (how.runs.empty()) break;
    }
    scratch.made = scratchBuffer(dtype, elements, offset);
    scratch.end = alignUp(offset + runtime::byteSize(scratch.made));
    return scratch;
  }
  // Shares of rows.
  static SortScratch scratchOf(const plan::ScatterAdd &scatter, const ScatterPlan &how, int64_t offset) {
    return scratchOf(how, sumsOf(scatter.out().dtype()), how.partials(), offset);
  }
  // A table of tiles.
  static SortScratch scratchOf(const GroupedPlan &how, int64_t offset) {
    return scratchOf(how.sort, plan::I64, how.tableNumbers(), offset);
  }
  // One region for all commands of a program: they are on one stream.
  int64_t scratchBytes(const plan::Program &program) const {
    int64_t bytes = 0;
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands()) {
        if (command.has_scatter_add() && !isEmpty(rowsOf(command.scatter_add())))
          bytes = std::max(bytes, scratchOf(command.scatter_add(), planOf(command.scatter_add()), 0).end);
        if (command.has_grouped_contract() && !isEmpty(command.grouped_contract()))
          bytes = std::max(bytes, scratchOf(planOf(command.grouped_contract()), 0).end);
      }
    return bytes;
  }

  // A launch of one thread for each of its extent.
  plan::Launch &launchThreads(plan::Command &command, const std::string &key, ArrayRef<plan::KernelBuffer> reached,
                              int outputs, int64_t extent, llvm::function_ref<void(GridBuilder &)> build) {
    return launch(command, key, reached, 0, outputs, extent, scatterThreads, scatterThreads, 0, build);
  }

  // Pairs of index and position, sorted; where they lie.
  const plan::Buffer &addSort(plan::Command &command, const plan::Buffer &indices,
                              const plan::AffineOfCoordinate &start, const ScatterPlan &how,
                              const SortScratch &scratch) {
    const std::string what = fmt::format("{} x{}", how.rows.text(), how.width);
    const plan::KernelBuffer pairs = reach(plan::I64, how.rows.count);
    addArguments(launch(command, "scatter_sort " + what,
                        {reach(indices.dtype(), how.rows.count), pairs, reach(plan::I32, 1)}, 2, 2, how.tiles(), 1,
                        how.sortThreads, how.tile * runtime::byteSize(plan::I64),
                        [&](GridBuilder &grid) { sortTileCode(grid, how); }),
                 {&indices, &scratch.pairs[0], &fault}, {start, constant(code)});
    int sorted = 0;
    for (int64_t run : how.runs) {
      addArguments(launchThreads(command, fmt::format("scatter_merge {} in runs of {}", what, run), {pairs, pairs}, 1,
                                 how.rows.count, [&](GridBuilder &grid) { mergeRunsCode(grid, how, run); }),
                   {&scratch.pairs[sorted], &scratch.pairs[1 - sorted]});
      sorted = 1 - sorted;
    }
    return scratch.pairs[sorted];
  }

  LogicalResult addScatterAdd(plan::Command &command, const plan::ScatterAdd &scatter) {
    const plan::DType dtype = scatter.out().dtype();
    addFill(command, scatter.out(), std::string(static_cast<size_t>(runtime::byteSize(dtype)), '\0'));
    if (isEmpty(rowsOf(scatter))) return success();
    const ScatterPlan how = planOf(scatter);
    const IndexedRows &rows = how.rows;
    const SortScratch scratch = scratchOf(scatter, how, scratchBegin);
    const std::string what = fmt::format("{} x{}", rows.text(), how.width);
    const plan::KernelBuffer pairs = reach(plan::I64, rows.count),
                             updates = inVectors(reach(dtype, rows.outer * rows.count * rows.inner), how.width),
                             out = inVectors(reach(dtype, rows.outer * rows.rows * rows.inner), how.width),
                             partials = inVectors(reach(scratch.made.dtype(), how.partials()), how.width);
    const plan::Buffer &sorted = addSort(command, scatter.indices(), scatter.start(), how, scratch);
    const Type element = elementOf(scatter.out());
    const std::string typed = fmt::format("{}, {}", runtime::name(dtype), what);
    if (how.parts == 1) {
      addArguments(launchThreads(command, "scatter_sum " + typed, {pairs, updates, out}, 1, how.sumThreads(),
                                 [&](GridBuilder &grid) { sumPartsCode(grid, element, how); }),
                   {&sorted, &scatter.updates(), &scatter.out()});
      return success();
    }
    addArguments(launchThreads(command, "scatter_sum " + typed, {pairs, updates, out, partials}, 2, how.sumThreads(),
                               [&](GridBuilder &grid) { sumPartsCode(grid, element, how); }),
                 {&sorted, &scatter.updates(), &scatter.out(), &scratch.made});
    addArguments(launchThreads(command, "scatter_join " + typed, {pairs, partials, out}, 1, how.joinThreads(),
                               [&](GridBuilder &grid) { joinPartsCode(grid, element, how); }),
                 {&sorted, &scratch.made, &scatter.out()});
    return success();
  }

  // Rows of `width` adjacent elements at strides.
  static plan::KernelBuffer reachRows(const plan::GroupedContract &c, plan::DType dtype, int64_t width,
                                      const google::protobuf::RepeatedField<int64_t> &strides) {
    plan::KernelBuffer reached = reach(dtype, width);
    for (auto [size, stride] : llvm::zip_equal(c.rows(), strides)) {
      const int64_t far = (size - 1) * stride;
      if (far < 0)
        reached.set_first(reached.first() + far);
      else
        reached.set_elements(reached.elements() + far);
    }
    return reached;
  }

  LogicalResult addGroupedContract(plan::Command &command, const plan::GroupedContract &c) {
    if (runtime::byteSize(c.lhs().dtype()) < 2) return refuse(command, c.lhs(), module.getLoc());
    if (isEmpty(c)) {
      addFill(command, c.out(), std::string(static_cast<size_t>(runtime::byteSize(c.out().dtype())), '\0'));
      return success();
    }
    const GroupedPlan how = planOf(c);
    const SortScratch scratch = scratchOf(how, scratchBegin);
    const plan::Buffer &sorted = addSort(command, c.group_of_row(), c.start(), how.sort, scratch);
    const plan::KernelBuffer pairs = reach(plan::I64, how.sort.rows.count),
                             table = reach(plan::I64, how.tableNumbers());
    addArguments(launchThreads(command, fmt::format("group_tiles of {}, {}", how.tileRows, how.text()), {pairs, table},
                               1, how.groupsOfTiles(), [&](GridBuilder &grid) { groupTilesCode(grid, how); }),
                 {&sorted, &scratch.made});
    const plan::DType dtype = c.lhs().dtype();
    const int64_t matrices = c.groups() * c.k() * c.n(), results = how.sort.rows.count * c.n();
    const plan::KernelBuffer rhs = c.sums_rows() ? reachRows(c, dtype, c.n(), c.rhs_strides()) : reach(dtype, matrices);
    const plan::KernelBuffer out = reach(c.out().dtype(), c.sums_rows() ? matrices : results);
    const Type element = elementOf(c.lhs()), result = elementOf(c.out());
    addArguments(launch(command,
                        fmt::format("grouped_product {} to {}, {}", runtime::name(dtype),
                                    runtime::name(c.out().dtype()), how.text()),
                        {pairs, table, inVectors(reachRows(c, dtype, c.k(), c.lhs_strides()), how.widths.lhs),
                         inVectors(rhs, how.widths.rhs), inVectors(out, how.widths.out)},
                        0, 1, how.blocks(), 1, groupedThreads, how.sharedBytes(runtime::byteSize(sumsOf(dtype))),
                        [&](GridBuilder &grid) { groupedProductCode(grid, element, result, how); }),
                 {&sorted, &scratch.made, &c.lhs(), &c.rhs(), &c.out()});
    return success();
  }
  template <typename Message> static IndexedRows rowsOf(const Message &message) {
    return {.outer = message.outer(),
            .rows = message.rows(),
            .inner = message.inner(),
            .count = runtime::elementCount(message.indices().shape()),
            .globalRows = message.global_rows(),
            .isWide = message.indices().dtype() == plan::I64};
  }

  LogicalResult addPool(plan::Command &command, const plan::Pool &pool) {
    if (!runtime::isFloat(pool.input().dtype())) return refuse(command, pool.input(), module.getLoc());
    PoolWindow window;
    const int spatial = pool.kernel_size(), first = pool.channels_last() ? 1 : 2;
    if (pool.channels_last()) window.channels = pool.input().shape(pool.input().shape_size() - 1);
    for (int d = 0; d < spatial; ++d) {
      int to = 3 - spatial + d;
      window.in[to] = pool.input().shape(first + d), window.out[to] = pool.output().shape(first + d);
      window.kernel[to] = pool.kernel(d), window.stride[to] = pool.strides(d);
      window.low[to] = pool.pads_begin(d), window.high[to] = pool.pads_end(d);
      window.dilation[to] = pool.dilations_size() ? pool.dilations(d) : 1;
    }
    bool isMax = pool.kind() == plan::Pool::MAX || pool.kind() == plan::Pool::MAX_GRAD;
    bool isGradient = pool.kind() >= plan::Pool::MAX_GRAD;
    window.countsPads =
        pool.kind() == plan::Pool::AVERAGE_INCLUDE_PAD || pool.kind() == plan::Pool::AVERAGE_INCLUDE_PAD_GRAD;
    int64_t extent = runtime::elementCount(isGradient ? pool.input().shape() : pool.output().shape());
    if (extent == 0) return success();
    std::string key = fmt::format("{}pool{} {}, {}", isMax ? "max" : "average", isGradient ? "_grad" : "",
                                  runtime::name(pool.input().dtype()), window.text());
    Type element = elementOf(pool.input());
    // One channel of one sample, or all that lie last, have their elements in the input and in the output.
    const int64_t in = window.in[0] * window.in[1] * window.in[2] * window.channels,
                  out = window.out[0] * window.out[1] * window.out[2] * window.channels;
    const plan::DType dtype = pool.input().dtype();
    SmallVector<plan::KernelBuffer> reached{reach(dtype, in, isGradient ? in : out),
                                            reach(dtype, out, isGradient ? in : out)};
    if (isGradient) reached.push_back(reach(dtype, in, in));
    plan::Launch &made = launch(command, key, reached, 0, 1, extent, threads, threads, 0, [&](GridBuilder &grid) {
      if (isGradient)
        poolGradientCode(grid, element, window, isMax, threads);
      else
        poolCode(grid, element, window, isMax, threads);
    });
    if (isGradient)
      addArguments(made, {&pool.input(), &pool.output(), &pool.grad_input()});
    else
      addArguments(made, {&pool.input(), &pool.output()});
    return success();
  }

  LogicalResult addCumSum(plan::Command &command, const plan::CumSum &sum) {
    int64_t lines = sum.outer() * sum.inner();
    if (lines == 0) return success();
    std::string key =
        fmt::format("cumsum {}, {}x{}x{}{}{}", runtime::name(sum.input().dtype()), sum.outer(), sum.length(),
                    sum.inner(), sum.exclusive() ? " exclusive" : "", sum.reverse() ? " reverse" : "");
    Type element = elementOf(sum.input());
    plan::KernelBuffer reached = reach(sum.input().dtype(), lines * sum.length());
    plan::Launch &made =
        launch(command, key, {reached, reached}, 0, 1, lines, threads, threads, 0, [&](GridBuilder &grid) {
          cumSumCode(grid, element, sum.length(), sum.inner(), sum.exclusive(), sum.reverse(), threads);
        });
    addArguments(made, {&sum.input(), &sum.output()});
    return success();
  }

  // Adds one launch for all parts: a variant of their kernel, in which each block finds its part in a table. The table
  // is a constant at the end of the arena.
  LogicalResult addGroup(plan::Command &command, const plan::LaunchGroup &group) {
    const plan::Launch &first = group.parts(0);
    const plan::Kernel base = plan.kernels(first.kernel());
    auto searchSteps = static_cast<int64_t>(llvm::Log2_64_Ceil(static_cast<uint64_t>(group.parts_size())));
    auto [known, isNew] =
        kernelNumbers.try_emplace(fmt::format("group {} {}", first.kernel(), searchSteps), plan.kernels_size());
    if (isNew) {
      std::string symbol = fmt::format("{}_group{}", base.symbol(), searchSteps);
      if (failed(kernels.buildGroup(first.kernel(), symbol, searchSteps))) return failure();
      plan::Kernel &kernel = *plan.add_kernels();
      kernel = base;
      kernel.set_symbol(symbol);
      kernel.set_num_buffers(2);
      kernel.set_num_scalars(base.num_scalars() + 1);
      kernel.set_num_outputs(1);
      kernel.set_of_group(true);
      kernel.clear_buffers();
      // One element stands for the whole arena, and one for the table: the verifier checks both by the parts.
      *kernel.add_buffers() = reach(plan::U8, 1);
      *kernel.add_buffers() = reach(plan::I64, 1);
      kernel.clear_extent();
      kernel.set_grain(1);
    }
    std::vector<int64_t> entries; // by part: first block, extent, offsets of the buffers (GridBuilder)
    int64_t blocks = 0;
    for (const plan::Launch &part : group.parts()) {
      entries.insert(entries.end(), {blocks, part.extent()});
      for (const plan::Buffer &buffer : part.buffers()) entries.push_back(buffer.offset());
      blocks += (part.extent() + part.grain() - 1) / part.grain();
    }
    plan::Program &program = *place.program;
    plan::ConstantData &table = *place.fragment->add_constants();
    table.mutable_buffer()->set_offset(alignUp(program.arena_bytes()));
    table.mutable_buffer()->set_dtype(plan::I64);
    table.mutable_buffer()->add_shape(static_cast<int64_t>(entries.size()));
    table.set_data(reinterpret_cast<const char *>(entries.data()), entries.size() * sizeof(int64_t));
    const int64_t bytesBeforeTable = program.arena_bytes();
    program.set_arena_bytes(alignUp(table.buffer().offset() + static_cast<int64_t>(table.data().size())));
    plan::Buffer arena;
    arena.set_dtype(plan::U8);
    arena.add_shape(bytesBeforeTable);
    plan::Launch &grouped = *command.add_launches();
    grouped.set_kernel(known->second);
    grouped.set_extent(blocks);
    grouped.set_grain(1);
    addArguments(grouped, {&arena, &table.buffer()});
    *grouped.mutable_scalars() = first.scalars();
    *grouped.add_scalars() = constant(group.parts_size());
    return success();
  }

  LogicalResult addCheck(plan::Command &command, const plan::CheckFinite &check) {
    if (!runtime::isFloat(check.buffer().dtype())) return refuse(command, check.buffer(), module.getLoc());
    std::string key = fmt::format("check_finite {}", runtime::name(check.buffer().dtype()));
    Type element = elementOf(check.buffer());
    plan::Launch &made = launch(command, key, {reach(check.buffer().dtype(), 1, 1), reach(plan::I32, 1)}, 1, 1,
                                runtime::elementCount(check.buffer().shape()), threads, threads, 0,
                                [&](GridBuilder &grid) { checkFiniteCode(grid, element, threads); });
    addArguments(made, {&check.buffer(), &fault}, {constant(code)});
    return success();
  }

  plan::Plan &plan;
  GpuKernels &kernels;
  gpu::GPUModuleOp module;
  llvm::StringMap<int> kernelNumbers; // indices into Plan.kernels, by what the kernel does
  plan::Buffer fault;
  int64_t scratchBegin = 0; // of a program, in its arena
  int64_t code = 0;         // the command's number in its program, from 1: what it leaves in the fault word (fault.h)
  struct {
    plan::Program *program;
    plan::Fragment *fragment;
  } place{}; // of the command
};

} // namespace

LogicalResult addCommandKernels(plan::Plan &plan, GpuKernels &kernels) { return CommandKernels(plan, kernels).run(); }

} // namespace cleave::codegen
