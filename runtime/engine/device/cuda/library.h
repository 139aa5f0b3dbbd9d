// NVIDIA's libraries, opened when a plan for GPUs first needs them and kept until the process ends.
//
//   Result<const Driver *> driver = openDriver();
//   if (!driver) return driver.status();   // "libcuda.so.1 cannot be opened (...): the plan's devices are NVIDIA
//                                          //  GPUs, which need NVIDIA's driver"
//
// CLEAVE_CUDA_LIBRARIES names a folder that is searched before the system's.
#pragma once
#include "runtime/base/status.h"
#include "runtime/engine/device/cuda/api/cublas_lt.h"
#include "runtime/engine/device/cuda/api/cudnn.h"
#include "runtime/engine/device/cuda/api/driver.h"
#include "runtime/engine/device/cuda/api/nccl.h"

namespace cleave::runtime::cuda {

Result<const Driver *> openDriver(); // initialised
Result<const CublasLt *> openCublasLt();
Result<const Cudnn *> openCudnn();
Result<const Nccl *> openNccl();

// The error of a call: what was attempted and what the library says.
Status driverStatus(const Driver &driver, int error, const char *doing);
Status blasStatus(const CublasLt &blas, int error, const char *doing);
Status dnnStatus(const Cudnn &dnn, int error, const char *doing);
Status ncclStatus(const Nccl &nccl, int error, const char *doing);

} // namespace cleave::runtime::cuda
