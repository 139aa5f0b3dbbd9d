#include "compiler/codegen/cuda/grouped_code.h"
#include "compiler/codegen/cuda/grid_schedule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "runtime/plan/dtype.h"
#include "llvm/Support/MathExtras.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>

using namespace mlir;
namespace cleave::codegen {
namespace {

using Values = GridBuilder::Values;

constexpr int64_t entryNumbers = GroupedPlan::entryNumbers;
constexpr int64_t warpsDown = 2, warpsAcross = 4;           // of a block's results
constexpr int64_t edgeOfProduct = 16, columnsOfProduct = 8; // of a tensor core
constexpr int64_t threadsAcross = 16;                       // of a block's results, without tensor cores
constexpr int64_t chunkBytes = 16, chunkNumbers = 4;        // that a thread moves: for tensor cores, and else
constexpr int64_t bundle = 8; // columns of blocks that run together: their matrices stay in the cache

int64_t partsOf(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

Value shiftedUp(GridBuilder &grid, Value a, Value bits) { return grid.make<arith::ShLIOp>(a, bits); }

// The part of an operand that a block needs at a time: lines of neighbours. Either the lines are summed up, and their
// neighbours belong to the block's rows or columns, or the other way round.
struct Tile {
  struct Line {
    Value offset, isInside; // in elements; i1
  };
  Value memory;
  int64_t width; // neighbours of one access
  bool linesAreSummed;
  int64_t limit;                     // neighbours of a line
  int64_t edge;                      // the block's rows or columns
  Value edgeBegin;                   // the first of them
  std::function<Line(Value)> lineAt; // by number
  SmallVector<Line> lines = {};      // of the thread's chunks, where they are the same in every step
};

class GroupedProduct {
public:
  GroupedProduct(GridBuilder &grid, Type element, Type result, const GroupedPlan &plan)
      : grid(grid), element(element), result(result), plan(plan), chunk(plan.chunk()) {
    findPlace();
  }

  void build() {
    if (plan.sumsRows) return multiply();
    grid.when(grid.less(first, end), [&] { multiply(); });
  }

private:
  // A bundle of columns of blocks, whose last may have fewer; in it line by line.
  void findPlace() {
    const int64_t lines = plan.lines(), columns = plan.columns();
    Value before = grid.product(grid.quotient(grid.block(), lines * bundle), bundle),
          within = grid.remainder(grid.block(), lines * bundle);
    Value side = grid.minimum(grid.difference(grid.number(columns), before), grid.number(bundle));
    Value line = grid.quotient(within, side);
    columnBegin = grid.product(grid.sum(before, grid.remainder(within, side)), plan.tileColumns);
    const int64_t linesOfGroup = plan.sumsRows ? partsOf(plan.k, plan.tileRows) : 1;
    Value entry = grid.product(grid.quotient(line, linesOfGroup), entryNumbers);
    auto number = [&](int64_t i) {
      return grid.load(grid.buffer(1), grid.here().getI64Type(), grid.sum(entry, grid.number(i))).front();
    };
    group = number(0), first = number(1), end = number(2), steps = number(3);
    rowBegin = plan.sumsRows ? grid.product(grid.remainder(line, linesOfGroup), plan.tileRows) : first;
  }

  Value rowAt(Value position) {
    Value key = grid.load(grid.buffer(0), grid.here().getI64Type(), position).front();
    return grid.make<arith::AndIOp>(key, grid.number((int64_t(1) << plan.sort.shift) - 1));
  }
  // Where a row begins, of those at `position` in their order.
  Tile::Line rowLine(Value position, ArrayRef<int64_t> strides) {
    Value isInside = grid.less(position, end);
    Value offset = grid.choose(isInside, grid.number(0),
                               [&]() -> Values {
                                 Value at = grid.number(0), rest = rowAt(position);
                                 int64_t below = plan.sort.rows.count;
                                 for (size_t d = strides.size(); d-- > 0;) {
                                   Value index = d == 0 ? rest : grid.remainder(rest, plan.rows[d], below);
                                   if (d > 0) rest = grid.quotient(rest, plan.rows[d], below);
                                   at = grid.sum(at, grid.product(index, strides[d]));
                                 }
                                 return {at};
                               })
                       .front();
    return {offset, isInside};
  }
  // A line of the group's matrix, which has `lines` of `neighbours`.
  Tile::Line matrixLine(Value number, int64_t lines, int64_t neighbours) {
    Value offset = grid.product(grid.sum(grid.product(group, lines), number), neighbours);
    return {offset, grid.both(isHere(), grid.less(number, grid.number(lines)))};
  }
  Value isHere() { return grid.less(group, grid.number(plan.groups)); }

  Tile lhsTile() {
    Tile tile{grid.buffer(2), plan.widths.lhs, plan.sumsRows, plan.k, plan.tileRows, rowBegin, {}};
    tile.lineAt = [this](Value number) {
      return rowLine(plan.sumsRows ? grid.sum(first, number) : number, plan.lhsStrides);
    };
    return tile;
  }
  Tile rhsTile() {
    const bool linesAreSummed = !plan.isTransposed;
    Tile tile{grid.buffer(3),
              plan.widths.rhs,
              linesAreSummed,
              linesAreSummed ? plan.n : plan.k,
              plan.tileColumns,
              columnBegin,
              {}};
    tile.lineAt = [this](Value number) {
      if (plan.sumsRows) return rowLine(grid.sum(first, number), plan.rhsStrides);
      return plan.isTransposed ? matrixLine(number, plan.n, plan.k) : matrixLine(number, plan.k, plan.n);
    };
    return tile;
  }

  int64_t linesOf(const Tile &tile) const { return tile.linesAreSummed ? plan.depth : tile.edge; }
  int64_t neighboursOf(const Tile &tile) const { return tile.linesAreSummed ? tile.edge : plan.depth; }
  int64_t strideOf(const Tile &tile) const { return neighboursOf(tile) + plan.gap(); }
  int64_t elementsOf(const Tile &tile) const { return linesOf(tile) * strideOf(tile); }
  // The thread's chunks of a tile: line and first neighbour.
  int64_t chunksOf(const Tile &tile) const { return linesOf(tile) * neighboursOf(tile) / chunk / groupedThreads; }
  std::pair<Value, Value> chunkAt(const Tile &tile, int64_t number) {
    const int64_t across = neighboursOf(tile) / chunk;
    Value at = grid.sum(grid.thread(), grid.number(number * groupedThreads));
    return {grid.quotient(at, across), grid.product(grid.remainder(at, across), chunk)};
  }

  // Floats of 16 bits for tensor cores are moved as bits, two at a time where they lie so.
  bool inPairs(const Tile &tile) const { return plan.onTensorCores && tile.width > 1; }
  Type movedType(const Tile &tile) {
    if (!plan.onTensorCores) return sumType(element);
    return grid.here().getIntegerType(inPairs(tile) ? 32 : 16);
  }
  Values load(const Tile &tile, Value at) {
    if (inPairs(tile))
      return grid.load(tile.memory, movedType(tile), grid.make<arith::ShRSIOp>(at, grid.number(1)), tile.width / 2,
                       true);
    if (plan.onTensorCores) return grid.load(tile.memory, movedType(tile), at);
    Values values = grid.load(tile.memory, element, at, tile.width, true);
    for (Value &value : values) value = widened(grid, value);
    return values;
  }
  // The thread's chunks in a step; zeros outside of the operand.
  Values fetch(const Tile &tile, Value step) {
    Value summed = grid.product(step, plan.depth);
    const Values zeros(static_cast<size_t>(inPairs(tile) ? tile.width / 2 : tile.width), zeroOf(grid, movedType(tile)));
    Values fetched;
    for (int64_t i = 0; i < chunksOf(tile); ++i) {
      auto [number, place] = chunkAt(tile, i);
      const Tile::Line line = tile.linesAreSummed ? tile.lineAt(grid.sum(summed, number)) : tile.lines[size_t(i)];
      Value neighbour = grid.sum(tile.linesAreSummed ? tile.edgeBegin : summed, place);
      for (int64_t part = 0; part < chunk; part += tile.width) {
        Value at = grid.sum(neighbour, grid.number(part));
        Value isInside = grid.both(line.isInside, grid.less(at, grid.number(tile.limit)));
        fetched.append(grid.choose(isInside, zeros, [&] { return load(tile, grid.sum(line.offset, at)); }));
      }
    }
    return fetched;
  }
  void keep(const Tile &tile, ValueRange fetched, Value base) {
    const size_t each = fetched.size() / static_cast<size_t>(chunksOf(tile));
    for (int64_t i = 0; i < chunksOf(tile); ++i) {
      auto [line, place] = chunkAt(tile, i);
      Value at = grid.sum(base, grid.sum(grid.product(line, strideOf(tile)), place));
      if (inPairs(tile)) at = grid.quotient(at, 2);
      grid.store(fetched.slice(static_cast<size_t>(i) * each, each), grid.shared(), at, plan.onTensorCores);
    }
  }

  void multiply() {
    Tile lhs = lhsTile(), rhs = rhsTile();
    for (Tile *tile : {&lhs, &rhs})
      for (int64_t i = 0; i < chunksOf(*tile) && !tile->linesAreSummed; ++i)
        tile->lines.push_back(tile->lineAt(grid.sum(tile->edgeBegin, chunkAt(*tile, i).first)));
    const int64_t rhsBegin = elementsOf(lhs), stage = rhsBegin + elementsOf(rhs);
    // What the next step needs comes from memory while this one is multiplied.
    auto baseOf = [&](Value step) { return grid.product(grid.remainder(step, 2), stage); };
    auto keepBoth = [&](ValueRange left, ValueRange right, Value step) {
      keep(lhs, left, baseOf(step));
      keep(rhs, right, grid.sum(baseOf(step), grid.number(rhsBegin)));
      grid.barrier();
    };
    keepBoth(fetch(lhs, grid.number(0)), fetch(rhs, grid.number(0)), grid.number(0));
    const auto sumCount = static_cast<size_t>(plan.tileRows * plan.tileColumns / groupedThreads);
    Values sums(sumCount, zeroOf(grid, sumType(element)));
    sums = grid.loop(grid.number(0), steps, 1, sums, [&](Value step, ValueRange soFar) {
      Value next = grid.sum(step, grid.number(1)), base = baseOf(step);
      Values left = fetch(lhs, next), right = fetch(rhs, next);
      Value other = grid.sum(base, grid.number(rhsBegin));
      Values added =
          plan.onTensorCores ? addProducts(lhs, base, rhs, other, soFar) : addNumbers(lhs, base, rhs, other, soFar);
      keepBoth(left, right, next);
      return added;
    });
    if (plan.onTensorCores)
      storeProducts(sums);
    else
      storeNumbers(sums);
  }

  // A line of the result.
  Tile::Line resultLine(Value number) {
    Value line = grid.sum(rowBegin, number);
    if (plan.sumsRows) {
      Value offset = grid.product(grid.sum(grid.product(group, plan.k), line), plan.n);
      return {offset, grid.less(line, grid.number(plan.k))};
    }
    Value isInside = grid.less(line, end);
    Value row = grid.choose(isInside, grid.number(0), [&]() -> Values { return {rowAt(line)}; }).front();
    return {grid.product(row, plan.n), isInside};
  }
  void store(Values values, const Tile::Line &line, Value column) {
    for (Value &value : values) value = narrowed(grid, value, result);
    auto at = [&](Value where, ValueRange some) {
      grid.when(grid.both(line.isInside, grid.less(where, grid.number(plan.n))),
                [&] { grid.store(some, grid.buffer(4), grid.sum(line.offset, where), true); });
    };
    if (plan.widths.out > 1 || values.size() == 1) return at(column, values);
    for (size_t i = 0; i < values.size(); ++i) at(grid.sum(column, grid.number(static_cast<int64_t>(i))), values[i]);
  }

  // Without tensor cores: a thread has every 16th row and column.
  Value down() { return grid.quotient(grid.thread(), threadsAcross); }
  Value across() { return grid.remainder(grid.thread(), threadsAcross); }
  Values numbersAt(const Tile &tile, Value base, Value place, Value summed) {
    Values numbers;
    for (int64_t i = 0; i < tile.edge; i += threadsAcross) {
      Value at = grid.sum(place, grid.number(i));
      Value line = tile.linesAreSummed ? summed : at, neighbour = tile.linesAreSummed ? at : summed;
      numbers.append(grid.load(grid.shared(), sumType(element),
                               grid.sum(base, grid.sum(grid.product(line, strideOf(tile)), neighbour))));
    }
    return numbers;
  }
  Values addNumbers(const Tile &lhs, Value lhsBase, const Tile &rhs, Value rhsBase, ValueRange sums) {
    return grid.loop(grid.number(0), grid.number(plan.depth), 1, sums, [&](Value summed, ValueRange soFar) {
      Values left = numbersAt(lhs, lhsBase, down(), summed), right = numbersAt(rhs, rhsBase, across(), summed), added;
      for (Value a : left)
        for (Value b : right) added.push_back(grid.make<math::FmaOp>(a, b, soFar[added.size()]));
      return added;
    });
  }
  void storeNumbers(ValueRange sums) {
    const int64_t columns = plan.tileColumns / threadsAcross;
    for (int64_t i = 0; i < plan.tileRows / threadsAcross; ++i) {
      const Tile::Line line = resultLine(grid.sum(down(), grid.number(i * threadsAcross)));
      for (int64_t j = 0; j < columns; ++j)
        store({sums[static_cast<size_t>(i * columns + j)]}, line,
              grid.sum(columnBegin, grid.sum(across(), grid.number(j * threadsAcross))));
    }
  }

  // With tensor cores: a warp has a part of the block's results, in products of 16 by 8.
  int64_t warpRows() const { return plan.tileRows / warpsDown; }
  int64_t warpColumns() const { return plan.tileColumns / warpsAcross; }
  Value lane() { return grid.remainder(grid.thread(), warp); }
  Value warpRow() { return grid.product(grid.quotient(grid.thread(), warp * warpsAcross), warpRows()); }
  Value warpColumn() {
    return grid.product(grid.remainder(grid.quotient(grid.thread(), warp), warpsAcross), warpColumns());
  }
  // 16 of the tile's edge from `begin` on by 16 that are summed up, as four matrices. Matrices 0 and 1 follow each other
  // along the edge where `edgeFirst`, else along the sum.
  Values matricesAt(const Tile &tile, Value base, Value begin, int64_t summed, bool edgeFirst) {
    Value matrix = grid.quotient(lane(), 8), row = grid.remainder(lane(), 8);
    Value low = grid.product(grid.remainder(matrix, 2), 8), high = grid.product(grid.quotient(matrix, 2), 8);
    Value edge = grid.sum(begin, edgeFirst ? low : high), sum = grid.sum(grid.number(summed), edgeFirst ? high : low);
    Value line = grid.sum(tile.linesAreSummed ? sum : edge, row), neighbour = tile.linesAreSummed ? edge : sum;
    return grid.matrices(grid.sum(base, grid.sum(grid.product(line, strideOf(tile)), neighbour)), tile.linesAreSummed);
  }
  Values addProducts(const Tile &lhs, Value lhsBase, const Tile &rhs, Value rhsBase, ValueRange soFar) {
    Values sums(soFar);
    for (int64_t summed = 0; summed < plan.depth; summed += edgeOfProduct) {
      SmallVector<Values> left, right;
      for (int64_t i = 0; i < warpRows(); i += edgeOfProduct)
        left.push_back(matricesAt(lhs, lhsBase, grid.sum(warpRow(), grid.number(i)), summed, true));
      for (int64_t j = 0; j < warpColumns(); j += edgeOfProduct) {
        const Values both = matricesAt(rhs, rhsBase, grid.sum(warpColumn(), grid.number(j)), summed, false);
        right.push_back({both[0], both[1]});
        right.push_back({both[2], both[3]});
      }
      size_t at = 0;
      for (const Values &a : left)
        for (const Values &b : right) {
          const Values added = grid.multiplyAdd(element, a, b, ArrayRef<Value>(sums).slice(at, 4));
          std::copy(added.begin(), added.end(), sums.begin() + static_cast<int64_t>(at));
          at += 4;
        }
    }
    return sums;
  }
  // A lane has two neighbours in two rows of each product.
  void storeProducts(ValueRange sums) {
    Value column = grid.sum(grid.sum(columnBegin, warpColumn()), grid.product(grid.remainder(lane(), 4), 2));
    const int64_t across = warpColumns() / columnsOfProduct;
    for (int64_t i = 0; i < warpRows() / edgeOfProduct; ++i)
      for (int64_t half = 0; half < 2; ++half) {
        Value number = grid.sum(grid.quotient(lane(), 4), grid.number(i * edgeOfProduct + 8 * half));
        const Tile::Line line = resultLine(grid.sum(warpRow(), number));
        for (int64_t j = 0; j < across; ++j) {
          const auto at = static_cast<size_t>(4 * (i * across + j) + 2 * half);
          store({sums[at], sums[at + 1]}, line, grid.sum(column, grid.number(j * columnsOfProduct)));
        }
      }
  }

  GridBuilder &grid;
  const Type element, result;
  const GroupedPlan &plan;
  const int64_t chunk;
  Value group, first, end, steps, rowBegin, columnBegin; // of the block
};

} // namespace

GroupedPlan::GroupedPlan(const plan::GroupedContract &c, bool hasTensorCores, GroupedWidths widths)
    : sort({.outer = 1,
            .rows = c.groups(),
            .inner = 1,
            .count = runtime::elementCount(c.rows()),
            .globalRows = c.global_groups(),
            .isWide = c.group_of_row().dtype() == plan::I64},
           1),
      rows(c.rows().begin(), c.rows().end()), lhsStrides(c.lhs_strides().begin(), c.lhs_strides().end()),
      rhsStrides(c.rhs_strides().begin(), c.rhs_strides().end()), k(c.k()), n(c.n()), groups(c.groups()),
      sumsRows(c.sums_rows()), isTransposed(c.transposed()), hasOthers(!sumsRows && c.global_groups() > c.groups()),
      onTensorCores(hasTensorCores && runtime::byteSize(c.lhs().dtype()) == 2), widths(widths) {
  const int64_t down = sumsRows ? k : sort.rows.count / std::max<int64_t>(1, c.global_groups());
  tileRows = onTensorCores && down > 64 ? 128 : 64;
  tileColumns = onTensorCores && n > 64 ? 128 : 64;
  depth = onTensorCores ? 32 : 16;
  for (int64_t *width : {&this->widths.lhs, &this->widths.rhs}) *width = std::min(*width, chunk());
  tiles = sumsRows ? groups : sort.rows.count / tileRows + groupsOfTiles();
}

int64_t GroupedPlan::lines() const { return sumsRows ? groups * partsOf(k, tileRows) : tiles; }
int64_t GroupedPlan::chunk() const { return onTensorCores ? chunkBytes / 2 : chunkNumbers; }

int64_t GroupedPlan::sharedBytes(int64_t sumBytes) const {
  auto elements = [&](bool linesAreSummed, int64_t edge) {
    return linesAreSummed ? depth * (edge + gap()) : edge * (depth + gap());
  };
  const int64_t stage = elements(sumsRows, tileRows) + elements(!isTransposed, tileColumns);
  return 2 * stage * (onTensorCores ? 2 : sumBytes);
}

std::string GroupedPlan::text() const {
  return fmt::format("{} of {}{}, {}x{}{}, strides {} {}, x{} {} {}", sort.rows.text(), fmt::join(rows, " "),
                     hasOthers ? " and others" : "", k, n,
                     sumsRows       ? " sums"
                     : isTransposed ? " transposed"
                                    : "",
                     fmt::join(lhsStrides, " "), fmt::join(rhsStrides, " "), widths.lhs, widths.rhs, widths.out);
}

// A group whose rows begin at row s in their order has the entries from s / tileRows + group on, which are enough.
void groupTilesCode(GridBuilder &grid, const GroupedPlan &plan) {
  const int64_t count = plan.sort.rows.count;
  Value keys = grid.buffer(0), table = grid.buffer(1);
  Value group = grid.sum(grid.product(grid.block(), scatterThreads), grid.thread()), one = grid.number(1);
  // As many keys as are smaller, found by halving.
  auto beginOf = [&](Value which) {
    const int64_t levels = llvm::Log2_64_Ceil(static_cast<uint64_t>(count) + 1);
    Value least = shiftedUp(grid, which, grid.number(plan.sort.shift));
    return grid
        .loop(grid.number(0), grid.number(levels), 1, grid.number(0),
              [&](Value level, ValueRange soFar) -> Values {
                Value step = shiftedUp(grid, one, grid.difference(grid.number(levels - 1), level));
                Value tried = grid.sum(soFar[0], step), last = grid.minimum(tried, grid.number(count));
                Value probed = grid.load(keys, grid.here().getI64Type(), grid.difference(last, one)).front();
                Value isSmaller = grid.both(grid.equal(last, tried), grid.less(probed, least));
                return {grid.select(isSmaller, tried, soFar[0])};
              })
        .front();
  };
  grid.when(grid.less(group, grid.extent()), [&] {
    Value next = grid.sum(group, one), begin = beginOf(group), end = beginOf(next);
    Value steps = grid.quotient(grid.sum(grid.difference(end, begin), grid.number(plan.depth - 1)), plan.depth);
    if (!plan.sumsRows)
      steps = grid.select(grid.less(group, grid.number(plan.groups)), grid.number(partsOf(plan.k, plan.depth)),
                          grid.number(0));
    auto leave = [&](Value entry, Value first) {
      Value at = grid.product(entry, entryNumbers);
      for (auto [i, value] : llvm::enumerate(Values{group, first, end, steps}))
        grid.store(value, table, grid.sum(at, grid.number(static_cast<int64_t>(i))));
    };
    if (plan.sumsRows) return leave(group, begin);
    Value from = grid.sum(grid.quotient(begin, plan.tileRows), group),
          to = grid.sum(grid.quotient(end, plan.tileRows), next);
    to = grid.select(grid.equal(next, grid.extent()), grid.number(plan.tiles), to); // the last one has all that is left
    grid.loop(from, to, 1, {}, [&](Value entry, ValueRange) {
      Value first = grid.sum(begin, grid.product(grid.difference(entry, from), plan.tileRows));
      leave(entry, grid.minimum(first, end));
      return Values();
    });
  });
}

void groupedProductCode(GridBuilder &grid, Type element, Type result, const GroupedPlan &plan) {
  GroupedProduct(grid, element, result, plan).build();
}

} // namespace cleave::codegen
