#include "compiler/codegen/codegen.h"
#include "compiler/codegen/emit_plan.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/codegen/kernels/passes.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

MemoryReport memoryOf(ModuleOp module) {
  MemoryReport report;
  auto memory = module->getAttrOfType<DictionaryAttr>("plan.memory");
  auto bytes = [&](StringRef name) { return memory.getAs<IntegerAttr>(name).getInt(); };
  report.parameters = bytes("parameters");
  report.gradients = bytes("gradients");
  report.optimizer = bytes("optimizer");
  report.activations = bytes("activations");
  report.workspace = bytes("workspace");
  return report;
}

} // namespace

void buildCodegenPipeline(OpPassManager &passes) {
  passes.addPass(createAbsorbContractTransposes());
  passes.addPass(createSplitReductionsPass());
  passes.addPass(createRematerializeCheapPass());
  passes.addPass(createFormClustersPass());
  passes.addPass(createLowerKernelsToLinalgPass());
  passes.addPass(createScheduleKernelsPass());
  passes.addPass(createLowerLibraryOps());
  passes.addPass(createLowerCollectives());
  passes.addPass(createCopyKeptValues());
  passes.addPass(createScheduleCommands());
  passes.addPass(createPlanMemory());
  passes.addPass(createVerifyPlan());
}

FailureOr<plan::Plan> generate(ModuleOp module, const dist::Mesh &mesh, const CodegenOptions &options) {
  MLIRContext *context = module.getContext();
  DialectRegistry registry;
  registerKernelDialects(registry);
  registry.insert<plan::PlanDialect, func::FuncDialect>();
  context->appendDialectRegistry(registry);
  module->setAttr("cleave.mesh", StringAttr::get(context, mesh.str()));
  if (auto model = module.lookupSymbol<func::FuncOp>("model"))
    model.erase(); // the functions made from it are what runs

  PassManager passes(context);
  passes.enableVerifier(false); // VerifyPlan stands at the end
  buildCodegenPipeline(passes);
  if (failed(passes.run(module))) return failure();
  FailureOr<plan::Plan> plan = emitPlan(module, mesh);
  if (failed(plan)) return failure();

  KernelOptions kernelOptions;
  if (!options.cpu.empty()) kernelOptions.target.cpu = options.cpu;
  FailureOr<KernelLibrary> library = compileKernels(module, kernelOptions);
  if (failed(library)) return failure();
  plan->set_kernel_object(std::move(library->sharedObject));
  plan->set_kernel_target(library->target);
  for (auto [kernel, compiled] : llvm::zip_equal(*plan->mutable_kernels(), library->kernels)) {
    kernel.set_symbol(compiled.symbol);
    kernel.set_num_buffers(compiled.numBuffers);
    kernel.set_num_scalars(compiled.numScalars);
    kernel.set_description(compiled.description);
  }
  plan->set_threads_per_device(static_cast<int32_t>(options.threads));
  if (options.memory) *options.memory = memoryOf(module);
  return plan;
}

} // namespace cleave::codegen
