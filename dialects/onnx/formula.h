// Builds core ops from formulas, one location for all: derivative rules, losses and optimizers read as on paper.
//
//   Formula f(builder, op.getLoc());
//   Value dx = f.mul(dy, f.sub(f.like(y, 1.0), f.mul(y, y)));   // tanh
//
// Nothing is broadcast implicitly: `like` makes a splat constant of a value's type, `spread` repeats a scalar.
#pragma once
#include "dialects/onnx/Onnx.h"
#include "llvm/ADT/Sequence.h"

namespace cleave::onnx {

inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
inline bool isFloatTensor(mlir::Value value) {
  auto type = mlir::dyn_cast<mlir::ShapedType>(value.getType());
  return type && mlir::isa<mlir::FloatType>(type.getElementType());
}

// Operands of products in fp8 have such elements, and nothing else (compiler/training/fp8/quantize_products.cpp).
inline bool isEightBitFloat(mlir::Type element) {
  return mlir::isa<mlir::Float8E4M3FNType, mlir::Float8E5M2Type>(element);
}
// Libraries multiply matrices of 8 bits whose sizes, and places in memory, are multiples of so many elements.
inline constexpr int64_t eightBitAlignment = 16;

// A compact constant attribute: every element is `value`, rounded to the type's element type.
inline mlir::DenseElementsAttr splatOf(mlir::RankedTensorType type, double value) {
  mlir::Type element = type.getElementType();
  if (auto floating = mlir::dyn_cast<mlir::FloatType>(element)) {
    llvm::APFloat rounded(value);
    bool losesInfo = false;
    rounded.convert(floating.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
    return mlir::DenseElementsAttr::get(type, rounded);
  }
  return mlir::DenseElementsAttr::get(type, llvm::APInt(element.getIntOrFloatBitWidth(),
                                                        static_cast<uint64_t>(static_cast<int64_t>(value)),
                                                        /*isSigned=*/true, /*implicitTrunc=*/true));
}

class Formula {
public:
  Formula(mlir::OpBuilder &builder, mlir::Location loc) : builder(builder), loc(loc) {}

  template <typename Op, typename... Args> mlir::Value make(Args &&...args) {
    return Op::create(builder, loc, std::forward<Args>(args)...).getOperation()->getResult(0);
  }
  mlir::Value constant(mlir::RankedTensorType type, double value) { return make<ConstantOp>(splatOf(type, value)); }
  // Numbers along dimension `dim` of `type`, the same in all others.
  mlir::Value along(mlir::RankedTensorType type, int64_t dim, llvm::ArrayRef<double> numbers) {
    auto element = mlir::cast<mlir::FloatType>(type.getElementType());
    llvm::SmallVector<llvm::APFloat> rounded;
    for (double number : numbers) {
      bool losesInfo = false;
      rounded.emplace_back(number).convert(element.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
    }
    auto list = mlir::RankedTensorType::get({static_cast<int64_t>(numbers.size())}, element);
    mlir::Value constant = make<ConstantOp>(mlir::DenseElementsAttr::get(list, rounded));
    return make<BroadcastOp>(constant, type.getShape(), dim);
  }
  mlir::Value like(mlir::Value x, double value) { return constant(tensorType(x), value); }

  mlir::Value neg(mlir::Value x) { return make<NegOp>(x); }
  mlir::Value add(mlir::Value a, mlir::Value b) { return make<AddOp>(a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return make<SubOp>(a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return make<MulOp>(a, b); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return make<DivOp>(a, b); }
  mlir::Value scale(mlir::Value x, double factor) { return mul(x, like(x, factor)); }
  mlir::Value where(mlir::Value condition, mlir::Value a, mlir::Value b) { return make<WhereOp>(condition, a, b); }
  // condition ? x : 0
  mlir::Value only(mlir::Value condition, mlir::Value x) { return where(condition, x, like(x, 0)); }

  mlir::Value cast(mlir::Value x, mlir::Type element) {
    return tensorType(x).getElementType() == element ? x : make<CastOp>(x, element);
  }
  mlir::Value reduceSum(mlir::Value x, llvm::ArrayRef<int64_t> axes) {
    return axes.empty() ? x : make<ReduceSumOp>(x, axes);
  }
  // The sum of all elements, of rank 0.
  mlir::Value total(mlir::Value x) {
    return reduceSum(x, llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank())));
  }
  // Undoes a reduction over `axes`: x's dimensions become the others of `shape`.
  mlir::Value expand(mlir::Value x, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes) {
    if (axes.empty()) return x;
    llvm::SmallVector<int64_t> dims;
    for (int64_t d = 0, rank = static_cast<int64_t>(shape.size()); d < rank; ++d)
      if (!llvm::is_contained(axes, d)) dims.push_back(d);
    return make<BroadcastOp>(x, shape, dims);
  }
  // A scalar (rank 0) in every element of `shape`.
  mlir::Value spread(mlir::Value scalar, llvm::ArrayRef<int64_t> shape) {
    return shape.empty() ? scalar : make<BroadcastOp>(scalar, shape, llvm::ArrayRef<int64_t>());
  }
  // One term stays itself; more become a Sum in their order.
  mlir::Value sum(mlir::ValueRange terms) { return terms.size() == 1 ? terms.front() : make<SumOp>(terms); }

private:
  mlir::OpBuilder &builder;
  mlir::Location loc;
};

} // namespace cleave::onnx
