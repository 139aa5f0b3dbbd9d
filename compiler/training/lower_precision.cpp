#include "compiler/training/amp_types.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/keeps_type.h"
#include "dialects/onnx/kinds.h"
#include "mlir/IR/IRMapping.h"
#include "runtime/plan/master_weights.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
namespace cleave::training {
#define GEN_PASS_DEF_LOWERPRECISION
#include "compiler/training/Passes.h.inc"

namespace {

Type elementOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type ? type.getElementType() : Type();
}
Type withElement(Value value, Type element) { return cast<RankedTensorType>(value.getType()).clone(element); }

// The result becomes low; all others read it widened.
void lowerResult(Operation *op, Value result, FloatType low) {
  Type full = elementOf(result);
  result.setType(withElement(result, low));
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  auto wide = onnx::CastOp::create(builder, op->getLoc(), result, full);
  place::copy(op, wide);
  result.replaceAllUsesExcept(wide.getY(), wide);
}

// One function: products become low, casts are put in place.
class FunctionLowering {
public:
  FunctionLowering(func::FuncOp function, FloatType low) : function(function), low(low) {}

  void run() {
    SmallVector<Operation *> products;
    for (Operation &op : function.front())
      if (onnx::isHeavy(&op) && !place::hasPhase(&op, Phase::Update) && isFull(op.getResult(0)) &&
          llvm::all_of(op.getOperands(),
                       [](Value operand) { return isFull(operand) || !onnx::isFloatTensor(operand); }))
        products.push_back(&op);
    for (Operation *op : products)
      if (isa<onnx::ScaledAttentionOp, onnx::ScaledAttentionGradOp>(op))
        lowerAttention(op);
      else
        lowerProduct(op);
    for (Operation &op : llvm::make_early_inc_range(function.front())) sinkWidening(&op);
    bool changed = true;
    while (changed) {
      changed = false;
      SmallVector<Operation *> casts; // the last first, so that what it frees can move, too
      for (Operation &op : llvm::reverse(function.front()))
        if (isNarrowing(&op)) casts.push_back(&op);
      for (Operation *cast : casts) changed |= hoistNarrowing(cast);
    }
    roundStreams();
    eraseDeadOps(function);
  }

private:
  func::FuncOp function;
  FloatType low;
  DenseMap<Value, Value> lowOf; // of a value, its cast

  static bool isFull(Value value) { return elementOf(value) && elementOf(value).isF32(); }

  bool isNarrowing(Operation *op) {
    return isa<onnx::CastOp>(op) && isFull(op->getOperand(0)) && isLow(op->getResult(0));
  }
  bool isWidening(Operation *op) {
    return op && isa<onnx::CastOp>(op) && isLow(op->getOperand(0)) && isFull(op->getResult(0));
  }
  bool isLow(Value value) { return elementOf(value) == low; }

  // Nothing but sums and movement between the value and the update: it is a parameter's gradient, or a part of it.
  static bool isParameterGradient(Value value) {
    return !value.use_empty() && llvm::all_of(value.getUsers(), [](Operation *user) {
      if (place::hasPhase(user, Phase::Update) || isa<func::ReturnOp, onnx::WriteOp>(user)) return true;
      return (onnx::isMovement(user) || onnx::isSum(user)) && isParameterGradient(user->getResult(0));
    });
  }

  void lowerOperands(Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      if (isFull(operand.get())) operand.set(lowered(operand.get(), op)); // not the rows' groups
  }
  void lowerProduct(Operation *op) {
    lowerOperands(op);
    Value result = op->getResult(0);
    if (isa<onnx::ConvGradWeightOp>(op) || !isParameterGradient(result)) lowerResult(op, result, low);
  }

  // All but the statistics, which stay in fp32.
  void lowerAttention(Operation *op) {
    auto forward = dyn_cast<onnx::ScaledAttentionOp>(op);
    Value stats = forward ? forward.getStats() : cast<onnx::ScaledAttentionGradOp>(op).getStats();
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get() != stats) operand.set(lowered(operand.get(), op));
    for (Value result : op->getResults())
      if (result != stats) lowerResult(op, result, low);
  }

  // The value rounded; `user` asks for it.
  Value lowered(Value value, Operation *user) {
    Operation *made = value.getDefiningOp();
    if (isWidening(made)) return made->getOperand(0);
    if (Value known = lowOf.lookup(value)) {
      // Casts that are hoisted ask from the function's end on.
      if (place::hasPhase(user, Phase::Forward)) claimForForward(known.getDefiningOp());
      return known;
    }
    OpBuilder builder(user->getContext());
    if (made)
      builder.setInsertionPointAfter(made);
    else
      builder.setInsertionPointToStart(&function.front());
    // When the first to ask is of the backward pass, no forward op before it needs the cast.
    bool ofUser = !made || isa<onnx::ReadOp>(made) || place::of(made).phase != place::of(user).phase;
    auto cast = onnx::CastOp::create(builder, (made ? made : user)->getLoc(), value, low);
    place::copy(ofUser ? user : made, cast);
    return lowOf[value] = cast.getY();
  }

  static void claimForForward(Operation *cast) {
    if (!place::hasPhase(cast, Phase::Backward)) return;
    place::Place place;
    place.phase = Phase::Forward;
    place.set(cast);
  }

  // A residual stream that torch.amp has in 16 bits, and its gradient, stand in memory so: what a sum or a batch norm
  // reads of other sums is rounded, and what a product reads rounded is read so by all. A pool gives its operand's type.
  void roundStreams() {
    AmpTypes types(low);
    auto isComputed = [&](Operation *op) {
      return op->getNumResults() == 1 && isFull(op->getResult(0)) && types.isLow(op->getResult(0)) && !isWidening(op) &&
             !place::hasPhase(op, Phase::Update);
    };
    SmallVector<Operation *> pools;
    for (Operation &op : function.front())
      if (isa<onnx::MaxPoolOp, onnx::MaxPoolGradOp, onnx::AveragePoolOp, onnx::AveragePoolGradOp>(op) &&
          isComputed(&op))
        pools.push_back(&op);
    for (Operation *pool : pools) {
      lowerOperands(pool);
      lowerResult(pool, pool->getResult(0), low);
    }

    auto isSum = [&](Operation *op) {
      return onnx::isSum(op) && !isParameterGradient(op->getResult(0)) &&
             llvm::count_if(op->getOperands(), [&](Value operand) { return types.isLow(operand); }) > 1;
    };
    auto isOfNorm = [](Operation *op) {
      return llvm::any_of(op->getOperands(), [](Value operand) {
        return operand.getDefiningOp() && onnx::keepsTypeAttr.isOn(operand.getDefiningOp());
      });
    };
    llvm::SetVector<Operation *> ofSums, rounded;
    for (Operation &op : function.front()) {
      if (!isComputed(&op)) continue;
      if (llvm::any_of(op.getUsers(), [&](Operation *user) { return isNarrowing(user); })) rounded.insert(&op);
      const bool isNorm = isOfNorm(&op);
      for (Value operand : op.getOperands())
        if (Operation *made = operand.getDefiningOp(); made && ofSums.contains(made)) {
          ofSums.insert(&op);
          if (isSum(&op) || (isNorm && !isOfNorm(made))) rounded.insert(made);
        }
      if (isSum(&op)) ofSums.insert(&op);
    }
    for (Operation *op : rounded) roundForAll(op->getResult(0), op);
  }
  void roundForAll(Value value, Operation *made) {
    Value narrow = lowered(value, made);
    if (place::of(narrow.getDefiningOp()) != place::of(made)) return;
    OpBuilder builder(made->getContext());
    builder.setInsertionPointAfter(narrow.getDefiningOp());
    auto wide = onnx::CastOp::create(builder, made->getLoc(), narrow, elementOf(value));
    place::copy(made, wide);
    value.replaceAllUsesExcept(wide.getY(), narrow.getDefiningOp());
  }

  Operation *moved(Operation *movement, ValueRange operands, Type element, Operation *before) {
    OpBuilder builder(before);
    IRMapping mapping;
    mapping.map(movement->getOperands(), operands);
    Operation *clone = builder.clone(*movement, mapping);
    clone->getResult(0).setType(withElement(clone->getResult(0), element));
    return clone;
  }

  // Move(Cast_f32(x)) -> Cast_f32(Move(x)). A Broadcast stays: the fewer elements are cast.
  void sinkWidening(Operation *op) {
    if (!onnx::isMovement(op) || isa<onnx::BroadcastOp>(op) || op->getNumOperands() == 0) return;
    SmallVector<Value> sources;
    for (Value operand : op->getOperands()) {
      if (!isWidening(operand.getDefiningOp())) return;
      sources.push_back(operand.getDefiningOp()->getOperand(0));
    }
    Operation *narrow = moved(op, sources, low, op);
    OpBuilder builder(op);
    auto wide = onnx::CastOp::create(builder, op->getLoc(), narrow->getResult(0), elementOf(op->getResult(0)));
    place::copy(op, wide);
    if (Value known = lowOf.lookup(op->getResult(0))) known.replaceAllUsesWith(narrow->getResult(0));
    lowOf.erase(op->getResult(0));
    op->getResult(0).replaceAllUsesWith(wide.getY());
    op->erase();
  }

  // Cast_low(Cast_f32(x)) -> x; Cast_low(Move(x)) -> Move(Cast_low(x)) where nobody else reads the moved value.
  bool hoistNarrowing(Operation *op) {
    Operation *made = op->getOperand(0).getDefiningOp();
    if (isWidening(made)) {
      replace(op, made->getOperand(0));
      return true;
    }
    if (!made || !onnx::isMovement(made) || !made->hasOneUse() || made->getNumOperands() == 0) return false;
    SmallVector<Value> sources;
    for (Value operand : made->getOperands()) sources.push_back(lowered(operand, op));
    Operation *narrow = moved(made, sources, low, op);
    replace(op, narrow->getResult(0));
    made->erase();
    return true;
  }
  void replace(Operation *cast, Value value) {
    lowOf.erase(cast->getOperand(0));
    cast->getResult(0).replaceAllUsesWith(value);
    cast->erase();
  }
};

class LowerPrecision : public impl::LowerPrecisionBase<LowerPrecision> {
public:
  using Base::Base;
  void runOnOperation() override {
    low = llvm::StringSwitch<FloatType>(type.getValue())
              .Case("bf16", BFloat16Type::get(&getContext()))
              .Case("f16", Float16Type::get(&getContext()))
              .Default(FloatType());
    if (!low) {
      getOperation().emitError() << "lower-precision: type must be bf16 or f16, is '" << type << "'";
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) FunctionLowering(function, low).run();
    lowerParameters();
  }

private:
  FloatType low;

  void lowerParameters() {
    SymbolTable symbols(getOperation());
    llvm::MapVector<StringAttr, onnx::ParamOp> lowered; // those that a product reads
    SmallVector<Operation *> accesses;
    getOperation().walk([&](Operation *op) {
      if (isa<onnx::ReadOp, onnx::WriteOp>(op)) accesses.push_back(op);
      auto read = dyn_cast<onnx::ReadOp>(op);
      auto param = read ? symbols.lookup<onnx::ParamOp>(read.getParamAttr().getAttr()) : onnx::ParamOp();
      if (!param || llvm::none_of(read.getValue().getUsers(), isCastToLow)) return;
      if (param.getRole() == "parameter") lowered[param.getSymNameAttr()] = param;
      if (param.getRole() == "previous_parameter") // both versions are alike
        for (onnx::ParamOp version : {param, symbols.lookup<onnx::ParamOp>(param.getOfAttr().getAttr())})
          lowered[version.getSymNameAttr()] = version;
    });
    llvm::StringMap<FlatSymbolRefAttr> masters;
    llvm::DenseSet<Operation *> versions; // reads of parameters, to be kept as versions one update old
    for (Operation *op : accesses) {
      auto write = dyn_cast<onnx::WriteOp>(op);
      if (!write || !lowered.count(write.getParamAttr().getAttr())) continue;
      if (symbols.lookup<onnx::ParamOp>(write.getParam()).getRole() == "previous_parameter")
        versions.insert(write.getValue().getDefiningOp());
      else
        lowerWrite(write, symbols, masters);
    }
    for (Operation *op : accesses) {
      auto read = dyn_cast<onnx::ReadOp>(op);
      if (!read || !lowered.count(read.getParamAttr().getAttr())) continue;
      if (versions.contains(op)) {
        read.getValue().setType(cast<RankedTensorType>(withElement(read.getValue(), low)));
        continue;
      }
      auto master = masters.find(read.getParam());
      if (place::hasPhase(read, Phase::Update) && master != masters.end())
        read.setParamAttr(master->second);
      else
        lowerRead(read);
    }
    for (auto &[name, param] : lowered) {
      auto full = cast<RankedTensorType>(param.getType());
      if (param.getPath() && !param.getFileType()) param.setFileTypeAttr(TypeAttr::get(full.getElementType()));
      param.setTypeAttr(TypeAttr::get(full.clone(low)));
    }
  }

  static bool isCastToLow(Operation *user) {
    auto cast = dyn_cast<onnx::CastOp>(user);
    return cast && !place::hasPhase(user, Phase::Update) && elementOf(cast.getY()).getIntOrFloatBitWidth() == 16 &&
           isa<FloatType>(elementOf(cast.getY()));
  }

  // The optimizer writes the master, and its rounded copy.
  void lowerWrite(onnx::WriteOp write, SymbolTable &symbols, llvm::StringMap<FlatSymbolRefAttr> &masters) {
    auto param = symbols.lookup<onnx::ParamOp>(write.getParamAttr().getAttr());
    FlatSymbolRefAttr &master = masters[param.getSymName()];
    if (!master) {
      onnx::ParamOp made = addCopy(param, symbols, runtime::masterName(param.getSymName().str()), param.getType());
      master = FlatSymbolRefAttr::get(made.getSymNameAttr());
    }
    OpBuilder builder(write);
    FlatSymbolRefAttr own = write.getParamAttr();
    auto rounded = onnx::CastOp::create(builder, write.getLoc(), write.getValue(), low);
    place::copy(write, rounded);
    auto copy = onnx::WriteOp::create(builder, write.getLoc(), own, rounded.getY());
    place::copy(write, copy);
    write.setParamAttr(master);
  }

  // Products read the low value as it is, and so do lookups; others widen it.
  void lowerRead(onnx::ReadOp read) {
    Value value = read.getValue();
    Type full = elementOf(value);
    value.setType(withElement(value, low));
    onnx::CastOp wide;
    for (OpOperand &use : llvm::make_early_inc_range(value.getUses())) {
      Operation *user = use.getOwner();
      auto cast = dyn_cast<onnx::CastOp>(user);
      if (cast && cast.getTo() == low) {
        cast.getY().replaceAllUsesWith(value);
        cast.erase();
        continue;
      }
      if (auto gather = dyn_cast<onnx::GatherOp>(user)) { // its rows are widened, not the table
        lowerResult(gather, gather.getY(), low);
        continue;
      }
      if (!wide) {
        OpBuilder builder(read.getContext());
        builder.setInsertionPointAfter(read);
        wide = onnx::CastOp::create(builder, user->getLoc(), value, full);
        place::copy(read, wide);
        if (place::hasPhase(user, Phase::Update)) place::copy(user, wide);
      }
      if (user != wide) use.set(wide.getY());
    }
  }
};

} // namespace

} // namespace cleave::training
