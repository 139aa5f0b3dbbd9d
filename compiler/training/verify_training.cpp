#include "compiler/training/metrics.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"

using namespace mlir;
namespace cleave::training {
#define GEN_PASS_DEF_VERIFYTRAINING
#include "compiler/training/Passes.h.inc"

namespace {

class VerifyTraining : public impl::VerifyTrainingBase<VerifyTraining> {
public:
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (StringRef name : {"final", "evaluate"})
      if (!symbols.lookup<func::FuncOp>(name)) fail(getOperation(), "the training phase made no @" + name.str());
    for (auto function : getOperation().getOps<func::FuncOp>()) verifyFunction(function, symbols);
  }

private:
  void fail(Operation *op, const std::string &what) {
    op->emitOpError() << what;
    signalPassFailure();
  }

  void verifyFunction(func::FuncOp function, SymbolTable &symbols) {
    StringRef name = function.getName();
    std::vector<std::string> wanted;
    if (name == "final") wanted = {"loss", "grad_norm"};
    if (name == "evaluate") wanted = {"loss"};
    std::vector<std::string> results;
    auto isNamed = [](StringRef result) { // of groups and of several losses, at will
      return result.starts_with("grad_norm.") || result.starts_with(lossPrefix) ||
             result.starts_with(lossWeightPrefix) || result.starts_with(metricPrefix);
    };
    for (const StepResult &result : stepResults(function))
      if (!isNamed(result.name)) results.push_back(result.name);
    if (name == "evaluate" && results.size() == 2) wanted.push_back("loss_weight"); // none: the loss is a plain sum
    if (name == "final" && results.size() == 4) wanted.push_back("loss_scale");     // fp16
    if (name == "final" && results.size() > 2) wanted.push_back("skipped");         // fp16, outliers
    if (results != wanted) fail(function, "results must be " + llvm::join(wanted, ", "));
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      if (!onnx::hostAttr.of(function, i) && !onnx::nameAttr.of(function, i))
        fail(function, "argument " + std::to_string(i) + " has no name");
    }
    DenseSet<StringAttr> written;
    for (Operation &op : function.front().without_terminator()) {
      if (!place::of(&op).phase) fail(&op, "has no phase in its place.at");
      if (isa<onnx::StopGradientOp, onnx::NodeOp, onnx::NoneOp>(op)) fail(&op, "must not be left here");
      if (op.getName().getDialectNamespace() != "onnx") fail(&op, "is no core op");
      if (auto read = dyn_cast<onnx::ReadOp>(op)) verifyType(op, symbols, read.getParamAttr(), read.getValue());
      auto write = dyn_cast<onnx::WriteOp>(op);
      if (!write) continue;
      verifyType(op, symbols, write.getParamAttr(), write.getValue());
      if (name == "evaluate") fail(&op, "evaluation must not write");
      if (!written.insert(write.getParamAttr().getAttr()).second) fail(&op, "second write of the same tensor");
    }
  }

  void verifyType(Operation &op, SymbolTable &symbols, FlatSymbolRefAttr symbol, Value value) {
    auto param = symbols.lookup<onnx::ParamOp>(symbol.getAttr());
    if (!param)
      fail(&op, "names @" + symbol.getValue().str() + ", which is no onnx.param");
    else if (param.getType() != value.getType())
      fail(&op, "differs in type from its onnx.param");
  }
};

} // namespace
} // namespace cleave::training
