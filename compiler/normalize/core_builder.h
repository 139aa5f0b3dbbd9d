// Creates core ops, simplified and folded as they are made, with the conveniences that ONNX operators want: numpy
// broadcasting, scalars, reductions that keep their dimensions.
//
//   CoreBuilder b(builder, loc);
//   Value mean = b.div(b.reduceSum(x, {2}, /*keep=*/true), b.scalar(x, 64));   // [8,16,64] -> [8,16,1]
//   Value centred = b.sub(x, mean);                                           // mean broadcasts
//
// What is wrong with the model (shapes that do not fit ...) is reported at `loc` and thrown as Failure, which
// NormalizeNodes catches at the node: the operator rules read as formulas.
#pragma once
#include "compiler/normalize/constants.h"
#include "mlir/IR/Builders.h"

namespace cleave::normalize {

// The most elements that a tensor may have: byte sizes then fit into 64 bits, and counts into doubles.
inline constexpr int64_t mostElements = int64_t(1) << 53;
// Elements of a tensor of this shape; none: a dimension is negative, or there are more than mostElements.
std::optional<int64_t> elementsWithin(llvm::ArrayRef<int64_t> shape);

// What constants that differ from element to element may take, all of them together, while nodes are rewritten.
struct ConstantBudget {
  static constexpr int64_t whole = int64_t(8) << 30;
  int64_t bytesLeft = whole;
};

// Thrown after the error has been reported; never leaves compiler/normalize.
struct Failure {};

using Values = llvm::SmallVector<mlir::Value>;
using Dims = llvm::SmallVector<int64_t>;

mlir::RankedTensorType typeOf(mlir::Value value);
llvm::ArrayRef<int64_t> shapeOf(mlir::Value value);
mlir::Type elementOf(mlir::Value value);
int64_t rankOf(mlir::Value value);
bool isFloatTensor(mlir::Value value);
Dims countUp(int64_t count); // 0 1 2 ...

class CoreBuilder {
public:
  CoreBuilder(mlir::OpBuilder &builder, mlir::Location loc, int64_t foldLimit = defaultFoldLimit)
      : builder(builder), loc(loc), foldLimit(foldLimit) {}
  mlir::OpBuilder &builder;
  mlir::Location loc;
  int64_t foldLimit;
  ConstantBudget *budget = nullptr; // none: not counted

  // An op as it is written: operands and attributes in ODS order. The result is simplified and folded.
  template <typename Op, typename... Args> mlir::Value create(Args &&...args) {
    mlir::OperationState state(loc, Op::getOperationName());
    // The result type given here only selects the build method; finish() infers the right one.
    Op::build(builder, state, mlir::Type(builder.getNoneType()), std::forward<Args>(args)...);
    return finish(state, Op::inferReturnTypes);
  }

  [[noreturn]] void fail(const llvm::Twine &message);
  // Fails unless a tensor of this shape may be.
  void checkSize(llvm::ArrayRef<int64_t> shape);

  mlir::Value constant(mlir::DenseElementsAttr value);
  // The same, as a broadcast of a smaller constant where dimensions only repeat it.
  mlir::Value compactConstant(mlir::DenseElementsAttr value);
  mlir::Value constant(const runtime::HostTensor &value);
  mlir::Value splat(mlir::RankedTensorType type, double value);
  mlir::Value scalar(mlir::Value like, double value);   // rank 0, element type of `like`
  mlir::Value integers(llvm::ArrayRef<int64_t> values); // tensor<Nxi64>

  // The index along `dim` of a tensor of this shape, i64: a constant row, broadcast, so that it folds where it is
  // small. Fails beyond demandFoldLimit indices.
  mlir::Value indexAlong(llvm::ArrayRef<int64_t> shape, int64_t dim);

  // Elementwise with numpy broadcasting.
  template <typename Op> mlir::Value unary(mlir::Value x) { return create<Op>(x); }
  template <typename Op> mlir::Value binary(mlir::Value a, mlir::Value b) {
    broadcastTogether({&a, &b});
    return create<Op>(a, b);
  }
  mlir::Value add(mlir::Value a, mlir::Value b) { return binary<onnx::AddOp>(a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return binary<onnx::SubOp>(a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return binary<onnx::MulOp>(a, b); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return binary<onnx::DivOp>(a, b); }
  mlir::Value add(mlir::Value a, double b) { return add(a, scalar(a, b)); }
  mlir::Value sub(mlir::Value a, double b) { return sub(a, scalar(a, b)); }
  mlir::Value mul(mlir::Value a, double b) { return mul(a, scalar(a, b)); }
  mlir::Value div(mlir::Value a, double b) { return div(a, scalar(a, b)); }
  mlir::Value where(mlir::Value condition, mlir::Value a, mlir::Value b);
  mlir::Value cast(mlir::Value x, mlir::Type to);

  // Movement. Sizes and axes are those of the result or operand as the core op has them.
  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(mlir::Value x, llvm::ArrayRef<int64_t> perm);
  mlir::Value broadcastTo(mlir::Value x, llvm::ArrayRef<int64_t> shape); // numpy rules
  void broadcastTogether(llvm::ArrayRef<mlir::Value *> values);
  mlir::Value slice(mlir::Value x, int64_t axis, int64_t start, int64_t size);
  mlir::Value sliceAll(mlir::Value x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes);
  mlir::Value pad(mlir::Value x, llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high, double value);
  mlir::Value concat(mlir::ValueRange parts, int64_t axis);
  mlir::Value pick(mlir::Value x, int64_t axis, llvm::ArrayRef<int64_t> indices); // elements known now
  mlir::Value gather(mlir::Value table, mlir::Value indices, int64_t axis, int64_t batchDims = 0,
                     int64_t paddingRow = -1);
  mlir::Value insertOnes(mlir::Value x, llvm::ArrayRef<int64_t> axes); // axes of the result, sorted

  // Reductions over sorted axes; `keep` leaves dimensions of size 1.
  mlir::Value reduceSum(mlir::Value x, llvm::ArrayRef<int64_t> axes, bool keep);
  mlir::Value reduceMax(mlir::Value x, llvm::ArrayRef<int64_t> axes, bool keep);
  mlir::Value reduceMin(mlir::Value x, llvm::ArrayRef<int64_t> axes, bool keep);
  mlir::Value mean(mlir::Value x, llvm::ArrayRef<int64_t> axes, bool keep);

  // Sum of products.
  mlir::Value contract(mlir::Value lhs, mlir::Value rhs, llvm::ArrayRef<int64_t> left, llvm::ArrayRef<int64_t> right,
                       llvm::ArrayRef<int64_t> result);

private:
  using Infer = llvm::LogicalResult (*)(mlir::MLIRContext *, std::optional<mlir::Location>, mlir::ValueRange,
                                        mlir::DictionaryAttr, mlir::OpaqueProperties, mlir::RegionRange,
                                        llvm::SmallVectorImpl<mlir::Type> &);
  mlir::Value finish(mlir::OperationState &state, Infer infer);
  mlir::Value keepDims(mlir::Value reduced, mlir::Value x, llvm::ArrayRef<int64_t> axes, bool keep);
};

// numpy's broadcast of both shapes; none if they do not fit.
std::optional<Dims> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

} // namespace cleave::normalize
