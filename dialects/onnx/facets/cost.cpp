// Cost facet: the arithmetic of every core op at its shapes, and its kind (runtime/base/sharding/operation_kind.h). An
// elementwise op counts one operation an element (its time is that of the memory it touches), a multiply-add two,
// movement none.
#include "dialects/onnx/formula.h"

namespace cleave::onnx {
namespace {

double elements(mlir::Value value) {
  double count = 1;
  for (int64_t size : llvm::cast<mlir::RankedTensorType>(value.getType()).getShape())
    count *= static_cast<double>(size);
  return count;
}

// A convolution visits, for every element of y, the kernel over the input channels of one group. `w` and `y` by shape.
double convolution(llvm::ArrayRef<int64_t> w, double resultElements) {
  double window = 1;
  for (int64_t size : w.drop_front()) window *= static_cast<double>(size);
  return 2 * window * resultElements;
}

double window(llvm::ArrayRef<int64_t> kernel) {
  double count = 1;
  for (int64_t size : kernel) count *= static_cast<double>(size);
  return count;
}

} // namespace

#define ONE_PER_ELEMENT(OP)                                                                                            \
  double OP::getFlops() { return elements(getY()); }
ONE_PER_ELEMENT(NegOp)
ONE_PER_ELEMENT(AbsOp)
ONE_PER_ELEMENT(SignOp)
ONE_PER_ELEMENT(ExpOp)
ONE_PER_ELEMENT(LogOp)
ONE_PER_ELEMENT(Log1pOp)
ONE_PER_ELEMENT(SqrtOp)
ONE_PER_ELEMENT(RsqrtOp)
ONE_PER_ELEMENT(ReciprocalOp)
ONE_PER_ELEMENT(TanhOp)
ONE_PER_ELEMENT(SigmoidOp)
ONE_PER_ELEMENT(ErfOp)
ONE_PER_ELEMENT(SinOp)
ONE_PER_ELEMENT(CosOp)
ONE_PER_ELEMENT(FloorOp)
ONE_PER_ELEMENT(CeilOp)
ONE_PER_ELEMENT(RoundOp)
ONE_PER_ELEMENT(ReluOp)
ONE_PER_ELEMENT(NotOp)
ONE_PER_ELEMENT(IsNaNOp)
ONE_PER_ELEMENT(IsInfOp)
ONE_PER_ELEMENT(CastOp)
ONE_PER_ELEMENT(AddOp)
ONE_PER_ELEMENT(SubOp)
ONE_PER_ELEMENT(MulOp)
ONE_PER_ELEMENT(DivOp)
ONE_PER_ELEMENT(PowOp)
ONE_PER_ELEMENT(MaxOp)
ONE_PER_ELEMENT(MinOp)
ONE_PER_ELEMENT(ModOp)
ONE_PER_ELEMENT(AndOp)
ONE_PER_ELEMENT(OrOp)
ONE_PER_ELEMENT(XorOp)
ONE_PER_ELEMENT(EqualOp)
ONE_PER_ELEMENT(LessOp)
ONE_PER_ELEMENT(LessOrEqualOp)
ONE_PER_ELEMENT(GreaterOp)
ONE_PER_ELEMENT(GreaterOrEqualOp)
ONE_PER_ELEMENT(WhereOp)
ONE_PER_ELEMENT(RandomUniformOp)
#undef ONE_PER_ELEMENT

#define NO_ARITHMETIC(OP)                                                                                              \
  double OP::getFlops() { return 0; }
NO_ARITHMETIC(StopGradientOp)
NO_ARITHMETIC(ConstantOp)
NO_ARITHMETIC(IotaOp)
NO_ARITHMETIC(ReshapeOp)
NO_ARITHMETIC(TransposeOp)
NO_ARITHMETIC(BroadcastOp)
NO_ARITHMETIC(SliceOp)
NO_ARITHMETIC(PadOp)
NO_ARITHMETIC(ConcatOp)
NO_ARITHMETIC(RollOp)
NO_ARITHMETIC(GatherOp)
#undef NO_ARITHMETIC

double ScatterAddOp::getFlops() { return elements(getUpdates()); }
double CumSumOp::getFlops() { return elements(getX()); }
double ReduceSumOp::getFlops() { return elements(getX()); }
double ReduceMaxOp::getFlops() { return elements(getX()); }
double ReduceMinOp::getFlops() { return elements(getX()); }
double SumOp::getFlops() { return elements(getY()) * static_cast<double>(getXs().size() - 1); }

double ContractOp::getFlops() {
  double contracted = 1;
  for (auto [letter, size] : llvm::zip_equal(getLhsIndices(), tensorType(getLhs()).getShape()))
    if (!llvm::is_contained(getResultIndices(), letter)) contracted *= static_cast<double>(size);
  return 2 * contracted * elements(getY());
}

// Every row is multiplied by one group's matrix.
double GroupedContractOp::getFlops() {
  double flops = 2;
  llvm::SmallDenseSet<int64_t> counted{static_cast<int64_t>(getGroupIndex())};
  for (auto [indices, operand] : {std::pair{getLhsIndices(), getLhs()}, {getRhsIndices(), getRhs()}})
    for (auto [index, size] : llvm::zip_equal(indices, tensorType(operand).getShape()))
      if (counted.insert(index).second) flops *= static_cast<double>(size);
  return flops;
}

double ConvOp::getFlops() { return convolution(tensorType(getW()).getShape(), elements(getY())); }
double ConvGradInputOp::getFlops() { return convolution(tensorType(getW()).getShape(), elements(getDy())); }
double ConvGradWeightOp::getFlops() { return convolution(tensorType(getDw()).getShape(), elements(getDy())); }
double MaxPoolOp::getFlops() { return window(getKernel()) * elements(getY()); }
double MaxPoolGradOp::getFlops() { return window(getKernel()) * elements(getDy()); }
double AveragePoolOp::getFlops() { return window(getKernel()) * elements(getY()); }
double AveragePoolGradOp::getFlops() { return window(getKernel()) * elements(getDy()); }

// 2 matmuls forward; 5 backward, where the scores are recomputed.
// A library skips the blocks above the causal diagonal, so half remain. Layout: [batch, sequence, heads, features].
static double attentionFlops(mlir::Value query, mlir::Value key, double products, bool causal) {
  double flops = products * 2 * elements(query) * static_cast<double>(tensorType(key).getShape()[1]);
  return causal ? flops / 2 : flops;
}
double ScaledAttentionOp::getFlops() { return attentionFlops(getQuery(), getKey(), 2, getCausal()); }
double ScaledAttentionGradOp::getFlops() { return attentionFlops(getQuery(), getKey(), 5, getCausal()); }

using dist::ElementWork;
using dist::Form;
using dist::OperationKind;

#define KIND(OP, FORM, WORK)                                                                                           \
  OperationKind OP::getKind() { return {Form::FORM, ElementWork::WORK}; }

#define ARITHMETIC(OP) KIND(OP, Elementwise, Arithmetic)
ARITHMETIC(NegOp)
ARITHMETIC(AbsOp)
ARITHMETIC(SignOp)
ARITHMETIC(FloorOp)
ARITHMETIC(CeilOp)
ARITHMETIC(RoundOp)
ARITHMETIC(ReluOp)
ARITHMETIC(NotOp)
ARITHMETIC(IsNaNOp)
ARITHMETIC(IsInfOp)
ARITHMETIC(SubOp)
ARITHMETIC(MulOp)
ARITHMETIC(MaxOp)
ARITHMETIC(MinOp)
ARITHMETIC(AndOp)
ARITHMETIC(OrOp)
ARITHMETIC(XorOp)
ARITHMETIC(EqualOp)
ARITHMETIC(LessOp)
ARITHMETIC(LessOrEqualOp)
ARITHMETIC(GreaterOp)
ARITHMETIC(GreaterOrEqualOp)
ARITHMETIC(WhereOp)
ARITHMETIC(ConstantOp)
ARITHMETIC(PadOp)
ARITHMETIC(RollOp)
ARITHMETIC(ScatterAddOp)
#undef ARITHMETIC

KIND(DivOp, Elementwise, Division)
KIND(ModOp, Elementwise, Division)
KIND(SqrtOp, Elementwise, Division)
KIND(RsqrtOp, Elementwise, Division)
KIND(ReciprocalOp, Elementwise, Division)

KIND(ExpOp, Elementwise, Function)
KIND(LogOp, Elementwise, Function)
KIND(Log1pOp, Elementwise, Function)
KIND(TanhOp, Elementwise, Function)
KIND(SigmoidOp, Elementwise, Function)
KIND(ErfOp, Elementwise, Function)
KIND(SinOp, Elementwise, Function)
KIND(CosOp, Elementwise, Function)
KIND(PowOp, Elementwise, Function)

KIND(ReduceSumOp, Elementwise, Reduction)
KIND(ReduceMaxOp, Elementwise, Reduction)
KIND(ReduceMinOp, Elementwise, Reduction)
KIND(CumSumOp, Elementwise, Reduction)
KIND(RandomUniformOp, Elementwise, Random)

KIND(AddOp, Accumulation, Arithmetic)
KIND(SumOp, Accumulation, Arithmetic)
KIND(CastOp, Cast, Arithmetic)

KIND(ReshapeOp, Reshape, Arithmetic)
KIND(BroadcastOp, Broadcast, Arithmetic)
KIND(IotaOp, Iota, Arithmetic)
KIND(StopGradientOp, Identity, Arithmetic)
KIND(TransposeOp, Transpose, Arithmetic)
KIND(SliceOp, Slice, Arithmetic)
KIND(ConcatOp, Concat, Arithmetic)
KIND(GatherOp, Gather, Arithmetic)
KIND(MaxPoolOp, Pool, Window)
KIND(AveragePoolOp, Pool, Window)
KIND(MaxPoolGradOp, Pool, Window)
KIND(AveragePoolGradOp, Pool, Window)

KIND(ContractOp, Product, Arithmetic)
KIND(GroupedContractOp, Product, Arithmetic)
KIND(ScaledAttentionOp, Product, Arithmetic)
KIND(ScaledAttentionGradOp, Product, Arithmetic)
KIND(ConvOp, Convolution, Arithmetic)
KIND(ConvGradInputOp, TransposedConvolution, Arithmetic)
KIND(ConvGradWeightOp, Product, Arithmetic)

#undef KIND

} // namespace cleave::onnx
