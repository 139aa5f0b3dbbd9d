// Cost facet, second half: what every core op is (compiler/sharding/operation_kind.h). Its arithmetic is in
// cost_core.cpp.
#include "dialects/onnx/Onnx.h"

namespace cleave::onnx {

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
ARITHMETIC(MaxPoolGradOp)
ARITHMETIC(AveragePoolGradOp)
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

KIND(ContractOp, Product, Arithmetic)
KIND(ScaledAttentionOp, Product, Arithmetic)
KIND(ScaledAttentionGradOp, Product, Arithmetic)
KIND(ConvOp, Convolution, Arithmetic)
KIND(ConvGradInputOp, TransposedConvolution, Arithmetic)
KIND(ConvGradWeightOp, Product, Arithmetic)

#undef KIND

bool isHeavy(mlir::Operation *op) {
  auto cost = llvm::dyn_cast<CostOpInterface>(op);
  return cost && cost.getKind().isHeavy();
}

} // namespace cleave::onnx
