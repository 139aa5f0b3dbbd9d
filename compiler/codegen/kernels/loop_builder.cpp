#include "compiler/codegen/kernels/loop_builder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
namespace cleave::codegen {

// Loops of so many iterations LLVM would unroll before it vectorizes, and then make scalar code of a row's elements
// with their mask beside them. Shorter ones it does not vectorize: unrolled, what lies side by side is found in them.
// Unrolling longer ones would make too much code; it must be allowed there, or several vectors would not take turns.
static bool isFewVectors(Value begin, Value end) {
  constexpr int64_t fewest = 16, most = 128;
  APInt first, last;
  if (!matchPattern(begin, m_ConstantInt(&first)) || !matchPattern(end, m_ConstantInt(&last))) return false;
  int64_t length = last.getSExtValue() - first.getSExtValue();
  return length >= fewest && length <= most;
}

LoopBuilder::LoopBuilder(Location loc, ModuleOp module, StringRef symbol)
    : loc(loc), builder(module.getContext()), entryBuilder(module.getContext()) {
  MLIRContext *context = module.getContext();
  Type i64 = builder.getI64Type(), pointer = LLVM::LLVMPointerType::get(context);
  builder.setInsertionPointToEnd(module.getBody());
  function = LLVM::LLVMFuncOp::create(
      builder, loc, symbol,
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {i64, i64, pointer, pointer}));
  Block *entryBlock = function.addEntryBlock(builder);
  Block *body = new Block;
  function.getBody().push_back(body);
  entryBuilder.setInsertionPointToEnd(entryBlock);
  auto jump = LLVM::BrOp::create(entryBuilder, loc, body);
  entryBuilder.setInsertionPoint(jump);
  builder.setInsertionPointToEnd(body);

  accesses = LLVM::AccessGroupAttr::get(context);
  auto annotation = [&](LLVM::LoopVectorizeAttr vectorize, bool unrolls, ArrayRef<LLVM::AccessGroupAttr> groups) {
    auto unroll = LLVM::LoopUnrollAttr::get(context, builder.getBoolAttr(true), {}, {}, {}, {}, {}, {});
    return LLVM::LoopAnnotationAttr::get(context, {}, vectorize, {}, unrolls ? LLVM::LoopUnrollAttr() : unroll, {}, {},
                                         {}, {}, {}, {}, builder.getBoolAttr(true), {}, {}, {}, groups);
  };
  auto vectorize = [&](bool disable, LLVM::LoopAnnotationAttr after) {
    return LLVM::LoopVectorizeAttr::get(context, builder.getBoolAttr(disable), {}, {}, {}, {}, {}, after);
  };
  auto vectorized =
      LLVM::LoopAnnotationAttr::get(context, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, builder.getBoolAttr(true),
                                    /*isVectorized=*/builder.getBoolAttr(true), {}, {}, {accesses});
  parallelLoop = annotation(vectorize(false, {}), true, {accesses});
  fewVectorsLoop = annotation(vectorize(false, vectorized), false, {accesses});
  orderedLoop = annotation(vectorize(true, {}), false, {});
}

Type LoopBuilder::typeInMemory(Type element) const {
  return element.isInteger(1) ? IntegerType::get(element.getContext(), 8) : element;
}

Value LoopBuilder::buffer(int64_t number) {
  Value &known = buffers[number];
  if (known) return known;
  Type pointer = LLVM::LLVMPointerType::get(loc.getContext());
  Value slot = LLVM::GEPOp::create(entryBuilder, loc, pointer, pointer, function.getArgument(2),
                                   ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(number)});
  return known = LLVM::LoadOp::create(entryBuilder, loc, pointer, slot);
}

Value LoopBuilder::scalar(int64_t number) {
  Type i64 = builder.getI64Type();
  Value slot = LLVM::GEPOp::create(entryBuilder, loc, LLVM::LLVMPointerType::get(loc.getContext()), i64,
                                   function.getArgument(3), ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(number)});
  return LLVM::LoadOp::create(entryBuilder, loc, i64, slot);
}

Value LoopBuilder::array(Type element, int64_t count) {
  Value size = arith::ConstantOp::create(entryBuilder, loc, entryBuilder.getI64IntegerAttr(count));
  return LLVM::AllocaOp::create(entryBuilder, loc, LLVM::LLVMPointerType::get(loc.getContext()), typeInMemory(element),
                                size, /*alignment=*/64);
}

Value LoopBuilder::open(Value begin, Value end, bool isParallel) {
  Region &region = function.getBody();
  Block *header = new Block, *body = new Block, *exit = new Block;
  region.push_back(header);
  region.push_back(body);
  region.push_back(exit);
  Value index = header->addArgument(builder.getI64Type(), loc);
  LLVM::BrOp::create(builder, loc, ValueRange{begin}, header);
  builder.setInsertionPointToEnd(header);
  Value more = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, index, end);
  LLVM::CondBrOp::create(builder, loc, more, body, exit);
  builder.setInsertionPointToEnd(body);
  loops.push_back({header, exit, index,
                   !isParallel                ? orderedLoop
                   : isFewVectors(begin, end) ? fewVectorsLoop
                                              : parallelLoop});
  return index;
}

void LoopBuilder::close() {
  Loop loop = loops.pop_back_val();
  Value next = sum(loop.index, number(1));
  auto latch = LLVM::BrOp::create(builder, loc, ValueRange{next}, loop.header);
  latch.setLoopAnnotationAttr(loop.annotation);
  builder.setInsertionPointToEnd(loop.exit);
}

void LoopBuilder::finish() { LLVM::ReturnOp::create(builder, loc, ValueRange{}); }

Value LoopBuilder::address(OpBuilder &at, Value memory, Type element, Value index) {
  return LLVM::GEPOp::create(at, loc, LLVM::LLVMPointerType::get(loc.getContext()), typeInMemory(element), memory,
                             ValueRange{index}, LLVM::GEPNoWrapFlags::inbounds);
}

Value LoopBuilder::load(OpBuilder &at, Value memory, Type element, Value index, bool inParallelLoop) {
  auto load = LLVM::LoadOp::create(at, loc, typeInMemory(element), address(at, memory, element, index));
  if (inParallelLoop) load.setAccessGroupsAttr(builder.getArrayAttr({accesses}));
  if (!element.isInteger(1)) return load;
  Value zero = arith::ConstantOp::create(at, loc, at.getI8IntegerAttr(0));
  return arith::CmpIOp::create(at, loc, arith::CmpIPredicate::ne, load, zero);
}

void LoopBuilder::store(Value value, Value memory, Value index, bool inParallelLoop) {
  Type element = value.getType();
  Value target = address(builder, memory, element, index);
  if (element.isInteger(1)) value = arith::ExtUIOp::create(builder, loc, builder.getI8Type(), value);
  auto store = LLVM::StoreOp::create(builder, loc, value, target);
  if (inParallelLoop) store.setAccessGroupsAttr(builder.getArrayAttr({accesses}));
}

Value LoopBuilder::number(int64_t value) {
  return arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(value));
}
Value LoopBuilder::sum(Value a, Value b) { return builder.createOrFold<arith::AddIOp>(loc, a, b); }
Value LoopBuilder::difference(Value a, Value b) { return builder.createOrFold<arith::SubIOp>(loc, a, b); }
Value LoopBuilder::product(Value a, int64_t b) { return builder.createOrFold<arith::MulIOp>(loc, a, number(b)); }
Value LoopBuilder::quotient(Value a, int64_t b) { return builder.createOrFold<arith::DivUIOp>(loc, a, number(b)); }
Value LoopBuilder::remainder(Value a, int64_t b) { return builder.createOrFold<arith::RemUIOp>(loc, a, number(b)); }
Value LoopBuilder::minimum(Value a, Value b) { return builder.createOrFold<arith::MinSIOp>(loc, a, b); }

} // namespace cleave::codegen
