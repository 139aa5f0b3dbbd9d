// The phases of the compiler over one module, in order; docs/reference/passes.md has the passes of each.
//
//   import -> normalize -> training -> (planner) -> partition -> codegen
#pragma once
#include "compiler/driver/compile_request.h"
#include "compiler/import/inspect.h"
#include "compiler/normalize/normalize.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/problem/problem.h"
#include "compiler/specialize/find_batch.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <memory>

namespace cleave {

// Runs phases on a module; errors of the passes are collected in words.
class Pipeline {
public:
  explicit Pipeline(const CompileRequest &request);
  // In the context of another one, which takes its functions in (`add`) and outlives it.
  Pipeline(const CompileRequest &request, Pipeline &whole);
  ~Pipeline();

  struct StepOptions {
    int64_t microbatches = 1, sequenceBlocks = 1;
    bool staged = false;                  // to be cut in pipeline stages
    bool delayWeights = false;            // gradients are taken at the weights before the last update
    bool libraryAttention = false;        // attention that the library takes is one operation
    int64_t headWays = 1;                 // devices that split its heads
    std::vector<double> lossOfBatch = {}; // of several microbatches: lossTerms() of the whole batch
    std::optional<Batch> batch = {};      // where a step of this model has found it already: batchPlace()
  };
  // import, normalize, training: the whole training step on one device, at the size of one microbatch.
  Status buildStep(const StepOptions &options);
  // The contents of the model, with FLOPs where the normalize phase succeeds.
  Result<import_::Inspection> inspect();
  // The planner's view of the step.
  Result<planner::Problem> problem(int64_t microbatches);
  // The unpartitioned step, for the reference executor (plan.proto's reference_graph).
  Result<std::string> referenceGraph();
  // partition: the step becomes that of every device.
  Status partition(const planner::Decision &decision, bool ofAnotherSize = false);
  // After partition of both: the functions of another size of this step, as routines whose names end with `suffix`.
  Status add(Pipeline &other, const std::string &suffix);
  // codegen: after partition.
  Result<plan::Plan> generate(const planner::Decision &decision);
  // Samples a step, known after buildStep.
  int64_t batch() const { return found.samples; }
  const Batch &batchPlace() const { return found; }
  mlir::ModuleOp step() { return *module; }
  // A loss that the graph computes: the coefficients of its sums over samples (compiler/training/graph_loss.h).
  std::vector<double> lossTerms();
  // The node that makes the loss of several microbatches another than the batch's; empty: none.
  std::string lossMeetsAt();
  std::string checkpointFolder(); // of the recipe's init; "" without one
  Status noteResumed();
  int64_t stepsBefore(); // of the training that this one continues
  // The warnings of the passes, such as parameters that no gradient reaches.
  const std::vector<std::string> &warnings() const { return warned; }
  // What would change the numbers and the file does not tell, a line each.
  const std::vector<std::string> &doubts() const { return doubted; }
  // What the import rests on: "read from the module's statement".
  const std::string &importSource() const { return source; }
  // Of the model's graph without its weights.
  const std::string &modelDigest() const { return digest; }
  // What every tensor of the model's file is.
  const std::vector<import_::TensorRole> &tensors() const { return tensorRoles; }
  // The decisions about the model: which shared initializers are one parameter.
  const std::vector<std::string> &notes() const { return noted; }

private:
  void collectDiagnostics();
  Status readModel();
  Status importModel();
  // Drops the outputs that the loss does not read, and the nodes and inputs that only they need.
  void keepLossOutput();
  // Finds the batch, and notes on @model's arguments where its samples lie.
  Status locateBatch(const std::optional<Batch> &known = {});
  bool areApart(const Batch &batch);
  normalize::NormalizeOptions sizesOf(int64_t microbatches) const;
  // Marks the normalized model where it computes with the number of samples (compiler/specialize/batch_size_use.h).
  // `imported`: the model before, `options`: as it was normalized.
  void markBatchSizeUse(mlir::ModuleOp imported, normalize::NormalizeOptions options);
  // Named dimensions that have no size yet get this one. False: there are none.
  // (An unnamed one is named after its input: "x.0".)
  bool assumeSizes(normalize::NormalizeOptions &options, int64_t size);
  Status run(const char *phase, llvm::function_ref<void(mlir::OpPassManager &)> build);
  // The collected diagnostics as an error; `what` if there are none.
  Status failure(const std::string &what);
  // Writes the module into the folder of `--dump-ir`, after a line with the passes that it came through.
  void dump(const char *phase, mlir::OpPassManager *passes = nullptr);

  const CompileRequest &request;
  std::shared_ptr<mlir::MLIRContext> shared;
  mlir::MLIRContext &context;
  uint64_t handler = 0; // of the context's diagnostics
  std::string diagnostics;
  std::vector<std::string> warned, noted, doubted;
  std::vector<import_::TensorRole> tensorRoles;
  std::string source, digest;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Batch found;
  int dumped = 0;
};

} // namespace cleave
