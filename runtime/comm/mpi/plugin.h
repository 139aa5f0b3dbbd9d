/* The C interface between the runtime and libcleave_comm_mpi.so, the only part of Cleave that links MPI. The runtime
   loads it when a launcher's variables say that this process is one of several. */
#ifndef CLEAVE_COMM_MPI_PLUGIN_H
#define CLEAVE_COMM_MPI_PLUGIN_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_MPI_PLUGIN_VERSION 2

typedef struct {
  int peer;
  void *data;
  int64_t bytes;
} CleaveMpiPiece;

typedef struct {
  int version; /* CLEAVE_MPI_PLUGIN_VERSION */
  int rank, size;
  /* 0: done; 1: stopped because stop(context) became true; 2: MPI failed, `error` says how. Thread safe. */
  int (*exchange)(int tag, const CleaveMpiPiece *sends, int numSends, const CleaveMpiPiece *receives, int numReceives,
                  int (*stop)(const void *context), const void *context, char *error, int errorBytes);
  /* Begins to send (or receive) one message of at most 2^30 bytes; null: MPI failed, `error` says how. */
  void *(*start)(int send, int tag, CleaveMpiPiece piece, char *error, int errorBytes);
  /* 1: the message is there, `bytes` long, and the request gone; 0: not yet; -1: MPI failed. */
  int (*test)(void *request, int64_t *bytes, char *error, int errorBytes);
  void (*cancel)(void *request); /* gives up a receive that never came */
  void (*abort)(int exitStatus); /* ends all processes */
  void (*finish)(void);          /* MPI_Finalize; all processes call it */
} CleaveMpiTransport;

/* Initializes MPI for several threads. Null on failure, `error` says why. */
const CleaveMpiTransport *cleave_open_mpi(char *error, int errorBytes);

#ifdef __cplusplus
}
#endif
#endif
