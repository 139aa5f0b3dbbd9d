// libcleave_comm_mpi.so: point-to-point messages over MPI. Collectives are the runtime's own, so that sums have one
// order.
#include "runtime/engine/comm/mpi/plugin.h"
#include <cstdio>
#include <mpi.h>
#include <vector>

namespace {

bool failed(int code, char *error, int errorBytes) {
  if (code == MPI_SUCCESS) return false;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::snprintf(error, static_cast<size_t>(errorBytes), "%s", text);
  return true;
}

std::vector<MPI_Comm> lanes;

void *start(int send, int lane, int peer, int tag, void *data, int64_t bytes, char *error, int errorBytes) {
  auto *request = new MPI_Request;
  const int count = static_cast<int>(bytes);
  const MPI_Comm comm = lanes[static_cast<size_t>(lane)];
  const int code = send ? MPI_Isend(data, count, MPI_BYTE, peer, tag, comm, request)
                        : MPI_Irecv(data, count, MPI_BYTE, peer, tag < 0 ? MPI_ANY_TAG : tag, comm, request);
  if (!failed(code, error, errorBytes)) return request;
  delete request;
  return nullptr;
}

int test(void *handle, int64_t *bytes, int *tag, char *error, int errorBytes) {
  auto *request = static_cast<MPI_Request *>(handle);
  int done = 0, count = 0;
  MPI_Status status;
  const int code = MPI_Test(request, &done, &status);
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  if (kind != MPI_ERR_TRUNCATE && failed(code, error, errorBytes)) return -1;
  if (!done) return 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  *bytes = count, *tag = status.MPI_TAG;
  delete request;
  return code == MPI_SUCCESS ? 1 : 2;
}

void cancel(void *handle) {
  auto *request = static_cast<MPI_Request *>(handle);
  MPI_Cancel(request);
  MPI_Request_free(request);
  delete request;
}

void abortAll(int exitStatus) { MPI_Abort(MPI_COMM_WORLD, exitStatus); }

void finish() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

} // namespace

extern "C" const CleaveMpiTransport *cleave_open_mpi(int count, char *error, int errorBytes) {
  static CleaveMpiTransport transport{CLEAVE_MPI_PLUGIN_VERSION, 0, 1, start, test, cancel, abortAll, finish};
  int provided = 0, initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized)
    MPI_Query_thread(&provided);
  else if (failed(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), error, errorBytes))
    return nullptr;
  if (provided < MPI_THREAD_MULTIPLE) {
    std::snprintf(error, static_cast<size_t>(errorBytes),
                  "this MPI does not serve several threads (MPI_THREAD_MULTIPLE)");
    return nullptr;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &transport.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &transport.size);
  for (int lane = 0; lane < count; ++lane) {
    MPI_Comm &comm = lanes.emplace_back();
    if (failed(MPI_Comm_dup(MPI_COMM_WORLD, &comm), error, errorBytes)) return nullptr;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  return &transport;
}
