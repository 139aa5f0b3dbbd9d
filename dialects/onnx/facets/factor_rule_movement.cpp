// Factor rules of the core ops that move elements. A dimension that the op cuts, joins or pads stays whole.
#include "dialects/onnx/facets/rule_building.h"
#include <numeric>

namespace cleave::onnx {
using namespace rules;

// The common refinement of both shapes: [12,2] -> [3,8] is [(3 4),2] -> [3,(4 2)]. Walks both from the major end; at
// every step the greatest common divisor of what is left of the two current dimensions is a shared factor. Where two
// remainders have no common divisor ([3,4] -> [2,6]) the rest of both dimensions, up to where the products meet, is
// whole. Without elements there is nothing to split: every dimension is whole.
FactorRule ReshapeOp::getFactorRule() {
  llvm::ArrayRef<int64_t> from = shape(getX()), to = shape(getY());
  FactorRule rule;
  TensorFactors in(from.size()), out(to.size());
  if (llvm::is_contained(from, 0)) {
    for (size_t d = 0; d < from.size(); ++d) in[d].push_back(rule.add(from[d], Factor::Whole));
    for (size_t d = 0; d < to.size(); ++d) out[d].push_back(rule.add(to[d], Factor::Whole));
    rule.operands = {in};
    rule.results = {out};
    return rule;
  }
  size_t i = 0, j = 0;
  int64_t a = 1, b = 1; // what is left of dimensions i-1 and j-1
  for (;;) {
    while (a == 1 && i < from.size()) a = from[i++];
    while (b == 1 && j < to.size()) b = to[j++];
    if (a == 1 || b == 1) break;
    if (int64_t common = std::gcd(a, b); common > 1) {
      int64_t factor = rule.add(common);
      in[i - 1].push_back(factor);
      out[j - 1].push_back(factor);
      a /= common;
      b /= common;
      continue;
    }
    int64_t left = a, right = b;
    in[i - 1].push_back(rule.add(a, Factor::Whole));
    out[j - 1].push_back(rule.add(b, Factor::Whole));
    while (left != right) {
      if (left < right) {
        in[i].push_back(rule.add(from[i], Factor::Whole));
        left *= from[i++];
      } else {
        out[j].push_back(rule.add(to[j], Factor::Whole));
        right *= to[j++];
      }
    }
    a = b = 1;
  }
  rule.operands = {in};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

FactorRule TransposeOp::getFactorRule() {
  FactorRule rule;
  TensorFactors in = parallel(rule, shape(getX())), out;
  for (int64_t dim : getPerm()) out.push_back(in[dim]);
  rule.operands = {in};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

FactorRule BroadcastOp::getFactorRule() {
  FactorRule rule;
  TensorFactors out = parallel(rule, shape(getY())), in;
  for (int64_t dim : getDims()) in.push_back(out[dim]);
  rule.operands = {in};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

FactorRule SliceOp::getFactorRule() {
  llvm::ArrayRef<int64_t> from = shape(getX());
  FactorRule rule;
  TensorFactors in, out;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    bool kept = getSizes()[dim] == from[dim];
    in.push_back({rule.add(from[dim], kept ? Factor::Parallel : Factor::Whole)});
    out.push_back(kept ? in.back() : std::vector<int64_t>{rule.add(getSizes()[dim], Factor::Whole)});
  }
  rule.operands = {in};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

FactorRule PadOp::getFactorRule() {
  llvm::ArrayRef<int64_t> from = shape(getX()), to = shape(getY());
  FactorRule rule;
  TensorFactors in, out;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    bool kept = from[dim] == to[dim];
    in.push_back({rule.add(from[dim], kept ? Factor::Parallel : Factor::Whole)});
    out.push_back(kept ? in.back() : std::vector<int64_t>{rule.add(to[dim], Factor::Whole)});
  }
  rule.operands = {in};
  rule.results = {out};
  if (getValue().isZero()) linearIn(rule, {0});
  return rule;
}

FactorRule ConcatOp::getFactorRule() {
  FactorRule rule;
  TensorFactors out = parallel(rule, shape(getY()));
  size_t axis = static_cast<size_t>(getAxis());
  rule.factors[out[axis][0]].kind = Factor::Whole;
  for (mlir::Value x : getXs()) {
    TensorFactors in = out;
    in[axis] = {rule.add(shape(x)[axis], Factor::Whole)};
    rule.operands.push_back(in);
  }
  rule.results = {out};
  linearTogether(rule);
  return rule;
}

// Splitting the looked-up dimension leaves each device with the rows it has, zero elsewhere: a partial sum. The rows of
// a batch stay whole.
FactorRule GatherOp::getFactorRule() {
  size_t axis = static_cast<size_t>(getAxis()), batch = static_cast<size_t>(getBatchDims());
  FactorRule rule;
  TensorFactors table = parallel(rule, shape(getTable()));
  rule.factors[table[axis][0]].kind = batch ? Factor::Whole : Factor::Reduced;
  TensorFactors indices(table.begin(), table.begin() + batch);
  for (int64_t size : shape(getIndices()).drop_front(batch)) indices.push_back({rule.add(size)});
  TensorFactors out(table.begin(), table.begin() + axis);
  out.insert(out.end(), indices.begin() + batch, indices.end());
  out.insert(out.end(), table.begin() + axis + 1, table.end());
  rule.operands = {table, indices};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

FactorRule ScatterAddOp::getFactorRule() {
  size_t axis = static_cast<size_t>(getAxis()), batch = static_cast<size_t>(getBatchDims());
  FactorRule rule;
  TensorFactors out = parallel(rule, shape(getY())), indices(out.begin(), out.begin() + batch);
  if (batch) rule.factors[out[axis][0]].kind = Factor::Whole;
  for (int64_t size : shape(getIndices()).drop_front(batch)) indices.push_back({rule.add(size, Factor::Reduced)});
  TensorFactors updates(out.begin(), out.begin() + axis);
  updates.insert(updates.end(), indices.begin() + batch, indices.end());
  updates.insert(updates.end(), out.begin() + axis + 1, out.end());
  rule.operands = {indices, updates};
  rule.results = {out};
  linearIn(rule, {1});
  return rule;
}

// The rolled dimension may be split, but only into single entries: MaterializeCollectives refuses anything between.
FactorRule RollOp::getFactorRule() {
  FactorRule rule;
  TensorFactors factors = parallel(rule, shape(getX()));
  rule.operands = {factors};
  rule.results = {factors};
  linearIn(rule, {0});
  return rule;
}

FactorRule CumSumOp::getFactorRule() {
  FactorRule rule;
  TensorFactors factors = parallel(rule, shape(getX()));
  rule.factors[factors[getAxis()][0]].kind = Factor::Whole;
  rule.operands = {factors};
  rule.results = {factors};
  linearIn(rule, {0});
  return rule;
}

} // namespace cleave::onnx
