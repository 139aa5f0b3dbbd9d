#include "compiler/partition/chunk_region.h"
#include "compiler/partition/layouts.h"
#include "dialects/dist/Dist.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

// What leaves a region or joins two of its members has at most this part of the product's elements: else nothing is won.
constexpr int64_t smallPart = 4;
// So many operations from the first of a region to its last at most. A head and its loss take some tens; a product of
// an earlier layer and what its gradient needs of it have half the step between them, which no region takes in.
constexpr int64_t longestSpan = 1024;

int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

// The factor rule of a core operation, and of a sum over devices, whose dimensions all stay.
std::optional<FactorRule> ruleOf(Operation *op) {
  if (auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op)) return rules.getFactorRule();
  if (!isa<dist::AllReduceOp>(op)) return std::nullopt;
  FactorRule rule;
  TensorFactors dims;
  for (int64_t size : shapeOf(op->getResult(0))) dims.push_back({rule.add(size)});
  rule.operands = rule.results = {dims};
  return rule;
}

// Where a part lies in the whole says what the operation computes: a row that a number names, groups of channels, a draw.
bool countsFromWhole(Operation *op, const FactorRule &rule, int64_t factor) {
  auto isAt = [&](const TensorFactors &dims, int64_t dim) { return llvm::is_contained(dims[size_t(dim)], factor); };
  if (auto gather = dyn_cast<onnx::GatherOp>(op)) return isAt(rule.operands[0], gather.getAxis());
  if (auto scatter = dyn_cast<onnx::ScatterAddOp>(op)) return isAt(rule.results[0], scatter.getAxis());
  return isa<onnx::RandomUniformOp, onnx::ConvOp, onnx::ConvGradInputOp, onnx::ConvGradWeightOp>(op);
}

class Search {
public:
  Search(onnx::ContractOp product, int64_t dim) : product(product), large(elementsOf(product.getY()) / 2) {
    region.rows = shapeOf(product.getY())[size_t(dim)];
    canCut = cut(product.getY(), dim);
  }

  std::optional<ChunkRegion> run() {
    while (canCut && !open.empty()) {
      Operation *op = open.pop_back_val();
      canCut = addMember(op);
    }
    if (!canCut || !close() || !leaveIsSmall()) return std::nullopt;
    auto order = region.members.takeVector();
    llvm::sort(order, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    region.members.insert(order.begin(), order.end());
    return std::move(region);
  }

private:
  bool isLarge(Value value) const { return elementsOf(value) >= large; }

  // The value is cut along this dimension. One that is large is made, and read, by members.
  bool cut(Value value, int64_t dim) {
    auto [known, isNew] = region.dims.try_emplace(value, dim);
    if (!isNew) return known->second == dim;
    if (shapeOf(value)[size_t(dim)] % region.rows) return false;
    if (!isLarge(value)) return true;
    if (Operation *made = value.getDefiningOp(); made && !isInput(value)) open.push_back(made);
    for (Operation *user : value.getUsers()) open.push_back(user);
    return true;
  }

  // A value that is there before the region: parts of it are sliced.
  bool isInput(Value value) const {
    Operation *made = value.getDefiningOp();
    if (auto constant = dyn_cast_or_null<onnx::ConstantOp>(made)) {
      auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
      return !dense || !dense.isSplat();
    }
    auto iota = dyn_cast_or_null<onnx::IotaOp>(made);
    return !made || isa<onnx::ReadOp>(made) || (iota && int64_t(iota.getDim()) == region.dims.lookup(value));
  }

  bool addMember(Operation *op) {
    if (!region.members.insert(op)) return true;
    if (isa<onnx::ConstantOp>(op)) return true;
    std::optional<FactorRule> rule = ruleOf(op);
    if (!rule || op->getNumResults() != 1) return false;
    const std::optional<int64_t> factor = factorOf(op, *rule);
    if (!factor || rule->factors[size_t(*factor)].kind == Factor::Whole || countsFromWhole(op, *rule, *factor))
      return false;
    for (auto [operand, dims] : llvm::zip_equal(op->getOperands(), rule->operands))
      if (!follow(operand, dims, *factor)) return false;
    if (rule->factors[size_t(*factor)].kind == Factor::Reduced) {
      region.sums[op->getResult(0)] = rule->factors[size_t(*factor)].reduction;
      return true;
    }
    return follow(op->getResult(0), rule->results[0], *factor);
  }

  // The factor that the cut of a value around the operation asks for.
  std::optional<int64_t> factorOf(Operation *op, const FactorRule &rule) const {
    auto asked = [&](Value value, const TensorFactors &dims) -> std::optional<int64_t> {
      auto known = region.dims.find(value);
      if (known == region.dims.end() || dims[size_t(known->second)].empty()) return std::nullopt;
      return majorOf(rule, dims[size_t(known->second)]);
    };
    if (auto factor = asked(op->getResult(0), rule.results[0])) return factor;
    for (auto [operand, dims] : llvm::zip_equal(op->getOperands(), rule.operands))
      if (auto factor = asked(operand, dims)) return factor;
    return std::nullopt;
  }
  static int64_t majorOf(const FactorRule &rule, const std::vector<int64_t> &factors) {
    for (int64_t factor : factors)
      if (rule.factors[size_t(factor)].size > 1) return factor;
    return factors.front();
  }

  // A tensor of an operation whose factor is cut: where it has the factor, it is cut along that dimension.
  bool follow(Value value, const TensorFactors &dims, int64_t factor) {
    for (auto [dim, factors] : llvm::enumerate(dims)) {
      if (!llvm::is_contained(factors, factor)) continue;
      // A factor of more rows is cut between blocks of them, one of fewer cannot be.
      return factors.front() == factor && cut(value, int64_t(dim));
    }
    return !region.dims.contains(value);
  }

  // The operations from the first member to the last; none if they are too many.
  SmallVector<Operation *> span() const {
    Operation *first = product, *last = product;
    for (Operation *op : region.members) {
      if (op->isBeforeInBlock(first)) first = op;
      if (last->isBeforeInBlock(op)) last = op;
    }
    SmallVector<Operation *> all;
    for (Operation *op = first; op && int64_t(all.size()) <= longestSpan; op = op->getNextNode()) {
      all.push_back(op);
      if (op == last) return all;
    }
    return {};
  }

  // Adds what lies between members: small values, one part of which needs that part of a member alone.
  bool close() {
    const SmallVector<Operation *> all = span();
    if (all.empty()) return false;
    llvm::DenseSet<Operation *> after, before; // what needs a member, what a member needs
    for (Operation *op : all)
      if (region.members.contains(op) || llvm::any_of(op->getOperands(), [&](Value x) {
            return x.getDefiningOp() && after.contains(x.getDefiningOp());
          }))
        after.insert(op);
    SmallVector<Operation *> between;
    for (Operation *op : llvm::reverse(all)) {
      if (!region.members.contains(op) &&
          !llvm::any_of(op->getUsers(), [&](Operation *user) { return before.contains(user); }))
        continue;
      before.insert(op);
      if (after.contains(op) && !region.members.contains(op)) between.push_back(op);
    }
    for (Operation *op : llvm::reverse(between)) {
      if (llvm::any_of(op->getResults(), [&](Value y) { return elementsOf(y) > large * 2 / smallPart; })) return false;
      if (!addMember(op)) return false;
    }
    // A sum over all parts is there after the last of them.
    return open.empty() && llvm::none_of(region.sums, [&](auto &sum) {
             return llvm::any_of(sum.first.getUsers(), [&](Operation *user) { return region.members.contains(user); });
           });
  }

  bool leaveIsSmall() const {
    for (Operation *op : region.members)
      for (Value y : op->getResults())
        if (region.dims.contains(y) && elementsOf(y) > large * 2 / smallPart &&
            llvm::any_of(y.getUsers(), [&](Operation *user) { return !region.members.contains(user); }))
          return false;
    return true;
  }

  onnx::ContractOp product;
  const int64_t large; // elements
  ChunkRegion region;
  SmallVector<Operation *> open;
  bool canCut;
};

} // namespace

int64_t ChunkRegion::sizeOf(Value value, int64_t begin, int64_t end) const {
  return shapeOf(value)[size_t(dims.lookup(value))] / rows * (end - begin);
}

std::optional<ChunkRegion> findChunkRegion(onnx::ContractOp product, int64_t parts) {
  const FactorRule rule = cast<onnx::FactorRuleOpInterface>(*product).getFactorRule();
  const SmallVector<int64_t> shape = shapeOf(product.getY());
  // The rows of an operand are dimensions that the other one does not have. Parts of the first lie together.
  auto isOf = [&](size_t operand, int64_t factor) {
    return llvm::any_of(rule.operands[operand], [&](auto &dims) { return llvm::is_contained(dims, factor); });
  };
  for (size_t operand : {0, 1}) {
    if (elementsOf(product->getOperand(unsigned(operand))) * 2 > elementsOf(product.getY())) continue;
    std::optional<size_t> rows;
    for (auto [dim, factors] : llvm::enumerate(rule.results[0])) {
      if (factors.size() != 1 || !isOf(operand, factors[0]) || isOf(1 - operand, factors[0])) continue;
      if (!rows || (shape[*rows] < 2 * parts && shape[dim] > shape[*rows])) rows = dim;
    }
    if (!rows || shape[*rows] < 2) continue;
    if (auto region = Search(product, int64_t(*rows)).run()) return region;
  }
  return std::nullopt;
}

std::vector<ChunkRegion> chunkRegions(Block &block, int64_t parts) {
  SmallVector<onnx::ContractOp> products(block.getOps<onnx::ContractOp>());
  llvm::stable_sort(products, [](auto a, auto b) { return elementsOf(a.getY()) > elementsOf(b.getY()); });
  std::vector<ChunkRegion> regions;
  for (onnx::ContractOp product : products) {
    if (elementsOf(product.getY()) * smallPart < elementsOf(products.front().getY())) break;
    auto contains = [&](const ChunkRegion &region) { return region.members.contains(product); };
    if (llvm::any_of(regions, contains)) continue;
    std::optional<ChunkRegion> region = findChunkRegion(product, parts);
    auto overlaps = [&](const ChunkRegion &other) {
      return llvm::any_of(region->members, [&](Operation *op) { return other.members.contains(op); });
    };
    if (region && llvm::none_of(regions, overlaps)) regions.push_back(std::move(*region));
  }
  return regions;
}

} // namespace cleave::partition
