// A file system whose view of a folder is stale or fails, for one rank:
//
//   RANK=1 STALE_RANK=1 STALE_NAME=step-00000004 LD_PRELOAD=stale.so cleave run ...   the name is not there
//   ... FAILING_FOLDER=/snapshots ...                                                  its listing fails with EIO
//   ... BLOCKED_NAME=data.npz ...                                                      opening it does not return
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int isOfThisRank(void) {
  const char *rank = getenv("RANK"), *stale = getenv("STALE_RANK");
  return !stale || (rank && strcmp(rank, stale) == 0);
}

static int isHidden(const char *path) {
  const char *name = getenv("STALE_NAME");
  return name && path && strstr(path, name) && !strstr(path, ".partial") && isOfThisRank();
}

#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

static void blockIfAsked(const char *path) {
  const char *name = getenv("BLOCKED_NAME");
  while (name && strstr(path, name) && isOfThisRank()) pause();
}

static int isFailing(const char *path) {
  const char *failing = getenv("FAILING_FOLDER");
  if (!failing || strcmp(path, failing) != 0 || !isOfThisRank()) return 0;
  errno = EIO;
  return 1;
}

DIR *opendir(const char *path) { return isFailing(path) ? NULL : NEXT(opendir)(path); }

int openat(int folder, const char *path, int flags, ...) { // of listings
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return isFailing(path) ? -1 : NEXT(openat)(folder, path, flags, mode);
}

#define READDIR(function, entry)                                                                                       \
  struct entry *function(DIR *folder) {                                                                                \
    struct entry *next;                                                                                                \
    do {                                                                                                               \
      next = NEXT(function)(folder);                                                                                   \
    } while (next && isHidden(next->d_name));                                                                          \
    return next;                                                                                                       \
  }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

#define OPEN(function)                                                                                                 \
  int function(const char *path, int flags, ...) {                                                                     \
    va_list rest;                                                                                                      \
    va_start(rest, flags);                                                                                             \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                      \
    va_end(rest);                                                                                                      \
    blockIfAsked(path);                                                                                                \
    if (isHidden(path)) {                                                                                              \
      errno = ENOENT;                                                                                                  \
      return -1;                                                                                                       \
    }                                                                                                                  \
    return NEXT(function)(path, flags, mode);                                                                          \
  }
OPEN(open)
OPEN(open64)

#define STAT(function, result)                                                                                         \
  int function(const char *path, struct result *about) {                                                               \
    if (isHidden(path)) {                                                                                              \
      errno = ENOENT;                                                                                                  \
      return -1;                                                                                                       \
    }                                                                                                                  \
    return NEXT(function)(path, about);                                                                                \
  }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)
