#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "compiler/tuning.h"
#include <algorithm>
#include <limits>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
#define GEN_PASS_DEF_BUCKETCOLLECTIVES
#include "compiler/partition/Passes.h.inc"

namespace {

constexpr int64_t never = std::numeric_limits<int64_t>::max();

class Bucketing {
public:
  Bucketing(func::FuncOp function, int64_t limit) : block(function.getBody().front()), limit(limit) {}

  void run() {
    delayWrites();
    int64_t count = 0;
    for (Operation &op : block) position[&op] = count++;
    for (Operation &op : block) consider(&op);
    for (auto &[key, bucket] : open) close(bucket);
    // Built only now: positions are those of the original order.
    for (Bucket &bucket : closed) build(bucket);
  }

private:
  struct Bucket {
    SmallVector<Operation *> members;
    int64_t ready = -1, deadline = never; // positions: of the last operand's maker, of the first use
    double bytes = 0;
  };
  using Key = std::tuple<StringRef, Attribute, Attribute, Type>; // operation, axes, reduction, element type

  // A write may stand anywhere in its function; at the end it leaves a gather the most time.
  void delayWrites() {
    SmallVector<Operation *> writes;
    for (auto write : block.getOps<onnx::WriteOp>())
      if (write.getValue().getDefiningOp<dist::AllGatherOp>()) writes.push_back(write);
    for (Operation *write : writes) write->moveBefore(block.getTerminator());
  }

  void consider(Operation *op) {
    if (!isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp>(op)) return;
    if (hasPipelineAxis(axesOf(op->getAttr("axes")))) return; // the members run different programs
    Operation *maker = op->getOperand(0).getDefiningOp();
    if (maker && maker->getName().getDialectNamespace() == "dist") return; // waits for another collective
    Operation *first = nullptr;
    for (Operation *user : op->getUsers())
      if (!first || user->isBeforeInBlock(first)) first = user;
    // Work of the same phase waits for it: a bucket would only delay that.
    if (!first || !(phaseOf(first) == Phase::Update || isa<onnx::WriteOp, func::ReturnOp>(first))) return;
    // A gathered parameter that the update itself reads is wanted at its use, not early.
    if (isa<dist::AllGatherOp>(op) && !isa<onnx::WriteOp>(first)) return;
    int64_t ready = maker ? position[maker] : -1, deadline = position[first];
    auto type = cast<RankedTensorType>(op->getOperand(0).getType());
    Key key{op->getName().stripDialect(), op->getAttr("axes"), op->getAttr("reduce"), type.getElementType()};
    auto found = std::find_if(open.begin(), open.end(), [&](auto &entry) { return entry.first == key; });
    if (found == open.end()) found = open.insert(open.end(), {key, Bucket()});
    Bucket &bucket = found->second;
    double bytes = std::max(bytesOf(op->getOperand(0).getType()), bytesOf(op->getResult(0).getType()));
    bool late = std::max(ready, bucket.ready) >= std::min(deadline, bucket.deadline);
    if (!bucket.members.empty() && (late || bucket.bytes + bytes > static_cast<double>(limit))) {
      close(bucket);
      bucket = Bucket();
    }
    bucket.members.push_back(op);
    bucket.ready = std::max(bucket.ready, ready);
    bucket.deadline = std::min(bucket.deadline, deadline);
    bucket.bytes += bytes;
  }

  void close(Bucket &bucket) {
    if (!bucket.members.empty()) closed.push_back(bucket);
  }

  void build(Bucket &bucket) {
    Operation *last = nullptr;
    for (Operation *member : bucket.members) {
      Operation *maker = member->getOperand(0).getDefiningOp();
      if (maker && (!last || position[last] < position[maker])) last = maker;
    }
    if (bucket.members.size() == 1) { // as early as possible
      Operation *member = bucket.members.front();
      if (last)
        member->moveAfter(last);
      else
        member->moveBefore(&block.front());
      return;
    }
    OpBuilder builder(block.getParentOp()->getContext());
    if (last)
      builder.setInsertionPointAfter(last);
    else
      builder.setInsertionPointToStart(&block);
    SmallVector<Value> operands;
    SmallVector<Type> results;
    SmallVector<Location> locations;
    SmallVector<int64_t> dims;
    std::vector<std::string> tensors;
    for (Operation *member : bucket.members) {
      const std::vector<std::string> named = dist::tensorsAttr.of(member);
      tensors.push_back(named.empty() ? "" : named[0]);
      operands.push_back(member->getOperand(0));
      results.push_back(member->getResult(0).getType());
      locations.push_back(member->getLoc());
      auto dim = member->getAttrOfType<IntegerAttr>("dim");
      dims.push_back(dim ? dim.getInt() : -1);
    }
    Operation *first = bucket.members.front();
    std::string why;
    if (auto reason = first->getAttrOfType<StringAttr>("why")) why = reason.str();
    why += " and " + std::to_string(bucket.members.size() - 1) + " more";
    auto joined = dist::BucketOp::create(
        builder, builder.getFusedLoc(locations), results, operands, *collectiveNamed(first->getName().stripDialect()),
        first->getAttrOfType<ArrayAttr>("axes"), first->getAttrOfType<ReductionAttr>("reduce"),
        builder.getDenseI64ArrayAttr(dims), builder.getStringAttr(why));
    place::setPhase(joined, phaseOf(first));
    dist::tensorsAttr.set(joined, tensors);
    for (auto [member, result] : llvm::zip_equal(bucket.members, joined.getResults())) {
      member->getResult(0).replaceAllUsesWith(result);
      member->erase();
    }
  }

  Block &block;
  int64_t limit;
  DenseMap<Operation *, int64_t> position;
  std::vector<std::pair<Key, Bucket>> open;
  std::vector<Bucket> closed;
};

struct BucketCollectives : impl::BucketCollectivesBase<BucketCollectives> {
  using Base::Base;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal()) Bucketing(function, bytes).run();
  }
};

} // namespace

} // namespace cleave::partition
