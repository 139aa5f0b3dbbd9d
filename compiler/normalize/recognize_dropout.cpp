#include "compiler/import/doubts.h"
#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "dialects/onnx/attributes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cmath>

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_RECOGNIZEDROPOUT
#include "compiler/normalize/Passes.h.inc"

namespace {

// scale * x + shift, of a value x that is not random.
struct Linear {
  double scale = 0, shift = 0;
};

// scale * u + shift of a number u that is uniform in [0, 1).
struct Draw {
  Value source;
  Linear of{1, 0};
};

// What one random bit decides, element by element.
struct Masked {
  Value source;           // the draw of the bit
  Value mask;             // of the same shape
  Linear maskValues;      // scale: where the bit is set, shift: where it is not
  double probability = 0; // of a set bit
  Value x;                // null: a mask alone
  Linear ifSet, ifNot;    // of x
};

bool isNear(double a, double b) { return std::abs(a - b) <= 1e-4 * std::max({1.0, std::abs(a), std::abs(b)}); }

// The number that all elements are.
std::optional<double> numberOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp>(op)) break;
    value = op->getOperand(0);
  }
  return splatOf(value);
}

// Dropout of any form: x / p where the bit is set, else 0; or alpha dropout, after which numbers of mean 0 and variance
// 1 have the same: a x + b, else b - a alpha.
struct Dropout {
  double kept = 1; // the probability
  bool keepsSet = true;
  double alpha = 0; // 0: plain
};

std::optional<Dropout> dropoutOf(const Masked &value) {
  if (!value.x) return std::nullopt;
  const bool keepsSet = value.ifNot.scale == 0;
  const Linear kept = keepsSet ? value.ifSet : value.ifNot, dropped = keepsSet ? value.ifNot : value.ifSet;
  const double p = keepsSet ? value.probability : 1 - value.probability;
  if (dropped.scale != 0 || kept.scale <= 0 || p <= 0 || p >= 1) return std::nullopt;
  if (kept.shift == 0 && dropped.shift == 0)
    return isNear(kept.scale * p, 1) ? std::optional(Dropout{p, keepsSet, 0}) : std::nullopt;
  const double mean = p * kept.shift + (1 - p) * dropped.shift;
  const double variance =
      p * (kept.scale * kept.scale + kept.shift * kept.shift) + (1 - p) * dropped.shift * dropped.shift;
  if (!isNear(mean, 0) || !isNear(variance, 1)) return std::nullopt;
  return Dropout{p, keepsSet, (kept.shift - dropped.shift) / kept.scale};
}

class Recognizer {
public:
  Recognizer(func::FuncOp function, double ratio) : function(function), ratio(ratio) {}

  void run() {
    for (Operation &op : llvm::make_early_inc_range(function.front())) {
      if (auto drawn = dyn_cast<onnx::RandomUniformOp>(op)) {
        draws[drawn.getResult()] = {drawn.getResult(), {1, 0}};
        continue;
      }
      const bool readsDraw = reads(op, draws), readsMask = reads(op, masks);
      if ((!readsDraw && !readsMask) || onnx::dropoutAttr.isOn(&op)) continue;
      std::optional<Masked> made;
      if (op.getNumResults() == 1) made = readsMask ? masked(op) : bitOf(op);
      if (made) {
        if (auto dropout = dropoutOf(*made); dropout && made->x.getType() == op.getResult(0).getType())
          replace(op, *made, *dropout);
        else
          masks[op.getResult(0)] = *made;
        continue;
      }
      if (readsMask || comparesDraw(op)) others.push_back(readsMask ? nameOf(maskRead(op)) : nameOf(&op));
    }
  }

  std::vector<std::string> others; // nodes that draw a mask which is no dropout

private:
  template <typename Map> static bool reads(Operation &op, const Map &of) {
    return llvm::any_of(op.getOperands(), [&](Value operand) { return of.count(operand) > 0; });
  }
  static std::string nameOf(Operation *op) {
    auto name = op->getLoc()->findInstanceOf<NameLoc>();
    return name ? name.getName().str() : op->getName().stripDialect().str();
  }
  Operation *maskRead(Operation &op) {
    for (Value operand : op.getOperands())
      if (auto known = masks.find(operand); known != masks.end()) return known->second.mask.getDefiningOp();
    return &op;
  }
  static bool comparesDraw(Operation &op) {
    return isa<onnx::LessOp, onnx::LessOrEqualOp, onnx::GreaterOp, onnx::GreaterOrEqualOp>(op);
  }

  // A comparison of a draw with a number, or floor(p + u); else a sum or product with a number is a draw, too.
  std::optional<Masked> bitOf(Operation &op) {
    const Value result = op.getResult(0);
    auto bit = [&](const Draw &draw, double probability) -> std::optional<Masked> {
      if (!(probability > 0 && probability < 1)) return std::nullopt;
      return Masked{draw.source, result, {1, 0}, probability, Value(), {0, 1}, {0, 0}};
    };
    auto below = [](const Draw &draw, double bound) { return (bound - draw.of.shift) / draw.of.scale; };
    if (comparesDraw(op)) {
      const bool isSecond = draws.contains(op.getOperand(1));
      auto bound = numberOf(op.getOperand(isSecond ? 0 : 1));
      if (!bound) return std::nullopt;
      const Draw draw = draws.lookup(op.getOperand(isSecond ? 1 : 0));
      const bool isBelow = isa<onnx::LessOp, onnx::LessOrEqualOp>(op) != isSecond;
      const double p = below(draw, *bound);
      return bit(draw, isBelow == (draw.of.scale > 0) ? p : 1 - p);
    }
    if (isa<onnx::FloorOp>(op)) {
      const Draw draw = draws.lookup(op.getOperand(0));
      const bool isBit = draw.of.scale == 1 && draw.of.shift > 0 && draw.of.shift < 1;
      return isBit ? bit(draw, draw.of.shift) : std::nullopt;
    }
    const bool keepsDraw =
        isa<onnx::CastOp, onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp>(op) && isFloatTensor(result);
    if (keepsDraw) draws[result] = Draw(draws.lookup(op.getOperand(0)));
    if (!isa<onnx::AddOp, onnx::SubOp, onnx::MulOp, onnx::DivOp>(op)) return std::nullopt;
    const bool isSecond = draws.contains(op.getOperand(1));
    auto number = numberOf(op.getOperand(isSecond ? 0 : 1));
    if (!number || (isSecond && isa<onnx::DivOp>(op))) return std::nullopt;
    Draw draw = draws.lookup(op.getOperand(isSecond ? 1 : 0));
    draw.of = combined(op, isSecond ? Linear{0, *number} : draw.of, isSecond ? draw.of : Linear{0, *number})
                  .value_or(Linear());
    if (draw.of.scale != 0) draws[result] = draw;
    return std::nullopt;
  }

  // Of two operands, at most one of which depends on x or u in a product.
  static std::optional<Linear> combined(Operation &op, Linear a, Linear b) {
    if (isa<onnx::AddOp>(op)) return Linear{a.scale + b.scale, a.shift + b.shift};
    if (isa<onnx::SubOp>(op)) return Linear{a.scale - b.scale, a.shift - b.shift};
    if (isa<onnx::MulOp>(op)) {
      if (a.scale != 0 && b.scale != 0) return std::nullopt;
      return Linear{a.scale * b.shift + b.scale * a.shift, a.shift * b.shift};
    }
    if (b.scale != 0 || b.shift == 0) return std::nullopt;
    return Linear{a.scale / b.shift, a.shift / b.shift};
  }

  // What an operand is where the bit is set or not; `x`: the value that is not random, of all operands one.
  struct Branches {
    Linear ifSet, ifNot;
  };
  std::optional<Branches> branchesOf(Value operand, const Masked &of, Value &x) {
    if (auto number = numberOf(operand)) return Branches{{0, *number}, {0, *number}};
    Value own = operand;
    Branches branches{{1, 0}, {1, 0}};
    if (auto known = masks.find(operand); known != masks.end()) {
      if (known->second.source != of.source || known->second.probability != of.probability) return std::nullopt;
      own = known->second.x;
      branches = {known->second.ifSet, known->second.ifNot};
    } else if (draws.count(operand)) {
      return std::nullopt;
    }
    if (own && x && own != x) return std::nullopt;
    if (own) x = own;
    return branches;
  }

  std::optional<Masked> masked(Operation &op) {
    const Value result = op.getResult(0);
    Masked made;
    for (Value operand : op.getOperands())
      if (auto known = masks.find(operand); known != masks.end()) {
        made = known->second;
        break;
      }
    const bool moves = isa<onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp>(op);
    if (isa<onnx::CastOp>(op) || moves) {
      if (made.x) return std::nullopt;
      if (moves) { // of the new shape, the value is the only mask
        made.mask = result;
        made.maskValues = {made.ifSet.shift, made.ifNot.shift};
      }
      const bool isBit =
          (made.ifSet.shift == 0 || made.ifSet.shift == 1) && (made.ifNot.shift == 0 || made.ifNot.shift == 1);
      return isFloatTensor(result) || isBit ? std::optional(made) : std::nullopt;
    }
    if (isa<onnx::NotOp>(op)) {
      made.ifSet.shift = 1 - made.ifSet.shift, made.ifNot.shift = 1 - made.ifNot.shift;
      return made;
    }
    if (isa<onnx::NegOp>(op)) {
      for (Linear *one : {&made.ifSet, &made.ifNot}) *one = {-one->scale, -one->shift};
      return made;
    }
    Value x;
    if (isa<onnx::WhereOp>(op)) {
      auto known = masks.find(op.getOperand(0));
      if (known == masks.end()) return std::nullopt;
      made = known->second;
      auto a = branchesOf(op.getOperand(1), made, x), b = branchesOf(op.getOperand(2), made, x);
      if (!a || !b) return std::nullopt;
      const Linear set = made.ifSet.shift != 0 ? a->ifSet : b->ifSet,
                   none = made.ifNot.shift != 0 ? a->ifNot : b->ifNot;
      made.x = x, made.ifSet = set, made.ifNot = none;
      return made;
    }
    if (!isa<onnx::AddOp, onnx::SubOp, onnx::MulOp, onnx::DivOp>(op) || !isFloatTensor(result)) return std::nullopt;
    auto a = branchesOf(op.getOperand(0), made, x), b = branchesOf(op.getOperand(1), made, x);
    if (!a || !b) return std::nullopt;
    auto set = combined(op, a->ifSet, b->ifSet), none = combined(op, a->ifNot, b->ifNot);
    if (!set || !none) return std::nullopt;
    made.x = x, made.ifSet = *set, made.ifNot = *none;
    return made;
  }

  // Mul(x, Where(mask, 1/p, 0)), or with alpha Add(that, Where(mask, b, b')): evaluation takes x.
  void replace(Operation &op, const Masked &value, const Dropout &dropout) {
    OpBuilder builder(&op);
    CoreBuilder b(builder, op.getLoc());
    Value result = op.getResult(0), x = value.x;
    if (ratio == 0) {
      result.replaceAllUsesWith(x);
      return;
    }
    const bool setIsLarge = value.maskValues.scale > value.maskValues.shift;
    Value kept = value.mask;
    bool isKept = dropout.keepsSet == setIsLarge; // the larger number of the mask
    double p = dropout.kept;
    if (ratio > 0) {
      p = 1 - ratio;
      Value draw = b.broadcastTo(value.source, shapeOf(value.source));
      kept = movedAs(b.binary<onnx::LessOp>(draw, b.scalar(draw, p)), value.mask, b);
      isKept = true;
    } else if (!elementOf(kept).isInteger(1)) {
      const double middle = (value.maskValues.scale + value.maskValues.shift) / 2;
      kept = b.binary<onnx::GreaterOp>(kept, b.scalar(kept, middle));
    }
    auto choose = [&](double ifKept, double ifDropped) {
      Value chosen = b.where(kept, b.scalar(x, isKept ? ifKept : ifDropped), b.scalar(x, isKept ? ifDropped : ifKept));
      return b.broadcastTo(chosen, shapeOf(x));
    };
    const double alpha = dropout.alpha;
    const double a = alpha == 0 ? 1 / p : 1 / std::sqrt(p * (1 + alpha * alpha * (1 - p)));
    auto created = [&](auto made) {
      onnx::dropoutAttr.set(made);
      return made->getResult(0);
    };
    Value y = created(onnx::MulOp::create(builder, op.getLoc(), x.getType(), x, choose(a, 0)));
    if (alpha != 0)
      y = created(
          onnx::AddOp::create(builder, op.getLoc(), x.getType(), y, choose(alpha * a * (1 - p), -alpha * a * p)));
    result.replaceAllUsesWith(y);
  }

  // A bit of the draw's shape as the mask was moved from there.
  Value movedAs(Value bit, Value mask, CoreBuilder &b) {
    SmallVector<Operation *> moves;
    for (Operation *op = mask.getDefiningOp(); op && !isa<onnx::RandomUniformOp>(op);
         op = (op->getNumOperands() > 1 && !reaches(op->getOperand(0)) ? op->getOperand(1) : op->getOperand(0))
                  .getDefiningOp())
      if (isa<onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp>(op)) moves.push_back(op);
    for (Operation *op : llvm::reverse(moves)) {
      IRMapping map;
      map.map(op->getOperand(0), bit);
      Operation *copy = b.builder.clone(*op, map);
      copy->getResult(0).setType(typeOf(copy->getResult(0)).clone(b.builder.getI1Type()));
      bit = copy->getResult(0);
    }
    return bit;
  }
  bool reaches(Value value) const { return draws.count(value) || masks.count(value); }

  func::FuncOp function;
  double ratio; // of the recipe; negative: as exported
  DenseMap<Value, Draw> draws;
  DenseMap<Value, Masked> masks;
};

struct RecognizeDropout : impl::RecognizeDropoutBase<RecognizeDropout> {
  using Base::Base;
  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model) return;
    Recognizer recognizer(model, dropout);
    try {
      recognizer.run();
    } catch (const Failure &) {
      return signalPassFailure();
    }
    if (!recognizer.others.empty()) addDoubts(recognizer.others);
  }

private:
  void addDoubts(const std::vector<std::string> &nodes) {
    std::vector<import_::Doubt> found;
    for (const std::string &node : nodes) found.push_back({import_::doubts::drawnMask, node, "accept"});
    Builder b(&getContext());
    SmallVector<Attribute> all;
    if (ArrayAttr known = onnx::doubtsAttr.of(getOperation())) all.append(known.begin(), known.end());
    for (const import_::DoubtsOfKind &kind : import_::byKind(found)) {
      SmallVector<StringRef> names(kind.tensors.begin(), kind.tensors.end());
      all.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("tensors", b.getStrArrayAttr(names)), b.getNamedAttr("text", b.getStringAttr(kind.text))}));
    }
    onnx::doubtsAttr.set(getOperation(), b.getArrayAttr(all));
  }
};

} // namespace
} // namespace cleave::normalize
