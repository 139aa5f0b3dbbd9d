// libcleave_comm_mpi.so: point-to-point messages over MPI. Collectives are the runtime's own, so that sums have one
// order.
#include "runtime/comm/mpi/plugin.h"
#include <algorithm>
#include <cstdio>
#include <mpi.h>
#include <sched.h>
#include <time.h>
#include <vector>

namespace {

constexpr int64_t longestMessage = int64_t(1) << 30; // MPI counts are int

bool failed(int code, char *error, int errorBytes) {
  if (code == MPI_SUCCESS) return false;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::snprintf(error, static_cast<size_t>(errorBytes), "%s", text);
  return true;
}

int exchange(int tag, const CleaveMpiPiece *sends, int numSends, const CleaveMpiPiece *receives, int numReceives,
             int (*stop)(const void *), const void *context, char *error, int errorBytes) {
  thread_local std::vector<MPI_Request> requests; // keeps its capacity: a steady step allocates nothing
  requests.clear();
  auto post = [&](const CleaveMpiPiece &piece, bool send) {
    for (int64_t at = 0; at < piece.bytes; at += longestMessage) {
      int count = static_cast<int>(std::min(longestMessage, piece.bytes - at));
      char *data = static_cast<char *>(piece.data) + at;
      MPI_Request request;
      int code = send ? MPI_Isend(data, count, MPI_BYTE, piece.peer, tag, MPI_COMM_WORLD, &request)
                      : MPI_Irecv(data, count, MPI_BYTE, piece.peer, tag, MPI_COMM_WORLD, &request);
      if (failed(code, error, errorBytes)) return false;
      requests.push_back(request);
    }
    return true;
  };
  for (int i = 0; i < numReceives; ++i)
    if (!post(receives[i], false)) return 2;
  for (int i = 0; i < numSends; ++i)
    if (!post(sends[i], true)) return 2;
  for (int64_t turn = 0;; ++turn) { // MPI waits spin; ours give the core to whoever computes
    int done = 0;
    if (failed(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), error,
               errorBytes))
      return 2;
    if (done) return 0;
    if (turn < 200) continue;
    if (turn < 400)
      sched_yield();
    else {
      if (stop(context)) return 1;
      timespec nap{0, 30'000};
      nanosleep(&nap, nullptr);
    }
  }
}

void *start(int send, int tag, CleaveMpiPiece piece, char *error, int errorBytes) {
  auto *request = new MPI_Request;
  int count = static_cast<int>(piece.bytes);
  int code = send ? MPI_Isend(piece.data, count, MPI_BYTE, piece.peer, tag, MPI_COMM_WORLD, request)
                  : MPI_Irecv(piece.data, count, MPI_BYTE, piece.peer, tag, MPI_COMM_WORLD, request);
  if (!failed(code, error, errorBytes)) return request;
  delete request;
  return nullptr;
}

int test(void *handle, int64_t *bytes, char *error, int errorBytes) {
  auto *request = static_cast<MPI_Request *>(handle);
  int done = 0, count = 0;
  MPI_Status status;
  if (failed(MPI_Test(request, &done, &status), error, errorBytes)) return -1;
  if (!done) return 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  *bytes = count;
  delete request;
  return 1;
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

extern "C" const CleaveMpiTransport *cleave_open_mpi(char *error, int errorBytes) {
  static CleaveMpiTransport transport{CLEAVE_MPI_PLUGIN_VERSION, 0, 1, exchange, start, test, cancel, abortAll, finish};
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
  return &transport;
}
