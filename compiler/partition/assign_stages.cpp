#include "compiler/partition/floating_values.h"
#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "dialects/place/Place.h"
#include <llvm/ADT/MapVector.h>
#include <map>

using namespace mlir;

namespace cleave::partition {
#define GEN_PASS_DEF_ASSIGNSTAGES
#include "compiler/partition/Passes.h.inc"

namespace {

class StageAssignment {
public:
  explicit StageAssignment(func::FuncOp function)
      : function(function), block(function.getBody().front()), floating(function) {}

  LogicalResult run(int64_t stages) {
    assignForward();
    readOriginals();
    assignBackward();
    for (Operation &op : block) {
      auto stage = stageOf.find(&op);
      if (stage == stageOf.end()) {
        place::setStage(&op, std::nullopt);
        continue;
      }
      if (stage->second < 0 || stage->second >= stages)
        return op.emitOpError() << "has stage " << stage->second << " of a pipeline of " << stages;
      place::setStage(&op, stage->second);
    }
    return success();
  }

  // Sums over gradients from several later stages: one term for each stage.
  void sumWhereMade() {
    for (Operation &op : llvm::make_early_inc_range(block)) {
      auto sum = dyn_cast<onnx::SumOp>(op);
      if (!sum || phaseOf(&op) != Phase::Backward || !stageOf.contains(&op)) continue;
      int64_t own = stageOf[&op];
      llvm::MapVector<int64_t, SmallVector<Value>> terms;
      for (Value term : op.getOperands()) terms[stageOfValue(term).value_or(own)].push_back(term);
      if (terms.size() < 2 && terms.contains(own)) continue;
      if (llvm::all_of(terms, [&](auto &entry) { return entry.first == own || entry.second.size() == 1; })) continue;
      SmallVector<Value> parts;
      for (auto &[stage, values] : terms) {
        if (stage == own)
          parts.append(values);
        else
          parts.push_back(sumOf(&op, values, stage));
      }
      if (parts.size() == 1) {
        op.getResult(0).replaceAllUsesWith(parts.front());
        op.erase();
      } else {
        op.setOperands(parts);
      }
    }
  }

  // A gradient in 16 bits that only earlier stages read is sent as it is and widened there.
  void widenWhereRead() {
    for (Operation &op : block) {
      if (!isa<onnx::CastOp>(op) || phaseOf(&op) != Phase::Backward || !stageOf.contains(&op)) continue;
      if (bitsOf(op.getOperand(0)) >= bitsOf(op.getResult(0))) continue;
      const int64_t own = stageOf[&op];
      std::optional<int64_t> reader;
      for (Operation *user : op.getUsers())
        if (auto found = stageOf.find(user); found != stageOf.end())
          reader = std::max(reader.value_or(0), found->second);
      if (reader && *reader < own && op.getOperand(0).hasOneUse()) adopt(&op, *reader);
    }
  }

  // A gradient that an earlier stage reads in 16 bits only is sent so.
  void narrowWhereMade() {
    for (Operation &op : block) {
      if (!isa<onnx::CastOp>(op) || phaseOf(&op) != Phase::Backward || !stageOf.contains(&op)) continue;
      if (bitsOf(op.getOperand(0)) <= bitsOf(op.getResult(0)) || !op.getOperand(0).hasOneUse()) continue;
      Operation *made = op.getOperand(0).getDefiningOp();
      if (!made || phaseOf(made) != Phase::Backward) continue;
      if (auto maker = stageOf.find(made); maker != stageOf.end() && maker->second > stageOf[&op])
        adopt(&op, maker->second);
    }
  }

  // The parts of a sum of contributions, by the stage that makes them; one of no stage counts to `last`.
  llvm::MapVector<int64_t, SmallVector<Value>> partsOf(Value gradient, int64_t last) {
    llvm::MapVector<int64_t, SmallVector<Value>> parts;
    SmallVector<Value> open{gradient};
    while (!open.empty()) {
      Value value = open.pop_back_val();
      auto sum = value.getDefiningOp<onnx::SumOp>();
      if (sum && addsParameterGradients(sum)) {
        for (Value term : llvm::reverse(sum->getOperands())) open.push_back(term);
        continue;
      }
      parts[stageOfValue(value).value_or(last)].push_back(value);
    }
    return parts;
  }

  Value sumOf(Operation *before, ArrayRef<Value> terms, int64_t stage) {
    if (terms.size() == 1) return terms.front();
    OpBuilder builder(before);
    auto sum = onnx::SumOp::create(builder, before->getLoc(), terms);
    place::setPhase(sum, Phase::Backward);
    adopt(sum, stage);
    return sum->getResult(0);
  }

  // The op and what only it used: left where it is, a sum over all stages would be sent to be thrown away.
  void eraseUnused(Operation *op) {
    SmallVector<Operation *> open{op};
    while (!open.empty()) {
      Operation *unused = open.pop_back_val();
      if (!unused->use_empty()) continue;
      SmallVector<Value> operands(unused->getOperands());
      stageOf.erase(unused);
      unused->erase();
      for (Value operand : operands)
        if (Operation *made = operand.getDefiningOp();
            made && isOpTriviallyDead(made) && !llvm::is_contained(open, made))
          open.push_back(made);
    }
  }

  void adopt(Operation *op, int64_t stage) {
    stageOf[op] = stage;
    place::setStage(op, stage);
  }

private:
  static bool isForward(Operation *op) { return phaseOf(op) == Phase::Forward; }
  static unsigned bitsOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementTypeBitWidth(); }
  std::optional<int64_t> stageOfValue(Value value) const {
    auto found = stageOf.find(value.getDefiningOp());
    return found == stageOf.end() ? std::nullopt : std::optional(found->second);
  }
  template <typename Choose> std::optional<int64_t> over(ValueRange values, Choose choose) const {
    std::optional<int64_t> best;
    for (Value value : values)
      if (auto stage = stageOfValue(value)) best = best ? choose(*best, *stage) : *stage;
    return best;
  }
  template <typename Choose> std::optional<int64_t> overUsers(Operation *op, Choose choose) const {
    std::optional<int64_t> best;
    for (Operation *user : op->getUsers())
      if (auto found = stageOf.find(user); found != stageOf.end())
        best = best ? choose(*best, found->second) : found->second;
    return best;
  }
  static int64_t smaller(int64_t a, int64_t b) { return std::min(a, b); }
  static int64_t larger(int64_t a, int64_t b) { return std::max(a, b); }

  void assignForward() {
    // Work on parameters and constants alone goes where it is used, wherever the exporter put it.
    auto sinks = [&](Operation *op) {
      return !FloatingValues::isAnchored(op) && llvm::all_of(op->getOperands(), [&](Value v) {
        Operation *made = v.getDefiningOp();
        return made && (floating.contains(made) || sunk.contains(made));
      });
    };
    for (Operation &op : block) {
      if (!isForward(&op) || floating.contains(&op) || op.hasTrait<OpTrait::IsTerminator>()) continue;
      if (op.getNumOperands() > 0 && op.getNumResults() > 0 && sinks(&op)) sunk.insert(&op);
      auto bound = over(op.getOperands(), larger);
      const std::optional<int64_t> given = place::stageOf(&op);
      if (given || bound) stageOf[&op] = std::max(given.value_or(0), bound.value_or(0));
    }
    for (Operation &op : llvm::reverse(block)) {
      if (!isForward(&op) || floating.contains(&op) || op.hasTrait<OpTrait::IsTerminator>()) continue;
      if (stageOf.contains(&op) && !sunk.contains(&op)) continue;
      std::optional<int64_t> users;
      for (Operation *user : op.getUsers())
        if (auto found = stageOf.find(user); found != stageOf.end() && isForward(user))
          users = users ? std::min(*users, found->second) : found->second;
      if (users) stageOf[&op] = *users;
    }
    for (Operation &op : block) // what only others without a stage use, and writes
      if (isForward(&op) && !floating.contains(&op) && !op.hasTrait<OpTrait::IsTerminator>() && !stageOf.contains(&op))
        stageOf[&op] = over(op.getOperands(), larger).value_or(overUsers(&op, smaller).value_or(0));
    for (Operation &op : block)
      if (auto found = stageOf.find(&op); found != stageOf.end() && isForward(&op))
        found->second = std::max(found->second, over(op.getOperands(), larger).value_or(0));
    for (auto read : block.getOps<onnx::ReadOp>()) // of what the function writes
      if (auto users = overUsers(read, smaller); users && !floating.contains(read.getOperation()))
        stageOf[read] = *users;
  }

  static std::optional<int64_t> originOf(Operation *op) { return place::of(op).origin; }

  void readOriginals() {
    for (Operation &op : block)
      if (auto origin = originOf(&op); origin && isForward(&op)) originals[*origin] = &op;
  }

  // The stage of a forward op; for one that belongs to no stage, the first that uses its result: a bias is added where
  // its gradient is summed.
  std::optional<int64_t> stageOfOriginal(Operation *original) const {
    std::optional<int64_t> first;
    SmallVector<Operation *> open;
    DenseSet<Operation *> seen;
    if (original) open.push_back(original);
    while (!open.empty()) {
      Operation *op = open.pop_back_val();
      if (auto found = stageOf.find(op); found != stageOf.end())
        first = std::min(first.value_or(found->second), found->second);
      else
        for (Operation *user : op->getUsers())
          if (isForward(user) && seen.insert(user).second) open.push_back(user);
    }
    return first;
  }

  void assignBackward() {
    auto bound = [&](Operation *op) {
      std::optional<int64_t> best;
      for (Value operand : op->getOperands())
        if (Operation *made = operand.getDefiningOp(); made && !isForward(made))
          if (auto found = stageOf.find(made); found != stageOf.end())
            best = best ? std::min(*best, found->second) : found->second;
      return best;
    };
    SmallVector<Operation *> rest;
    for (Operation &op : block) {
      if (isForward(&op) || floating.contains(&op) || op.hasTrait<OpTrait::IsTerminator>()) continue;
      auto limit = bound(&op);
      auto origin = originOf(&op);
      if (auto own = stageOfOriginal(origin ? originals.lookup(*origin) : nullptr))
        stageOf[&op] = std::min(*own, limit.value_or(*own));
      else if (limit)
        stageOf[&op] = *limit;
      else
        rest.push_back(&op);
    }
    for (Operation *op : llvm::reverse(rest)) {
      auto stage = overUsers(op, larger);
      if (!stage) stage = over(op->getOperands(), larger);
      stageOf[op] = stage.value_or(0);
    }
  }

  // A sum over the gradients of a parameter: of its read, or of several reads.
  bool addsParameterGradients(onnx::SumOp sum) const {
    if (isForward(sum)) return false;
    auto origin = originOf(sum);
    Operation *of = origin ? originals.lookup(*origin) : nullptr;
    return !of || floating.contains(of);
  }

  func::FuncOp function;
  Block &block;
  FloatingValues floating;
  DenseMap<Operation *, int64_t> stageOf;
  DenseSet<Operation *> sunk;
  DenseMap<int64_t, Operation *> originals; // forward ops by `origin`
};

struct AssignStages : impl::AssignStagesBase<AssignStages> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto accumulate = module.lookupSymbol<func::FuncOp>("accumulate"),
         final = module.lookupSymbol<func::FuncOp>("final"), evaluate = module.lookupSymbol<func::FuncOp>("evaluate");
    if (!accumulate || !final) {
      module.emitError("has no functions @accumulate and @final: a pipeline's step accumulates gradients");
      return signalPassFailure();
    }
    makeUpdate(final, SymbolTable(module));
    auto stages = static_cast<int64_t>(ranks.size());
    StageAssignment assignment(accumulate);
    if (failed(assignment.run(stages))) return signalPassFailure();
    assignment.sumWhereMade();
    assignment.widenWhereRead();
    assignment.narrowWhereMade();
    if (failed(accumulateApart(accumulate, final, assignment))) return signalPassFailure();
    if (evaluate && failed(StageAssignment(evaluate).run(stages))) return signalPassFailure();
  }

private:
  // accumulator + this microbatch's value -> accumulator; of an amax of fp8 the larger of both.
  static void makeUpdate(func::FuncOp final, const SymbolTable &symbols) {
    for (auto read : llvm::make_early_inc_range(final.getOps<onnx::ReadOp>())) {
      auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
      if (!param || param.getRole() != "accumulator") continue;
      for (Operation *user : llvm::make_early_inc_range(read.getValue().getUsers()))
        if (isa<onnx::AddOp, onnx::MaxOp>(user)) {
          read->moveBefore(user);
          user->getResult(0).replaceAllUsesWith(read.getValue());
          user->erase();
        }
    }
    for (auto write : llvm::make_early_inc_range(final.getOps<onnx::WriteOp>()))
      if (phaseOf(write) != Phase::Update) write.erase();
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(final.getBody().front())))
      if (isOpTriviallyDead(&op)) op.erase();
    BitVector unused(final.getNumArguments());
    for (BlockArgument argument : final.getArguments())
      if (argument.use_empty()) unused.set(argument.getArgNumber());
    (void) final.eraseArguments(unused); // cannot fail: nothing calls the function
    final.setName("update");
  }

  LogicalResult accumulateApart(func::FuncOp accumulate, func::FuncOp update, StageAssignment &assignment) {
    SymbolTable symbols(getOperation());
    for (auto write : llvm::make_early_inc_range(accumulate.getOps<onnx::WriteOp>())) {
      auto accumulator = symbols.lookup<onnx::ParamOp>(write.getParam());
      if (!accumulator || accumulator.getRole() != "accumulator") continue;
      Operation *add = write.getValue().getDefiningOp();
      const bool adds = isa_and_nonnull<onnx::AddOp, onnx::MaxOp>(add);
      auto read = adds ? add->getOperand(0).getDefiningOp<onnx::ReadOp>() : onnx::ReadOp();
      if (!read || read.getParamAttr() != write.getParamAttr())
        return write.emitOpError("does not add to its accumulator");
      auto parts = assignment.partsOf(add->getOperand(1), static_cast<int64_t>(ranks.size()) - 1);
      std::map<int, onnx::ParamOp> ofRank{};
      for (auto &[stage, terms] : parts) {
        int rank = ranks[stage];
        onnx::ParamOp &own = ofRank[rank];
        if (!own) own = ofRank.size() == 1 ? accumulator : anotherFor(accumulator, rank, symbols);
        accumulateInto(add, write, own, assignment.sumOf(add, terms, stage), stage, assignment);
      }
      write.erase();
      assignment.eraseUnused(add);
      if (ofRank.size() > 1) addParts(update, accumulator, ofRank);
    }
    return success();
  }

  static onnx::ParamOp anotherFor(onnx::ParamOp accumulator, int rank, SymbolTable &symbols) {
    onnx::ParamOp other = accumulator.clone();
    other.setSymName((accumulator.getSymName() + "@rank" + Twine(rank)).str());
    symbols.insert(other, std::next(accumulator->getIterator()));
    return other;
  }

  static void accumulateInto(Operation *addLike, onnx::WriteOp like, onnx::ParamOp accumulator, Value term,
                             int64_t stage, StageAssignment &assignment) {
    OpBuilder builder(like);
    auto symbol = FlatSymbolRefAttr::get(accumulator.getSymNameAttr());
    auto read = onnx::ReadOp::create(builder, like.getLoc(), term.getType(), symbol);
    Operation *add = builder.clone(*addLike);
    add->setOperands({read.getValue(), term});
    auto write = onnx::WriteOp::create(builder, like.getLoc(), symbol, add->getResult(0));
    for (Operation *op : {read.getOperation(), add, write.getOperation()}) {
      place::setPhase(op, Phase::Update);
      assignment.adopt(op, stage);
    }
  }

  // @update reads the sum of all parts and zeroes each.
  static void addParts(func::FuncOp update, onnx::ParamOp accumulator, std::map<int, onnx::ParamOp> &parts) {
    for (auto read : llvm::make_early_inc_range(update.getOps<onnx::ReadOp>())) {
      if (read.getParam() != accumulator.getSymName()) continue;
      OpBuilder builder(update.getContext());
      builder.setInsertionPointAfter(read);
      SmallVector<Value> terms;
      for (auto &[rank, part] : parts) {
        auto term = onnx::ReadOp::create(builder, read.getLoc(), read.getValue().getType(),
                                         FlatSymbolRefAttr::get(part.getSymNameAttr()));
        place::setPhase(term, Phase::Update);
        terms.push_back(term.getValue());
      }
      auto sum = onnx::SumOp::create(builder, read.getLoc(), terms);
      place::setPhase(sum, Phase::Update);
      read.getValue().replaceAllUsesWith(sum->getResult(0));
      read.erase();
    }
    for (auto write : llvm::make_early_inc_range(update.getOps<onnx::WriteOp>())) {
      if (write.getParam() != accumulator.getSymName()) continue;
      OpBuilder builder(update.getContext());
      builder.setInsertionPointAfter(write);
      for (auto &[rank, part] : parts)
        if (part.getSymName() != accumulator.getSymName()) {
          auto zero = onnx::WriteOp::create(builder, write.getLoc(), FlatSymbolRefAttr::get(part.getSymNameAttr()),
                                            write.getValue());
          place::setPhase(zero, Phase::Update);
        }
    }
  }
};

} // namespace

} // namespace cleave::partition
