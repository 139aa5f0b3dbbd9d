// BuildRoutines: which function runs when, as the module attribute `cleave.routines` that becomes Program.routines.
//
//   microbatches=4, @accumulate and @final, no pipeline:
//     step      accumulate m0, accumulate m1, accumulate m2, final m3
//     evaluate  evaluate m0
//   1f1b over two ranks, the first one's row:
//     step      forward.0 m0 slot 0, forward.0 m1 slot 1, backward.0 m0 slot 0, forward.0 m2 slot 0, ..., update
//     evaluate  evaluate.0 m0
//
// A slot is one copy of what a stage keeps of a microbatch: taken by the forward, free after the last backward part;
// the lowest free one is taken. A value that passes over stages, or from one stage to another of the same rank, may be
// on its way as long as the earlier stage of the two holds the microbatch: so many message buffers it gets. To the next
// rank two for each value are enough, which is what the runtime takes. The attribute: {name, program, fragments =
// [@...], microbatches, slots}, one a program.
#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "compiler/partition/stages.h"
#include <set>

using namespace mlir;

namespace cleave::partition {
namespace {

using planner::ActionKind;

struct Routine {
  std::string name;
  int64_t program;
  SmallVector<Attribute> fragments;
  SmallVector<int64_t> microbatches, slots;

  void add(func::FuncOp fragment, int64_t microbatch, int64_t slot) {
    fragments.push_back(FlatSymbolRefAttr::get(fragment.getSymNameAttr()));
    microbatches.push_back(microbatch);
    slots.push_back(slot);
  }
  Attribute attribute(Builder &builder) const {
    return builder.getDictionaryAttr({builder.getNamedAttr("fragments", builder.getArrayAttr(fragments)),
                                      builder.getNamedAttr("microbatches", builder.getDenseI64ArrayAttr(microbatches)),
                                      builder.getNamedAttr("name", builder.getStringAttr(name)),
                                      builder.getNamedAttr("program", builder.getI64IntegerAttr(program)),
                                      builder.getNamedAttr("slots", builder.getDenseI64ArrayAttr(slots))});
  }
};

// Copies of what a stage keeps, handed out over a rank's row.
class Slots {
public:
  int64_t take(int64_t microbatch) {
    int64_t slot = 0;
    while (used.contains(slot)) ++slot;
    used.insert(slot);
    most = std::max(most, slot + 1);
    return held[microbatch] = slot;
  }
  int64_t of(int64_t microbatch) const { return held.lookup(microbatch); }
  void release(int64_t microbatch) { used.erase(held.lookup(microbatch)); }
  int64_t count() const { return most; }

private:
  std::set<int64_t> used;
  llvm::DenseMap<int64_t, int64_t> held;
  int64_t most = 0;
};

struct BuildRoutines : PassWrapper<BuildRoutines, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BuildRoutines)
  BuildRoutines() = default;
  BuildRoutines(int64_t count, std::optional<planner::PipelineSchedule> table) : table(std::move(table)) {
    microbatches = count;
  }
  BuildRoutines(const BuildRoutines &other) : PassWrapper(other), table(other.table) {
    microbatches = other.microbatches.getValue();
    schedule = other.schedule.getValue();
  }
  StringRef getArgument() const override { return "build-routines"; }
  StringRef getDescription() const override { return "say which function runs when"; }

  void runOnOperation() override {
    if (failed(makeTable())) return signalPassFailure();
    SmallVector<Routine> routines;
    if (failed(table ? pipelined(routines) : unsplit(routines))) return signalPassFailure();
    Builder builder(&getContext());
    SmallVector<Attribute> attributes;
    for (const Routine &routine : routines) attributes.push_back(routine.attribute(builder));
    getOperation()->setAttr(routinesAttr, builder.getArrayAttr(attributes));
  }

  Option<int64_t> microbatches{*this, "microbatches", llvm::cl::desc("microbatches of a step"), llvm::cl::init(1)};
  Option<std::string> schedule{*this, "schedule", llvm::cl::desc("a pipeline's schedule (planner/schedule)")};

private:
  std::optional<planner::PipelineSchedule> table;

  LogicalResult makeTable() {
    if (table || schedule.empty()) return success();
    FailureOr<dist::Mesh> mesh = meshOf(getOperation());
    if (failed(mesh)) return failure();
    auto made = planner::makeSchedule(schedule, static_cast<int>(mesh->axisSize("pp")), microbatches, {});
    if (!made) return getOperation().emitError(made.status().message());
    table = std::move(*made);
    return success();
  }

  FailureOr<func::FuncOp> fragment(const std::string &name) {
    auto function = getOperation().lookupSymbol<func::FuncOp>(name);
    if (!function)
      return getOperation().emitError("has no function @") << name << ", which its routine runs", failure();
    return function;
  }

  LogicalResult unsplit(SmallVector<Routine> &routines) {
    Routine step{"step", 0, {}, {}, {}}, evaluate{"evaluate", 0, {}, {}, {}};
    for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
      auto function = fragment(microbatch + 1 < microbatches ? "accumulate" : "final");
      if (failed(function)) return failure();
      step.add(*function, microbatch, 0);
    }
    auto function = fragment("evaluate");
    if (failed(function)) return failure();
    evaluate.add(*function, 0, 0);
    routines = {step, evaluate};
    return success();
  }

  LogicalResult pipelined(SmallVector<Routine> &routines) {
    std::vector<bool> halved(table->stages);
    for (const auto &row : table->rows)
      for (const planner::ScheduledAction &action : row)
        if (action.kind == ActionKind::BackwardWeight) halved[action.stage] = true;
    Builder builder(&getContext());
    SmallVector<int64_t> inFlight(table->stages, 0); // microbatches that a stage holds at most
    // The last microbatch may have functions, and so slots, of its own.
    bool apart = static_cast<bool>(getOperation().lookupSymbol<func::FuncOp>("forward.0.last"));
    auto suffixOf = [&](int64_t microbatch) { return apart && microbatch + 1 == table->microbatches ? ".last" : ""; };
    for (int64_t rank = 0; rank < table->ranks; ++rank) {
      Routine step{"step", rank, {}, {}, {}}, evaluate{"evaluate", rank, {}, {}, {}};
      std::vector<Slots> slots(table->stages), lastSlots = slots;
      for (const planner::ScheduledAction &action : table->rows[rank]) {
        std::string suffix = suffixOf(action.microbatch);
        Slots &stage = (suffix.empty() ? slots : lastSlots)[action.stage];
        bool forward = action.kind == ActionKind::Forward, whole = action.kind == ActionKind::Backward;
        int64_t slot = forward ? stage.take(action.microbatch) : stage.of(action.microbatch);
        for (const char *kind : {"forward", "backward", "backward_input", "backward_weight"}) {
          StringRef name = kind;
          bool runs = name == "forward"    ? forward
                      : name == "backward" ? whole && !halved[action.stage]
                      : name == "backward_input"
                          ? action.kind == ActionKind::BackwardInput || (whole && halved[action.stage])
                          : action.kind == ActionKind::BackwardWeight || (whole && halved[action.stage]);
          if (!runs) continue;
          auto function = fragment(kind + ("." + std::to_string(action.stage)) + suffix);
          if (failed(function)) return failure();
          step.add(*function, action.microbatch, slot);
        }
        if (whole || action.kind == ActionKind::BackwardWeight) stage.release(action.microbatch);
      }
      auto update = fragment("update." + std::to_string(rank));
      if (failed(update)) return failure();
      step.add(*update, 0, 0);
      for (int64_t stage = 0; stage < table->stages; ++stage) {
        if (table->rankOfStage[stage] != rank) continue;
        auto function = fragment("evaluate." + std::to_string(stage));
        if (failed(function)) return failure();
        evaluate.add(*function, 0, 0);
        for (StringRef kind : {"forward", "backward", "backward_input", "backward_weight"})
          for (auto [suffix, of] : {std::pair("", &slots), {".last", &lastSlots}})
            if (auto part = getOperation().lookupSymbol<func::FuncOp>((kind + "." + Twine(stage) + suffix).str()))
              part->setAttr(slotsAttr, builder.getI64IntegerAttr((*of)[stage].count()));
        (*function)->setAttr(slotsAttr, builder.getI64IntegerAttr(1));
        inFlight[stage] = slots[stage].count() + lastSlots[stage].count();
      }
      routines.push_back(std::move(step));
      routines.push_back(std::move(evaluate));
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) setBuffers(function, inFlight);
    return success();
  }

  // Of the channels whose messages may wait long: all their messages of a microbatch, for each that is in flight.
  static void setBuffers(func::FuncOp function, ArrayRef<int64_t> inFlight) {
    auto keyOf = [](Operation *op) {
      Attribute peer = op->hasAttr("to") ? op->getAttr("to") : op->getAttr("from");
      return std::tuple(op->hasAttr("to"), peer, op->getAttr(channelAttr));
    };
    SmallVector<Operation *> crossing;
    for (Operation &op : function.getBody().front())
      if (op.hasAttr(crossesAttr)) crossing.push_back(&op);
    Builder builder(function.getContext());
    for (Operation *op : crossing) {
      int64_t messages = llvm::count_if(crossing, [&](Operation *other) { return keyOf(other) == keyOf(op); });
      int64_t microbatches = inFlight[op->getAttrOfType<IntegerAttr>(crossesAttr).getInt()];
      op->setAttr(buffersAttr, builder.getI64IntegerAttr(messages * std::max<int64_t>(2, microbatches)));
    }
  }
};

} // namespace

std::unique_ptr<Pass> createBuildRoutines() { return std::make_unique<BuildRoutines>(); }
std::unique_ptr<Pass> createBuildRoutines(int64_t microbatches, std::optional<planner::PipelineSchedule> table) {
  return std::make_unique<BuildRoutines>(microbatches, std::move(table));
}

} // namespace cleave::partition
