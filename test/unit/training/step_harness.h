// Runs passes over a module given as text and executes what comes out with the reference executor.
//
//   StepHarness step(text);
//   ASSERT_TRUE(step.run(createBuildBackward({})));
//   ReferenceExecutor &executor = step.execute(Precision::Double);
#pragma once
#include "compiler/driver/pass_list.h"
#include "compiler/training/export_reference.h"
#include "compiler/training/training.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/check/reference/executor.h"
#include <gtest/gtest.h>
#include <random>

namespace cleave::training::testing {

class StepHarness {
public:
  explicit StepHarness(const std::string &text)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) { messages += diagnostic.str() + "\n"; }) {
    context.loadDialect<onnx::OnnxDialect, mlir::func::FuncDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }

  template <typename... Passes> bool run(Passes... passes) {
    if (!module) return false;
    mlir::PassManager manager(&context);
    (manager.addPass(std::move(passes)), ...);
    return mlir::succeeded(manager.run(*module));
  }
  bool train(const recipe::Recipe &recipe, const TrainingOptions &options = {}) {
    if (!module) return false;
    mlir::PassManager manager(&context);
    addTrainingPasses(manager, recipe, options);
    return mlir::succeeded(manager.run(*module));
  }

  // With every persistent tensor that has a fill value set to it.
  Result<runtime::ReferenceExecutor> execute(runtime::Precision precision) {
    plan::Graph graph;
    if (mlir::failed(exportReference(*module, graph))) return inputError(messages);
    auto executor = runtime::ReferenceExecutor::create(std::move(graph), precision);
    if (!executor) return executor;
    auto types = executor->stateTypes();
    for (auto param : module->getOps<onnx::ParamOp>()) {
      auto type = types.find(param.getSymName().str());
      if (type == types.end() || !param.getFill()) continue;
      std::vector<double> values(runtime::elementCount(type->second.shape), param.getFill()->convertToDouble());
      executor->state[type->first] = runtime::HostTensor::ofReals(type->second.dtype, type->second.shape, values);
    }
    return executor;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string messages; // of all diagnostics

private:
  mlir::ScopedDiagnosticHandler handler;
};

inline runtime::HostTensor randomTensor(std::mt19937_64 &random, const std::vector<int64_t> &shape, double low,
                                        double high) {
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(runtime::elementCount(shape));
  for (double &value : values) value = uniform(random);
  return runtime::HostTensor::ofReals(plan::F64, shape, values);
}

} // namespace cleave::training::testing
