#include "compiler/partition/choose_split.h"
#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

// Arithmetic that takes as long as moving one byte between devices; between a CPU's 10 and a GPU cluster's 1000.
constexpr double flopsPerByte = 100;

double price(const Mesh &mesh, const SplitQuestion &question, const FactorSharding &split,
             const LayoutVersions &versions) {
  Operation *op = question.op;
  double bytes = 0, parts = 1;
  for (const Axes &axes : split) parts *= static_cast<double>(mesh.groupSize(axes));
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    Sharding wanted = operandSharding(question.rule, split, index);
    if (!question.passing.empty() && question.rule.linearOperands[index] && versions.pending(operand))
      wanted.partial = question.passing;
    bytes += versions.price(operand, wanted, phaseOf(op));
  }
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    Sharding layout = resultSharding(question.rule, split, index);
    double size = localBytes(mesh, result.getType(), layout);
    Sharding resolved = layout;
    resolved.partial.clear();
    if (question.hint && index == 0) resolved = *question.hint;
    bytes += reshardBytes(mesh, result.getType(), layout, resolved) + size / flopsPerByte;
  }
  if (auto cost = dyn_cast<onnx::CostOpInterface>(op)) bytes += cost.getFlops() / parts / flopsPerByte;
  return bytes;
}

} // namespace

FactorSharding chooseSplit(const Mesh &mesh, const SplitQuestion &question, const LayoutVersions &versions) {
  Operation *op = question.op;
  std::vector<const Sharding *> operands;
  for (const Sharding &vote : question.votes) operands.push_back(&vote);
  std::vector<const Sharding *> results(op->getNumResults());

  std::vector<size_t> bySize(operands.size());
  std::iota(bySize.begin(), bySize.end(), 0);
  llvm::sort(bySize, [&](size_t a, size_t b) {
    double left = bytesOf(op->getOperand(a).getType()), right = bytesOf(op->getOperand(b).getType());
    return left != right ? left > right : a < b;
  });
  std::vector<size_t> reversed(bySize.rbegin(), bySize.rend());

  SmallVector<FactorSharding, 3> candidates;
  auto add = [&](FactorSharding split) {
    if (!llvm::is_contained(candidates, split)) candidates.push_back(std::move(split));
  };
  add(inferFactorSharding(mesh, question.rule, operands, results, bySize));
  if (operands.size() > 1) add(inferFactorSharding(mesh, question.rule, operands, results, reversed));
  if (question.hint && op->getNumResults() == 1) {
    // As if an operand more had the result's layout and came first. Only updates compute in the layout of storage.
    Sharding wanted = without(*question.hint, question.passing);
    if (phaseOf(op) != Phase::Update) wanted = without(wanted, question.zeroAxes);
    FactorRule extended = question.rule;
    extended.operands.push_back(extended.results[0]);
    std::vector<const Sharding *> layouts = operands;
    layouts.push_back(&wanted);
    std::vector<size_t> order = {operands.size()};
    order.insert(order.end(), bySize.begin(), bySize.end());
    add(inferFactorSharding(mesh, extended, layouts, results, order));
  }
  if (candidates.size() == 1) return candidates.front();
  auto best = candidates.begin();
  double bestPrice = price(mesh, question, *best, versions);
  for (auto candidate = std::next(best); candidate != candidates.end(); ++candidate)
    if (double bytes = price(mesh, question, *candidate, versions); bytes < bestPrice) {
      best = candidate;
      bestPrice = bytes;
    }
  return *best;
}

} // namespace cleave::partition
