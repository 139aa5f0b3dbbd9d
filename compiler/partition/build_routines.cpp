#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "dialects/place/Place.h"
#include <set>

using namespace mlir;

namespace cleave::partition {
#define GEN_PASS_DEF_BUILDROUTINES
#include "compiler/partition/Passes.h.inc"

namespace {

using planner::ActionKind;

struct Routine {
  std::string name;
  int64_t program;
  SmallVector<Attribute> fragments;
  SmallVector<int64_t> microbatches, slots, ahead;

  void add(func::FuncOp fragment, int64_t microbatch, int64_t slot, bool isAhead = false) {
    if (isAhead) ahead.push_back(static_cast<int64_t>(fragments.size()));
    fragments.push_back(FlatSymbolRefAttr::get(fragment.getSymNameAttr()));
    microbatches.push_back(microbatch);
    slots.push_back(slot);
  }
  Attribute attribute(Builder &builder) const {
    SmallVector<NamedAttribute> entries{
        builder.getNamedAttr("fragments", builder.getArrayAttr(fragments)),
        builder.getNamedAttr("microbatches", builder.getDenseI64ArrayAttr(microbatches)),
        builder.getNamedAttr("name", builder.getStringAttr(name)),
        builder.getNamedAttr("program", builder.getI64IntegerAttr(program)),
        builder.getNamedAttr("slots", builder.getDenseI64ArrayAttr(slots))};
    if (!ahead.empty()) entries.push_back(builder.getNamedAttr("ahead", builder.getDenseI64ArrayAttr(ahead)));
    return builder.getDictionaryAttr(entries);
  }
};

// Copies of what a stage keeps, handed out over a rank's row.
class Slots {
public:
  // But none in `reserved`, where somebody else will be before this one is released.
  int64_t take(int64_t microbatch, const std::set<int64_t> &reserved = {}) {
    int64_t slot = 0;
    while (used.contains(slot) || reserved.contains(slot)) ++slot;
    return put(microbatch, slot);
  }
  int64_t put(int64_t microbatch, int64_t slot) {
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

struct BuildRoutines : impl::BuildRoutinesBase<BuildRoutines> {
  using Base::Base;
  BuildRoutines(int64_t count, std::optional<planner::PipelineSchedule> table) : table(std::move(table)) {
    microbatches = count;
  }
  void runOnOperation() override {
    if (failed(makeTable())) return signalPassFailure();
    symbols.emplace(getOperation());
    SmallVector<Routine, 8> routines;
    if (failed(table ? pipelined(routines) : unsplit(routines))) return signalPassFailure();
    Builder builder(&getContext());
    SmallVector<Attribute> attributes;
    for (const Routine &routine : routines) attributes.push_back(routine.attribute(builder));
    place::routinesAttr.set(getOperation(), builder.getArrayAttr(attributes));
  }

private:
  std::optional<planner::PipelineSchedule> table;
  std::optional<SymbolTable> symbols;
  std::vector<bool> halved; // by stage: its backward pass is two functions

  LogicalResult makeTable() {
    if (table || schedule.empty()) return success();
    FailureOr<dist::Mesh> mesh = meshOf(getOperation());
    if (failed(mesh)) return failure();
    auto made = planner::makeSchedule(schedule, static_cast<int>(mesh->axisSize(dist::pipelineAxis)), microbatches, {});
    if (!made) return getOperation().emitError(made.status().message());
    table = std::move(*made);
    return success();
  }

  FailureOr<func::FuncOp> fragment(const std::string &name) {
    auto function = symbols->lookup<func::FuncOp>(name);
    if (!function)
      return getOperation().emitError("has no function @") << name << ", which its routine runs", failure();
    return function;
  }

  LogicalResult unsplit(SmallVector<Routine, 8> &routines) {
    Routine step{"step", 0, {}, {}, {}, {}}, evaluate{"evaluate", 0, {}, {}, {}, {}};
    addCounts(step, "count");
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

  // What a loss counts of the whole batch, before any microbatch.
  void addCounts(Routine &routine, const std::string &name) {
    auto function = symbols->lookup<func::FuncOp>(name);
    for (int64_t microbatch = 0; function && microbatch < microbatches; ++microbatch)
      routine.add(function, microbatch, 0);
  }

  LogicalResult pipelined(SmallVector<Routine, 8> &routines) {
    halved.assign(table->stages, false);
    for (const auto &row : table->rows)
      for (const planner::ScheduledAction &action : row)
        if (action.kind == ActionKind::BackwardWeight) halved[action.stage] = true;
    SmallVector<int64_t> inFlight(table->stages, 0); // microbatches that a stage holds at most
    bool runsOn = table->weightVersions > 1;
    std::vector<planner::StepActions> rows(table->ranks);
    if (runsOn) rows = planner::stepActions(*table);
    for (int64_t rank = 0; rank < table->ranks; ++rank) {
      planner::StepActions &row = rows[rank];
      if (!runsOn) row.actions = table->rows[rank];
      row.ahead.resize(row.actions.size());
      if (failed(buildRank(rank, row, runsOn, inFlight, routines))) return failure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) setBuffers(function, inFlight);
    return success();
  }

  LogicalResult buildRank(int64_t rank, const planner::StepActions &row, bool runsOn, SmallVector<int64_t> &inFlight,
                          SmallVector<Routine, 8> &routines) {
    Routine fill{"fill", rank, {}, {}, {}, {}}, step{"step", rank, {}, {}, {}, {}},
        drain{"drain", rank, {}, {}, {}, {}}, evaluate{"evaluate", rank, {}, {}, {}, {}};
    // The last microbatch may have functions, and so slots, of its own.
    bool apart = static_cast<bool>(symbols->lookup<func::FuncOp>("forward.0.last"));
    std::vector<Slots> slots(table->stages), lastSlots = slots;
    for (const planner::ScheduledAction &action : row.before)
      if (failed(addAction(fill, action, "", slots[action.stage].take(action.microbatch)))) return failure();
    for (Routine *routine : {&step, &drain}) addCounts(*routine, "count." + std::to_string(rank));
    auto before = slots; // where what is ahead has to lie
    for (auto [i, action] : llvm::enumerate(row.actions)) {
      bool last = apart && action.microbatch + 1 == table->microbatches, ahead = row.ahead[i];
      Slots &stage = (last ? lastSlots : slots)[action.stage];
      int64_t slot = action.kind != ActionKind::Forward ? stage.of(action.microbatch)
                     : ahead ? stage.put(action.microbatch, before[action.stage].of(action.microbatch))
                     : last  ? stage.take(action.microbatch) // what is ahead lies elsewhere
                             : stage.take(action.microbatch, takenBeforeEnd(row, i, before[action.stage]));
      if (failed(addAction(step, action, last ? ".last" : ahead ? ".ahead" : "", slot, ahead))) return failure();
      if (!ahead && failed(addAction(drain, action, last ? ".last" : "", slot))) return failure();
      if (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight)
        stage.release(action.microbatch);
    }
    auto update = fragment("update." + std::to_string(rank));
    if (failed(update)) return failure();
    step.add(*update, 0, 0);
    drain.add(*update, 0, 0);
    Builder builder(&getContext());
    for (int64_t stage = 0; stage < table->stages; ++stage) {
      if (table->rankOfStage[stage] != rank) continue;
      auto function = fragment("evaluate." + std::to_string(stage));
      if (failed(function)) return failure();
      evaluate.add(*function, 0, 0);
      for (StringRef kind : {"forward", "backward", "backward_input", "backward_weight"})
        for (auto [suffix, of] : {std::pair("", &slots), {".ahead", &slots}, {".last", &lastSlots}})
          if (auto part = symbols->lookup<func::FuncOp>((kind + "." + Twine(stage) + suffix).str()))
            place::slotsAttr.set(part, (*of)[stage].count());
      place::slotsAttr.set(*function, 1);
      inFlight[stage] = slots[stage].count() + lastSlots[stage].count();
    }
    if (runsOn) routines.push_back(std::move(fill));
    routines.push_back(std::move(step));
    if (runsOn) routines.push_back(std::move(drain));
    routines.push_back(std::move(evaluate));
    return success();
  }

  // The slots that are taken by what is ahead before the microbatch of the `forward`-th action leaves its own.
  static std::set<int64_t> takenBeforeEnd(const planner::StepActions &row, size_t forward, const Slots &before) {
    std::set<int64_t> taken;
    const planner::ScheduledAction &own = row.actions[forward];
    for (size_t i = forward + 1; i < row.actions.size(); ++i) {
      const planner::ScheduledAction &action = row.actions[i];
      if (action.stage != own.stage) continue;
      if (row.ahead[i])
        taken.insert(before.of(action.microbatch));
      else if (action.microbatch == own.microbatch &&
               (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight))
        break;
    }
    return taken;
  }

  // The functions that do an action.
  LogicalResult addAction(Routine &routine, const planner::ScheduledAction &action, StringRef suffix, int64_t slot,
                          bool ahead = false) {
    bool whole = action.kind == ActionKind::Backward, halves = halved[action.stage];
    SmallVector<StringRef> kinds;
    if (action.kind == ActionKind::Forward) kinds.push_back("forward");
    if (whole && !halves) kinds.push_back("backward");
    if (action.kind == ActionKind::BackwardInput || (whole && halves)) kinds.push_back("backward_input");
    if (action.kind == ActionKind::BackwardWeight || (whole && halves)) kinds.push_back("backward_weight");
    for (StringRef kind : kinds) {
      auto function = fragment((kind + "." + Twine(action.stage) + suffix).str());
      if (failed(function)) return failure();
      routine.add(*function, action.microbatch, slot, ahead);
    }
    return success();
  }

  // Buffers of the channels whose messages may wait long: for all their messages of a microbatch, for each that is in
  // flight.
  static void setBuffers(func::FuncOp function, ArrayRef<int64_t> inFlight) {
    auto keyOf = [](Operation *op) {
      Attribute peer = op->hasAttr("to") ? op->getAttr("to") : op->getAttr("from");
      return std::tuple(unsigned(op->hasAttr("to")), peer, dist::channelAttr.of(op).value_or(0));
    };
    SmallVector<Operation *> crossing;
    for (Operation &op : function.getBody().front())
      if (dist::crossesAttr.isOn(&op)) crossing.push_back(&op);
    llvm::DenseMap<std::tuple<unsigned, Attribute, int64_t>, int64_t> messagesOf;
    for (Operation *op : crossing) ++messagesOf[keyOf(op)];
    for (Operation *op : crossing) {
      int64_t messages = messagesOf[keyOf(op)];
      int64_t microbatches = inFlight[*dist::crossesAttr.of(op)];
      dist::buffersAttr.set(op, messages * std::max<int64_t>(2, microbatches));
    }
  }
};

} // namespace

std::unique_ptr<Pass> createBuildRoutines(int64_t microbatches, std::optional<planner::PipelineSchedule> table) {
  return std::make_unique<BuildRoutines>(microbatches, std::move(table));
}

} // namespace cleave::partition
