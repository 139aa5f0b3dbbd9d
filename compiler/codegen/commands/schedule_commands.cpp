#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_order.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "compiler/codegen/passes.h"
#include "compiler/tuning.h"
#include "runtime/plan/routine.h"
#include "llvm/ADT/StringMap.h"
#include <deque>

namespace cleave::codegen {
#define GEN_PASS_DEF_SCHEDULECOMMANDS
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

// The number of a transfer or a collective between stages, in the sequence that all ranks know.
int64_t numberOf(Operation *op) {
  if (auto send = dyn_cast<plan::SendCommandOp>(op)) return send.getTag();
  if (auto receive = dyn_cast<plan::ReceiveCommandOp>(op)) return receive.getTag();
  return cast<plan::CollectiveCommandOp>(op).getSequence();
}

class Scheduler {
public:
  Scheduler(func::FuncOp function, const SymbolTable &symbols, bool launchesTogether)
      : block(function.getBody().front()), symbols(symbols), launchesTogether(launchesTogether),
        isOfStage(place::regionAttr.isOn(function)),
        oneWay(isOfStage && llvm::none_of(block, [](Operation &op) { return isBetweenStages(&op); })) {}

  // Null, or an operation that can come neither before nor after what it waits for; nothing is then moved.
  Operation *run() {
    analyze();
    for (Operation &op : block.without_terminator()) program.push_back(&op);
    SmallVector<Operation *> receives(
        llvm::make_filter_range(program, [](Operation *op) { return isa<plan::ReceiveCommandOp>(op); }));
    llvm::stable_sort(receives, [](Operation *a, Operation *b) { return numberOf(a) < numberOf(b); });
    for (Operation *op : receives) emit(op);
    for (Operation *op : program)
      if (isMove(op)) emit(op);
    for (Operation *op : program) // peers wait for what is there from the start
      if (isa<plan::SendCommandOp>(op) && pending.lookup(op) == 0) emit(op);
    for (Operation *op : program)
      if (!isLazy(op) && !(isUpdate(op) && !isa<plan::StoreOp>(op)) && !isCollective(op) && !isa<plan::StoreOp>(op))
        emit(op);
    while (!deferred.empty() && !contradiction) {
      release(/*all=*/true);
      emit(updates.pop_back_val());
    }
    while (!together.empty() && !contradiction) // and then what that makes ready
      for (Operation *op : std::exchange(together, {})) emit(op);
    for (bool all : {false, true}) // gradients of what was kept are made where they are added, one after the other
      for (Operation *op : program)
        if (isUpdate(op) && !isa<plan::StoreOp, plan::FillCommandOp>(op) && (all || pending.lookup(op) == 0)) emit(op);
    for (Operation *op : program) // what only stores and results need; zeros when nobody reads what they replace
      if (!isa<plan::StoreOp, plan::FillCommandOp>(op)) emit(op);
    for (Operation *op : program) emit(op);
    if (contradiction) return contradiction;
    prefetchGathers();
    if (launchesTogether) joinSmallLaunches();
    offloadWaits = orderHostCopies(order, isOfStage);
    for (Operation *op : order) op->moveBefore(block.getTerminator());
    return nullptr;
  }

  OffloadWaits offloadWaits;

private:
  struct Deferred {
    Operation *op;
    int64_t collective; // number of the newest collective it reads
  };

  bool isLazy(Operation *op) const { return lazy.contains(op); }

  // Puts a persistent tensor into another one that the function does not read.
  bool isMove(Operation *op) const {
    auto store = dyn_cast<plan::StoreOp>(op);
    return store && store.getValue().getDefiningOp<onnx::ReadOp>() && !read.contains(store.getParamAttr());
  }

  void analyze() {
    llvm::DenseMap<Attribute, SmallVector<Operation *>> readersOf; // of a parameter or a state
    for (auto op : block.getOps<onnx::ReadOp>()) read.insert(op.getParamAttr());
    for (Operation &op : block.without_terminator()) {
      bool fromNothing = llvm::all_of(op.getOperands(), [&](Value operand) {
        Operation *producer = bufferViewOf(operand).root.getDefiningOp();
        return !producer || isNoCommand(producer) || isa<plan::FillCommandOp>(producer);
      });
      if (fromNothing && !isa<plan::StoreOp, plan::SendCommandOp>(op)) lazy.insert(&op);
      for (Value operand : op.getOperands()) {
        if (Operation *producer = operand.getDefiningOp(); producer && !isLazy(producer)) {
          consumers[producer].push_back(&op);
          ++pending[&op];
        }
        auto read = bufferViewOf(operand).root.getDefiningOp<onnx::ReadOp>();
        if (read && !isNoCommand(&op) && !isa<plan::StoreOp>(op)) readersOf[read.getParamAttr()].push_back(&op);
      }
    }
    orderBetweenStages();
    limitPrefetch();
    meetBeforeUpdates();
    // The command that makes a parameter's new value may overwrite the old one: after those that read it. Where two
    // updates each read what the other one overwrites, the one stored second comes first: its result is copied.
    llvm::DenseSet<std::pair<Operation *, Operation *>> ordered;
    for (Operation &op : block.without_terminator()) {
      auto store = dyn_cast<plan::StoreOp>(op);
      Operation *producer = store ? bufferViewOf(store.getValue()).root.getDefiningOp() : nullptr;
      if (!producer || !isUpdate(producer)) continue;
      auto readers = readersOf.find(store.getParamAttr());
      if (readers == readersOf.end()) continue;
      for (Operation *reader : readers->second) {
        if (isLazy(reader)) continue; // its own consumers need it first; PlanMemory copies if that is too late
        if (isUpdate(reader) && (reader == producer || ordered.contains({producer, reader}) || needs(reader, producer)))
          continue;
        ordered.insert({reader, producer});
        consumers[reader].push_back(producer);
        ++pending[producer];
      }
    }
  }

  // Where updates read a number that is made of several parameters (are all gradients finite?), no part of them begins
  // before that is there but what it is made of: what the parts make would wait for it together.
  void meetBeforeUpdates() {
    llvm::DenseMap<Operation *, Attribute> owners; // the parameter that it updates; null: several
    for (Operation &op : llvm::reverse(block)) {
      if (auto store = dyn_cast<plan::StoreOp>(op)) {
        auto param = symbols.lookup<onnx::ParamOp>(store.getParam());
        owners[&op] = param && param.getOfAttr() ? Attribute(param.getOfAttr()) : store.getParamAttr();
        continue;
      }
      if (!isUpdate(&op) && !isNoCommand(&op)) continue;
      for (Operation *user : op.getUsers())
        if (auto of = owners.find(user); of != owners.end()) {
          const Attribute owner = of->second;
          auto [own, isFirst] = owners.try_emplace(&op, owner);
          if (!isFirst && own->second != owner) own->second = {};
        }
    }
    auto ownerOf = [&](Operation *op) { return isUpdate(op) ? owners.lookup(op) : Attribute(); };
    for (Operation &meeting : block) {
      if (!isUpdate(&meeting) || isNoCommand(&meeting) || isLazy(&meeting) || !owners.contains(&meeting) ||
          ownerOf(&meeting))
        continue;
      llvm::DenseSet<Attribute> waiting;
      for (Value result : meeting.getResults())
        if (resultBytes(&meeting) <= mostOfNumber || isSign(result)) // whatever its kernel makes besides
          for (Operation *user : result.getUsers())
            if (Attribute owner = ownerOf(user)) waiting.insert(owner);
      if (waiting.size() < 2) continue;
      // The gradients stay until the number is there in any case.
      llvm::DenseSet<Operation *> before{&meeting};
      SmallVector<Operation *> open{&meeting};
      while (!open.empty())
        for (Value operand : open.pop_back_val()->getOperands())
          if (Operation *made = operand.getDefiningOp(); made && before.insert(made).second) open.push_back(made);
      if (launchesTogether)
        for (Operation *op : before)
          if (isa<plan::LaunchOp>(op) && isUpdate(op)) ofNumbers.insert(op);
      for (Operation &op : block) {
        const Attribute owner = ownerOf(&op);
        if (!owner || !waiting.contains(owner) || before.contains(&op) || isNoCommand(&op) || isa<plan::StoreOp>(op))
          continue;
        consumers[&meeting].push_back(&op);
        ++pending[&op];
      }
    }
  }

  // Whether something is so: one element of one bit.
  static bool isSign(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    return type.getNumElements() == 1 && type.getElementType().isInteger(1);
  }

  // A weight's gradient of which several products make terms.
  static bool addsProducts(Operation *op) {
    auto launch = dyn_cast<plan::LaunchOp>(op);
    return launch && !isUpdate(op) && launch.getInputs().size() > 1 && launch->getNumResults() == 1 &&
           llvm::all_of(launch.getInputs(), [&](Value term) {
             return term.getDefiningOp<plan::ContractCommandOp>() && term.hasOneUse() &&
                    term.getType() == launch->getResult(0).getType();
           });
  }

  // Does `op` read what comes of `other`?
  static bool needs(Operation *op, Operation *other) {
    SmallVector<Operation *> open{op};
    llvm::SmallDenseSet<Operation *> seen;
    while (!open.empty())
      for (Value operand : open.pop_back_val()->getOperands()) {
        Operation *made = operand.getDefiningOp();
        if (made == other) return true;
        if (made && other->isBeforeInBlock(made) && seen.insert(made).second) open.push_back(made);
      }
    return false;
  }

  // Gathers, shifts and exchanges with no compute between them are a turn; they wait for the compute before the last
  // turn, those of the backward pass for the forward pass at least.
  void limitPrefetch() {
    Operation *compute = nullptr, *beforeThis = nullptr, *beforeLast = nullptr, *lastForward = nullptr;
    for (Operation &op : block.without_terminator()) {
      auto collective = dyn_cast<plan::CollectiveCommandOp>(op);
      if (!collective) {
        bool keepsPlace = !isNoCommand(&op) && !isLazy(&op) && !isUpdate(&op) && !isCollective(&op) &&
                          !isa<plan::StoreOp, plan::ReceiveCommandOp>(op);
        if (keepsPlace) compute = &op;
        if (keepsPlace && place::hasPhase(&op, place::Phase::Forward)) lastForward = &op;
        continue;
      }
      bool brings = llvm::is_contained(
          {dist::Collective::AllGather, dist::Collective::Shift, dist::Collective::AllToAll}, collective.getOp());
      if (!brings || isLazy(&op) || isUpdate(&op) || isBetweenStages(&op)) continue;
      if (compute != beforeThis) beforeLast = std::exchange(beforeThis, compute);
      Operation *after = beforeLast;
      if (place::hasPhase(&op, place::Phase::Backward) && lastForward &&
          (!after || after->isBeforeInBlock(lastForward)))
        after = lastForward;
      if (!after) continue;
      consumers[after].push_back(&op);
      ++pending[&op];
    }
  }

  // The joint commands of ranks with different programs have one order that all of them know, by the numbers that
  // SplitStages has given. They keep it, and before this rank waits for what another one does, it has done all that
  // comes before that: else each could wait for the other.
  void orderBetweenStages() {
    for (Operation &op : block.without_terminator())
      if (isa<plan::SendCommandOp>(op) || isBetweenStages(&op)) chain.push_back(&op);
    llvm::stable_sort(chain, [](Operation *a, Operation *b) { return numberOf(a) < numberOf(b); });
    for (size_t i = 1; i < chain.size(); ++i) {
      consumers[chain[i - 1]].push_back(chain[i]);
      ++pending[chain[i]];
    }
  }

  // The last send or collective between stages that comes before the op: one of those itself, or one that reads what
  // was received. Null: none. In a function of a stage, where values come from one side and go to the other, nothing
  // received was made from what is sent, and a kernel may make what is sent early with what is received late.
  Operation *doneBefore(Operation *op) const {
    int64_t number = -1;
    if (isa<plan::SendCommandOp>(op) || isBetweenStages(op)) number = numberOf(op);
    for (Value operand : op->getOperands())
      if (auto receive = operand.getDefiningOp<plan::ReceiveCommandOp>(); receive && !oneWay)
        number = std::max(number, numberOf(receive));
    auto after = llvm::partition_point(chain, [&](Operation *other) { return numberOf(other) < number; });
    return after == chain.begin() ? nullptr : *std::prev(after);
  }

  // Emits the op after what it needs, then everything that this makes ready and that should not wait.
  void emit(Operation *op) {
    ready.push_back(op);
    while (!(ready.empty() && updates.empty()) && !contradiction) {
      Operation *next = ready.empty() ? updates.pop_back_val() : ready.front();
      if (!ready.empty()) ready.pop_front();
      emitAfterProducers(next);
    }
  }

  void emitAfterProducers(Operation *op) {
    SmallVector<Operation *> stack{op}; // explicit: chains of lazy commands may be long
    while (!stack.empty()) {
      Operation *top = stack.back();
      if (done.contains(top)) {
        stack.pop_back();
        continue;
      }
      SmallVector<Operation *> missing;
      for (Value operand : top->getOperands())
        if (Operation *producer = operand.getDefiningOp(); producer && !done.contains(producer))
          missing.push_back(producer);
      if (Operation *before = doneBefore(top); before && !done.contains(before)) missing.push_back(before);
      if (!missing.empty()) {
        if (!begun.insert(top).second) { // it has waited once for all of them: one of them waits for it
          contradiction = top;
          return;
        }
        stack.append(missing.begin(), missing.end());
        continue;
      }
      stack.pop_back();
      append(top);
    }
  }

  Operation *contradiction = nullptr; // its operands wait for what has to come after it
  DenseSet<Operation *> begun;

  void append(Operation *op) {
    done.insert(op);
    order.push_back(op);
    if (isCollective(op)) {
      newestCollective[op] = ++collectives;
      release(/*all=*/false);
    } else if (isNoCommand(op)) {
      newestCollective[op] = newestOperand(op);
    }
    auto it = consumers.find(op);
    if (it == consumers.end()) return;
    const size_t before = updates.size();
    for (Operation *consumer : it->second) {
      if (--pending[consumer] != 0 || isLazy(consumer) || isa<plan::StoreOp>(consumer)) continue;
      if (isCollective(consumer) || isNoCommand(consumer) || addsProducts(consumer)) {
        ready.push_back(consumer);
      } else if (ofNumbers.contains(consumer)) {
        together.push_back(consumer);
      } else if (isUpdate(consumer)) {
        int64_t newest = newestOperand(consumer);
        if (newest == 0)
          updates.push_back(consumer);
        else
          deferred.push_back({consumer, newest});
      }
    }
    std::reverse(updates.begin() + ptrdiff_t(before), updates.end());
  }

  // Number of the newest collective whose result the op reads; 0: none.
  int64_t newestOperand(Operation *op) const {
    int64_t newest = 0;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp()) newest = std::max(newest, newestCollective.lookup(producer));
    return newest;
  }

  // Updates whose collective is no longer the newest; `all`: every one.
  void release(bool all) {
    const size_t before = updates.size();
    llvm::erase_if(deferred, [&](const Deferred &entry) {
      if (!all && entry.collective >= collectives) return false;
      updates.push_back(entry.op);
      return true;
    });
    std::reverse(updates.begin() + ptrdiff_t(before), updates.end());
  }

  // Collectives on parameters alone: blocks of about equal bytes, each issued before the first consumer of the block
  // before it.
  void prefetchGathers() {
    SmallVector<Operation *> gathers;
    int64_t largest = tuning::gatherBlockBytes;
    for (Operation *op : order) {
      if (!isCollective(op) || !isLazy(op) || isBetweenStages(op)) continue;
      gathers.push_back(op);
      largest = std::max(largest, resultBytes(op));
    }
    if (gathers.empty()) return;
    Early before;
    llvm::DenseSet<Operation *> moved;
    Operation *blockStart = nullptr; // where the current block's gathers stand now
    Operation *previousStart = nullptr;
    int64_t blockBytes = 0;
    for (Operation *gather : gathers) {
      if (!blockStart || blockBytes + resultBytes(gather) > largest) {
        previousStart = blockStart;
        blockStart = gather;
        blockBytes = 0;
      }
      blockBytes += resultBytes(gather);
      if (!previousStart) continue;
      before[previousStart].push_back(gather);
      moved.insert(gather);
    }
    if (moved.empty()) return;
    // A gather stands just before its first consumer: the previous block's first gather is where its use begins.
    moveAhead(order, before, moved);
  }

  // Launches of one kernel that make little of persistent tensors alone stand before the first of them: biases that a
  // library takes rounded.
  void joinSmallLaunches() {
    llvm::DenseMap<Attribute, Operation *> first; // by kernel
    Early before;
    llvm::DenseSet<Operation *> moved;
    for (Operation *op : order) {
      auto launch = dyn_cast<plan::LaunchOp>(op);
      if (!launch || !isLazy(op) || isUpdate(op) || resultBytes(op) > tuning::smallBytes) continue;
      auto [known, isNew] = first.try_emplace(launch.getKernelAttr(), op);
      if (isNew) continue;
      before[known->second].push_back(op);
      moved.insert(op);
    }
    if (!moved.empty()) moveAhead(order, before, moved);
  }

  static constexpr int64_t mostOfNumber = 64; // bytes of a command's results that are numbers

  Block &block;
  const SymbolTable &symbols;
  const bool launchesTogether;        // equal ones that stand side by side become one (GPUs)
  const bool isOfStage;               // a forward or backward pass of a pipeline's stage
  const bool oneWay;                  // no received value depends on one that is sent
  CommandOrder program, order, chain; // chain: sends and collectives between stages
  llvm::DenseSet<Operation *> lazy, done;
  llvm::DenseSet<Attribute> read;                                  // parameters and states
  llvm::DenseMap<Operation *, SmallVector<Operation *>> consumers; // one entry a use, and those that must come later
  llvm::DenseMap<Operation *, int64_t> pending, newestCollective;
  SmallVector<Deferred> deferred;
  std::deque<Operation *> ready;
  SmallVector<Operation *> updates;      // that are ready, the next one last
  llvm::DenseSet<Operation *> ofNumbers; // what numbers of several parameters are made of, after their gradients
  SmallVector<Operation *> together;     // of these: ready
  int64_t collectives = 0;
};

// Streams, events and the order of the collectives, for the order that now stands.
void assignEvents(Block &block, const OffloadWaits &offloadWaits, const dist::Mesh *mesh) {
  Builder builder(block.getParentOp()->getContext());
  int64_t events = 0;
  llvm::StringMap<int64_t> sequences;
  llvm::DenseMap<Operation *, int64_t> collectiveNumber;
  int64_t collectives = 0;
  llvm::SmallDenseMap<int64_t, int64_t> awaited; // by stream: the newest command that compute has waited for
  Operation *lastCompute = nullptr;
  llvm::SmallDenseMap<int64_t, Operation *> awaitedCompute; // by stream: the newest that it has waited for
  auto record = [&](Operation *op) {
    if (auto event = plan::recordAttr.of(op)) return *event;
    plan::recordAttr.set(op, ++events);
    return events;
  };
  for (Operation &op : block.without_terminator()) {
    plan::streamAttr.remove(&op);
    plan::waitAttr.remove(&op);
    plan::recordAttr.remove(&op);
    if (isNoCommand(&op) || isa<plan::StoreOp>(op)) continue;
    int64_t stream = streamFor(&op, mesh);
    SmallVector<int64_t> waits;
    if (stream != 0) {
      if (auto collective = dyn_cast<plan::CollectiveCommandOp>(op))
        collective.setSequence(sequences[groupName(collective.getAxes())]++);
      plan::streamAttr.set(&op, stream);
      if (stream != runtime::receiveLane && lastCompute && awaitedCompute[stream] != lastCompute) {
        waits.push_back(record(lastCompute));
        awaitedCompute[stream] = lastCompute;
      }
      for (Value operand : op.getOperands())
        if (Operation *producer = bufferViewOf(operand).root.getDefiningOp();
            producer && streamOf(producer) != 0 && streamOf(producer) != stream)
          waits.push_back(record(producer));
      if (!waits.empty()) plan::waitAttr.set(&op, waits);
      record(&op);
      collectiveNumber[&op] = ++collectives;
      continue;
    }
    llvm::SmallMapVector<int64_t, Operation *, 2> newest; // by stream
    auto await = [&](Operation *producer) {
      if (!producer || streamOf(producer) == 0) return;
      int64_t &seen = awaited[streamOf(producer)];
      if (collectiveNumber[producer] <= seen) return;
      seen = collectiveNumber[producer];
      newest[streamOf(producer)] = producer;
    };
    for (Value operand : op.getOperands()) await(bufferViewOf(operand).root.getDefiningOp());
    for (Operation *eviction : offloadWaits.lookup(&op)) await(eviction);
    for (auto &[from, producer] : newest) waits.push_back(record(producer));
    if (!waits.empty()) plan::waitAttr.set(&op, waits);
    lastCompute = &op;
  }
}

struct ScheduleCommands : impl::ScheduleCommandsBase<ScheduleCommands> {
  using Base::Base;
  void runOnOperation() override {
    const dist::Mesh mesh = meshOfModule(getOperation());
    const SymbolTable symbols(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      Scheduler scheduler(function, symbols, gpu);
      if (Operation *op = scheduler.run()) {
        op->emitOpError("waits for what has to come after it: stages that pass each other values so cannot be run; "
                        "choose other stages (--split-at, --balance, --mesh pp) or --recompute full");
        return signalPassFailure();
      }
      assignEvents(function.getBody().front(), scheduler.offloadWaits, gpu ? &mesh : nullptr);
    }
  }
};

} // namespace

} // namespace cleave::codegen
