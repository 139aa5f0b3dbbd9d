#include "runtime/engine/device/cuda/library.h"
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <initializer_list>
#include <string>

namespace cleave::runtime::cuda {
namespace {

struct Source {
  std::initializer_list<const char *> names; // the first that opens is taken
  const char *purpose;                       // who needs it, and where it comes from
};

Result<void *> openLibrary(const Source &source) {
  std::string reasons;
  const char *folder = std::getenv("CLEAVE_CUDA_LIBRARIES");
  for (const char *name : source.names)
    for (bool own : {true, false}) {
      if (own && (!folder || !*folder)) continue;
      std::string path = own ? fmt::format("{}/{}", folder, name) : name;
      if (void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
      const char *why = ::dlerror();
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", why ? why : path);
    }
  return runError(fmt::format("{} cannot be opened ({}): {}", *source.names.begin(), reasons, source.purpose));
}

template <typename Pointer> Status resolve(void *handle, const char *library, const char *symbol, Pointer &out) {
  out = reinterpret_cast<Pointer>(::dlsym(handle, symbol));
  if (out) return Status::ok();
  return runError(fmt::format("{} has no {}: it is older than this program needs", library, symbol));
}

#define CLEAVE_RESOLVE(member, symbol, parameters)                                                                     \
  CLEAVE_RETURN_IF_ERROR(resolve(*handle, name, #symbol, table.member));

Result<Driver> loadDriver() {
  const char *name = "libcuda.so.1";
  Result<void *> handle =
      openLibrary({{name}, "the plan's devices are NVIDIA GPUs, which need NVIDIA's driver on this machine"});
  if (!handle) return handle.status();
  Driver table;
  CLEAVE_DRIVER_FUNCTIONS(CLEAVE_RESOLVE)
  // Hardware queues; read when the driver starts, 8 unless told. Streams that share one wait for each other's waits: a
  // send behind one that waits for a peer's message, which the peer sends when it has this one.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*replace=*/0);
  if (int error = table.init(0)) return driverStatus(table, error, "cannot start the CUDA driver");
  return table;
}
Result<CublasLt> loadCublasLt() {
  const char *name = "libcublasLt.so.13";
  Result<void *> handle = openLibrary({{name, "libcublasLt.so.12", "libcublasLt.so"},
                                       "the plan has matrix products, which cuBLASLt computes (NVIDIA's package "
                                       "libcublas, or nvidia-cublas of pip; LD_LIBRARY_PATH says where it is)"});
  if (!handle) return handle.status();
  CublasLt table;
  CLEAVE_CUBLAS_LT_FUNCTIONS(CLEAVE_RESOLVE)
  CLEAVE_RETURN_IF_ERROR(resolve(*handle, name, "cublasLtGetStatusString", table.statusString));
  CLEAVE_RETURN_IF_ERROR(resolve(*handle, name, "cublasLtGetVersion", table.version));
  return table;
}
Result<Cudnn> loadCudnn() {
  const char *name = "libcudnn.so.9";
  Result<void *> handle =
      openLibrary({{name},
                   "the plan has convolutions or attention, which cuDNN 9 computes (NVIDIA's package cudnn9, or "
                   "nvidia-cudnn-cu13 of pip; LD_LIBRARY_PATH says where it is)"});
  if (!handle) return handle.status();
  Cudnn table;
  CLEAVE_CUDNN_FUNCTIONS(CLEAVE_RESOLVE)
  CLEAVE_RETURN_IF_ERROR(resolve(*handle, name, "cudnnGetErrorString", table.errorString));
  CLEAVE_RETURN_IF_ERROR(resolve(*handle, name, "cudnnGetVersion", table.version));
  return table;
}
Result<Nccl> loadNccl() {
  const char *name = "libnccl.so.2";
  Result<void *> handle =
      openLibrary({{name},
                   "the plan's devices exchange tensors, which NCCL does between GPUs (NVIDIA's "
                   "package libnccl2, or nvidia-nccl-cu13 of pip; LD_LIBRARY_PATH says where it is)"});
  if (!handle) return handle.status();
  Nccl table;
  CLEAVE_NCCL_FUNCTIONS(CLEAVE_RESOLVE)
  CLEAVE_RETURN_IF_ERROR(resolve(*handle, name, "ncclGetErrorString", table.errorString));
  CLEAVE_RETURN_IF_ERROR(resolve(*handle, name, "ncclGetLastError", table.lastError));
  return table;
}
#undef CLEAVE_RESOLVE

template <typename Table> Result<const Table *> pointerTo(const Result<Table> &table) {
  if (!table) return table.status();
  return &*table;
}

} // namespace

Result<const Driver *> openDriver() {
  static const Result<Driver> table = loadDriver();
  return pointerTo(table);
}
Result<const CublasLt *> openCublasLt() {
  static const Result<CublasLt> table = loadCublasLt();
  return pointerTo(table);
}
Result<const Cudnn *> openCudnn() {
  static const Result<Cudnn> table = loadCudnn();
  return pointerTo(table);
}
Result<const Nccl *> openNccl() {
  static const Result<Nccl> table = loadNccl();
  return pointerTo(table);
}

Status driverStatus(const Driver &driver, int error, const char *doing) {
  if (error == 0) return Status::ok();
  const char *name = nullptr, *text = nullptr;
  driver.getErrorName(error, &name);
  driver.getErrorString(error, &text);
  return runError(fmt::format("{}: {} ({})", doing, name ? name : fmt::format("CUDA error {}", error).c_str(),
                              text ? text : "unknown to this driver"));
}
Status blasStatus(const CublasLt &blas, int error, const char *doing) {
  return error ? runError(fmt::format("{}: cuBLASLt says {}", doing, blas.statusString(error))) : Status::ok();
}
Status dnnStatus(const Cudnn &dnn, int error, const char *doing) {
  return error ? runError(fmt::format("{}: cuDNN says {}", doing, dnn.errorString(error))) : Status::ok();
}
Status ncclStatus(const Nccl &nccl, int error, const char *doing) {
  if (error == ncclOk) return Status::ok();
  const char *detail = nccl.lastError(nullptr);
  return runError(fmt::format("{}: NCCL says {}{}{}", doing, nccl.errorString(error), detail && *detail ? ": " : "",
                              detail ? detail : ""));
}

} // namespace cleave::runtime::cuda
