#include "compiler/codegen/cuda/scatter_code.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr int64_t mostOfTile = 2048;                    // pairs
constexpr int64_t mostRuns = 8;                         // that one launch merges
constexpr int64_t leastOfPart = 16, mostOfPart = 1024;  // pairs
constexpr int64_t wantedThreads = 1 << 16;              // that sum
constexpr int64_t loadsInFlight = 4, partsInFlight = 8; // of a thread

int64_t powerUpTo(int64_t limit) {
  return int64_t(1) << llvm::Log2_64(static_cast<uint64_t>(std::max<int64_t>(1, limit)));
}
int64_t powerFrom(int64_t least) { return static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(least))); }

class Scatter {
public:
  Scatter(GridBuilder &grid, const ScatterPlan &plan) : grid(grid), plan(plan), i64(grid.here().getI64Type()) {}
  using Values = GridBuilder::Values;

  Value shiftedUp(Value a, Value bits) { return grid.make<arith::ShLIOp>(a, bits); }
  Value shiftedDown(Value a, Value bits) { return grid.make<arith::ShRUIOp>(a, bits); }
  Value bitsOf(Value a, Value mask) { return grid.make<arith::AndIOp>(a, mask); }

  Value key(Value keys, Value index) { return grid.load(keys, i64, index).front(); }
  Value rowOf(Value key) { return shiftedDown(key, grid.number(plan.shift)); }
  Value positionOf(Value key) { return bitsOf(key, grid.number((int64_t(1) << plan.shift) - 1)); }
  Value clamped(Value index) { return grid.minimum(index, grid.number(plan.rows.count - 1)); }
  // Is the row of the sorted pair before `index` the same?
  Value continues(Value keys, Value index, Value row) {
    Value before = grid.make<arith::MaxSIOp>(grid.difference(index, grid.number(1)), grid.number(0));
    return grid.both(grid.less(grid.number(0), index), grid.equal(rowOf(key(keys, before)), row));
  }
  // Is that of the pair at `end`, the first that a part has not?
  Value goesOn(Value keys, Value end, Value row) {
    return grid.both(grid.less(end, grid.number(plan.rows.count)), grid.equal(rowOf(key(keys, clamped(end))), row));
  }

  // The thread's columns, part and outer index; `parts` of them have threads.
  struct Place {
    Value column, part, outer;
  };
  Place place(Value at, int64_t parts) {
    const int64_t all = plan.rows.outer * parts * plan.chunks;
    Value rest = grid.quotient(at, plan.chunks, all);
    return {grid.product(grid.remainder(at, plan.chunks, all), plan.width),
            grid.remainder(rest, parts, plan.rows.outer * parts), grid.quotient(rest, parts, plan.rows.outer * parts)};
  }
  Value partial(const Place &place, Value part, Value slot) {
    Value number = grid.sum(grid.product(grid.sum(grid.product(place.outer, plan.parts), part), 2), slot);
    return grid.sum(grid.product(number, plan.rows.inner), place.column);
  }
  void storeRow(Value out, const Place &place, Value row, Values sums, Type element) {
    for (Value &sum : sums) sum = narrowed(grid, sum, element);
    Value at = grid.sum(grid.product(place.outer, plan.rows.rows), row);
    grid.store(sums, out, grid.sum(grid.product(at, plan.rows.inner), place.column), true);
  }

  GridBuilder &grid;
  const ScatterPlan &plan;
  Type i64;
};

Value threadOfGrid(GridBuilder &grid) { return grid.sum(grid.product(grid.block(), scatterThreads), grid.thread()); }

} // namespace

ScatterPlan::ScatterPlan(const IndexedRows &rows, int64_t width) : rows(rows), width(width) {
  chunks = rows.inner / width;
  tile = std::min(mostOfTile, powerFrom(std::max<int64_t>(64, rows.count)));
  sortThreads = std::min<int64_t>(512, tile / 2);
  for (int64_t run = tile; run < rows.count; run *= mostRuns) runs.push_back(run);
  // A row that all parts have is joined by one team, so parts grow with the root of the pairs; and no more of them are
  // made than keep a GPU busy.
  int64_t root = powerUpTo(static_cast<int64_t>(std::sqrt(static_cast<double>(rows.count))) / 4);
  part = std::clamp(std::max(root, powerUpTo(rows.count * chunks / wantedThreads)), leastOfPart, mostOfPart);
  parts = (rows.count + part - 1) / part;
  shift = llvm::Log2_64_Ceil(static_cast<uint64_t>(rows.count));
}

// A bitonic network: of each pair of places, `stride` apart, the smaller key comes first where the run of `size` is
// ascending (Batcher, "Sorting networks and their applications", 1968).
void sortTileCode(GridBuilder &grid, const ScatterPlan &plan) {
  Scatter on(grid, plan);
  Value indices = grid.buffer(0), keys = grid.buffer(1), shared = grid.shared();
  Value begin = grid.product(grid.block(), plan.tile), count = grid.number(plan.rows.count);
  auto eachOf = [&](int64_t items, llvm::function_ref<void(Value)> body) {
    for (int64_t i = 0; i < items; i += plan.sortThreads) body(grid.sum(grid.thread(), grid.number(i)));
  };
  eachOf(plan.tile, [&](Value at) {
    Value position = grid.sum(begin, at), isInside = grid.less(position, count);
    GridBuilder::Values none{grid.number(std::numeric_limits<int64_t>::max())};
    Value key = grid.choose(isInside, none,
                            [&]() -> GridBuilder::Values {
                              Value row = globalRow(grid, indices, plan.rows, position);
                              leaveFault(grid, negation(grid, isWithin(grid, row, plan.rows.globalRows)),
                                         grid.buffer(2), grid.scalar(1));
                              Value local = grid.difference(row, grid.scalar(0));
                              Value known = grid.select(isWithin(grid, local, plan.rows.rows), local,
                                                        grid.number(plan.rows.rows));
                              return {grid.sum(on.shiftedUp(known, grid.number(plan.shift)), position)};
                            })
                    .front();
    grid.store(key, shared, at);
  });
  grid.barrier();
  const auto levels = static_cast<int64_t>(llvm::Log2_64(static_cast<uint64_t>(plan.tile)));
  Value one = grid.number(1);
  grid.loop(one, grid.number(levels + 1), 1, {}, [&](Value level, ValueRange) {
    Value size = on.shiftedUp(one, level);
    grid.loop(grid.number(0), level, 1, {}, [&](Value step, ValueRange) {
      Value bits = grid.difference(grid.difference(level, one), step), stride = on.shiftedUp(one, bits);
      eachOf(plan.tile / 2, [&](Value pair) {
        Value within = on.bitsOf(pair, grid.difference(stride, one));
        Value a = grid.sum(on.shiftedUp(grid.difference(pair, within), one), within), b = grid.sum(a, stride);
        Value x = on.key(shared, a), y = on.key(shared, b);
        Value isAscending = grid.equal(on.bitsOf(a, size), grid.number(0));
        Value isSwapped = grid.equal(grid.less(y, x), isAscending);
        grid.store(grid.select(isSwapped, y, x), shared, a);
        grid.store(grid.select(isSwapped, x, y), shared, b);
      });
      grid.barrier();
      return GridBuilder::Values();
    });
    return GridBuilder::Values();
  });
  eachOf(plan.tile, [&](Value at) {
    Value place = grid.sum(begin, at);
    grid.when(grid.less(place, count), [&] { grid.store(on.key(shared, at), keys, place); });
  });
}

// A pair's place in the merged run: as many pairs as are smaller, in each of the runs.
void mergeRunsCode(GridBuilder &grid, const ScatterPlan &plan, int64_t run) {
  Scatter on(grid, plan);
  Value keys = grid.buffer(0), at = threadOfGrid(grid);
  grid.when(grid.less(at, grid.extent()), [&] {
    const int64_t runs = std::min(mostRuns, (plan.rows.count + run - 1) / run);
    Value own = on.key(keys, at);
    Value begin = grid.product(grid.quotient(at, mostRuns * run), mostRuns * run);
    GridBuilder::Values begins, lengths, smaller(static_cast<size_t>(runs), grid.number(0));
    for (int64_t r = 0; r < runs; ++r) {
      begins.push_back(grid.sum(begin, grid.number(r * run)));
      lengths.push_back(grid.minimum(grid.difference(grid.number(plan.rows.count), begins[r]), grid.number(run)));
    }
    Value one = grid.number(1);
    const auto levels = static_cast<int64_t>(llvm::Log2_64(static_cast<uint64_t>(run)));
    smaller = grid.loop(grid.number(0), grid.number(levels + 1), 1, smaller, [&](Value level, ValueRange soFar) {
      Value step = on.shiftedUp(one, grid.difference(grid.number(levels), level));
      GridBuilder::Values tried, probed, next;
      for (int64_t r = 0; r < runs; ++r) {
        tried.push_back(grid.sum(soFar[r], step));
        probed.push_back(on.key(keys, on.clamped(grid.sum(begins[r], grid.difference(tried[r], one)))));
      }
      for (int64_t r = 0; r < runs; ++r) {
        Value isInside = negation(grid, grid.less(lengths[r], tried[r]));
        next.push_back(grid.select(grid.both(isInside, grid.less(probed[r], own)), tried[r], soFar[r]));
      }
      return next;
    });
    Value place = begin;
    for (Value count : smaller) place = grid.sum(place, count);
    grid.store(own, grid.buffer(1), place);
  });
}

void sumPartsCode(GridBuilder &grid, Type element, const ScatterPlan &plan) {
  Scatter on(grid, plan);
  Value keys = grid.buffer(0), updates = grid.buffer(1), out = grid.buffer(2), at = threadOfGrid(grid);
  const IndexedRows &rows = plan.rows;
  const auto width = static_cast<size_t>(plan.width);
  grid.when(grid.less(at, grid.extent()), [&] {
    const Scatter::Place place = on.place(at, plan.parts);
    Value first = grid.product(place.part, plan.part), beyond = grid.sum(first, grid.number(plan.part));
    Value end = grid.minimum(beyond, grid.number(rows.count)), last = grid.difference(end, grid.number(1));
    Value zero = zeroOf(grid, sumType(element));
    // The sum is whole, unless the row began before this part or goes on after it.
    auto leave = [&](Value row, ArrayRef<Value> sums, Value hasBegun, Value isOpen) {
      grid.when(isWithin(grid, row, rows.rows), [&] {
        auto storeAll = [&] { on.storeRow(out, place, row, GridBuilder::Values(sums), element); };
        if (plan.parts == 1) return storeAll();
        grid.when(
            grid.make<arith::OrIOp>(hasBegun, isOpen),
            [&] {
              Value slot = grid.select(hasBegun, grid.number(0), grid.number(1));
              grid.store(sums, grid.buffer(3), on.partial(place, place.part, slot), true);
            },
            storeAll);
      });
    };
    Value no = grid.constant(grid.here().getBoolAttr(false));
    Value row = on.rowOf(on.key(keys, first));
    GridBuilder::Values carried(width, zero);
    carried.append({row, on.continues(keys, first, row)});
    carried = grid.loop(first, end, loadsInFlight, carried, [&](Value base, ValueRange soFar) {
      GridBuilder::Values sums(soFar.take_front(width)), found, isActive;
      SmallVector<GridBuilder::Values> terms;
      Value row = soFar[width], hasBegun = soFar[width + 1];
      for (int64_t k = 0; k < loadsInFlight; ++k) {
        Value index = grid.sum(base, grid.number(k));
        isActive.push_back(rows.count % loadsInFlight == 0 ? Value() : grid.less(index, end));
        found.push_back(on.key(keys, isActive.back() ? grid.minimum(index, last) : index));
      }
      for (Value key : found) {
        Value update = grid.sum(grid.product(place.outer, rows.count), on.positionOf(key));
        terms.push_back(
            grid.load(updates, element, grid.sum(grid.product(update, rows.inner), place.column), plan.width, true));
      }
      for (auto [key, active, term] : llvm::zip_equal(found, isActive, terms)) {
        Value next = on.rowOf(key), isSame = grid.equal(next, row);
        grid.when(negation(grid, isSame), [&] { leave(row, sums, hasBegun, no); });
        for (auto [sum, x] : llvm::zip_equal(sums, term)) {
          Value added = add(grid, grid.select(isSame, sum, zero), widened(grid, x));
          sum = active ? grid.select(active, added, sum) : added;
        }
        hasBegun = grid.both(hasBegun, isSame);
        row = next;
      }
      sums.append({row, hasBegun});
      return sums;
    });
    row = carried[width];
    leave(row, ArrayRef<Value>(carried).take_front(width), carried[width + 1], on.goesOn(keys, end, row));
  });
}

void joinPartsCode(GridBuilder &grid, Type element, const ScatterPlan &plan) {
  Scatter on(grid, plan);
  Value keys = grid.buffer(0), partials = grid.buffer(1), at = threadOfGrid(grid);
  const IndexedRows &rows = plan.rows;
  grid.when(grid.less(at, grid.extent()), [&] {
    const Scatter::Place place = on.place(at, plan.parts - 1);
    Value one = grid.number(1);
    Value first = grid.product(place.part, plan.part), end = grid.sum(first, grid.number(plan.part));
    Value row = on.rowOf(on.key(keys, grid.difference(end, one)));
    Value isOwn = grid.both(negation(grid, on.continues(keys, first, row)), on.goesOn(keys, end, row));
    grid.when(grid.both(isOwn, isWithin(grid, row, rows.rows)), [&] {
      Value beyond = on.shiftedUp(grid.sum(row, one), grid.number(plan.shift));
      // The last pair of the row: those before it, found by halving.
      Value found = grid.loop(grid.number(0), grid.number(plan.shift + 1), 1, end,
                              [&](Value level, ValueRange soFar) -> GridBuilder::Values {
                                Value step = on.shiftedUp(one, grid.difference(grid.number(plan.shift), level));
                                Value tried = grid.sum(soFar[0], step);
                                Value isBefore = grid.both(grid.less(tried, grid.number(rows.count)),
                                                           grid.less(on.key(keys, on.clamped(tried)), beyond));
                                return {grid.select(isBefore, tried, soFar[0])};
                              })
                        .front();
      Value last = grid.quotient(found, plan.part);
      Type type = sumType(element);
      auto share = [&](Value part, int64_t slot) {
        return grid.load(partials, type, on.partial(place, part, grid.number(slot)), plan.width, true);
      };
      GridBuilder::Values sums = share(place.part, 1);
      sums = grid.loop(grid.sum(place.part, one), grid.sum(last, one), partsInFlight, sums,
                       [&](Value base, ValueRange soFar) {
                         GridBuilder::Values sums(soFar), isActive;
                         SmallVector<GridBuilder::Values> terms;
                         for (int64_t k = 0; k < partsInFlight; ++k) {
                           Value part = grid.sum(base, grid.number(k));
                           isActive.push_back(negation(grid, grid.less(last, part)));
                           terms.push_back(share(grid.minimum(part, last), 0));
                         }
                         for (auto [active, term] : llvm::zip_equal(isActive, terms))
                           for (auto [sum, x] : llvm::zip_equal(sums, term))
                             sum = grid.select(active, add(grid, sum, x), sum);
                         return sums;
                       });
      on.storeRow(grid.buffer(2), place, row, sums, element);
    });
  });
}

} // namespace cleave::codegen
