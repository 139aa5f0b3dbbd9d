#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_order.h"
#include "compiler/tuning.h"
#include "runtime/plan/routine.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

bool isBackward(Operation *op) { return place::hasPhase(op, place::Phase::Backward); }

bool isCompute(Operation *op) {
  return !isNoCommand(op) && !isa<plan::StoreOp>(op) && streamFor(op, nullptr) == runtime::computeLane;
}

// The first product of the backward pass there: kernels prepare for it in the forward pass. Without one what is
// first.
CommandOrder::iterator beginOfBackward(CommandOrder::iterator begin, CommandOrder::iterator end) {
  auto product = std::find_if(begin, end, [](Operation *op) { return isBackward(op) && isProduct(op); });
  return product != end ? product : std::find_if(begin, end, isBackward);
}

// Offloads of activations form buckets of bucketBytes, or more for one large value or 1/16 of all bytes.
// Two buckets are in flight: the command that makes the first value of bucket n waits for bucket n - 2.
// If that command is a collective, the next compute command waits.
// Without stages, a command halfway to the backward pass waits for the last bucket.
void addOffloadWaits(CommandOrder &order, bool isOfStage, int64_t bucketBytes, OffloadWaits &offloadWaits) {
  SmallVector<Operation *> leaving(
      llvm::make_filter_range(order, [](Operation *op) { return isEvict(op) && !isUpdate(op); }));
  int64_t all = 0;
  for (Operation *op : leaving) {
    all += resultBytes(op);
    bucketBytes = std::max(bucketBytes, resultBytes(op));
  }
  bucketBytes = std::max(bucketBytes, all / tuning::hostBuckets);
  SmallVector<Operation *> lastOffload; // by bucket
  int64_t bytes = 0;
  for (Operation *op : leaving) {
    bytes += resultBytes(op);
    if (lastOffload.empty() || bytes > bucketBytes) {
      bytes = resultBytes(op);
      Operation *maker = bufferViewOf(op->getOperand(0)).root.getDefiningOp();
      if (lastOffload.size() >= 2) {
        Operation *earlierOffload = lastOffload[lastOffload.size() - 2];
        auto next =
            std::find_if(std::max(llvm::find(order, maker), llvm::find(order, earlierOffload)), order.end(), isCompute);
        if (next != order.end()) offloadWaits[*next].push_back(earlierOffload);
      }
      lastOffload.push_back(op);
    }
    lastOffload.back() = op;
  }
  if (isOfStage || lastOffload.empty()) return;
  auto left = llvm::find(order, lastOffload.back());
  auto product = beginOfBackward(left, order.end());
  if (product == order.end()) return;
  auto half = std::find_if(left + (product - left) / 2, product, isCompute);
  offloadWaits[*half].push_back(lastOffload.back());
}

} // namespace

// Each fetch stands just before its first consumer, each eviction just after what it takes away. The first bucket is
// fetched from the middle of the backward pass before it on; in a function of a stage, from its begin on.
OffloadWaits orderHostCopies(CommandOrder &order, bool isOfStage) {
  OffloadWaits offloadWaits;
  struct Bucket {
    size_t begin = 0; // where the first consumer stands
    int64_t bytes = 0;
    SmallVector<Operation *> fetches;
    Operation *lastEviction = nullptr;
  };
  SmallVector<Bucket> uses; // by first consumer
  llvm::DenseMap<Operation *, size_t> places;
  for (auto [place, op] : llvm::enumerate(order)) places[op] = place;
  for (Operation *op : order) {
    if (!isFetch(op)) continue;
    size_t first = order.size();
    for (Operation *user : op->getUsers())
      if (auto place = places.find(user); place != places.end()) first = std::min(first, place->second);
    if (uses.empty() || uses.back().begin != first) uses.emplace_back().begin = first;
    uses.back().bytes += resultBytes(op);
    uses.back().fetches.push_back(op);
  }
  if (uses.empty()) {
    addOffloadWaits(order, isOfStage, 0, offloadWaits);
    return offloadWaits;
  }
  llvm::stable_sort(uses, [](const Bucket &a, const Bucket &b) { return a.begin < b.begin; });
  int64_t largest = 0, all = 0;
  for (const Bucket &use : uses) {
    largest = std::max(largest, use.bytes);
    all += use.bytes;
  }
  largest = std::max(largest, all / tuning::hostBuckets);
  SmallVector<Bucket> buckets;
  for (Bucket &use : uses) {
    if (buckets.empty() || buckets.back().bytes + use.bytes > largest) {
      buckets.push_back(std::move(use));
      continue;
    }
    buckets.back().bytes += use.bytes;
    buckets.back().fetches.append(use.fetches);
  }
  for (auto [place, op] : llvm::enumerate(order)) {
    if (!isEvict(op)) continue;
    auto after = llvm::partition_point(buckets, [&](const Bucket &bucket) { return bucket.begin <= place; });
    if (after != buckets.begin()) std::prev(after)->lastEviction = op;
  }
  addOffloadWaits(order, isOfStage, largest, offloadWaits);
  size_t start = 0; // where the first bucket is fetched
  if (!isOfStage) {
    auto firstUse = order.begin() + ptrdiff_t(buckets[0].begin);
    auto backward = beginOfBackward(order.begin(), firstUse);
    start = size_t((backward == firstUse ? 0 : backward - order.begin()) + (firstUse - order.begin())) / 2;
  }
  Early early;
  llvm::DenseSet<Operation *> moved;
  for (size_t i = 0; i < buckets.size(); ++i) {
    Operation *place = i ? order[buckets[i - 1].begin] : order[start];
    early[place].append(buckets[i].fetches);
    moved.insert(buckets[i].fetches.begin(), buckets[i].fetches.end());
    if (i >= 2 && buckets[i - 2].lastEviction) offloadWaits[place].push_back(buckets[i - 2].lastEviction);
  }
  moveAhead(order, early, moved);
  return offloadWaits;
}

} // namespace cleave::codegen
