#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "dialects/place/Place.h"
#include <map>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
#define GEN_PASS_DEF_VERIFYPARTITION
#include "compiler/partition/Passes.h.inc"

namespace {

struct VerifyPartition : impl::VerifyPartitionBase<VerifyPartition> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Mesh> parsed = meshOf(module);
    if (failed(parsed)) return signalPassFailure();
    mesh = *parsed;
    SymbolTable symbols(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      for (Operation &op : function.getBody().front())
        if (failed(check(&op, symbols))) return signalPassFailure();
    }
    for (auto &[key, send] : sends)
      if (auto receive = receives.find(key); receive == receives.end() || receive->second.second != send.second) {
        send.first->emitOpError("is met by no receive of its tag and type on that rank");
        return signalPassFailure();
      }
    for (auto &[key, receive] : receives)
      if (!sends.count(key)) {
        receive.first->emitOpError("is met by no send of its tag");
        return signalPassFailure();
      }
  }

private:
  LogicalResult check(Operation *op, SymbolTable &symbols) {
    for (StringRef name : {dist::factorsAttr.name(), dist::resultsAttr.name()})
      if (op->hasAttr(name)) return op->emitOpError("still has '") << name << "' after partitioning";
    if (isa<dist::ReshardOp>(op)) return op->emitOpError("was not materialized");
    if (auto read = dyn_cast<onnx::ReadOp>(op)) return checkHome(op, read.getParam(), read.getValue(), symbols);
    if (auto write = dyn_cast<onnx::WriteOp>(op)) return checkHome(op, write.getParam(), write.getValue(), symbols);
    if (auto send = dyn_cast<dist::SendOp>(op))
      return checkTransfer(op, send.getTo(), send.getTag(), send.getX().getType(), sends);
    if (auto receive = dyn_cast<dist::ReceiveOp>(op))
      return checkTransfer(op, receive.getFrom(), receive.getTag(), receive.getY().getType(), receives);
    if (op->getName().getDialectNamespace() != "dist") return success();
    auto axes = op->getAttrOfType<ArrayAttr>("axes");
    Axes seen;
    for (const std::string &axis : axesOf(axes)) {
      if (mesh.axisSize(axis) < 2) return op->emitOpError("runs over '") << axis << "', no axis of mesh " << mesh.str();
      if (contains(seen, axis)) return op->emitOpError("names axis '") << axis << "' twice";
      seen.push_back(axis);
    }
    if (seen.empty()) return op->emitOpError("has no axes");
    int64_t n = mesh.groupSize(seen);
    if (auto bucket = dyn_cast<dist::BucketOp>(op)) {
      if (bucket.getDims().size() != bucket.getXs().size() || bucket.getXs().size() != bucket.getYs().size())
        return op->emitOpError("has another number of dims or results than operands");
      for (auto [x, y, dim] : llvm::zip_equal(bucket.getXs(), bucket.getYs(), bucket.getDims()))
        if (failed(checkShape(op, bucket.getOp(), x, y, dim, -1, n))) return failure();
      return success();
    }
    auto number = [&](StringRef name) {
      auto attribute = op->getAttrOfType<IntegerAttr>(name);
      return attribute ? attribute.getInt() : -1;
    };
    std::optional<Collective> kind = collectiveNamed(op->getName().stripDialect());
    if (!kind) return op->emitOpError("is no collective");
    return checkShape(op, *kind, op->getOperand(0), op->getResult(0), number("dim"), number("split_dim"), n);
  }

  // Sends and receives by from, to and tag.
  using Transfers = std::map<std::tuple<int64_t, int64_t, int64_t>, std::pair<Operation *, Type>>;

  LogicalResult checkTransfer(Operation *op, int64_t peer, int64_t tag, Type type, Transfers &transfers) {
    auto program = place::programAttr.of(op->getParentOp());
    if (!program) return op->emitOpError("stands in a function of no pipeline rank");
    if (peer < 0 || peer >= mesh.axisSize(dist::pipelineAxis))
      return op->emitOpError("has the peer ")
             << peer << " of " << mesh.axisSize(dist::pipelineAxis) << " pipeline ranks";
    int64_t own = *program;
    bool sending = isa<dist::SendOp>(op);
    if (place::aheadAttr.isOn(op->getParentOp())) return success(); // the same message of the next step
    if (!transfers.try_emplace({sending ? own : peer, sending ? peer : own, tag}, op, type).second)
      return op->emitOpError("is the second of tag ") << tag << " to that rank";
    return success();
  }

  LogicalResult checkHome(Operation *op, StringRef name, Value value, SymbolTable &symbols) {
    auto param = symbols.lookup<onnx::ParamOp>(name);
    if (!param) return op->emitOpError("names a persistent tensor that does not exist: @") << name;
    auto global = cast<RankedTensorType>(param.getType());
    std::vector<int64_t> local;
    std::string error;
    if (!localShape(mesh, homeOf(mesh, param), global.getShape().vec(), local, error))
      return op->emitOpError("of @") << name << ": " << error;
    if (value.getType() == global.clone(local)) return success();
    return op->emitOpError("has type ") << value.getType() << ", but @" << name << " lies as "
                                        << homeOf(mesh, param).str() << ": " << global.clone(local);
  }

  LogicalResult checkShape(Operation *op, Collective kind, Value x, Value y, int64_t dim, int64_t splitDim, int64_t n) {
    auto type = cast<RankedTensorType>(x.getType());
    SmallVector<int64_t> shape(type.getShape());
    int64_t rank = type.getRank();
    const bool needsDim = !llvm::is_contained({Collective::AllReduce, Collective::Broadcast, Collective::Shift}, kind);
    if (needsDim && (dim < 0 || dim >= rank)) return op->emitOpError("has no dimension ") << dim;
    if (kind == Collective::AllToAll && (splitDim < 0 || splitDim >= rank))
      return op->emitOpError("has no dimension ") << splitDim << " to split";
    auto divide = [&](int64_t d) {
      bool even = shape[d] % n == 0;
      shape[d] /= n;
      return even;
    };
    bool even = true;
    if (kind == Collective::ReduceScatter || kind == Collective::OwnPart) even = divide(dim);
    if (kind == Collective::AllToAll) even = divide(splitDim);
    if (kind == Collective::AllGather || kind == Collective::AllToAll) shape[dim] *= n;
    if (!even) return op->emitOpError("cuts a dimension that does not divide evenly by ") << n;
    if (y.getType() != type.clone(shape))
      return op->emitOpError("gives ") << y.getType() << " where " << type.clone(shape) << " comes out";
    return success();
  }

  Mesh mesh;
  Transfers sends, receives;
};

} // namespace
} // namespace cleave::partition
