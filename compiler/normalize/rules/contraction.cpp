// MatMul and Gemm become Contract, whose index arrays say which dimensions meet; determinants.
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

// Without the dimension of size 1 at `axis`.
Value dropOne(Node &n, Value x, int64_t axis) {
  Dims shape(shapeOf(x));
  shape.erase(shape.begin() + axis);
  return n.b.reshape(x, shape);
}

Values matMul(Node &n) { return {matrixProduct(n, n.in(0), n.in(1))}; }

Values gemm(Node &n) {
  Value a = n.in(0), b = n.in(1);
  if (rankOf(a) != 2 || rankOf(b) != 2) n.fail("needs matrices");
  Dims left = n.integer("transA", 0) ? Dims{1, 0} : Dims{0, 1},
       right = n.integer("transB", 0) ? Dims{2, 1} : Dims{1, 2};
  Value y = n.b.contract(a, b, left, right, {0, 2});
  y = n.b.mul(y, n.real("alpha", 1));
  return {n.has(2) ? n.b.add(y, n.b.mul(n.in(2), n.real("beta", 1))) : y};
}

// By elimination, a column after the other. The pivot is the column's first element of the largest size; which one that
// is takes no gradient.
Values determinant(Node &n) {
  Value x = n.in(0);
  const int64_t rank = rankOf(x), size = shapeOf(x)[rank - 1];
  Dims outer(shapeOf(x).drop_back(2));
  int64_t count = 1;
  for (int64_t d : outer) count *= d;
  n.writeOut(24 * size);
  Value a = n.b.reshape(x, {count, size, size});
  Value result = n.b.splat(RankedTensorType::get({count}, elementOf(x)), 1);
  for (int64_t left = size; left > 0; --left) {
    Value column = n.b.slice(a, 2, 0, 1);
    Value sizes = n.b.unary<onnx::AbsOp>(n.b.unary<onnx::StopGradientOp>(column));
    Value rows = n.b.indexAlong({count, left, 1}, 1);
    Value isLargest = n.b.binary<onnx::EqualOp>(sizes, n.b.reduceMax(sizes, {1}, true));
    Value first = n.b.reduceMin(n.b.where(isLargest, rows, n.b.scalar(rows, double(left - 1))), {1}, true);
    Value isPivot = n.b.binary<onnx::EqualOp>(rows, first);
    Value row = n.b.reduceSum(n.b.where(isPivot, a, n.b.scalar(a, 0)), {1}, true); // [count, 1, left]
    Value pivot = n.b.slice(row, 2, 0, 1);
    Value isInPlace = n.b.reshape(n.b.binary<onnx::EqualOp>(first, n.b.scalar(first, 0)), {count});
    Value factor = n.b.reshape(pivot, {count});
    result = n.b.mul(result, n.b.where(isInPlace, factor, n.b.unary<onnx::NegOp>(factor)));
    if (left == 1) break;
    // The first row takes the pivot's place.
    Value rest = n.b.where(n.b.slice(isPivot, 1, 1, left - 1), n.b.slice(a, 1, 0, 1), n.b.slice(a, 1, 1, left - 1));
    Value isZero = n.b.binary<onnx::EqualOp>(pivot, n.b.scalar(pivot, 0)); // then nothing is left to eliminate
    Value scale = n.b.div(n.b.slice(rest, 2, 0, 1), n.b.where(isZero, n.b.scalar(pivot, 1), pivot));
    a = n.b.sub(n.b.slice(rest, 2, 1, left - 1), n.b.mul(scale, n.b.slice(row, 2, 1, left - 1)));
  }
  return {n.b.reshape(result, outer)};
}

} // namespace

// Batch dimensions broadcast: where one operand has size 1 (or no such dimension), the index is the other's alone.
Value matrixProduct(Node &n, Value lhs, Value rhs) {
  bool leftVector = rankOf(lhs) == 1, rightVector = rankOf(rhs) == 1;
  if (rankOf(lhs) == 0 || rankOf(rhs) == 0) n.fail("needs operands of at least one dimension");
  Dims left, right, result;
  int64_t leftBatch = std::max<int64_t>(rankOf(lhs) - 2, 0), rightBatch = std::max<int64_t>(rankOf(rhs) - 2, 0);
  int64_t batch = std::max(leftBatch, rightBatch), inner = batch, rows = batch + 1, columns = batch + 2;
  Dims dropLeft, dropRight;
  for (int64_t i = 0; i < batch; ++i) { // i-th batch dimension of the result
    int64_t l = i - (batch - leftBatch), r = i - (batch - rightBatch);
    int64_t leftSize = l < 0 ? -1 : shapeOf(lhs)[l], rightSize = r < 0 ? -1 : shapeOf(rhs)[r];
    if (leftSize >= 0 && rightSize >= 0 && leftSize != rightSize && leftSize != 1 && rightSize != 1)
      n.fail("batch dimensions " + Twine(leftSize) + " and " + Twine(rightSize) + " do not broadcast");
    bool inLeft = leftSize >= 0 && (leftSize != 1 || rightSize <= 1);
    bool inRight = rightSize >= 0 && (rightSize != 1 || leftSize < 0);
    if (inLeft)
      left.push_back(i);
    else if (leftSize >= 0)
      dropLeft.push_back(l);
    if (inRight)
      right.push_back(i);
    else if (rightSize >= 0)
      dropRight.push_back(r);
    result.push_back(i);
  }
  for (int64_t axis : llvm::reverse(dropLeft)) lhs = dropOne(n, lhs, axis);
  for (int64_t axis : llvm::reverse(dropRight)) rhs = dropOne(n, rhs, axis);
  if (!leftVector) {
    left.push_back(rows);
    result.push_back(rows);
  }
  left.push_back(inner);
  right.push_back(inner);
  if (!rightVector) {
    right.push_back(columns);
    result.push_back(columns);
  }
  return n.b.contract(lhs, rhs, left, right, result);
}

void addContractions(Rules &rules) {
  rules.add("MatMul", matMul);
  rules.add("Gemm", gemm);
  rules.add("Det", determinant);
}

} // namespace cleave::normalize
