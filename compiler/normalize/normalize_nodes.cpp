#include "compiler/normalize/check_node.h"
#include "compiler/normalize/control_flow.h"
#include "compiler/normalize/function_bodies.h"
#include "compiler/normalize/narrow_types.h"
#include "compiler/normalize/node.h"
#include "compiler/normalize/selection.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "onnx/defs/schema.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_NORMALIZENODES
#include "compiler/normalize/Passes.h.inc"

// Whether a standard operator of an early opset is what it is from opset 7 on, which gave operands their broadcasting.
static bool meansWhatItDoes(const std::string &op, int64_t version) {
  constexpr int firstOfToday = 7;
  if (version >= firstOfToday) return true;
  const ::onnx::OpSchema *then = ::onnx::OpSchemaRegistry::Schema(op, int(version), "");
  const ::onnx::OpSchema *today = ::onnx::OpSchemaRegistry::Schema(op, firstOfToday, "");
  return then && today && then->SinceVersion() == today->SinceVersion();
}

static Support supportWithin(const std::string &domain, const std::string &op, int64_t version, int depth) {
  if (domain.empty() && !meansWhatItDoes(op, version)) return Support::None;
  if (Rules::all().find(domain, op) || isControlFlow(domain, op)) return Support::Rule;
  if (depth > 8 || !hasFunctionBody(domain, op, version)) return Support::None;
  for (const BodyOperator &inner : operatorsOfBody(domain, op, version))
    if (supportWithin(inner.domain, inner.op, inner.version, depth + 1) == Support::None) return Support::None;
  return Support::FunctionBody;
}

Support supportOf(const std::string &domain, const std::string &op, int64_t version) {
  return supportWithin(domain == "ai.onnx" ? "" : domain, op, version, 0);
}

namespace {

LogicalResult checkSupport(func::FuncOp function) {
  llvm::MapVector<StringRef, SmallVector<onnx::NodeOp>> missing;
  llvm::StringMap<bool> known;
  function.walk([&](onnx::NodeOp node) {
    if (node.getDomain() == "cleave") return; // the importer's own
    std::string key = (node.getDomain() + "::" + node.getOpType() + "@" + Twine(node.getVersion())).str();
    auto [at, isNew] = known.try_emplace(key, false);
    if (isNew) at->second = isSupported(node.getDomain().str(), node.getOpType().str(), node.getVersion());
    if (!at->second) missing[at->getKey()].push_back(node);
  });
  if (missing.empty()) return success();
  constexpr size_t mostNames = 8;
  InFlightDiagnostic error = function.emitError("the model uses operators that are not supported");
  if (function.getNumResults() > 1)
    error << " (what only other outputs need is left out where the recipe's loss.output names one)";
  error << ":";
  for (auto &[key, nodes] : missing) {
    StringRef domain = nodes[0].getDomain();
    error << "\n  " << (domain.empty() ? "" : domain.str() + ".") << nodes[0].getOpType() << " (opset "
          << nodes[0].getVersion() << "), " << nodes.size() << (nodes.size() == 1 ? " node: " : " nodes: ");
    for (auto [i, node] : llvm::enumerate(nodes)) {
      if (i == mostNames) {
        error << ", ... and " << nodes.size() - mostNames << " more";
        break;
      }
      error << (i ? ", '" : "'") << node.getNodeName() << "'";
    }
  }
  return error;
}

struct NormalizeNodes : impl::NormalizeNodesBase<NormalizeNodes> {
  using Base::Base;

  // Core values for the node's results. False: nodes of a function's body or of a graph of its own stand in front of
  // it.
  bool rewrite(onnx::NodeOp node, FunctionState &state) {
    OpBuilder builder(node);
    Rule rule = Rules::all().find(node.getDomain(), node.getOpType());
    const bool isChecked = isBeingWrittenOut(node); // a Loop comes again after each of its iterations
    for (Value operand : isChecked ? ValueRange() : ValueRange(node.getInputs())) {
      auto type = dyn_cast<RankedTensorType>(operand.getType());
      if (operand.getDefiningOp<onnx::NoneOp>()) continue;
      if (type && type.hasStaticShape() && elementsWithin(type.getShape())) continue;
      errorAt(node) << "an operand is of type " << operand.getType() << "; a static tensor of at most " << mostElements
                    << " elements is needed";
      throw Failure();
    }
    CoreBuilder b(builder, node.getLoc());
    b.budget = &state.constants;
    Node view(node, b, state);
    auto narrow = [&](Value value) { return state.narrow.lookup(value); };
    if (auto fault = isChecked ? std::nullopt
                               : faultOf(node, {[&](Value value) { return state.sequences.contains(value); }, narrow}))
      view.fail(*fault);
    if (!rule && isControlFlow(node.getDomain(), node.getOpType())) {
      expandControlFlow(view);
      return false;
    }
    if (!rule) {
      if (expandFunctionBody(node, builder, narrow)) return false;
      view.fail("ONNX's definition of the operator does not cover its attributes and operand types");
    }
    const bool isSelected = llvm::any_of(view.selections, [](const auto &one) { return one.has_value(); });
    Values results = isSelected ? rewriteSelected(view, rule) : rule(view);
    for (auto [old, value] : llvm::zip(node.getResults(), results)) {
      if (!value && !old.use_empty()) view.fail("its output " + Twine(old.getResultNumber()) + " is not supported");
      if (!value) continue;
      // A node that moves elements moves their carriers.
      if (auto like = operandOfResult(node, old.getResultNumber()); like && view.narrow(*like))
        asNarrow(view, value, view.narrow(*like));
      old.replaceAllUsesWith(value);
    }
    if (results.size() < node.getNumResults() && !node.use_empty()) view.fail("has more outputs than are supported");
    node.erase();
    return true;
  }

  LogicalResult rewriteAll(func::FuncOp function) {
    FunctionState state{.batchNorm = batchNorm, .dropout = dropout, .drawKey = {}, .draws = 0, .writes = {}};
    Block &block = function.getBody().front();
    for (BlockArgument argument : block.getArguments()) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type || !isNarrow(type.getElementType())) continue;
      state.narrow[argument] = type.getElementType();
      argument.setType(type.clone(carrierOf(type.getElementType())));
    }
    for (auto at = block.begin(); at != block.end();) {
      auto node = dyn_cast<onnx::NodeOp>(*at);
      if (!node) {
        auto constant = dyn_cast<onnx::ConstantOp>(*at++);
        auto value = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
        if (!value || !isNarrow(value.getElementType())) continue;
        OpBuilder builder(constant);
        DenseElementsAttr carried = inCarrier(value);
        Value carrier = onnx::ConstantOp::create(builder, constant.getLoc(), carried.getType(), carried).getY();
        state.narrow[carrier] = value.getElementType();
        constant.getY().replaceAllUsesWith(carrier);
        constant.erase();
        continue;
      }
      // A body's nodes stand in front of the node they replace: go on with the first of them.
      Operation *before = node->getPrevNode();
      auto after = std::next(at);
      try {
        bool done = rewrite(node, state);
        at = done ? after : before ? std::next(before->getIterator()) : block.begin();
      } catch (const Failure &) {
        return failure();
      }
    }
    for (OpOperand &output : block.getTerminator()->getOpOperands()) {
      auto name = onnx::nameAttr.ofResult(function, output.getOperandNumber());
      if (state.sequences.count(output.get()))
        return function.emitError("output '") << (name ? *name : "") << "' is a sequence of tensors";
      if (state.selected.count(output.get()))
        return function.emitError("output '")
               << (name ? *name : "") << "' has as many entries as data select (NonZero), and sizes must be known";
    }
    if (failed(eraseMarks(state))) return failure();
    OpBuilder builder(block.getTerminator());
    for (auto &[symbol, value] : state.writes)
      onnx::WriteOp::create(builder, value.getLoc(), cast<FlatSymbolRefAttr>(symbol), value);
    function.setType(
        FunctionType::get(&getContext(), block.getArgumentTypes(), block.getTerminator()->getOperandTypes()));
    return success();
  }

  void runOnOperation() override {
    auto function = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!function) {
      getOperation().emitError("has no function @model");
      return signalPassFailure();
    }
    if (failed(checkSupport(function)) || failed(rewriteAll(function))) signalPassFailure();
  }
};

} // namespace
} // namespace cleave::normalize
