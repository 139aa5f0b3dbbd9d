#include "compiler/codegen/clusters/kernel_domain.h"
#include "compiler/codegen/kernels/kernel_element.h"
#include "compiler/codegen/kernels/philox.h"
#include "compiler/codegen/passes.h"
#include "dialects/onnx/kinds.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_LOWERKERNELSTOLINALG
#include "compiler/codegen/Passes.h.inc"

namespace {

// A value in factor form: a tensor with one dimension for each factor in `factors`, or a scalar.
struct Element {
  Value value;
  SmallVector<int64_t> factors;
  bool isScalar() const { return !isa<RankedTensorType>(value.getType()); }
};

constexpr int64_t longSum = 256; // terms

class KernelToLinalg {
public:
  explicit KernelToLinalg(plan::KernelOp kernel) : kernel(kernel), builder(kernel.getContext()) {}

  LogicalResult run() {
    Block &block = kernel.getBlock();
    SmallVector<Operation *> ops;
    for (Operation &op : block.without_terminator()) ops.push_back(&op);
    SmallVector<Value> outputs(kernel.getYield().getValues());
    std::optional<KernelDomain> found = KernelDomain::of(ops, outputs);
    if (!found)
      return kernel.emitOpError("its ops cannot share a loop nest; FormClusters must not outline them together");
    domain = std::move(*found);
    builder.setInsertionPoint(kernel.getYield());
    for (Operation *op : ops)
      if (failed(lower(op))) return failure();
    SmallVector<Value> results;
    for (Value output : outputs) results.push_back(store(output));
    kernel.getYield().getValuesMutable().assign(results);
    for (Operation *op : llvm::reverse(ops)) op->erase();
    plan::domainAttr.set(kernel, domain.sizes);
    plan::reducedAttr.set(kernel, list(domain.reduced));
    return success();
  }

private:
  static SmallVector<int64_t> list(FactorSet set) {
    SmallVector<int64_t> factors;
    for (int64_t f = 0; f < 64; ++f)
      if ((set >> f) & 1) factors.push_back(f);
    return factors;
  }
  RankedTensorType factorType(ArrayRef<int64_t> factors, Type element) {
    SmallVector<int64_t> shape;
    for (int64_t f : factors) shape.push_back(domain.sizes[f]);
    return RankedTensorType::get(shape, element);
  }
  // Loops (d0, d1, ...) over `loops` -> the dimensions that `factors` are.
  AffineMap select(ArrayRef<int64_t> loops, ArrayRef<int64_t> factors) {
    SmallVector<AffineExpr> results;
    for (int64_t factor : factors)
      results.push_back(builder.getAffineDimExpr(llvm::find(loops, factor) - loops.begin()));
    return AffineMap::get(loops.size(), 0, results, builder.getContext());
  }
  AffineMap linear(ArrayRef<int64_t> loops, const LinearForm &form) {
    AffineExpr sum = builder.getAffineConstantExpr(form.offset);
    for (auto [i, factor] : llvm::enumerate(loops)) sum = sum + builder.getAffineDimExpr(i) * form.strides[factor];
    return AffineMap::get(loops.size(), 0, sum);
  }
  Value empty(ArrayRef<int64_t> factors, Type element) {
    return tensor::EmptyOp::create(builder, loc, factorType(factors, element).getShape(), element);
  }

  // A generic over `loops`; `body` gets the block's arguments (inputs, then the output).
  Value generic(ArrayRef<int64_t> loops, ArrayRef<Value> inputs, Value init, ArrayRef<AffineMap> maps,
                FactorSet reduced, function_ref<Value(OpBuilder &, ValueRange)> body) {
    SmallVector<utils::IteratorType> iterators;
    for (int64_t factor : loops)
      iterators.push_back((reduced >> factor) & 1 ? utils::IteratorType::reduction : utils::IteratorType::parallel);
    auto op = linalg::GenericOp::create(builder, loc, TypeRange(init.getType()), inputs, init, maps, iterators,
                                        [&](OpBuilder &inner, Location at, ValueRange arguments) {
                                          linalg::YieldOp::create(inner, at, body(inner, arguments));
                                        });
    plan::loopsAttr.set(op, loops);
    return op.getResult(0);
  }

  // The operand's tensor as one row of elements.
  Value flat(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() == 1) return value;
    Value &known = flattened[value];
    if (known) return known;
    auto row = RankedTensorType::get({type.getNumElements()}, type.getElementType());
    if (type.getRank() == 0)
      return known = tensor::ExpandShapeOp::create(builder, loc, row, value, ArrayRef<ReassociationIndices>{});
    ReassociationIndices all = llvm::to_vector<2>(llvm::seq<int64_t>(0, type.getRank()));
    return known = tensor::CollapseShapeOp::create(builder, loc, row, value, ArrayRef<ReassociationIndices>{all});
  }
  Value unflat(Value row, RankedTensorType type) {
    if (type.getRank() == 1) return row;
    if (type.getRank() == 0)
      return tensor::CollapseShapeOp::create(builder, loc, type, row, ArrayRef<ReassociationIndices>{});
    ReassociationIndices all = llvm::to_vector<2>(llvm::seq<int64_t>(0, type.getRank()));
    return tensor::ExpandShapeOp::create(builder, loc, type, row, ArrayRef<ReassociationIndices>{all});
  }
  // A loop that is an index by itself has as many iterations as the row has elements.
  Value beginning(Value row, int64_t count) {
    if (cast<RankedTensorType>(row.getType()).getDimSize(0) == count) return row;
    auto at = [&](int64_t index) { return SmallVector<OpFoldResult>{builder.getIndexAttr(index)}; };
    return tensor::ExtractSliceOp::create(builder, loc, row, at(0), at(count), at(1));
  }
  static Value reinterpret(OpBuilder &inner, Location loc, Value value, Type type) {
    if (value.getType() == type) return value;
    return UnrealizedConversionCastOp::create(inner, loc, type, value).getResult(0);
  }

  // A tensor from outside, read at its linear function.
  Element load(OpOperand &operand) {
    const LinearForm &form = domain.reads[&operand];
    for (auto &[value, known, element] : loads)
      if (value == operand.get() && known->strides == form.strides && known->offset == form.offset) return element;
    SmallVector<int64_t> factors;
    for (size_t f = 0; f < domain.sizes.size(); ++f)
      if (form.strides[f] != 0) factors.push_back(f);
    Type type = elementInKernel(cast<RankedTensorType>(operand.get().getType()).getElementType());
    Value row = flat(operand.get());
    const AffineMap map = linear(factors, form);
    if (isa<AffineDimExpr>(map.getResult(0))) row = beginning(row, domain.sizes[factors[0]]);
    Value value =
        generic(factors, row, empty(factors, type), {map, select(factors, factors)}, 0,
                [&](OpBuilder &inner, ValueRange arguments) { return reinterpret(inner, loc, arguments[0], type); });
    loads.push_back({operand.get(), &form, {value, factors}});
    return loads.back().element;
  }
  Element element(OpOperand &operand) {
    if (auto found = elements.find(operand.get()); found != elements.end()) return found->second;
    return load(operand);
  }

  LogicalResult lower(Operation *op) {
    loc = op->getLoc();
    Value result = op->getResult(0);
    Type type = elementInKernel(cast<RankedTensorType>(result.getType()).getElementType());
    if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
      auto splat = llvm::cast<SplatElementsAttr>(constant.getValue());
      TypedAttr value = isa<FloatType>(type) ? TypedAttr(builder.getFloatAttr(type, splat.getSplatValue<APFloat>()))
                                             : TypedAttr(builder.getIntegerAttr(type, splat.getSplatValue<APInt>()));
      elements[result] = {arith::ConstantOp::create(builder, loc, value), {}};
      return success();
    }
    if (isView(op)) {
      elements[result] = element(op->getOpOperand(0));
      return success();
    }
    if (isReduction(op)) return reduce(op, type);
    SmallVector<int64_t> loops = list(domain.depends[result]);
    if (onnx::isGenerator(op)) {
      elements[result] = {generic(loops, {}, empty(loops, type), {select(loops, loops)}, 0,
                                  [&](OpBuilder &inner, ValueRange) { return generate(inner, op, loops, type); }),
                          loops};
      return success();
    }
    auto lowering = dyn_cast<onnx::LoweringOpInterface>(op);
    SmallVector<Value> inputs;
    SmallVector<AffineMap> maps;
    SmallVector<Element> operands;
    for (OpOperand &operand : op->getOpOperands()) {
      operands.push_back(element(operand));
      if (operands.back().isScalar()) continue;
      inputs.push_back(operands.back().value);
      maps.push_back(select(loops, operands.back().factors));
    }
    maps.push_back(select(loops, loops));
    bool emitted = true;
    Value value = generic(loops, inputs, empty(loops, type), maps, 0, [&](OpBuilder &inner, ValueRange arguments) {
      SmallVector<Value> scalars;
      size_t next = 0;
      for (Element &operand : operands) scalars.push_back(operand.isScalar() ? operand.value : arguments[next++]);
      Value scalar = lowering ? lowering.emitScalar(inner, loc, scalars) : Value();
      emitted = scalar != nullptr;
      return emitted ? scalar : arguments.back();
    });
    if (!emitted) return op->emitOpError("is in a kernel but has no scalar form (facet `lowering`)");
    elements[result] = {value, loops};
    return success();
  }

  LogicalResult reduce(Operation *op, Type type) {
    Element source = element(op->getOpOperand(0));
    SmallVector<int64_t> loops = list(domain.all()), kept = list(domain.all() & ~domain.reduced);
    if (source.isScalar() || source.factors.size() != loops.size()) { // repeat it over the whole domain
      bool isScalar = source.isScalar();
      SmallVector<Value> inputs;
      SmallVector<AffineMap> maps;
      if (!isScalar) {
        inputs.push_back(source.value);
        maps.push_back(select(loops, source.factors));
      }
      maps.push_back(select(loops, loops));
      source.value = generic(loops, inputs, empty(loops, type), maps, 0,
                             [&](OpBuilder &, ValueRange arguments) { return isScalar ? source.value : arguments[0]; });
    }
    bool isSum = isa<onnx::ReduceSumOp>(op), isMax = isa<onnx::ReduceMaxOp>(op);
    bool isUnsigned =
        cast<RankedTensorType>(op->getResult(0).getType()).getElementType().isUnsignedInteger() || type.isInteger(1);
    Type wide = isSum ? typeOfSum(type) : type;
    Value neutral = arith::ConstantOp::create(builder, loc, neutralElement(wide, isSum, isMax, isUnsigned));
    Value init = linalg::FillOp::create(builder, loc, neutral, empty(kept, wide)).getResult(0);
    Value result = generic(loops, source.value, init, {select(loops, loops), select(loops, kept)}, domain.reduced,
                           [&](OpBuilder &inner, ValueRange arguments) {
                             Value x = arguments[0];
                             if (wide != type) x = arith::ExtFOp::create(inner, loc, wide, x);
                             return combine(inner, arguments[1], x, isSum, isMax, isUnsigned);
                           });
    if (wide != type)
      result = generic(kept, result, empty(kept, type), {select(kept, kept), select(kept, kept)}, 0,
                       [&](OpBuilder &inner, ValueRange arguments) -> Value {
                         return arith::TruncFOp::create(inner, loc, type, arguments[0]);
                       });
    elements[op->getResult(0)] = {result, kept};
    return success();
  }
  // A sum along a row is the sum of as many partial sums as vectors have elements, which keeps its error small. A sum
  // down a column adds one term after the other: a long one is kept in f64, which costs nothing where memory is the
  // limit.
  Type typeOfSum(Type type) {
    if (!isa<FloatType>(type) || type.isF64() || domain.reduced == 0) return type;
    int64_t terms = 1;
    for (int64_t factor : list(domain.reduced)) terms *= domain.sizes[factor];
    bool isRow = (domain.reduced >> (domain.sizes.size() - 1)) & 1;
    if (!isRow && terms >= longSum) return builder.getF64Type();
    return type.getIntOrFloatBitWidth() < 32 ? Type(builder.getF32Type()) : type;
  }
  TypedAttr neutralElement(Type type, bool isSum, bool isMax, bool isUnsigned) {
    if (auto floating = dyn_cast<FloatType>(type)) {
      if (isSum) return builder.getFloatAttr(type, 0.0);
      return builder.getFloatAttr(type, APFloat::getInf(floating.getFloatSemantics(), /*Negative=*/isMax));
    }
    unsigned bits = type.getIntOrFloatBitWidth();
    if (isSum) return builder.getIntegerAttr(type, 0);
    if (isUnsigned) return builder.getIntegerAttr(type, isMax ? APInt(bits, 0) : APInt::getMaxValue(bits));
    return builder.getIntegerAttr(type, isMax ? APInt::getSignedMinValue(bits) : APInt::getSignedMaxValue(bits));
  }
  Value combine(OpBuilder &inner, Value sum, Value x, bool isSum, bool isMax, bool isUnsigned) {
    if (isa<FloatType>(x.getType())) {
      // The order of the terms is free; on the CPU it is fixed by the vector width.
      auto sumFlags = arith::FastMathFlagsAttr::get(inner.getContext(),
                                                    arith::FastMathFlags::reassoc | arith::FastMathFlags::contract);
      auto flags =
          arith::FastMathFlagsAttr::get(inner.getContext(), arith::FastMathFlags::reassoc | arith::FastMathFlags::nsz);
      if (isSum) return arith::AddFOp::create(inner, loc, sum, x, sumFlags);
      if (isMax) return arith::MaximumFOp::create(inner, loc, sum, x, flags);
      return arith::MinimumFOp::create(inner, loc, sum, x, flags);
    }
    if (isSum) return arith::AddIOp::create(inner, loc, sum, x);
    if (isUnsigned)
      return isMax ? Value(arith::MaxUIOp::create(inner, loc, sum, x))
                   : Value(arith::MinUIOp::create(inner, loc, sum, x));
    return isMax ? Value(arith::MaxSIOp::create(inner, loc, sum, x))
                 : Value(arith::MinSIOp::create(inner, loc, sum, x));
  }

  // The value of an Iota or RandomUniform at the loops' indices.
  Value generate(OpBuilder &inner, Operation *op, ArrayRef<int64_t> loops, Type type) {
    const LinearForm &form = domain.generators[op];
    Type i64 = inner.getI64Type();
    Value index = arith::ConstantOp::create(inner, loc, inner.getI64IntegerAttr(form.offset));
    for (auto [i, factor] : llvm::enumerate(loops)) {
      Value step = arith::IndexCastOp::create(inner, loc, i64, linalg::IndexOp::create(inner, loc, i));
      if (form.strides[factor] != 1)
        step = arith::MulIOp::create(
            inner, loc, step, arith::ConstantOp::create(inner, loc, inner.getI64IntegerAttr(form.strides[factor])));
      index = arith::AddIOp::create(inner, loc, index, step);
    }
    if (auto scalar = plan::scalarAttr.of(op))
      index = arith::AddIOp::create(inner, loc, index, kernel.getScalarArguments()[*scalar]);
    if (auto random = dyn_cast<onnx::RandomUniformOp>(op)) {
      Value uniform = philoxUniform(inner, loc, keyWord(random, 0), keyWord(random, 1), random.getStream(), index);
      if (type.isF32()) return uniform;
      return type.isF64() ? Value(arith::ExtFOp::create(inner, loc, type, uniform))
                          : Value(arith::TruncFOp::create(inner, loc, type, uniform));
    }
    if (isa<FloatType>(type)) return arith::SIToFPOp::create(inner, loc, type, index);
    if (type.getIntOrFloatBitWidth() < 64) return arith::TruncIOp::create(inner, loc, type, index);
    return index;
  }
  Value keyWord(onnx::RandomUniformOp random, int64_t which) {
    Value &word = keyWords[{random.getKey(), which}];
    if (word) return word;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&kernel.getBlock());
    Value at = arith::ConstantIndexOp::create(builder, loc, which);
    return word = tensor::ExtractOp::create(builder, loc, random.getKey(), at);
  }

  Value store(Value output) {
    auto type = cast<RankedTensorType>(output.getType());
    Element source = elements[output];
    SmallVector<int64_t> loops = list(domain.shape[output]);
    auto row = RankedTensorType::get({type.getNumElements()}, type.getElementType());
    Value init = tensor::EmptyOp::create(builder, loc, row.getShape(), row.getElementType());
    SmallVector<Value> inputs;
    SmallVector<AffineMap> maps;
    // The loops' sizes must follow from the maps: a value that does not depend on all of them is repeated first.
    if (source.isScalar() || source.factors.size() != loops.size()) {
      bool isScalar = source.isScalar();
      Value value = source.value;
      SmallVector<Value> from;
      SmallVector<AffineMap> fromMaps;
      if (!isScalar) {
        from.push_back(value);
        fromMaps.push_back(select(loops, source.factors));
      }
      fromMaps.push_back(select(loops, loops));
      source.value = generic(loops, from, empty(loops, elementInKernel(type.getElementType())), fromMaps, 0,
                             [&](OpBuilder &, ValueRange arguments) { return isScalar ? value : arguments[0]; });
      source.factors = loops;
    }
    inputs.push_back(source.value);
    maps = {select(loops, source.factors), linear(loops, domain.writes[output])};
    Value stored = generic(loops, inputs, init, maps, 0, [&](OpBuilder &inner, ValueRange arguments) {
      return reinterpret(inner, loc, arguments[0], type.getElementType());
    });
    return unflat(stored, type);
  }

  struct Load {
    Value value;
    const LinearForm *form;
    Element element;
  };
  plan::KernelOp kernel;
  OpBuilder builder;
  Location loc = UnknownLoc::get(kernel.getContext());
  KernelDomain domain;
  DenseMap<Value, Element> elements;
  DenseMap<Value, Value> flattened;
  DenseMap<std::pair<Value, int64_t>, Value> keyWords;
  SmallVector<Load> loads;
};

struct LowerKernelsToLinalg : impl::LowerKernelsToLinalgBase<LowerKernelsToLinalg> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<plan::KernelOp>())
      if (!plan::domainAttr.isOn(kernel) && failed(KernelToLinalg(kernel).run())) return signalPassFailure();
  }
};

} // namespace
} // namespace cleave::codegen
