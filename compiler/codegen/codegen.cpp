#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/command_kernels.h"
#include "compiler/codegen/cuda/cuda_kernels.h"
#include "compiler/codegen/cuda/group_launches.h"
#include "compiler/codegen/emission/emit_plan.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/codegen/memory/memory_plan.h"
#include "dialects/dist/Dist.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/plan/code_digest.h"
#include "runtime/plan/library_workspace.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

MemoryReport memoryOf(ModuleOp module) {
  MemoryReport report;
  auto memory = plan::memoryAttr.of(module);
  auto bytes = [&](StringRef name) { return memory.getAs<IntegerAttr>(name).getInt(); };
  report.parameters = bytes("parameters");
  report.gradients = bytes("gradients");
  report.optimizer = bytes("optimizer");
  report.activations = bytes("activations");
  report.workspace = bytes("workspace");
  report.host = bytes("host");
  return report;
}

LogicalResult addCpuKernels(ModuleOp module, const CodegenOptions &options, plan::Plan &plan) {
  FailureOr<KernelLibrary> library = compileKernels(module, {.cpu = options.cpu});
  if (failed(library)) return failure();
  plan.set_kernel_object(std::move(library->sharedObject));
  setKernelTarget(plan, library->target);
  for (auto [kernel, compiled] : llvm::zip_equal(*plan.mutable_kernels(), library->kernels)) {
    kernel.set_symbol(compiled.symbol);
    kernel.set_num_buffers(compiled.numBuffers);
    kernel.set_num_scalars(compiled.numScalars);
    kernel.set_description(compiled.description);
  }
  plan.set_code_digest(runtime::codeDigest(plan));
  return success();
}

// For each kernel's buffers, over all launches: the largest power of two that their places are multiples of. Views into
// larger tensors may begin anywhere.
BufferAlignments alignmentsOf(const plan::Plan &plan) {
  BufferAlignments alignments;
  auto add = [&](const plan::Launch &launch) {
    auto &known = alignments[plan.kernels(launch.kernel()).symbol()];
    known.resize(static_cast<size_t>(launch.buffers_size()), bufferAlignment);
    for (auto [least, buffer] : llvm::zip_equal(known, launch.buffers()))
      least = std::min(least, (buffer.offset() | bufferAlignment) & -(buffer.offset() | bufferAlignment));
  };
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands()) {
        if (command.has_launch()) add(command.launch());
        for (const plan::Launch &part : command.launch_group().parts()) add(part);
      }
  return alignments;
}

LogicalResult addGpuKernels(ModuleOp module, const CodegenOptions &options, plan::Plan &plan) {
  groupLaunches(plan);
  const BufferAlignments alignments = alignmentsOf(plan);
  GpuKernels kernels(module, alignments, options.gpu);
  if (failed(kernels.build())) return failure();
  for (auto [kernel, built] : llvm::zip_equal(*plan.mutable_kernels(), kernels.all())) {
    if (auto known = alignments.find(kernel.symbol()); known != alignments.end())
      for (auto [buffer, bytes] : llvm::zip_equal(*kernel.mutable_buffers(), known->second))
        buffer.set_alignment(static_cast<int32_t>(bytes));
    kernel.set_threads(static_cast<int32_t>(built.threads));
    kernel.set_shared_bytes(static_cast<int32_t>(built.sharedBytes));
  }
  if (failed(addCommandKernels(plan, kernels))) return failure();
  FailureOr<CudaLibrary> library =
      kernels.compile({.target = options.gpu, .emulate = options.emulate, .cpu = options.cpu});
  if (failed(library)) return failure();
  for (plan::Program &program : *plan.mutable_programs())
    program.set_library_workspace_bytes(runtime::libraryWorkspace(program, options.deterministic));
  plan.mutable_cuda()->set_target(options.gpu);
  plan.mutable_cuda()->set_tf32(options.tf32);
  plan.mutable_cuda()->set_deterministic(options.deterministic);
  plan.mutable_cuda()->set_ptx(std::move(library->ptx));
  plan.mutable_cuda()->set_cubin(std::move(library->cubin));
  plan.set_kernel_object(std::move(library->emulation));
  if (options.emulate) setKernelTarget(plan, library->emulationTarget);
  plan.set_code_digest(runtime::codeDigest(plan));
  return success();
}

} // namespace

void prepare(ModuleOp module, const dist::Mesh &mesh, const CodegenOptions &options) {
  MLIRContext *context = module.getContext();
  DialectRegistry registry;
  registerKernelDialects(registry);
  registry.insert<dist::DistDialect, plan::PlanDialect, func::FuncDialect>();
  context->appendDialectRegistry(registry);
  context->loadDialect<dist::DistDialect>(); // for the mesh
  if (!mesh.axes.empty()) dist::meshAttr.set(module, dist::MeshAttr::get(context, mesh));
  std::vector<std::string> offloaded;
  if (options.offloadsState) offloaded.push_back("optimizer");
  if (options.offloadsActivations) offloaded.push_back("activations");
  if (!offloaded.empty()) plan::offloadAttr.set(module, offloaded);
  if (auto model = module.lookupSymbol<func::FuncOp>("model"))
    model.erase(); // the functions made from it are what runs
}

FailureOr<plan::Plan> emit(ModuleOp module, const dist::Mesh &mesh, const CodegenOptions &options) {
  FailureOr<plan::Plan> plan = emitPlan(module, mesh);
  if (failed(plan)) return failure();
  if (failed(options.gpu.empty() ? addCpuKernels(module, options, *plan) : addGpuKernels(module, options, *plan)))
    return failure();
  plan->set_threads_per_device(static_cast<int32_t>(options.threads));
  if (options.memory) *options.memory = memoryOf(module);
  return plan;
}

} // namespace cleave::codegen
