#include "compiler/codegen/cuda/command_code.h"
#include "compiler/codegen/cuda/command_values.h"
#include "compiler/codegen/cuda/grid_schedule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/STLExtras.h"
#include <tuple>

using namespace mlir;
namespace cleave::codegen {
namespace {

using Values = GridBuilder::Values;

// The first of the thread's `width` elements.
Value firstElement(GridBuilder &grid, int64_t width, int64_t threads) {
  return grid.product(grid.sum(grid.product(grid.block(), threads), grid.thread()), width);
}

Value greater(GridBuilder &grid, Value a, Value b) { return grid.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, a, b); }

} // namespace

StridedLoops::StridedLoops(ArrayRef<int64_t> sizes, ArrayRef<int64_t> source, ArrayRef<int64_t> target) {
  for (auto [size, from, to] : llvm::zip_equal(sizes, source, target)) {
    total *= size;
    if (size != 1) loops.push_back({size, from, to});
  }
  llvm::sort(loops, [](const Loop &a, const Loop &b) {
    return std::tie(a.target, a.source, a.size) > std::tie(b.target, b.source, b.size);
  });
  for (size_t i = 0; i + 1 < loops.size();) {
    const Loop &outer = loops[i], &inner = loops[i + 1];
    if (outer.source != inner.source * inner.size || outer.target != inner.target * inner.size) {
      ++i;
      continue;
    }
    loops[i] = {outer.size * inner.size, inner.source, inner.target};
    loops.erase(loops.begin() + static_cast<int64_t>(i) + 1);
  }
  if (loops.empty()) loops.push_back({total, 1, 1});
}

SmallVector<int64_t> StridedLoops::outerStrides() const {
  SmallVector<int64_t> strides;
  for (const Loop &loop : ArrayRef<Loop>(loops).drop_back()) strides.append({loop.source, loop.target});
  return strides;
}

namespace {
template <typename... Numbers> std::string joined(const char *separator, Numbers... numbers) {
  std::string text;
  for (int64_t number : {static_cast<int64_t>(numbers)...})
    text += (text.empty() ? "" : separator) + std::to_string(number);
  return text;
}
} // namespace

std::string StridedLoops::text() const {
  std::string text;
  for (const Loop &loop : loops)
    text += (text.empty() ? "" : " ") + std::to_string(loop.size) + ":" + joined(">", loop.source, loop.target);
  return text;
}

std::string IndexedRows::text() const {
  return joined("x", outer, rows, inner) + " by " + std::to_string(count) + (isWide ? " i64" : " i32") + " of " +
         std::to_string(globalRows);
}

std::string PoolWindow::text() const {
  std::string text;
  for (int d = 0; d < 3; ++d)
    text += (d ? ", " : "") + joined(" ", in[d], out[d], kernel[d], stride[d], low[d], high[d], dilation[d]);
  if (channels > 1) text += ", channels last " + std::to_string(channels);
  return text + (countsPads ? " counting pads" : "");
}

void copyCode(GridBuilder &grid, Type element, const StridedLoops &loops, int64_t width, int64_t threads) {
  Value first = firstElement(grid, width, threads);
  grid.when(grid.less(first, grid.extent()), [&] {
    Value from = grid.scalar(0), to = grid.scalar(1), rest = first;
    int64_t below = 1;
    for (const StridedLoops::Loop &loop : loops.all()) below *= loop.size;
    for (size_t i = loops.all().size(); i-- > 0;) {
      const StridedLoops::Loop &loop = loops.all()[i];
      Value index = i == 0 ? rest : grid.remainder(rest, loop.size, below);
      if (i > 0) rest = grid.quotient(rest, loop.size, below);
      below /= std::max<int64_t>(1, loop.size);
      from = grid.sum(from, grid.product(index, loop.source));
      to = grid.sum(to, grid.product(index, loop.target));
    }
    grid.store(grid.load(grid.buffer(0), element, from, width, true), grid.buffer(1), to, true);
  });
}

// A tile of 64 by 64 bytes lies in shared memory in rows of 68, so that a column's bytes are in different banks. A
// thread moves 16 bytes of a row in, and 16 of a column out.
constexpr int64_t tileSide = 64, tileRow = 68, tileVector = 16, tileVectors = tileSide / tileVector;

bool StridedLoops::isTransposeOfBytes() const {
  if (loops.size() != 2 || loops[0].source != 1 || loops[1].target != 1) return false;
  return llvm::all_of(std::initializer_list<int64_t>{loops[0].size, loops[1].size, loops[0].target, loops[1].source},
                      [](int64_t number) { return number > 0 && number % tileVector == 0; });
}

int64_t transposeTiles(const StridedLoops &loops) {
  auto tiles = [](int64_t size) { return (size + tileSide - 1) / tileSide; };
  return tiles(loops.all()[0].size) * tiles(loops.all()[1].size);
}

void transposeCode(GridBuilder &grid, const StridedLoops &loops) {
  const StridedLoops::Loop &columns = loops.all()[0], &rows = loops.all()[1];
  const int64_t across = (columns.size + tileSide - 1) / tileSide;
  Value row = grid.product(grid.quotient(grid.block(), across), tileSide),
        column = grid.product(grid.remainder(grid.block(), across), tileSide);
  Value line = grid.quotient(grid.thread(), tileVectors),
        place = grid.product(grid.remainder(grid.thread(), tileVectors), tileVector);
  Type byte = grid.here().getI8Type();
  auto isInside = [&](Value first, const StridedLoops::Loop &of, Value second, const StridedLoops::Loop &along) {
    return grid.both(grid.less(first, grid.number(of.size)), grid.less(second, grid.number(along.size)));
  };
  Value from = grid.sum(row, line), along = grid.sum(column, place);
  grid.when(isInside(from, rows, along, columns), [&] {
    Value at = grid.sum(grid.scalar(0), grid.sum(grid.product(from, rows.source), along));
    Values values = grid.load(grid.buffer(0), byte, at, tileVector, true);
    Value inTile = grid.sum(grid.product(line, tileRow), place);
    for (int64_t i = 0; i < tileVector; i += 4) // rows of the tile begin at multiples of 4
      grid.store(ArrayRef<Value>(values).slice(size_t(i), 4), grid.shared(), grid.sum(inTile, grid.number(i)), true);
  });
  grid.barrier();
  Value to = grid.sum(column, line), below = grid.sum(row, place);
  grid.when(isInside(to, columns, below, rows), [&] {
    Values values;
    for (int64_t i = 0; i < tileVector; ++i) {
      Value inTile = grid.sum(grid.product(grid.sum(place, grid.number(i)), tileRow), line);
      values.push_back(grid.load(grid.shared(), byte, inTile).front());
    }
    Value at = grid.sum(grid.scalar(1), grid.sum(grid.product(to, columns.target), below));
    grid.store(values, grid.buffer(1), at, true);
  });
}

void fillCode(GridBuilder &grid, Type element, int64_t bits, int64_t width, int64_t threads) {
  Value first = firstElement(grid, width, threads);
  Value value = grid.constant(cast<TypedAttr>(
      IntegerAttr::get(element, llvm::APInt(element.getIntOrFloatBitWidth(), bits, false, /*implicitTrunc=*/true))));
  Value end = grid.sum(first, grid.number(width));
  grid.when(
      grid.less(grid.extent(), end),
      [&] {
        grid.loop(first, grid.extent(), 1, {}, [&](Value index, ValueRange) {
          grid.store(value, grid.buffer(0), index);
          return Values();
        });
      },
      [&] { grid.store(Values(width, value), grid.buffer(0), first, true); });
}

void gatherCode(GridBuilder &grid, Type element, const IndexedRows &rows, int64_t width, int64_t threads) {
  Value first = firstElement(grid, width, threads);
  grid.when(grid.less(first, grid.extent()), [&] {
    const int64_t updates = rows.outer * rows.count, elements = updates * rows.inner;
    Value inner = grid.remainder(first, rows.inner, elements), at = grid.quotient(first, rows.inner, elements);
    Value index = globalRow(grid, grid.buffer(1), rows, grid.remainder(at, rows.count, updates));
    leaveFault(grid, negation(grid, isWithin(grid, index, rows.globalRows)), grid.buffer(3), grid.scalar(1));
    Value local = grid.difference(index, grid.scalar(0)), isHere = isWithin(grid, local, rows.rows);
    Value row = grid.sum(grid.product(grid.quotient(at, rows.count, updates), rows.rows),
                         grid.select(isHere, local, grid.number(0)));
    Values values = grid.load(grid.buffer(0), element, grid.sum(grid.product(row, rows.inner), inner), width, true);
    for (Value &value : values) value = grid.select(isHere, value, zeroOf(grid, element));
    grid.store(values, grid.buffer(2), first, true);
  });
}

namespace {

// Where number `at` of a row-major box of three sizes lies; what is left over is the plane.
struct BoxPlace {
  Value at[3], plane;
};
BoxPlace placeIn(GridBuilder &grid, Value index, const int64_t (&sizes)[3], int64_t below = GridBuilder::unknown) {
  BoxPlace place;
  for (int d = 2; d >= 0; --d) {
    place.at[d] = grid.remainder(index, sizes[d], below);
    index = grid.quotient(index, sizes[d], below);
  }
  place.plane = index;
  return place;
}

// The input element that number `k` of an output's window is.
struct WindowElement {
  Value index;   // in its plane; 0 outside
  Value inside;  // i1
  Value counted; // i1: in an average's divisor
};
WindowElement windowElement(GridBuilder &grid, const PoolWindow &w, const Value (&output)[3], Value k) {
  BoxPlace offset = placeIn(grid, k, w.kernel, w.elements());
  WindowElement element;
  Value index = grid.number(0);
  for (int d = 0; d < 3; ++d) {
    Value position = grid.sum(grid.product(output[d], w.stride[d]),
                              grid.sum(grid.product(offset.at[d], w.dilation[d]), grid.number(-w.low[d])));
    element.inside = grid.both(element.inside, isWithin(grid, position, w.in[d]));
    element.counted = grid.both(element.counted, grid.less(position, grid.number(w.in[d] + w.high[d])));
    index = grid.sum(grid.product(index, w.in[d]), position);
  }
  if (!w.countsPads) element.counted = element.inside;
  element.index = grid.select(element.inside, index, grid.number(0));
  return element;
}

// The element of that number: where it is in its plane, and the plane's channel where the channels lie last.
struct PlacedElement {
  BoxPlace box;
  Value channel; // null: planes lie one after the other
};
PlacedElement placedElement(GridBuilder &grid, Value index, const int64_t (&sizes)[3], const PoolWindow &w) {
  if (w.channels == 1) return {placeIn(grid, index, sizes), {}};
  return {placeIn(grid, grid.quotient(index, w.channels), sizes), grid.remainder(index, w.channels)};
}
// Where the plane of an element begins, and where an element of a plane lies.
Value planeOffset(GridBuilder &grid, const PlacedElement &element, const int64_t (&sizes)[3], const PoolWindow &w) {
  Value offset = grid.product(element.box.plane, sizes[0] * sizes[1] * sizes[2] * w.channels);
  return element.channel ? grid.sum(offset, element.channel) : offset;
}
Value inPlane(GridBuilder &grid, Value plane, Value index, const PoolWindow &w) {
  return grid.sum(plane, w.channels == 1 ? index : grid.product(index, w.channels));
}

Value negativeInfinity(GridBuilder &grid, Type type) {
  return grid.constant(grid.here().getFloatAttr(
      type, llvm::APFloat::getInf(cast<FloatType>(type).getFloatSemantics(), /*Negative=*/true)));
}
Value isNan(GridBuilder &grid, Value x) { return grid.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x); }

constexpr int64_t writtenOutWindow = 9; // elements; a gradient has as many windows, of as many elements each

// A loop over a window's elements. Few are written out: where they lie in the window is known then, without divisions.
Values overWindow(GridBuilder &grid, const PoolWindow &w, Values carried,
                  llvm::function_ref<Values(Value, ValueRange)> body) {
  if (w.elements() > writtenOutWindow) return grid.loop(grid.number(0), grid.number(w.elements()), 1, carried, body);
  for (int64_t k = 0; k < w.elements(); ++k) carried = body(grid.number(k), carried);
  return carried;
}

// How many elements an average divides by, as a float.
Value divisor(GridBuilder &grid, const PoolWindow &w, const Value (&output)[3], Type type) {
  Value count = overWindow(grid, w, {grid.number(0)}, [&](Value k, ValueRange soFar) -> Values {
                  Value counted = windowElement(grid, w, output, k).counted;
                  return {grid.sum(soFar[0], grid.make<arith::ExtUIOp>(soFar[0].getType(), counted))};
                }).front();
  return grid.make<arith::SIToFPOp>(type, grid.make<arith::MaxSIOp>(count, grid.number(1)));
}

// The number, in its plane, of the first largest element of a window; -1 for none.
Value largest(GridBuilder &grid, const PoolWindow &w, const Value (&output)[3], Value memory, Type element,
              Value plane) {
  Type type = sumType(element);
  Values found =
      overWindow(grid, w, {grid.number(-1), negativeInfinity(grid, type)}, [&](Value k, ValueRange best) -> Values {
        WindowElement at = windowElement(grid, w, output, k);
        Value x = widened(grid, grid.load(memory, element, inPlane(grid, plane, at.index, w)).front());
        Value isBetter = grid.make<arith::OrIOp>(grid.less(best[0], grid.number(0)), greater(grid, x, best[1]));
        isBetter = grid.both(at.inside, grid.make<arith::OrIOp>(isBetter, isNan(grid, x)));
        return {grid.select(isBetter, at.index, best[0]), grid.select(isBetter, x, best[1])};
      });
  return found.front();
}

} // namespace

void poolCode(GridBuilder &grid, Type element, const PoolWindow &w, bool isMax, int64_t threads) {
  Type type = sumType(element);
  Value at = firstElement(grid, 1, threads);
  grid.when(grid.less(at, grid.extent()), [&] {
    const PlacedElement placed = placedElement(grid, at, w.out, w);
    const BoxPlace &output = placed.box;
    Value plane = planeOffset(grid, placed, w.in, w);
    Value start = isMax ? negativeInfinity(grid, type) : zeroOf(grid, type);
    Value result =
        overWindow(grid, w, {start}, [&](Value k, ValueRange soFar) -> Values {
          WindowElement place = windowElement(grid, w, output.at, k);
          Value x = widened(grid, grid.load(grid.buffer(0), element, inPlane(grid, plane, place.index, w)).front());
          Value next;
          if (isMax)
            next = grid.select(grid.make<arith::OrIOp>(greater(grid, x, soFar[0]), isNan(grid, x)), x, soFar[0]);
          else
            next = add(grid, soFar[0], x);
          return {grid.select(place.inside, next, soFar[0])};
        }).front();
    if (!isMax) result = grid.make<arith::DivFOp>(result, divisor(grid, w, output.at, type));
    grid.store(narrowed(grid, result, element), grid.buffer(1), at);
  });
}

void poolGradientCode(GridBuilder &grid, Type element, const PoolWindow &w, bool isMax, int64_t threads) {
  Type type = sumType(element);
  Value at = firstElement(grid, 1, threads);
  grid.when(grid.less(at, grid.extent()), [&] {
    const PlacedElement placed = placedElement(grid, at, w.in, w);
    const BoxPlace &input = placed.box;
    Value plane = planeOffset(grid, placed, w.in, w), planeOut = planeOffset(grid, placed, w.out, w);
    Value own = grid.difference(at, plane);
    if (w.channels > 1) own = grid.quotient(own, w.channels);
    // The outputs whose window has this element, first to last: the window's elements from the last to the first.
    Value sum =
        overWindow(grid, w, {zeroOf(grid, type)}, [&](Value step, ValueRange soFar) {
          BoxPlace offset = placeIn(grid, grid.difference(grid.number(w.elements() - 1), step), w.kernel, w.elements());
          Value exists, index = grid.number(0), output[3];
          for (int d = 0; d < 3; ++d) {
            Value begin = grid.difference(grid.sum(input.at[d], grid.number(w.low[d])),
                                          grid.product(offset.at[d], w.dilation[d]));
            Value isAhead = grid.less(begin, grid.number(0)), positive = grid.select(isAhead, grid.number(0), begin);
            const int64_t below = w.in[d] + w.low[d];
            output[d] = grid.quotient(positive, w.stride[d], below);
            Value isWhole = grid.equal(grid.remainder(positive, w.stride[d], below), grid.number(0));
            exists = grid.both(
                exists, grid.both(negation(grid, isAhead), grid.both(isWhole, isWithin(grid, output[d], w.out[d]))));
            index = grid.sum(grid.product(index, w.out[d]), output[d]);
          }
          return grid.choose(exists, soFar, [&]() -> Values {
            Value dy = widened(grid, grid.load(grid.buffer(1), element, inPlane(grid, planeOut, index, w)).front());
            if (!isMax) return {add(grid, soFar[0], grid.make<arith::DivFOp>(dy, divisor(grid, w, output, type)))};
            Value best = largest(grid, w, output, grid.buffer(0), element, plane);
            return {grid.select(grid.equal(best, own), add(grid, soFar[0], dy), soFar[0])};
          });
        }).front();
    grid.store(narrowed(grid, sum, element), grid.buffer(2), at);
  });
}

void cumSumCode(GridBuilder &grid, Type element, int64_t length, int64_t inner, bool exclusive, bool reverse,
                int64_t threads) {
  Value line = firstElement(grid, 1, threads);
  grid.when(grid.less(line, grid.extent()), [&] {
    Value base = grid.sum(grid.product(grid.quotient(line, inner), length * inner), grid.remainder(line, inner));
    grid.loop(grid.number(0), grid.number(length), 1, zeroOf(grid, sumType(element)),
              [&](Value step, ValueRange soFar) -> Values {
                Value place = reverse ? grid.difference(grid.number(length - 1), step) : step;
                Value index = grid.sum(base, grid.product(place, inner));
                Value x = widened(grid, grid.load(grid.buffer(0), element, index).front());
                Value next = add(grid, soFar[0], x);
                grid.store(narrowed(grid, exclusive ? soFar[0] : next, element), grid.buffer(1), index);
                return {next};
              });
  });
}

void checkFiniteCode(GridBuilder &grid, Type element, int64_t threads) {
  Value at = firstElement(grid, 1, threads);
  grid.when(grid.less(at, grid.extent()), [&] {
    Value x = grid.load(grid.buffer(0), element, at).front();
    Value zero = zeroOf(grid, element);
    // x - x is 0 for every finite number, and a NaN for all else.
    Value isBad = grid.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, grid.make<arith::SubFOp>(x, x), zero);
    leaveFault(grid, isBad, grid.buffer(1), grid.scalar(0));
  });
}

} // namespace cleave::codegen
