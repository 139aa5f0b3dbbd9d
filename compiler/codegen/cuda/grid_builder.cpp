#include "compiler/codegen/cuda/grid_builder.h"
#include "dialects/onnx/kinds.h"
#include "dialects/plan/attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr unsigned globalMemory = 1, sharedMemory = 3; // address spaces of NVPTX
constexpr llvm::StringLiteral sharedSymbol = "cleave_shared";

Type typeInMemory(Type element) { return element.isInteger(1) ? IntegerType::get(element.getContext(), 8) : element; }

// The dynamic shared memory of the module: an array without a length of its own.
LLVM::GlobalOp sharedOf(gpu::GPUModuleOp module, Location loc) {
  if (auto known = module.lookupSymbol<LLVM::GlobalOp>(sharedSymbol)) return known;
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToStart(module.getBody());
  auto bytes = LLVM::LLVMArrayType::get(builder.getI8Type(), 0);
  return LLVM::GlobalOp::create(builder, loc, bytes, /*isConstant=*/false, LLVM::Linkage::External, sharedSymbol,
                                Attribute(), /*alignment=*/16, sharedMemory);
}

} // namespace

GridBuilder::GridBuilder(Location loc, gpu::GPUModuleOp module, StringRef symbol, int64_t buffers, int64_t scalars,
                         int64_t threads, std::optional<int64_t> groupSteps)
    : loc(loc), builder(module.getContext()), firstScalar(groupSteps ? 2 : buffers) {
  MLIRContext *context = module.getContext();
  builder.setInsertionPointToEnd(module.getBody());
  // Pointers to the buffers (of a group: to the arena and the table), the scalars (of a group: then the number of
  // parts), and the extent.
  SmallVector<Type> parameterTypes(firstScalar, LLVM::LLVMPointerType::get(context, globalMemory));
  parameterTypes.append(scalars + 1 + groupSteps.has_value(), builder.getI64Type());
  function = gpu::GPUFuncOp::create(builder, loc, symbol, builder.getFunctionType(parameterTypes, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  function.setKnownBlockSize(SmallVector<int32_t>{static_cast<int32_t>(threads), 1, 1});
  builder.setInsertionPointToStart(&function.getBody().front());
  auto toI64 = [&](Value index) -> Value {
    return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index);
  };
  threadId = toI64(gpu::ThreadIdOp::create(builder, loc, builder.getIndexType(), gpu::Dimension::x));
  blockId = toI64(gpu::BlockIdOp::create(builder, loc, builder.getIndexType(), gpu::Dimension::x));
  if (groupSteps) {
    findPart(buffers, scalars, *groupSteps);
    return;
  }
  addresses.assign(function.getArguments().begin(), function.getArguments().begin() + buffers);
  extentValue = function.getArguments().back();
}

// A binary search for the last part whose first block is not after this one.
void GridBuilder::findPart(int64_t buffers, int64_t scalars, int64_t steps) {
  Value arena = function.getArgument(0), table = function.getArgument(1);
  Type i64 = builder.getI64Type();
  auto entry = [&](Value row, int64_t column) {
    return load(table, i64, sum(product(row, 2 + buffers), number(column))).front();
  };
  Value low = number(0), high = scalar(scalars);
  for (int64_t i = 0; i < steps; ++i) {
    Value middle = quotient(sum(low, high), 2), isBefore = less(blockId, entry(middle, 0));
    low = select(isBefore, low, middle);
    high = select(isBefore, middle, high);
  }
  blockId = difference(blockId, entry(low, 0));
  extentValue = entry(low, 1);
  for (int64_t i = 0; i < buffers; ++i) addresses.push_back(address(arena, builder.getI8Type(), entry(low, 2 + i)));
}

Value GridBuilder::thread() { return threadId; }
Value GridBuilder::block() { return blockId; }
void GridBuilder::setBlocks(int64_t blocks) { plan::blocksAttr.set(function, blocks); }
void GridBuilder::finish() { gpu::ReturnOp::create(builder, loc); }

Value GridBuilder::address(Value memory, Type element, Value index) {
  return LLVM::GEPOp::create(builder, loc, memory.getType(), typeInMemory(element), memory, ValueRange{index},
                             LLVM::GEPNoWrapFlags::inbounds);
}

GridBuilder::Values GridBuilder::load(Value memory, Type element, Value index, int64_t count, bool aligned) {
  Values values;
  Type stored = typeInMemory(element);
  if (count > 1 && aligned) {
    auto type = VectorType::get({count}, stored);
    Value all = LLVM::LoadOp::create(builder, loc, type, address(memory, element, index),
                                     static_cast<unsigned>(count * onnx::elementBytes(element)));
    for (int64_t i = 0; i < count; ++i) values.push_back(LLVM::ExtractElementOp::create(builder, loc, all, number(i)));
  } else {
    for (int64_t i = 0; i < count; ++i)
      values.push_back(LLVM::LoadOp::create(builder, loc, stored, address(memory, element, sum(index, number(i)))));
  }
  if (element.isInteger(1)) {
    Value zero = constant(builder.getI8IntegerAttr(0));
    for (Value &value : values) value = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, value, zero);
  }
  return values;
}

void GridBuilder::store(ValueRange values, Value memory, Value index, bool aligned) {
  Type element = values.front().getType();
  Values stored(values);
  if (element.isInteger(1))
    for (Value &value : stored) value = arith::ExtUIOp::create(builder, loc, builder.getI8Type(), value);
  auto count = static_cast<int64_t>(stored.size());
  if (count > 1 && aligned) {
    auto type = VectorType::get({count}, typeInMemory(element));
    Value all = LLVM::UndefOp::create(builder, loc, type);
    for (auto [i, value] : llvm::enumerate(stored))
      all = LLVM::InsertElementOp::create(builder, loc, all, value, number(static_cast<int64_t>(i)));
    LLVM::StoreOp::create(builder, loc, all, address(memory, element, index),
                          static_cast<unsigned>(count * onnx::elementBytes(element)));
    return;
  }
  for (auto [i, value] : llvm::enumerate(stored))
    LLVM::StoreOp::create(builder, loc, value, address(memory, element, sum(index, number(static_cast<int64_t>(i)))));
}

Value GridBuilder::shared() {
  LLVM::GlobalOp global = sharedOf(function->getParentOfType<gpu::GPUModuleOp>(), loc);
  return LLVM::AddressOfOp::create(builder, loc, LLVM::LLVMPointerType::get(builder.getContext(), sharedMemory),
                                   global.getSymName());
}
void GridBuilder::barrier() { gpu::BarrierOp::create(builder, loc); }

// A shuffle moves 32 bits: smaller values are widened, larger ones move in two.
Value GridBuilder::shuffle(Value value, int64_t mask) {
  Type type = value.getType(), i32 = builder.getI32Type(), i64 = builder.getI64Type();
  unsigned bits = type.getIntOrFloatBitWidth();
  Type sameBits = builder.getIntegerType(bits);
  Value integer = type.isInteger() ? value : arith::BitcastOp::create(builder, loc, sameBits, value).getResult();
  auto move = [&](Value word) -> Value {
    return gpu::ShuffleOp::create(builder, loc, word, static_cast<int32_t>(mask), 32, gpu::ShuffleMode::XOR)
        .getShuffleResult();
  };
  Value moved;
  if (bits == 64) {
    Value half = constant(builder.getI64IntegerAttr(32));
    Value low = move(arith::TruncIOp::create(builder, loc, i32, integer));
    Value high = move(
        arith::TruncIOp::create(builder, loc, i32, arith::ShRUIOp::create(builder, loc, integer, half).getResult()));
    Value upper =
        arith::ShLIOp::create(builder, loc, arith::ExtUIOp::create(builder, loc, i64, high).getResult(), half);
    moved = arith::OrIOp::create(builder, loc, arith::ExtUIOp::create(builder, loc, i64, low).getResult(), upper);
  } else if (bits == 32) {
    moved = move(integer);
  } else {
    moved = arith::TruncIOp::create(builder, loc, sameBits, move(arith::ExtUIOp::create(builder, loc, i32, integer)));
  }
  return type.isInteger() ? moved : arith::BitcastOp::create(builder, loc, type, moved).getResult();
}

GridBuilder::Values GridBuilder::callOfWarp(StringRef intrinsic, Type result, ValueRange arguments) {
  auto all = LLVM::LLVMStructType::getLiteral(builder.getContext(), SmallVector<Type>(4, result));
  Value call =
      LLVM::CallIntrinsicOp::create(builder, loc, all, builder.getStringAttr(intrinsic), arguments)->getResult(0);
  Values values;
  for (int64_t i = 0; i < 4; ++i) values.push_back(LLVM::ExtractValueOp::create(builder, loc, call, i));
  return values;
}

GridBuilder::Values GridBuilder::matrices(Value index, bool transposed) {
  return callOfWarp(transposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                               : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                    builder.getI32Type(), address(shared(), builder.getI16Type(), index));
}

GridBuilder::Values GridBuilder::multiplyAdd(Type element, ValueRange a, ValueRange b, ValueRange sums) {
  Values arguments;
  auto pair = VectorType::get({2}, element);
  for (ValueRange side : {a, b})
    for (Value word : side)
      arguments.push_back(element.isBF16() ? word : LLVM::BitcastOp::create(builder, loc, pair, word).getResult());
  arguments.append(sums.begin(), sums.end());
  return callOfWarp(element.isBF16() ? "llvm.nvvm.mma.m16n8k16.row.col.bf16" : "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
                    builder.getF32Type(), arguments);
}

void GridBuilder::when(Value condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise) {
  auto branch = scf::IfOp::create(builder, loc, condition, /*withElseRegion=*/static_cast<bool>(otherwise));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(branch.thenYield());
  then();
  if (!otherwise) return;
  builder.setInsertionPoint(branch.elseYield());
  otherwise();
}

GridBuilder::Values GridBuilder::choose(Value condition, ValueRange otherwise, llvm::function_ref<Values()> then) {
  auto branch = scf::IfOp::create(builder, loc, otherwise.getTypes(), condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&branch.getThenRegion().front());
  Values values = then();
  scf::YieldOp::create(builder, loc, values);
  builder.setInsertionPointToStart(&branch.getElseRegion().front());
  scf::YieldOp::create(builder, loc, otherwise);
  return Values(branch.getResults());
}

GridBuilder::Values GridBuilder::loop(Value begin, Value end, int64_t step, ValueRange carried,
                                      llvm::function_ref<Values(Value, ValueRange)> body) {
  auto loop = scf::ForOp::create(builder, loc, begin, end, number(step), carried);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  if (carried.empty()) {
    body(loop.getInductionVar(), {});
  } else {
    Values next = body(loop.getInductionVar(), loop.getRegionIterArgs());
    scf::YieldOp::create(builder, loc, next);
  }
  return Values(loop.getResults());
}

Value GridBuilder::number(int64_t value) { return constant(builder.getI64IntegerAttr(value)); }
Value GridBuilder::constant(TypedAttr value) { return arith::ConstantOp::create(builder, loc, value); }
Value GridBuilder::sum(Value a, Value b) { return builder.createOrFold<arith::AddIOp>(loc, a, b); }
Value GridBuilder::difference(Value a, Value b) { return builder.createOrFold<arith::SubIOp>(loc, a, b); }
Value GridBuilder::product(Value a, Value b) { return builder.createOrFold<arith::MulIOp>(loc, a, b); }
Value GridBuilder::quotient(Value a, Value b) { return builder.createOrFold<arith::DivUIOp>(loc, a, b); }
Value GridBuilder::remainder(Value a, Value b) { return builder.createOrFold<arith::RemUIOp>(loc, a, b); }
// a / b = (a * m) >> (31 + l), where l is the number of bits of b - 1 and m = 2^(31 + l) / b, rounded up: m has 32
// bits, as b is more than half of 2^l, and the error of m, times a, stays below 2^(31 + l) / b (Granlund and
// Montgomery, "Division by Invariant Integers using Multiplication", theorem 4.2). The product has 63 bits.
Value GridBuilder::quotient(Value a, int64_t b, int64_t below) {
  if (below > int64_t(1) << 31 || b >= int64_t(1) << 31 || llvm::isPowerOf2_64(static_cast<uint64_t>(b)))
    return quotient(a, number(b));
  const unsigned bits = 31 + llvm::Log2_64_Ceil(static_cast<uint64_t>(b));
  const uint64_t multiplier = ((uint64_t(1) << bits) - 1) / static_cast<uint64_t>(b) + 1;
  Value scaled = builder.createOrFold<arith::MulIOp>(loc, a, number(static_cast<int64_t>(multiplier)));
  return builder.createOrFold<arith::ShRUIOp>(loc, scaled, number(bits));
}
Value GridBuilder::remainder(Value a, int64_t b, int64_t below) {
  if (below > int64_t(1) << 31 || b >= int64_t(1) << 31 || llvm::isPowerOf2_64(static_cast<uint64_t>(b)))
    return remainder(a, number(b));
  return difference(a, product(quotient(a, b, below), b));
}
Value GridBuilder::minimum(Value a, Value b) { return builder.createOrFold<arith::MinSIOp>(loc, a, b); }
Value GridBuilder::less(Value a, Value b) {
  return builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, a, b);
}
Value GridBuilder::equal(Value a, Value b) {
  return builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, a, b);
}
Value GridBuilder::both(Value a, Value b) {
  if (!a || !b) return a ? a : b;
  return builder.createOrFold<arith::AndIOp>(loc, a, b);
}
Value GridBuilder::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(builder, loc, condition, a, b);
}

} // namespace cleave::codegen
