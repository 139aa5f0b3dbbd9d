// The part of NCCL (libnccl.so.2) that the runtime calls. check.cpp compares it with NVIDIA's headers where they are
// installed.
#pragma once
#include "runtime/engine/device/cuda/api/driver.h"

namespace cleave::runtime::cuda {

using NcclComm = struct NcclCommunicator *;
struct NcclId { // ncclUniqueId
  char bytes[128];
};

enum : int {
  ncclOk = 0,   // ncclSuccess
  ncclBusy = 7, // ncclInProgress
  ncclInt8 = 0, // ncclInt8, and so on
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclSum = 0,
  ncclMax = 2,
  ncclMin = 3,
};

// FUNCTION(member, symbol, parameters); all return ncclResult_t.
#define CLEAVE_NCCL_FUNCTIONS(FUNCTION)                                                                                \
  FUNCTION(getVersion, ncclGetVersion, (int *version))                                                                 \
  FUNCTION(getUniqueId, ncclGetUniqueId, (NcclId * id))                                                                \
  FUNCTION(initRank, ncclCommInitRankConfig, (NcclComm * comm, int ranks, NcclId id, int rank, void *config))          \
  FUNCTION(split, ncclCommSplit, (NcclComm comm, int color, int key, NcclComm *made, void *config))                    \
  FUNCTION(destroy, ncclCommDestroy, (NcclComm comm))                                                                  \
  FUNCTION(abort, ncclCommAbort, (NcclComm comm))                                                                      \
  FUNCTION(asyncError, ncclCommGetAsyncError, (NcclComm comm, int *error))                                             \
  FUNCTION(allReduce, ncclAllReduce,                                                                                   \
           (const void *send, void *receive, size_t count, int type, int operation, NcclComm comm, Stream stream))     \
  FUNCTION(reduceScatter, ncclReduceScatter,                                                                           \
           (const void *send, void *receive, size_t count, int type, int operation, NcclComm comm, Stream stream))     \
  FUNCTION(allGather, ncclAllGather,                                                                                   \
           (const void *send, void *receive, size_t count, int type, NcclComm comm, Stream stream))                    \
  FUNCTION(broadcast, ncclBroadcast,                                                                                   \
           (const void *send, void *receive, size_t count, int type, int root, NcclComm comm, Stream stream))          \
  FUNCTION(send, ncclSend, (const void *data, size_t count, int type, int peer, NcclComm comm, Stream stream))         \
  FUNCTION(receive, ncclRecv, (void *data, size_t count, int type, int peer, NcclComm comm, Stream stream))            \
  FUNCTION(groupStart, ncclGroupStart, ())                                                                             \
  FUNCTION(groupEnd, ncclGroupEnd, ())

struct Nccl {
#define CLEAVE_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  CLEAVE_NCCL_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
  const char *(*errorString)(int status) = nullptr;  // ncclGetErrorString
  const char *(*lastError)(NcclComm comm) = nullptr; // ncclGetLastError
};

} // namespace cleave::runtime::cuda
