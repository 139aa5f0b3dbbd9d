#include "test/unit/kernels/kernel_machine.h"
#include "compiler/codegen/cuda/cuda_kernels.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/codegen/passes.h"
#include "compiler/elements/element_data.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/engine/device/emulation/grid_services.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
namespace cleave::test {
namespace {

runtime::TensorType typeOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return {dtypeOf(tensor.getElementType()), tensor.getShape().vec()};
}

HostTensor constant(onnx::ConstantOp op) {
  auto dense = cast<DenseElementsAttr>(op.getValue());
  runtime::TensorType type = typeOf(op.getType());
  if (isa<FloatType>(dense.getElementType())) {
    std::vector<double> values;
    for (const APFloat &value : dense.getValues<APFloat>()) values.push_back(value.convertToDouble());
    return HostTensor::ofReals(type.dtype, type.shape, values);
  }
  std::vector<int64_t> values;
  for (const APInt &value : dense.getValues<APInt>())
    values.push_back(value.getBitWidth() == 1 ? int64_t(value.getZExtValue()) : value.getSExtValue());
  return HostTensor::ofIntegers(type.dtype, type.shape, values);
}

runtime::Attributes attributesOf(Operation *op) {
  runtime::Attributes result;
  for (NamedAttribute named : op->getAttrs()) {
    std::string name = named.getName().str();
    if (auto array = dyn_cast<DenseI64ArrayAttr>(named.getValue()))
      result[name] = runtime::Ints(array.asArrayRef().begin(), array.asArrayRef().end());
    else if (auto integer = dyn_cast<IntegerAttr>(named.getValue()))
      result[name] = runtime::Ints{integer.getInt()};
    else if (auto real = dyn_cast<FloatAttr>(named.getValue()))
      result[name] = real.getValueAsDouble();
  }
  return result;
}

} // namespace

std::string KernelMachine::cpu() {
  const char *asked = std::getenv("CLEAVE_CPU");
  return asked ? asked : "native";
}

KernelMachine::KernelMachine(const std::string &text) {
  DialectRegistry registry;
  codegen::registerKernelDialects(registry);
  registry.insert<onnx::OnnxDialect>();
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  context.disableMultithreading();
  original = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(original) << text;
}
KernelMachine::~KernelMachine() {
  if (object) dlclose(object);
}

bool KernelMachine::compile(Device device) {
  compiled = original->clone();
  PassManager passes(&context);
  passes.addPass(codegen::createSplitReductions({device == Device::Gpu}));
  passes.addPass(codegen::createSplitSums());
  passes.addPass(codegen::createRematerializeCheap());
  passes.addPass(codegen::createSelectHalves());
  passes.addPass(codegen::createFormClusters());
  passes.addPass(codegen::createLowerKernelsToLinalg());
  passes.addPass(codegen::createScheduleKernels({device == Device::Gpu}));
  if (failed(passes.run(*compiled))) {
    ADD_FAILURE() << "a pass failed";
    return false;
  }
  if (device == Device::Gpu) {
    codegen::GpuKernels gpu(*compiled);
    if (failed(gpu.build())) {
      ADD_FAILURE() << "building the kernels for a GPU failed";
      return false;
    }
    kernels = gpu.all().size();
    auto library = gpu.compile({.target = "sm_80", .emulate = true, .assemble = false, .cpu = cpu()});
    if (failed(library)) {
      ADD_FAILURE() << "compiling the kernels for a GPU failed";
      return false;
    }
    return kernels == 0 || load(library->emulation);
  }
  codegen::KernelOptions options{.cpu = cpu()};
  if (const char *path = std::getenv("KERNELS_DUMP_LLVM")) options.dumpLlvmIr = path;
  auto library = codegen::compileKernels(*compiled, options);
  if (failed(library)) {
    ADD_FAILURE() << "compiling the kernels failed";
    return false;
  }
  kernels = library->kernels.size();
  return kernels == 0 || load(library->sharedObject);
}

bool KernelMachine::load(const std::string &bytes) {
  int file = memfd_create("kernels", MFD_CLOEXEC);
  if (write(file, bytes.data(), bytes.size()) != ssize_t(bytes.size())) ADD_FAILURE() << "memfd";
  object = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(file);
  if (!object) ADD_FAILURE() << dlerror();
  if (object) runtime::attachGrid(object);
  return object != nullptr;
}

std::string KernelMachine::text() {
  std::string result;
  llvm::raw_string_ostream stream(result);
  compiled->print(stream);
  return result;
}

KernelMachine::Function KernelMachine::function(llvm::StringRef symbol) {
  return reinterpret_cast<Function>(dlsym(object, symbol.str().c_str()));
}

std::vector<plan::LaunchOp> KernelMachine::launches() {
  std::vector<plan::LaunchOp> found;
  compiled->walk([&](plan::LaunchOp op) { found.push_back(op); });
  return found;
}

std::vector<HostTensor> KernelMachine::randomInputs(unsigned seed, double low, double high) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> reals(low, high);
  std::uniform_int_distribution<int64_t> integers(0, 4);
  std::vector<HostTensor> inputs;
  for (Type argument : cast<func::FuncOp>(original->getBody()->front()).getArgumentTypes()) {
    runtime::TensorType type = typeOf(argument);
    int64_t count = runtime::elementCount(type.shape);
    std::vector<double> values(count);
    std::vector<int64_t> counts(count);
    for (double &value : values) value = static_cast<float>(reals(generator));
    for (int64_t &value : counts) value = integers(generator);
    bool isFloat = isa<FloatType>(cast<RankedTensorType>(argument).getElementType());
    inputs.push_back(isFloat ? HostTensor::ofReals(type.dtype, type.shape, values)
                             : HostTensor::ofIntegers(type.dtype, type.shape, counts));
  }
  return inputs;
}

std::vector<HostTensor> KernelMachine::runReference(const std::vector<HostTensor> &inputs) {
  return run(cast<func::FuncOp>(original->getBody()->front()), inputs, 1, false);
}
std::vector<HostTensor> KernelMachine::runCompiled(const std::vector<HostTensor> &inputs, int parts, bool share) {
  return run(cast<func::FuncOp>(compiled->getBody()->front()), inputs, parts, share);
}

std::vector<HostTensor> KernelMachine::run(func::FuncOp function, const std::vector<HostTensor> &inputs, int parts,
                                           bool share) {
  DenseMap<Value, HostTensor> values;
  for (auto [argument, input] : llvm::zip_equal(function.getArguments(), inputs)) values[argument] = input;
  for (Operation &op : function.front().without_terminator()) {
    std::vector<const HostTensor *> operands;
    for (Value operand : op.getOperands()) operands.push_back(&values[operand]);
    std::vector<HostTensor> results;
    if (auto call = dyn_cast<plan::LaunchOp>(op)) {
      results = launch(call, operands, parts, share);
    } else if (auto value = dyn_cast<onnx::ConstantOp>(op)) {
      results = {constant(value)};
    } else {
      std::vector<runtime::TensorType> types;
      for (Type type : op.getResultTypes()) types.push_back(typeOf(type));
      auto evaluated = runtime::evaluate(op.getName().stripDialect().str(), operands, attributesOf(&op), types);
      if (!evaluated) {
        ADD_FAILURE() << op.getName().getStringRef().str() << ": " << evaluated.status().message();
        return {};
      }
      results = std::move(*evaluated);
    }
    for (auto [value, result] : llvm::zip_equal(op.getResults(), results)) values[value] = std::move(result);
  }
  std::vector<HostTensor> results;
  for (Value value : function.front().getTerminator()->getOperands()) results.push_back(values[value]);
  return results;
}

std::vector<HostTensor> KernelMachine::launch(plan::LaunchOp op, const std::vector<const HostTensor *> &operands,
                                              int parts, bool share) {
  // Copies of the inputs, so that a shared buffer does not disturb other readers; guard bytes find overruns.
  constexpr size_t guard = 64;
  std::vector<std::vector<std::byte>> memory;
  std::vector<void *> buffers;
  for (const HostTensor *operand : operands) {
    memory.emplace_back(operand->data.begin(), operand->data.end());
    memory.back().resize(operand->data.size() + guard, std::byte(0x5a));
  }
  std::vector<int> bufferOfResult;
  std::vector<char> taken(operands.size(), 0);
  for (size_t r = 0; r < op.getResults().size(); ++r) {
    int from = -1;
    ArrayRef<int64_t> pairs = op.getInplace();
    for (size_t i = 0; share && i < pairs.size() && from < 0; i += 2)
      if (pairs[i + 1] == int64_t(r) && !taken[pairs[i]]) from = pairs[i];
    if (from >= 0) {
      taken[from] = 1;
      bufferOfResult.push_back(from);
      continue;
    }
    runtime::TensorType type = typeOf(op.getResults()[r].getType());
    memory.emplace_back(static_cast<size_t>(runtime::elementCount(type.shape) * runtime::byteSize(type.dtype)),
                        std::byte(0x77));
    memory.back().resize(memory.back().size() + guard, std::byte(0x5a));
    bufferOfResult.push_back(memory.size() - 1);
  }
  for (size_t i = 0; i < operands.size(); ++i) buffers.push_back(memory[i].data());
  for (int buffer : bufferOfResult) buffers.push_back(memory[buffer].data());
  std::vector<int64_t> scalars;
  for (Attribute attribute : op.getScalars()) {
    auto affine = cast<plan::AffineOfCoordinateAttr>(attribute);
    int64_t value = affine.getBase();
    for (auto [axes, stride] : llvm::zip(affine.getAxes(), affine.getStrides().asArrayRef()))
      value += stride * coordinate[cast<StringAttr>(cast<ArrayAttr>(axes)[0]).str()];
    scalars.push_back(value);
  }
  Function call = function(op.getKernel());
  if (!call) {
    ADD_FAILURE() << "no symbol " << op.getKernel().str();
    return {};
  }
  int64_t extent = op.getExtent(), grain = op.getGrain();
  int64_t grains = (extent + grain - 1) / grain;
  for (int part = 0; part < parts; ++part) {
    int64_t begin = grains * part / parts * grain, end = std::min(extent, grains * (part + 1) / parts * grain);
    if (begin < end) call(begin, end, buffers.data(), scalars.data());
  }
  for (auto &bytes : memory)
    for (size_t i = bytes.size() - guard; i < bytes.size(); ++i)
      EXPECT_EQ(int(bytes[i]), 0x5a) << op.getKernel().str() << " writes past the end of a buffer";
  std::vector<HostTensor> results;
  for (size_t r = 0; r < op.getResults().size(); ++r) {
    runtime::TensorType type = typeOf(op.getResults()[r].getType());
    HostTensor result = HostTensor::zeros(type.dtype, type.shape);
    std::memcpy(result.data.data(), memory[bufferOfResult[r]].data(), result.data.size());
    results.push_back(std::move(result));
  }
  return results;
}

void KernelMachine::expectSame(const std::vector<HostTensor> &inputs, double tolerance) {
  std::vector<HostTensor> expected = runReference(inputs), got = runCompiled(inputs);
  ASSERT_EQ(expected.size(), got.size());
  for (size_t r = 0; r < expected.size(); ++r) {
    ASSERT_EQ(int(expected[r].dtype), int(got[r].dtype));
    std::vector<double> want = expected[r].reals(), have = got[r].reals();
    ASSERT_EQ(want.size(), have.size());
    double largest = 1e-30;
    for (double value : want)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(have[i])) continue;
      if (want[i] == have[i]) continue;
      double error = std::abs(want[i] - have[i]) / largest;
      if (error <= tolerance) continue;
      ADD_FAILURE() << "result " << r << " element " << i << ": expected " << want[i] << ", got " << have[i] << "\n"
                    << text();
      return;
    }
  }
  for (int parts : {1, 2, 3, 7})
    for (bool share : {false, true}) {
      std::vector<HostTensor> again = runCompiled(inputs, parts, share);
      for (size_t r = 0; r < got.size(); ++r)
        if (again[r].data != got[r].data) {
          ADD_FAILURE() << "result " << r << " has other bits in " << parts << " parts, shared buffers " << share
                        << "\n"
                        << text();
          return;
        }
    }
}

} // namespace cleave::test
