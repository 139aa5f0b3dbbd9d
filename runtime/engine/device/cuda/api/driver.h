// The part of the CUDA driver's interface (libcuda.so.1) that the runtime calls, declared here so that building needs
// no CUDA. check.cpp compares it with NVIDIA's headers where they are installed.
//
//   Result<const Driver *> driver = openDriver();         // library.h
//   int error = (*driver)->ctxSetCurrent(context);        // CUresult; 0 is CUDA_SUCCESS
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave::runtime::cuda {

using Address = unsigned long long; // CUdeviceptr
struct ContextHandle;
struct ModuleHandle;
struct FunctionHandle;
struct StreamHandle;
struct EventHandle;
struct GraphHandle;
struct GraphExecHandle;
using Context = ContextHandle *;
using Module = ModuleHandle *;
using Function = FunctionHandle *;
using Stream = StreamHandle *;
using CuEvent = EventHandle *;
using Graph = GraphHandle *;
using GraphExec = GraphExecHandle *;

struct MemoryLocation { // CUmemLocation
  int type, id;
};
struct AllocationProperties { // CUmemAllocationProp
  int type, requestedHandleTypes;
  MemoryLocation location;
  void *win32HandleMetaData;
  unsigned char compressionType, gpuDirectRDMACapable;
  unsigned short usage;
  unsigned char reserved[4];
};
struct AccessDescription { // CUmemAccessDesc
  MemoryLocation location;
  int flags;
};
struct Copy2d { // CUDA_MEMCPY2D
  size_t sourceX, sourceY;
  int sourceType;
  const void *sourceHost;
  Address sourceDevice;
  void *sourceArray;
  size_t sourcePitch;
  size_t targetX, targetY;
  int targetType;
  void *targetHost;
  Address targetDevice;
  void *targetArray;
  size_t targetPitch;
  size_t width, height;
};

enum : int {
  errorOutOfMemory = 2,           // CUDA_ERROR_OUT_OF_MEMORY
  errorNotReady = 600,            // CUDA_ERROR_NOT_READY
  attributeMajor = 75,            // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  attributeMinor = 76,            // ..._MINOR
  attributeVirtualMemory = 102,   // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  attributeFileDescriptors = 103, // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
  attributeDirectAccess = 110,    // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
  attributePeakShared = 97,       // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
  functionDynamicShared = 8,      // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  handleFileDescriptor = 1,       // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  allocationPinned = 1,           // CU_MEM_ALLOCATION_TYPE_PINNED
  locationDevice = 1,             // CU_MEM_LOCATION_TYPE_DEVICE
  accessReadWrite = 3,            // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
  granularityRecommended = 1,     // CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
  memoryDevice = 2,               // CU_MEMORYTYPE_DEVICE
  streamNonBlocking = 1,          // CU_STREAM_NON_BLOCKING
  eventDisableTiming = 2,         // CU_EVENT_DISABLE_TIMING
  captureRelaxed = 2,             // CU_STREAM_CAPTURE_MODE_RELAXED
  hostPortable = 1,               // CU_MEMHOSTALLOC_PORTABLE
  jitErrorLog = 5,                // CU_JIT_ERROR_LOG_BUFFER
  jitErrorLogBytes = 6,           // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
};

// FUNCTION(member, symbol, parameters); all return CUresult.
#define CLEAVE_DRIVER_FUNCTIONS(FUNCTION)                                                                              \
  FUNCTION(init, cuInit, (unsigned flags))                                                                             \
  FUNCTION(getVersion, cuDriverGetVersion, (int *version))                                                             \
  FUNCTION(getErrorName, cuGetErrorName, (int error, const char **name))                                               \
  FUNCTION(getErrorString, cuGetErrorString, (int error, const char **text))                                           \
  FUNCTION(deviceGetCount, cuDeviceGetCount, (int *count))                                                             \
  FUNCTION(deviceGet, cuDeviceGet, (int *device, int ordinal))                                                         \
  FUNCTION(deviceGetName, cuDeviceGetName, (char *name, int length, int device))                                       \
  FUNCTION(deviceTotalMem, cuDeviceTotalMem_v2, (size_t *bytes, int device))                                           \
  FUNCTION(deviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, int device))                          \
  FUNCTION(primaryCtxRetain, cuDevicePrimaryCtxRetain, (Context * context, int device))                                \
  FUNCTION(primaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int device))                                              \
  FUNCTION(ctxSetCurrent, cuCtxSetCurrent, (Context context))                                                          \
  FUNCTION(memGetInfo, cuMemGetInfo_v2, (size_t *free, size_t *total))                                                 \
  FUNCTION(memAlloc, cuMemAlloc_v2, (Address * address, size_t bytes))                                                 \
  FUNCTION(memFree, cuMemFree_v2, (Address address))                                                                   \
  FUNCTION(memAddressReserve, cuMemAddressReserve,                                                                     \
           (Address * address, size_t bytes, size_t alignment, Address hint, unsigned long long flags))                \
  FUNCTION(memAddressFree, cuMemAddressFree, (Address address, size_t bytes))                                          \
  FUNCTION(                                                                                                            \
      memCreate, cuMemCreate,                                                                                          \
      (unsigned long long *handle, size_t bytes, const AllocationProperties *properties, unsigned long long flags))    \
  FUNCTION(memRelease, cuMemRelease, (unsigned long long handle))                                                      \
  FUNCTION(memMap, cuMemMap,                                                                                           \
           (Address address, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags))        \
  FUNCTION(memUnmap, cuMemUnmap, (Address address, size_t bytes))                                                      \
  FUNCTION(memSetAccess, cuMemSetAccess,                                                                               \
           (Address address, size_t bytes, const AccessDescription *access, size_t count))                             \
  FUNCTION(memGetAllocationGranularity, cuMemGetAllocationGranularity,                                                 \
           (size_t *granularity, const AllocationProperties *properties, int option))                                  \
  FUNCTION(memHostAlloc, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags))                               \
  FUNCTION(memFreeHost, cuMemFreeHost, (void *pointer))                                                                \
  FUNCTION(memcpyAsync, cuMemcpyAsync, (Address target, Address source, size_t bytes, Stream stream))                  \
  FUNCTION(memcpy2dAsync, cuMemcpy2DAsync_v2, (const Copy2d *copy, Stream stream))                                     \
  FUNCTION(memsetD8Async, cuMemsetD8Async, (Address target, unsigned char value, size_t count, Stream stream))         \
  FUNCTION(memsetD32Async, cuMemsetD32Async, (Address target, unsigned value, size_t count, Stream stream))            \
  FUNCTION(moduleLoadDataEx, cuModuleLoadDataEx,                                                                       \
           (Module * module, const void *image, unsigned count, int *options, void **values))                          \
  FUNCTION(moduleUnload, cuModuleUnload, (Module module))                                                              \
  FUNCTION(moduleGetFunction, cuModuleGetFunction, (Function * function, Module module, const char *name))             \
  FUNCTION(funcSetAttribute, cuFuncSetAttribute, (Function function, int attribute, int value))                        \
  FUNCTION(launchKernel, cuLaunchKernel,                                                                               \
           (Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,       \
            unsigned blockZ, unsigned sharedBytes, Stream stream, void **parameters, void **extra))                    \
  FUNCTION(streamCreate, cuStreamCreate, (Stream * stream, unsigned flags))                                            \
  FUNCTION(streamDestroy, cuStreamDestroy_v2, (Stream stream))                                                         \
  FUNCTION(streamSynchronize, cuStreamSynchronize, (Stream stream))                                                    \
  FUNCTION(streamQuery, cuStreamQuery, (Stream stream))                                                                \
  FUNCTION(streamWaitEvent, cuStreamWaitEvent, (Stream stream, CuEvent event, unsigned flags))                         \
  FUNCTION(eventCreate, cuEventCreate, (CuEvent * event, unsigned flags))                                              \
  FUNCTION(eventDestroy, cuEventDestroy_v2, (CuEvent event))                                                           \
  FUNCTION(eventRecord, cuEventRecord, (CuEvent event, Stream stream))                                                 \
  FUNCTION(eventQuery, cuEventQuery, (CuEvent event))                                                                  \
  FUNCTION(eventElapsedTime, cuEventElapsedTime, (float *milliseconds, CuEvent begin, CuEvent end))                    \
  FUNCTION(launchHostFunc, cuLaunchHostFunc, (Stream stream, void (*function)(void *), void *argument))                \
  FUNCTION(streamBeginCapture, cuStreamBeginCapture_v2, (Stream stream, int mode))                                     \
  FUNCTION(streamEndCapture, cuStreamEndCapture, (Stream stream, Graph * graph))                                       \
  FUNCTION(graphInstantiate, cuGraphInstantiateWithFlags,                                                              \
           (GraphExec * executable, Graph graph, unsigned long long flags))                                            \
  FUNCTION(graphDestroy, cuGraphDestroy, (Graph graph))                                                                \
  FUNCTION(graphExecDestroy, cuGraphExecDestroy, (GraphExec executable))                                               \
  FUNCTION(graphLaunch, cuGraphLaunch, (GraphExec executable, Stream stream))

struct Driver {
#define CLEAVE_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  CLEAVE_DRIVER_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
};

} // namespace cleave::runtime::cuda
