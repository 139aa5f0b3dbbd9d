// Which dimensions of a function's tensors are one: its operations index them by the same factors.
//
//   h[b,s,c] = Gather(table[v,c], ids[b,s]);  r = Reshape h to [(b s),c];  x = Contract r, table over c: [(b s),v]
//   classes b, s, c, v;   of(r, 0) = {b, s},  of(x, 1) = {v}
#pragma once
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::padding {

class DimensionClasses {
public:
  using Class = int64_t;
  using Classes = llvm::SmallVector<Class, 2>;

  explicit DimensionClasses(mlir::func::FuncOp function);

  // Whose sizes multiply to the dimension's, major first; those of size 1 are left out.
  Classes of(mlir::Value value, int64_t dim) const;
  // A value that was made later has the dimensions of another.
  void setLike(mlir::Value made, mlir::Value other) { dims[made] = llvm::SmallVector<Class>(dims.find(other)->second); }
  // Of a factor of an operation's rule, as the function was when it was read.
  Classes ofFactor(mlir::Operation *op, int64_t factor) const;
  const dist::FactorRule &ruleOf(mlir::Operation *op) const { return rules.find(op)->second.rule; }
  bool hasRule(mlir::Operation *op) const { return rules.contains(op); }
  int64_t size(Class one) const { return nodes[size_t(one)].size; }
  // An operation needs all of it, or counts its entries.
  bool isFixed(Class one) const { return nodes[size_t(one)].isFixed; }

private:
  struct Node {
    int64_t size;
    Class same;    // itself, or the one that it was joined with
    Classes parts; // it turned out to be these, major first
    bool isFixed = false;
  };
  struct Rule {
    dist::FactorRule rule;
    llvm::SmallVector<Class> classes; // by factor
  };
  std::vector<Node> nodes;
  llvm::DenseMap<mlir::Operation *, Rule> rules;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Class>> dims; // one class a dimension, which may have parts
  llvm::StringMap<llvm::SmallVector<Class>> parameters;

  Class add(int64_t size);
  llvm::SmallVector<Class> &dimsOf(mlir::Value value);
  Class root(Class one) const;
  void resolve(Class one, Classes &into) const;
  Classes resolved(llvm::ArrayRef<Class> classes) const;
  void tie(llvm::ArrayRef<Class> a, llvm::ArrayRef<Class> b);
  void fix(llvm::ArrayRef<Class> classes);
  void fixInner(Class dimension); // all but the major one
  void split(Class one, int64_t major);
  void visit(mlir::Operation *op);
  void fixWhatIsCounted(mlir::Operation *op);
};

} // namespace cleave::padding
