/* The C interface between the runtime and libcleave_comm_mpi.so, the only part of Cleave that links MPI. The runtime
   loads it when a launcher's variables say that this process is one of several. */
#ifndef CLEAVE_COMM_MPI_PLUGIN_H
#define CLEAVE_COMM_MPI_PLUGIN_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_MPI_PLUGIN_VERSION 4

typedef struct {
  int version; /* CLEAVE_MPI_PLUGIN_VERSION */
  int rank, size;
  /* Begins to send (or receive) one message of at most 2^30 bytes on a lane; null: MPI failed, `error` says how.
     A negative tag receives whatever the peer sends next. Thread safe. */
  void *(*start)(int send, int lane, int peer, int tag, void *data, int64_t bytes, char *error, int errorBytes);
  /* 1: the message is there, `bytes` long and of this tag, and the request gone; 2: the same, it has no room; 0: not
     yet; -1: MPI failed. */
  int (*test)(void *request, int64_t *bytes, int *tag, char *error, int errorBytes);
  void (*cancel)(void *request); /* gives up a message that never came or went */
  void (*abort)(int exitStatus); /* ends all processes */
  void (*finish)(void);          /* MPI_Finalize; all processes call it */
} CleaveMpiTransport;

/* Initializes MPI for several threads, and so many lanes whose messages never mix. Null on failure, `error` says why.
   All processes call it. */
const CleaveMpiTransport *cleave_open_mpi(int lanes, char *error, int errorBytes);

#ifdef __cplusplus
}
#endif
#endif
