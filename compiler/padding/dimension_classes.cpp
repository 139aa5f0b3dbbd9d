#include "compiler/padding/dimension_classes.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"
#include "dialects/onnx/sample_dim.h"
#include <numeric>

using namespace mlir;
using cleave::onnx::tensorType;

namespace cleave::padding {

DimensionClasses::DimensionClasses(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    const int64_t samples = onnx::sampleDim(function, argument.getArgNumber());
    for (auto [dim, one] : llvm::enumerate(dimsOf(argument)))
      if (int64_t(dim) == samples) fix(one);
  }
  for (Operation &op : function.front()) visit(&op);
  for (BlockArgument argument : function.getArguments())
    for (Class one : dimsOf(argument)) fixInner(one);
  for (Operation &op : function.front()) fixWhatIsCounted(&op);
  for (auto &parameter : parameters)
    for (Class one : parameter.second) fixInner(one);
  for (auto &tensor : dims)
    for (Class dimension : tensor.second) { // entries of a square, side by side
      const Classes all = resolved(dimension);
      for (Class one : all)
        if (llvm::count(all, one) > 1) fix(one);
    }
}

DimensionClasses::Class DimensionClasses::add(int64_t size) {
  const auto number = static_cast<Class>(nodes.size());
  nodes.push_back({size, number, {}, size == 0});
  return number;
}

SmallVector<DimensionClasses::Class> &DimensionClasses::dimsOf(Value value) {
  auto [entry, isNew] = dims.try_emplace(value);
  if (!isNew) return entry->second;
  if (auto type = dyn_cast<RankedTensorType>(value.getType()))
    for (int64_t size : type.getShape()) entry->second.push_back(add(size));
  return entry->second;
}

DimensionClasses::Class DimensionClasses::root(Class one) const {
  while (nodes[size_t(one)].same != one) one = nodes[size_t(one)].same;
  return one;
}

void DimensionClasses::resolve(Class one, Classes &into) const {
  const Node &node = nodes[size_t(root(one))];
  if (node.parts.empty() && node.size != 1) into.push_back(root(one));
  for (Class part : node.parts) resolve(part, into);
}

DimensionClasses::Classes DimensionClasses::resolved(ArrayRef<Class> classes) const {
  Classes all;
  for (Class one : classes) resolve(one, all);
  return all;
}

DimensionClasses::Classes DimensionClasses::of(Value value, int64_t dim) const {
  return resolved(dims.find(value)->second[size_t(dim)]);
}

DimensionClasses::Classes DimensionClasses::ofFactor(Operation *op, int64_t factor) const {
  return resolved(rules.find(op)->second.classes[size_t(factor)]);
}

void DimensionClasses::fix(ArrayRef<Class> classes) {
  for (Class one : resolved(classes)) nodes[size_t(one)].isFixed = true;
}

void DimensionClasses::fixInner(Class dimension) {
  const Classes all = resolved(dimension);
  for (Class one : ArrayRef(all).drop_front(all.empty() ? 0 : 1)) nodes[size_t(one)].isFixed = true;
}

void DimensionClasses::split(Class one, int64_t major) {
  const int64_t size = nodes[size_t(one)].size;
  Classes parts{add(major), add(size / major)};
  if (nodes[size_t(one)].isFixed) fix(parts);
  nodes[size_t(one)].parts = parts;
}

// Both are the same dimensions: joins their classes one by one, from the major end, and takes apart what is larger.
void DimensionClasses::tie(ArrayRef<Class> a, ArrayRef<Class> b) {
  for (;;) {
    const Classes left = resolved(a), right = resolved(b);
    const size_t both = std::min(left.size(), right.size());
    size_t at = 0;
    while (at < both && left[at] == right[at]) ++at;
    if (at == both && left.size() == right.size()) return;
    if (at == both) return fix(left), fix(right); // not reached while both have as many elements
    const Class x = left[at], y = right[at];
    const int64_t sizeX = size(x), sizeY = size(y), common = std::gcd(sizeX, sizeY);
    if (sizeX == sizeY) {
      nodes[size_t(y)].same = x;
      nodes[size_t(x)].isFixed |= nodes[size_t(y)].isFixed;
    } else if (common > 1) {
      if (sizeX != common) split(x, common);
      if (sizeY != common) split(y, common);
    } else {
      return fix(ArrayRef(left).drop_front(at)), fix(ArrayRef(right).drop_front(at));
    }
  }
}

void DimensionClasses::visit(Operation *op) {
  auto tieToParameter = [&](StringRef name, Value value) {
    auto [known, isNew] = parameters.try_emplace(name, dimsOf(value));
    for (auto [a, b] : llvm::zip_equal(known->second, dimsOf(value))) tie(a, b);
  };
  if (auto read = dyn_cast<onnx::ReadOp>(op)) return tieToParameter(read.getParam(), read.getValue());
  if (auto write = dyn_cast<onnx::WriteOp>(op)) return tieToParameter(write.getParam(), write.getValue());
  auto interface = dyn_cast<onnx::FactorRuleOpInterface>(op);
  if (!interface) {
    if (op->hasTrait<OpTrait::IsTerminator>()) return;
    for (Value value : op->getOperands()) fix(dimsOf(value));
    for (Value value : op->getResults()) fix(dimsOf(value));
    return;
  }
  Rule &rule = rules[op];
  rule.rule = interface.getFactorRule();
  for (const dist::Factor &factor : rule.rule.factors) {
    rule.classes.push_back(add(factor.size));
    if (factor.kind == dist::Factor::Whole) fix(rule.classes.back());
  }
  auto tieTo = [&](Value value, const dist::TensorFactors &factors) {
    for (auto [dim, own] : llvm::zip_equal(dimsOf(value), factors)) {
      Classes classes;
      for (int64_t factor : own) classes.push_back(rule.classes[size_t(factor)]);
      tie(dim, classes);
    }
  };
  for (auto [value, factors] : llvm::zip_equal(op->getOperands(), rule.rule.operands)) tieTo(value, factors);
  for (auto [value, factors] : llvm::zip_equal(op->getResults(), rule.rule.results)) tieTo(value, factors);
}

// Entries of a dimension that are counted, or found by their number, must stay where they are.
void DimensionClasses::fixWhatIsCounted(Operation *op) {
  auto dim = [&](Value value, int64_t at) { return dimsOf(value)[size_t(at)]; };
  if (auto roll = dyn_cast<onnx::RollOp>(op)) fix(dim(roll.getX(), roll.getDim()));
  if (auto iota = dyn_cast<onnx::IotaOp>(op)) fixInner(dim(iota.getY(), iota.getDim()));
  if (auto gather = dyn_cast<onnx::GatherOp>(op)) fixInner(dim(gather.getTable(), gather.getAxis()));
  if (auto scatter = dyn_cast<onnx::ScatterAddOp>(op)) fixInner(dim(scatter.getY(), scatter.getAxis()));
  if (auto product = dyn_cast<onnx::GroupedContractOp>(op)) {
    ArrayRef<int64_t> indices = product.sumsRows() ? product.getResultIndices() : product.getRhsIndices();
    Value of = product.sumsRows() ? product.getY() : product.getRhs();
    fixInner(dim(of, llvm::find(indices, int64_t(product.getGroupIndex())) - indices.begin()));
  }
  if (auto random = dyn_cast<onnx::RandomUniformOp>(op)) // by the index of all elements
    for (Class one : dimsOf(random.getY())) fixInner(one);
  if (isa<onnx::ConvOp, onnx::ConvGradInputOp, onnx::ConvGradWeightOp>(op)) fix(rules.find(op)->second.classes[1]);
}

} // namespace cleave::padding
