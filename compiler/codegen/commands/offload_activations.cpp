#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_list.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "compiler/tuning.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_OFFLOADACTIVATIONS
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

using place::Phase;

constexpr int64_t smallestPart = 1024; // of all bytes kept

// Made from parameters and constants alone: made again rather than moved.
bool isMadeFromParameters(Operation *op) {
  return llvm::all_of(op->getOperands(), [](Value operand) {
    return isa_and_nonnull<onnx::ReadOp, plan::ConstantCommandOp, plan::FillCommandOp>(
        bufferViewOf(operand).root.getDefiningOp());
  });
}

// A received value stays: it lies where the next ones are received meanwhile.
bool isMadeHere(Value root) {
  Operation *definition = root.getDefiningOp();
  return definition && !isa<plan::ReceiveCommandOp>(definition) && !isMadeFromParameters(definition);
}

// Has these uses read what comes back before the first of them.
void fetchFor(Value away, Value root, Operation *first, ArrayRef<OpOperand *> uses) {
  OpBuilder builder(first);
  llvm::DenseMap<Value, Value> views; // the same view of what came back
  views[root] = addHostCopy(builder, away, "fetch", Phase::Backward);
  auto viewOf = [&](Value value, auto &&self) -> Value {
    if (Value known = views.lookup(value)) return known;
    auto view = value.getDefiningOp<plan::ViewOp>();
    IRMapping mapping;
    mapping.map(view.getX(), self(view.getX(), self));
    return views[value] = builder.clone(*view, mapping)->getResult(0);
  };
  for (OpOperand *use : uses) use->set(viewOf(use->get(), viewOf));
}

Value evictAfter(Value value) {
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfterValue(value);
  return addHostCopy(builder, value, "evict", Phase::Forward);
}

// A step without pipeline stages: both passes are in one function.
class Offloading {
public:
  explicit Offloading(func::FuncOp function) : function(function), list(function), backward(beginOfBackward()) {
    countCommands();
  }

  void run() {
    SmallVector<Kept> all;
    int64_t bytes = 0;
    for (Value root : list.rootsInOrder())
      if (std::optional<Kept> kept = offloadCandidate(root)) {
        bytes += kept->bytes;
        all.push_back(std::move(*kept));
      }
    for (Kept &kept : all)
      if (kept.bytes * smallestPart >= bytes)
        fetchFor(evictAfter(kept.root), kept.root, kept.firstBackwardUse, kept.uses);
  }

private:
  struct Kept {
    Value root;
    int64_t bytes = 0;
    Operation *firstBackwardUse = nullptr; // the first command of the backward pass that reads it
    SmallVector<OpOperand *> uses;         // of the backward pass
  };

  // Where the gradients of weights and of what was kept begin. Before it stand the loss, and what kernels prepare for
  // the backward pass while they have a value in hand.
  int64_t beginOfBackward() {
    int64_t product = list.end(), any = list.end();
    for (Operation &op : function.getBody().front()) {
      if (!place::hasPhase(&op, Phase::Backward)) continue;
      any = std::min(any, list.position(&op));
      if (isProduct(&op)) product = std::min(product, list.position(&op));
    }
    return product < list.end() ? product : any;
  }

  // Updates stand behind both passes here, and begin before the backward pass ends: they are no part of the way.
  void countCommands() {
    commandsUpTo.push_back(0); // position 0: arguments
    for (Operation &op : function.getBody().front()) {
      const bool isCommand = !isa<plan::ViewOp, plan::ConstantCommandOp, onnx::ReadOp>(op) &&
                             (place::hasPhase(&op, Phase::Forward) || place::hasPhase(&op, Phase::Backward));
      commandsUpTo.push_back(commandsUpTo.back() + isCommand);
    }
  }

  // A running statistic's update, which reads nothing that the backward pass makes: it runs as soon as it can.
  bool runsEarly(Operation *op) const {
    return llvm::all_of(op->getOperands(),
                        [&](Value operand) { return list.position(bufferViewOf(operand).root) < backward; });
  }

  std::optional<Kept> offloadCandidate(Value root) const {
    if (!isMadeHere(root) || list.position(root) >= backward) return std::nullopt;
    Kept kept{root, bytesOf(root.getType()), nullptr, {}};
    int64_t last = list.position(root);
    for (OpOperand *use : list.usesOf(root)) {
      Operation *user = use->getOwner();
      const auto phase = place::of(user).phase;
      if (phase == Phase::Forward || (phase == Phase::Backward && list.position(user) < backward)) {
        last = std::max(last, list.position(user));
      } else if (phase == Phase::Backward || !runsEarly(user)) { // an Update kernel may contain fused backward work
        if (!kept.firstBackwardUse || user->isBeforeInBlock(kept.firstBackwardUse)) kept.firstBackwardUse = user;
        kept.uses.push_back(use);
      }
    }
    if (!kept.firstBackwardUse) return std::nullopt;
    const int64_t commandsBetween =
        commandsUpTo[size_t(list.position(kept.firstBackwardUse))] - commandsUpTo[size_t(last)];
    if (commandsBetween * tuning::offloadSpanDivisor < commandsUpTo.back()) return std::nullopt;
    return kept;
  }

  func::FuncOp function;
  CommandList list;
  int64_t backward;
  std::vector<int64_t> commandsUpTo; // by position: of both passes
};

// The functions of one stage, which keep values for each other in slots: those of the forward pass take them away,
// each of the backward pass has them come back.
class StageOffloading {
public:
  explicit StageOffloading(ArrayRef<func::FuncOp> functions) {
    auto slots = place::slotsAttr.of(functions.front());
    othersBetween = slots && *slots > 1;
    for (func::FuncOp function : functions) collect(function, CommandList(function));
  }

  void run() {
    int64_t bytes = 0;
    for (auto &[number, kept] : all)
      if (kept.leaves()) bytes += kept.bytes;
    for (auto &[number, kept] : all) {
      if (!kept.leaves() || kept.bytes * smallestPart < bytes || !isAwayLong(kept)) continue;
      for (OpOperand *result : kept.results) result->set(evictAfter(result->get()));
      for (Reader &reader : kept.readers) fetchFor(reader.argument, reader.argument, reader.first, reader.uses);
    }
  }

private:
  struct Reader {
    Value argument;
    Operation *first = nullptr;
    int64_t position = 0, pass = 0; // of `first`; commands of its function
    SmallVector<OpOperand *> uses;
  };
  struct Kept {
    int64_t bytes = 0;
    SmallVector<OpOperand *> results; // one a variant of the forward pass
    SmallVector<Reader> readers;
    bool isOfForwardPass = true;
    int64_t left = 0, pass = 0; // of the forward pass, commands after its last use there and all
    bool leaves() const { return isOfForwardPass && !results.empty() && !readers.empty(); }
  };

  void collect(func::FuncOp function, const CommandList &list) {
    for (BlockArgument argument : function.getArguments()) {
      auto number = place::keptAttr.of(function, argument.getArgNumber());
      if (!number) continue;
      Reader reader{argument, nullptr, 0, list.end(), {}};
      for (OpOperand *use : list.usesOf(argument)) {
        int64_t position = list.position(use->getOwner());
        if (!reader.first || position < reader.position) {
          reader.first = use->getOwner();
          reader.position = position;
        }
        reader.uses.push_back(use);
      }
      if (reader.first) all[*number].readers.push_back(std::move(reader));
    }
    for (OpOperand &result : function.getBody().front().getTerminator()->getOpOperands()) {
      auto number = place::keptAttr.ofResult(function, result.getOperandNumber());
      if (!number) continue;
      Kept &kept = all[*number];
      Value root = bufferViewOf(result.get()).root;
      int64_t last = list.position(root);
      for (OpOperand *use : list.usesOf(root))
        if (use->getOwner() != result.getOwner()) last = std::max(last, list.position(use->getOwner()));
      kept.bytes = bytesOf(root.getType());
      kept.results.push_back(&result);
      kept.isOfForwardPass &= isMadeHere(root) && place::hasPhase(root.getDefiningOp(), Phase::Forward);
      kept.left = list.end() - last;
      kept.pass = list.end();
    }
  }

  // With other microbatches in between always.
  bool isAwayLong(const Kept &kept) const {
    const Reader &reader = kept.readers.front();
    return othersBetween || (kept.left + reader.position) * tuning::offloadSpanDivisor >= kept.pass + reader.pass;
  }

  llvm::MapVector<int64_t, Kept> all; // by number
  bool othersBetween = false;
};

struct OffloadActivations : impl::OffloadActivationsBase<OffloadActivations> {
  void runOnOperation() override {
    if (!offloads(getOperation(), "activations")) return;
    llvm::MapVector<std::pair<int64_t, StringRef>, SmallVector<func::FuncOp>> stages; // by program and region
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      if (auto region = place::regionAttr.of(function))
        stages[{programOf(function), *region}].push_back(function);
      else
        Offloading(function).run();
    }
    for (auto &[region, functions] : stages) StageOffloading(functions).run();
  }
};

} // namespace
} // namespace cleave::codegen
