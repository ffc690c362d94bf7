//===- faults.c - system calls that fail on demand ------------------------===//
//
// Preloaded into a tool by writes.py: the NSA_FAULT_N-th call of the kind
// NSA_FAULT_CALL on a path below NSA_FAULT_UNDER fails with NSA_FAULT_ERRNO,
// and with NSA_FAULT_FOREVER all after it. NSA_FAULT_CALL=count fails none and
// leaves the number of calls of every kind in NSA_FAULT_LOG; otherwise that
// file is made when a call has failed.
//
//===----------------------------------------------------------------------===//

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum Call {
  Open,
  Write,
  Short,
  Sync,
  Rename,
  Mkdir,
  Unlink,
  Truncate,
  NumCalls
};
static const char *const names[NumCalls] = {
    "open", "write", "short", "fsync", "rename", "mkdir", "unlink", "truncate"};

static const char *under, *logPath;
static size_t underLength;
static int wanted = -1, forever, error;
static long number;
static atomic_long calls[NumCalls];

__attribute__((constructor)) static void readEnvironment(void) {
  under = getenv("NSA_FAULT_UNDER");
  logPath = getenv("NSA_FAULT_LOG");
  const char *call = getenv("NSA_FAULT_CALL");
  if (!under || !logPath || !call)
    return;
  underLength = strlen(under);
  for (int i = 0; i < NumCalls; ++i)
    if (strcmp(call, names[i]) == 0)
      wanted = i;
  const char *text = getenv("NSA_FAULT_N");
  number = text ? atol(text) : 0;
  text = getenv("NSA_FAULT_ERRNO");
  error = text ? atoi(text) : EIO;
  forever = getenv("NSA_FAULT_FOREVER") != NULL;
}

/// Writes the log past the functions below.
static void writeLog(const char *text, size_t size) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, logPath,
                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    return;
  (void)!syscall(SYS_write, fd, text, size);
  syscall(SYS_close, fd);
}

__attribute__((destructor)) static void leaveCounts(void) {
  if (!logPath || wanted >= 0)
    return;
  char text[64];
  for (int i = 0; i < NumCalls; ++i)
    writeLog(text, (size_t)snprintf(text, sizeof text, "%s %ld\n", names[i],
                                    atomic_load(&calls[i])));
}

static int isUnder(const char *path) {
  return under && path && strncmp(path, under, underLength) == 0;
}

static int isFileUnder(int fd) {
  if (!under)
    return 0;
  char link[64], path[PATH_MAX + 1];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX);
  if (length < 0)
    return 0;
  path[length] = '\0';
  return isUnder(path);
}

/// Counts a call; whether it is to fail.
static int fails(enum Call call) {
  long count = atomic_fetch_add(&calls[call], 1) + 1;
  if ((int)call != wanted || (forever ? count < number : count != number))
    return 0;
  if (count == number)
    writeLog("failed\n", 7);
  errno = error;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int openAny(int folder, const char *path, int flags, mode_t mode) {
  if ((flags & O_CREAT) && isUnder(path) && fails(Open))
    return -1;
  return (int)syscall(SYS_openat, folder, path, flags, mode);
}
#define MODE_OF(flags)                                                         \
  mode_t mode = 0;                                                             \
  if (flags & O_CREAT) {                                                       \
    va_list list;                                                              \
    va_start(list, flags);                                                     \
    mode = va_arg(list, mode_t);                                               \
    va_end(list);                                                              \
  }
int open(const char *path, int flags, ...) {
  MODE_OF(flags)
  return openAny(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  MODE_OF(flags)
  return openAny(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
  MODE_OF(flags)
  return openAny(folder, path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t size) {
  if (isFileUnder(fd)) {
    if (fails(Write))
      return -1;
    // Half of it, as a disk does that is nearly full, and interrupted writes.
    if (size > 1 && fails(Short))
      size /= 2;
  }
  return REAL(write)(fd, data, size);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  if (isFileUnder(fd) && fails(Write))
    return -1;
  return REAL(writev)(fd, parts, count);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  if (isFileUnder(fd) && fails(Write))
    return -1;
  return REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
  if (isFileUnder(fd) && fails(Write))
    return -1;
  return REAL(pwrite)(fd, data, size, at);
}
int fsync(int fd) {
  return isFileUnder(fd) && fails(Sync) ? -1 : REAL(fsync)(fd);
}
int rename(const char *from, const char *to) {
  return isUnder(to) && fails(Rename) ? -1 : REAL(rename)(from, to);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
  return isUnder(to) && fails(Rename) ? -1
                                      : REAL(renameat2)(a, from, b, to, flags);
}
int mkdir(const char *path, mode_t mode) {
  return isUnder(path) && fails(Mkdir) ? -1 : REAL(mkdir)(path, mode);
}
int unlink(const char *path) {
  return isUnder(path) && fails(Unlink) ? -1 : REAL(unlink)(path);
}
int truncate(const char *path, off_t size) {
  return isUnder(path) && fails(Truncate) ? -1 : REAL(truncate)(path, size);
}
int ftruncate(int fd, off_t size) {
  return isFileUnder(fd) && fails(Truncate) ? -1 : REAL(ftruncate)(fd, size);
}
