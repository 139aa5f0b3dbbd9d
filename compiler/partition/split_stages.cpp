#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "compiler/partition/split_step.h"
#include "compiler/partition/split_update.h"
#include "runtime/plan/previous_weights.h"

using namespace mlir;

namespace cleave::partition {
#define GEN_PASS_DEF_SPLITSTAGES
#include "compiler/partition/Passes.h.inc"

namespace {

struct SplitStages : impl::SplitStagesBase<SplitStages> {
  using Base::Base;
  explicit SplitStages(const planner::PipelineSchedule &table) {
    ranks = table.rankOfStage;
    ahead = table.weightVersions > 1;
    halved.resize(ranks.size());
    for (const auto &row : table.rows)
      for (const planner::ScheduledAction &action : row)
        if (action.kind == planner::ActionKind::BackwardWeight) halved[action.stage] = true;
  }
  void runOnOperation() override {
    if (halved.empty()) halved.assign(ranks.size(), halves);
    if (failed(split())) signalPassFailure();
  }

private:
  std::vector<bool> halved;

  LogicalResult split() {
    ModuleOp module = getOperation();
    auto accumulate = module.lookupSymbol<func::FuncOp>("accumulate"),
         update = module.lookupSymbol<func::FuncOp>("update"), evaluate = module.lookupSymbol<func::FuncOp>("evaluate");
    if (!accumulate || !update)
      return module.emitError("has no functions @accumulate and @update: run assign-stages first");
    int64_t tag = 0;
    for (auto [function, suffix] :
         {std::pair(accumulate, ""), {module.lookupSymbol<func::FuncOp>("accumulate_last"), ".last"}}) {
      if (!function) continue;
      StepSplit step(function, ranks, halved);
      if (failed(step.analyze())) return failure();
      tag = step.build({"forward", "backward", "backward_input", "backward_weight"}, "step", tag, suffix);
      function.erase();
    }
    if (auto count = module.lookupSymbol<func::FuncOp>("count")) copyForRanks(count);
    if (evaluate) {
      if (failed(splitEvaluate(evaluate, tag))) return failure();
      evaluate.erase();
    }
    if (ahead)
      for (size_t stage = 0; stage < ranks.size(); ++stage)
        if (ranks[stage] + 1 < ranksOf() && failed(addAhead(static_cast<int64_t>(stage)))) return failure();
    llvm::StringMap<Ranks> holders = holdersOf(module);
    // Without a flush the ranks meet at the update only where they must.
    bool meets = !ahead;
    if (ahead) {
      UpdateSplit alone(update, ranksOf(), holders, UpdateSplit::Results::OfFirst);
      if (failed(alone.analyze())) return failure();
      meets = alone.meets();
    }
    UpdateSplit parts(update, ranksOf(), holders, meets ? UpdateSplit::Results::OfAll : UpdateSplit::Results::OfFirst);
    if (failed(parts.analyze())) return failure();
    parts.build(tag, freeChannel(module));
    update.erase();
    Builder builder(&getContext());
    for (auto param : module.getOps<onnx::ParamOp>()) {
      SmallVector<int64_t> held;
      for (int rank : holders[param.getSymName()].set_bits()) held.push_back(rank);
      place::programsAttr.set(param, held);
    }
    return success();
  }

  void copyForRanks(func::FuncOp count) {
    Builder builder(&getContext());
    for (int64_t rank = 0; rank < ranksOf(); ++rank) {
      func::FuncOp own = count.clone();
      own.setName("count." + std::to_string(rank));
      place::programAttr.set(own, rank);
      place::fragmentAttr.set(own, "count");
      getOperation().insert(count->getIterator(), own);
    }
    count.erase();
  }

  int64_t ranksOf() const { return *std::max_element(ranks.begin(), ranks.end()) + 1; }

  // A forward pass of the next step, which runs before this step's update: what that step will know as the weights
  // before the last update are still the newest.
  LogicalResult addAhead(int64_t stage) {
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward." + std::to_string(stage));
    func::FuncOp own = forward.clone();
    own.setName((forward.getSymName() + ".ahead").str());
    place::aheadAttr.set(own);
    SymbolTable symbols(getOperation());
    symbols.insert(own, std::next(forward->getIterator()));
    for (Operation &op : own.getBody().front()) {
      if (auto read = dyn_cast<onnx::ReadOp>(op)) {
        StringRef name = read.getParam();
        if (name.consume_front(runtime::previousPrefix)) read.setParam(name);
      }
      auto write = dyn_cast<onnx::WriteOp>(op);
      auto written = write ? symbols.lookup<onnx::ParamOp>(write.getParam()) : onnx::ParamOp();
      if (written && written.getRole() != "running_statistic")
        return op.emitOpError("adds to @") << write.getParam() << " in the forward pass of stage " << stage
                                           << ": a schedule without a flush runs that before the step it belongs to "
                                           << "begins; take a schedule with a flush (1f1b), or end the pipeline before "
                                           << "this node (--split-at)";
    }
    return success();
  }

  // The channel for messages between updates: apart from those of stages, which may be of the next step already.
  static int64_t freeChannel(ModuleOp module) {
    int64_t channel = 0;
    module.walk([&](Operation *op) {
      if (auto taken = dist::channelAttr.of(op)) channel = std::max(channel, *taken + 1);
    });
    return channel;
  }

  // Each rank's last stage ends with the loss on every rank.
  LogicalResult splitEvaluate(func::FuncOp evaluate, int64_t &tag) {
    StepSplit split(evaluate, ranks, {});
    if (failed(split.analyze())) return failure();
    Operation *terminator = evaluate.getBody().front().getTerminator();
    std::map<int, int64_t> lastStage;
    for (auto [stage, rank] : llvm::enumerate(ranks)) lastStage[rank] = static_cast<int64_t>(stage);
    for (Value result : terminator->getOperands())
      if (!split.isFloating(result)) {
        int64_t made = split.stageOfValue(result);
        if (failed(split.provide(result, lastStage[ranks[made]], Part::Forward, terminator))) return failure();
      }
    tag = split.build({"evaluate"}, "evaluate", tag);
    for (auto [rank, stage] : lastStage) {
      func::FuncOp function = split.functionOf(stage, Part::Forward);
      Operation *end = function.getBody().front().getTerminator();
      SmallVector<Value> results(end->getOperands());
      SmallVector<DictionaryAttr> attributes;
      for (unsigned i = 0; i < function.getNumResults(); ++i) attributes.push_back(function.getResultAttrDict(i));
      for (auto [i, result] : llvm::enumerate(terminator->getOperands())) {
        bool here = split.isFloating(result) || ranks[split.stageOfValue(result)] == rank;
        Value own = here ? split.valueIn(stage, Part::Forward, result) : Value();
        OpBuilder builder(end);
        int64_t order = tag + static_cast<int64_t>(i);
        results.push_back(split.isFloating(result)
                              ? own
                              : sumOverStages(builder, result.getLoc(), result.getType(), own, Phase::Forward, order));
        attributes.push_back(evaluate.getResultAttrDict(i));
      }
      end->setOperands(results);
      function.setType(FunctionType::get(&getContext(), function.getArgumentTypes(), end->getOperandTypes()));
      function.setAllResultAttrs(attributes);
    }
    tag += terminator->getNumOperands();
    return success();
  }

  // By what the stages read and write; what nobody uses stays on the first rank.
  llvm::StringMap<Ranks> holdersOf(ModuleOp module) {
    llvm::StringMap<Ranks> holders;
    int64_t count = ranksOf();
    for (auto function : module.getOps<func::FuncOp>()) {
      auto rank = place::programAttr.of(function);
      if (!rank) continue;
      for (Operation &op : function.getBody().front()) {
        StringRef name;
        if (auto read = dyn_cast<onnx::ReadOp>(op)) name = read.getParam();
        if (auto write = dyn_cast<onnx::WriteOp>(op)) name = write.getParam();
        if (!name.empty()) holders.try_emplace(name, count).first->second.set(*rank);
      }
    }
    for (auto param : module.getOps<onnx::ParamOp>())
      if (param.getRole() != "optimizer_state") {
        auto [entry, fresh] = holders.try_emplace(param.getSymName(), count);
        if (fresh) entry->second.set(0);
      }
    for (auto param : module.getOps<onnx::ParamOp>())
      if (param.getRole() == "optimizer_state") {
        auto beside = onnx::besideAttr.of(param);
        auto of = beside          ? holders.find(beside.getValue())
                  : param.getOf() ? holders.find(*param.getOf())
                                  : holders.end();
        Ranks where = of == holders.end() ? Ranks(count, true) : of->second;
        holders.try_emplace(param.getSymName(), where);
      }
    return holders;
  }
};

} // namespace

std::unique_ptr<Pass> createSplitStages(const planner::PipelineSchedule &table) {
  return std::make_unique<SplitStages>(table);
}

} // namespace cleave::partition
