#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/lower_contract.h"
#include "compiler/codegen/commands/strided_view.h"
#include "compiler/codegen/cuda/sampled_values.h"
#include "compiler/codegen/kernels/kernels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "runtime/base/gelu.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>

namespace cleave::codegen {
#define GEN_PASS_DEF_FOLDEPILOGUES
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
Type elementOf(Value value) { return typeOf(value).getElementType(); }

// Constants of a model are given in fp32 at best: 1e-5 of the largest value. GELU by erf is 5e-4 away.
bool same(const Samples &a, const Samples &b) {
  double most = 0, apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(b[i]));
    apart = std::max(apart, std::abs(a[i] - b[i])); // of a NaN: not larger, but then most is NaN too
  }
  return std::isfinite(most) && apart <= 1e-5 * most && llvm::all_of(a, [](double x) { return std::isfinite(x); });
}
Samples samplePoints() {
  Samples points;
  for (int i = 0; i < 24; ++i) points.push_back(-4.6 + 0.4 * i + 0.03 * (i * i % 7));
  return points;
}
Samples sampleFactors() {
  Samples factors;
  for (int i = 0; i < 24; ++i) factors.push_back((i * 7 % 11) - 5.3);
  return factors;
}

// The result of a cast to fp32 if that is the only use of the value, else the value.
Value afterWidening(Value value) {
  if (!value.hasOneUse()) return value;
  auto cast = dyn_cast<onnx::CastOp>(*value.user_begin());
  return cast && elementOf(cast.getY()).isF32() ? cast.getY() : value;
}

// Added along the last dimensions of another value: the tensor that is, else null.
Value biasIn(Value value) {
  auto broadcast = value.getDefiningOp<onnx::BroadcastOp>();
  if (!broadcast) return {};
  int64_t rank = typeOf(value).getRank(), own = typeOf(broadcast.getX()).getRank();
  if (own == 0 || own == rank) return {};
  for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
    if (dim != rank - own + int64_t(i) || typeOf(broadcast.getX()).getDimSize(i) != typeOf(value).getDimSize(dim))
      return {};
  return broadcast.getX();
}

bool isDefinedBefore(Value value, Operation *op) {
  Operation *def = value.getDefiningOp();
  return !def || def->isBeforeInBlock(op);
}

// Does an operation outside kernels (a product, a collective, a copy) read it from memory, perhaps through views and
// casts?
bool isReadOutsideKernels(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    if (isa<onnx::SliceOp, onnx::ReshapeOp, onnx::TransposeOp, onnx::CastOp>(user))
      return isReadOutsideKernels(user->getResult(0));
    return !isClusterOp(user);
  });
}

struct Epilogue {
  Value bias = {}, preActivation = {};
  StringRef activation = {}, sumOf = {};
  bool keepsPreActivation = false;
};

// The same command with an epilogue, in its place; `more` are the types of its other results.
plan::ContractCommandOp rebuild(plan::ContractCommandOp from, const Epilogue &epilogue, TypeRange more) {
  OpBuilder builder(from);
  auto text = [&](StringRef value) { return value.empty() ? StringAttr() : builder.getStringAttr(value); };
  auto made = plan::ContractCommandOp::create(
      builder, from.getLoc(), from.getY().getType(), more, from.getLhs(), from.getRhs(), epilogue.bias,
      epilogue.preActivation, /*sum=*/Value(), from.getBatchAttr(), from.getMAttr(), from.getNAttr(), from.getKAttr(),
      from.getLhsStridesAttr(), from.getRhsStridesAttr(), from.getOutStridesAttr(), from.getLhsOffsetAttr(),
      from.getRhsOffsetAttr(), from.getRhsIsParameterAttr(), text(epilogue.activation),
      epilogue.keepsPreActivation ? builder.getUnitAttr() : UnitAttr(), text(epilogue.sumOf));
  for (NamedAttribute attribute : from->getDiscardableAttrs())
    made->setDiscardableAttr(attribute.getName(), attribute.getValue());
  from.getY().replaceAllUsesWith(made.getY());
  from.erase();
  return made;
}

Value castTo(OpBuilder &builder, Operation *origin, Value value, Type element) {
  if (elementOf(value) == element) return value;
  auto cast = onnx::CastOp::create(builder, origin->getLoc(), value, element);
  place::copy(origin, cast);
  return cast.getY();
}

// Replaces `value` by `made`, which may have fewer bits: a cast of `value` to the type of `made` is replaced as well.
void replaceValue(Value value, Value made) {
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfter(made.getDefiningOp());
  for (Operation *user : value.getUsers())
    if (auto cast = dyn_cast<onnx::CastOp>(user); cast && elementOf(cast.getY()) == elementOf(made))
      cast.getY().replaceAllUsesWith(made);
  value.replaceAllUsesWith(castTo(builder, value.getDefiningOp(), made, elementOf(value)));
}

// Keeps on the command the operations that its activation stands for: those that `result` is made of, from `inputs` on.
LogicalResult recordActivation(plan::ContractCommandOp command, ValueRange inputs, Value result) {
  SetVector<Operation *> made;
  SmallVector<Value> open{result};
  while (!open.empty()) {
    const Value value = open.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (llvm::is_contained(inputs, value) || !op || !made.insert(op)) continue;
    llvm::append_range(open, op->getOperands());
  }
  Block block;
  IRMapping copies;
  for (Value input : inputs) copies.map(input, block.addArgument(input.getType(), input.getLoc()));
  OpBuilder builder(command.getContext());
  builder.setInsertionPointToEnd(&block);
  SmallVector<Operation *> ordered(made.begin(), made.end());
  llvm::sort(ordered, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : ordered) builder.clone(*op, copies);
  func::ReturnOp::create(builder, result.getLoc(), copies.lookup(result));
  return recordOperations(block, "activation", command);
}

// The first value of `u`'s elements that has the expected samples.
Value valueThatIs(const SampledValues &values, Value u, const Samples &expected) {
  Value first;
  for (Value found : values.followed())
    if (found.getType() == u.getType() && same(*values.of(found), expected) &&
        (!first || found.getDefiningOp()->isBeforeInBlock(first.getDefiningOp())))
      first = found;
  return first;
}

class EpilogueFolder {
public:
  EpilogueFolder(Block &block, const SymbolTable &symbols) : block(block), symbols(symbols) {}

  LogicalResult run() {
    const SmallVector<onnx::ContractOp> contracts(block.getOps<onnx::ContractOp>()); // they stay until eraseDead
    for (onnx::ContractOp contract : contracts) foldBias(contract);
    for (Activated &one : activated) {
      for (onnx::ContractOp contract : contracts) foldGradient(one, contract);
      replaceValue(one.gelu, one.product.getY());
      replaceValue(one.u, one.product.getMore().front());
    }
    eraseDead();
    for (onnx::ReduceSumOp sum : SmallVector<onnx::ReduceSumOp>(block.getOps<onnx::ReduceSumOp>())) foldSum(sum);
    eraseDead();
    for (Activated &one : activated)
      if (one.product.getMore().front().use_empty())
        rebuild(one.product, {.bias = one.product.getBias(), .activation = "gelu"}, {});
    return failure(failures);
  }

private:
  struct Activated {
    plan::ContractCommandOp product;
    Value u, gelu; // of the graph: what GELU is applied to, and its result
  };

  void foldBias(onnx::ContractOp contract) {
    Value widened = afterWidening(contract.getY());
    if (!contract.getY().hasOneUse() || !widened.hasOneUse()) return;
    auto add = dyn_cast<onnx::AddOp>(*widened.user_begin());
    if (!add || !isa<FloatType>(elementOf(widened)) || elementOf(widened).isF64()) return;
    Value bias = biasIn(add.getA() == widened ? add.getB() : add.getA());
    if (!bias) return;
    Value preActivation = add.getY(), gelu = geluOf(preActivation);
    if (!gelu && !isReadOutsideKernels(preActivation)) return;
    // At the Add, because the bias may come after the Contract.
    LoweredProduct lowered(OpBuilder(add), contract, symbols);
    plan::ContractCommandOp product = lowered.get();
    if (!product || product.getOutStrides().back() != 1 || product.getN() != uint64_t(typeOf(bias).getNumElements()) ||
        (gelu && !keepsPreActivation(product)))
      return lowered.undo();
    OpBuilder builder(product);
    Epilogue epilogue{.bias = castTo(builder, add, bias, elementOf(product.getY()))};
    if (!gelu) {
      replaceValue(preActivation, rebuild(product, epilogue, {}).getY());
      return;
    }
    epilogue.activation = "gelu";
    epilogue.keepsPreActivation = true;
    // The Add and GELU stay until foldGradient has searched the graph for their gradients.
    product = rebuild(product, epilogue, product.getY().getType());
    failures |= failed(recordActivation(product, preActivation, gelu));
    activated.push_back({product, preActivation, gelu});
  }

  // cuBLASLt wants rows of a multiple of 8 elements for it (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), in one matrix.
  static bool keepsPreActivation(plan::ContractCommandOp product) {
    return product.getBatch().empty() && product.getN() % 8 == 0 && product.getOutStrides()[0] % 8 == 0;
  }

  Value geluOf(Value u) {
    SampledValues values;
    Samples points = samplePoints(), expected;
    for (double x : points) expected.push_back(runtime::gelu(x));
    values.seed(u, points);
    values.follow(block);
    return valueThatIs(values, u, expected);
  }

  // A product whose result is used for nothing but itself times GELU's derivative.
  void foldGradient(Activated &one, onnx::ContractOp contract) {
    Value d = afterWidening(contract.getY());
    if (d.getType() != one.u.getType() || contract.getY().getType() != one.product.getY().getType() ||
        contract->isBeforeInBlock(one.product))
      return;
    SampledValues values;
    Samples points = samplePoints(), factors = sampleFactors(), expected;
    for (auto [point, factor] : llvm::zip_equal(points, factors))
      expected.push_back(factor * runtime::geluDerivative(point));
    values.seed(one.u, points);
    values.seed(d, factors);
    values.follow(block);
    Value x = valueThatIs(values, one.u, expected);
    if (!x || !goesOnlyInto(x, d)) return;
    LoweredProduct lowered(OpBuilder(contract), contract, symbols);
    plan::ContractCommandOp product = lowered.get();
    if (!product || !keepsPreActivation(product) || product.getOutStrides() != one.product.getOutStrides() ||
        product.getN() != one.product.getN())
      return lowered.undo();
    Epilogue epilogue{.preActivation = one.product.getMore().front(), .activation = "gelu_gradient"};
    product = rebuild(product, epilogue, {});
    failures |= failed(recordActivation(product, {d, one.u}, x));
    replaceValue(x, product.getY());
  }
  static bool goesOnlyInto(Value x, Value from) {
    if (from == x) return true;
    return llvm::all_of(from.getUsers(), [&](Operation *user) {
      return isa<onnx::MulOp, onnx::AddOp, onnx::SubOp, onnx::SumOp, onnx::NegOp, onnx::DivOp, onnx::CastOp>(user) &&
             !user->use_empty() && goesOnlyInto(x, user->getResult(0));
    });
  }

  // The sum of an operand of a product over the same indices: a bias' gradient, beside its weight's.
  void foldSum(onnx::ReduceSumOp sum) {
    SmallVector<Value> sources{sum.getX()};
    if (auto cast = sum.getX().getDefiningOp<onnx::CastOp>()) sources.push_back(cast.getX());
    for (Operation *user : sum.getX().getUsers())
      if (auto cast = dyn_cast<onnx::CastOp>(user)) sources.push_back(cast.getY());
    for (Value source : sources)
      for (Operation *user : SmallVector<Operation *>(source.getUsers()))
        if (auto contract = dyn_cast<onnx::ContractOp>(user))
          if (foldSum(sum, source, contract)) return;
  }
  bool foldSum(onnx::ReduceSumOp sum, Value source, onnx::ContractOp contract) {
    bool isLeft = contract.getLhs() == source;
    if (contract.getLhs() == contract.getRhs() || elementOf(contract.getY()) != elementOf(sum.getY()) ||
        !isa<FloatType>(elementOf(sum.getY())))
      return false;
    ArrayRef<int64_t> indices = isLeft ? contract.getLhsIndices() : contract.getRhsIndices(),
                      others = isLeft ? contract.getRhsIndices() : contract.getLhsIndices();
    SmallVector<int64_t> contracted;
    for (auto [dim, index] : llvm::enumerate(indices)) {
      bool isKept = llvm::is_contained(contract.getResultIndices(), index);
      if (isKept && llvm::is_contained(others, index)) return false; // a batch index
      if (!isKept) contracted.push_back(int64_t(dim));
    }
    if (contracted.empty() || ArrayRef<int64_t>(contracted) != sum.getAxes()) return false;
    Operation *place = sum->isBeforeInBlock(contract) ? sum.getOperation() : contract.getOperation();
    if (!isDefinedBefore(contract.getLhs(), place) || !isDefinedBefore(contract.getRhs(), place)) return false;
    LoweredProduct lowered(OpBuilder(place), contract, symbols);
    plan::ContractCommandOp product = lowered.get();
    StringRef side = product ? sideOf(product, source, contracted) : "";
    if (side.empty()) {
      lowered.undo();
      return false;
    }
    product = rebuild(product, {.sumOf = side}, sum.getY().getType());
    contract.getY().replaceAllUsesWith(product.getY());
    sum.getY().replaceAllUsesWith(product.getMore().front());
    contract.erase();
    return true;
  }
  // Which operand of the command is the value whose dimensions `contracted` are summed; none if its other elements do
  // not run as those of the sum do.
  static StringRef sideOf(plan::ContractCommandOp product, Value source, ArrayRef<int64_t> contracted) {
    StridedView view = viewOf(source);
    int64_t count = 1;
    for (auto [dim, size] : llvm::enumerate(view.sizes))
      if (!llvm::is_contained(contracted, int64_t(dim))) count *= size;
    bool isRhs = product.getRhs() == view.base && int64_t(product.getN()) == count,
         isLhs = product.getLhs() == view.base && int64_t(product.getM()) == count;
    if (isRhs == isLhs || !product.getBatch().empty()) return "";
    int64_t expected = isRhs ? product.getRhsStrides()[1] : product.getLhsStrides()[0];
    for (int64_t dim = int64_t(view.sizes.size()); dim-- > 0;) {
      if (llvm::is_contained(contracted, dim) || view.sizes[dim] == 1) continue;
      if (view.strides[dim] != expected) return "";
      expected *= view.sizes[dim];
    }
    return isRhs ? "rhs" : "lhs";
  }

  void eraseDead() {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op)) op.erase();
  }

  Block &block;
  const SymbolTable &symbols;
  SmallVector<Activated> activated;
  bool failures = false;
};

struct FoldEpilogues : impl::FoldEpiloguesBase<FoldEpilogues> {
  void runOnOperation() override {
    const SymbolTable symbols(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && function.getName() != "model" &&
          failed(EpilogueFolder(function.front(), symbols).run()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace cleave::codegen
