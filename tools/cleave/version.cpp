// cleave --version: what this program was built from, which optional libraries this machine has, and its CPU.
#include "cleave_commit.h"
#include "compiler/codegen/cuda/ptx.h"
#include "compiler/import/model_file.h"
#include "runtime/base/cpu_features.h"
#include "runtime/engine/comm/transport.h"
#include "runtime/engine/device/cuda/library.h"
#include "tools/cleave/commands.h"
#include "llvm/Config/llvm-config.h"
#include <dnnl.h>
#include <fmt/core.h>
#include <onnx/common/version.h>

namespace cleave::tool {
namespace {

// "9.19.0" of 91900.
std::string versionOf(size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string driverVersion() {
  auto library = runtime::cuda::openDriver();
  int version = 0; // 12080 is 12.8
  if (!library || (*library)->getVersion(&version) != 0) return "not found";
  return fmt::format("driver for CUDA {}.{}", version / 1000, version % 1000 / 10);
}
std::string ncclVersion() {
  auto library = runtime::cuda::openNccl();
  int version = 0;
  return library && (*library)->getVersion(&version) == 0 ? versionOf(size_t(version)) : "not found";
}
std::string cudnnVersion() {
  auto library = runtime::cuda::openCudnn();
  return library ? versionOf((*library)->version()) : "not found";
}

} // namespace

std::string versionName() { return fmt::format("{} ({})", CLEAVE_VERSION, CLEAVE_COMMIT); }

std::vector<report::Row> versionFacts() {
  const dnnl_version_t &dnnl = *dnnl_version();
  auto mpi = runtime::mpiVersion();
  const int level = runtime::cpuLevel();
  return {
      {"cleave", versionName()},
      {"LLVM", LLVM_VERSION_STRING},
      {"ONNX", fmt::format("{}, opsets {} to {}", ONNX_VERSION_STRING, import_::oldestOpset, import_::newestOpset)},
      {"oneDNN", fmt::format("{}.{}.{}", dnnl.major, dnnl.minor, dnnl.patch)},
      {"MPI", mpi ? *mpi : "not found"},
      {"NVIDIA GPU", driverVersion()},
      {"NCCL", ncclVersion()},
      {"cuDNN", cudnnVersion()},
      {"ptxas", codegen::findPtxas().value_or("not found")},
      {"CPU", fmt::format("{}, {}", level > 1 ? fmt::format("x86-64-v{}", level) : "x86-64", runtime::cpuName())},
  };
}

std::string versionText() {
  std::string out = table(versionFacts());
  out.pop_back();
  return out;
}

} // namespace cleave::tool
