//===- Files.h - reading files, atomic writes -------------------*- C++ -*-===//
//
// Every error names the file and the reason the system gave. No file is mapped
// into memory: one that shrinks, or whose disk fails, would end the process by
// a signal instead of an error.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_FILES_H
#define NSA_SUPPORT_FILES_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace nsa {

/// An error `what 'path': <text of errno>`.
Error systemError(const std::string &what, const std::string &path);

/// From now on, a file that may not grow further (ulimit -f) is an error of the
/// write, EFBIG, instead of a signal that ends the process without a word.
void ignoreFileSizeSignal();

/// Whether the message of an error that the system gave says that there is no
/// room for what was to be written: the disk or a quota is full, or a file may
/// not grow further.
bool saysNoSpace(const std::string &message);

/// Whether something is at `path`. That this cannot be said, because a folder
/// on the way may not be searched, is an error.
Result<bool> fileExists(const std::string &path);

/// Creates a folder and those that it lies in, where they are missing.
Status createFolders(const std::string &path);

/// The most bytes that readFile takes unless told otherwise: more than any file
/// that people write, less than any memory.
constexpr uint64_t mostFileBytes = 64 << 20;

/// The same for files of data, such as arrays and artefacts, and for what of
/// these comes through a pipe, whose size nothing tells.
constexpr uint64_t mostDataBytes = uint64_t(16) << 30;
constexpr uint64_t mostPipedBytes = uint64_t(1) << 30;

/// How long readFile waits for a pipe or a device of which nothing comes.
constexpr int mostReadMilliseconds = 10000;

/// A whole file in memory. More than `mostBytes` is an error that names both
/// numbers, a directory is one too. Pipes and devices are read to their end;
/// one of which nothing comes for `mostMilliseconds` is an error, unless it is
/// a terminal or the standard input.
Result<std::string> readFile(const std::string &path,
                             uint64_t mostBytes = mostFileBytes,
                             int mostMilliseconds = mostReadMilliseconds);

/// Creates a folder of code that this process will run, for its user alone, if
/// it is missing, and those that it lies in. One that belongs to another user,
/// or that others may write to, is an error that begins with `what`.
Status openOwnFolder(const std::string &path, const std::string &what);

/// A whole file of such a folder. A link, and a file that belongs to another
/// user or that others may write to, is an error.
Result<std::string> readOwnFile(const std::string &path, uint64_t mostBytes);

/// Writes `path` so that a reader, or a crash, sees the old contents or all of
/// the new ones: temporary file beside it, fsync, rename, fsync of the folder.
/// Devices and pipes are written into. With `isOwn`, it is for its owner alone.
///
/// The temporary file is NAME.tmp.PID.RANDOM, PID the number of the process
/// that writes and RANDOM 16 hexadecimal digits, which nobody can guess to put
/// a link there. It is new and its owner's alone until it is complete. One
/// whose process is gone is what a crash has left, and may be removed.
Status writeFileAtomically(const std::string &path, std::string_view contents,
                           bool isOwn = false);

/// Makes a rename or a creation inside `directory` durable.
Status syncDirectory(const std::string &directory);

/// An open file descriptor, closed on destruction; -1 is none.
class Descriptor {
public:
  Descriptor(int fd = -1) : fd(fd) {}
  Descriptor(Descriptor &&other) noexcept : fd(other.release()) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Descriptor();

  operator int() const { return fd; }
  int release() { return std::exchange(fd, -1); }

private:
  int fd;
};

/// A directory that is held open, by which it can be told from others that come
/// to its path.
class HeldDirectory {
public:
  static Result<HeldDirectory> open(const std::string &path);

  /// Whether the path still leads to it: not if it was removed or renamed.
  Result<bool> isThere() const;

private:
  HeldDirectory(int fd, std::string path) : fd(fd), path(std::move(path)) {}

  Descriptor fd;
  std::string path;
};

/// What a file that is written changes.
struct FileStamp {
  uint64_t bytes = 0;
  /// When it was written last, in nanoseconds since 1970.
  int64_t modified = 0;

  bool operator==(const FileStamp &other) const {
    return bytes == other.bytes && modified == other.modified;
  }
};

/// A regular file that is open for reading at any offset, by several threads at
/// once; closed on destruction.
class InputFile {
public:
  /// Anything but a regular file is an error.
  static Result<InputFile> open(const std::string &path);

  /// Bytes when it was opened.
  uint64_t size() const { return bytes; }
  const std::string &path() const { return name; }

  /// Whether both are the same file of the same size, whatever their paths.
  bool isSame(const InputFile &other) const {
    return device == other.device && inode == other.inode &&
           bytes == other.bytes;
  }

  /// Reads `size` bytes at `offset`. A file that ends before is an error naming
  /// both sizes.
  Status readAt(uint64_t offset, void *data, size_t size) const;

  /// As it is now; if it was closed, of the file at its path.
  Result<FileStamp> stamp() const;

  /// What is closed still knows its path and size; nothing may be read.
  void close() { fd = {}; }
  bool isOpen() const { return fd >= 0; }

private:
  InputFile() = default;

  Descriptor fd;
  uint64_t bytes = 0, device = 0, inode = 0;
  std::string name;
};

/// An open file descriptor for sequential writing; closed on destruction.
class OutputFile {
public:
  /// Creates `path` in the place of a file or a link that is there, which is
  /// removed: what a link leads to stays as it is.
  static Result<OutputFile> create(const std::string &path);

  /// Opens a device or a pipe. A file or a folder is an error.
  static Result<OutputFile> openDevice(const std::string &path);

  /// Opens `path` to write at its end, creating it if needed. writeAt() may
  /// not be used.
  static Result<OutputFile> append(const std::string &path);

  /// Writes all of `size` bytes at the end of what was written so far.
  /// `written` says how many were, also on failure.
  Status write(const void *data, size_t size, size_t *written = nullptr);
  Status write(std::string_view text) {
    return write(text.data(), text.size());
  }

  /// Overwrites `size` bytes at `offset` without moving the end.
  Status writeAt(uint64_t offset, const void *data, size_t size);

  /// fsync and close; nothing may be written afterwards.
  Status finish();

  /// Keeps the file from all but its owner, until its permissions are restored.
  Status restrictToOwner();
  Status restoreMode();

private:
  OutputFile(int fd, std::string path) : fd(fd), path(std::move(path)) {}

  Descriptor fd;
  std::string path;
  /// The permissions that it was created with.
  unsigned mode = 0;
};

/// A lock that one process holds on a file until this is destroyed or the
/// process ends, however it ends. The file stays, and holds the process id.
class FileLock {
public:
  /// Creates `path` if needed; a link there is an error. One that another holds
  /// is an error that says that `what` is in use, and by which process. On a
  /// file system without locks nothing is locked, and isHeld() says so.
  static Result<FileLock> take(const std::string &path,
                               const std::string &what);

  /// The same, but one that another holds is waited for: `onWait` is told once
  /// who holds it ("process 17"), then nothing until it is free.
  static Result<FileLock>
  await(const std::string &path,
        const std::function<void(const std::string &holder)> &onWait);

  bool isHeld() const { return fd >= 0; }

private:
  /// What to do about a lock that `holder` holds: wait, or fail.
  using OnHeld = std::function<Status(const std::string &holder)>;

  explicit FileLock(Descriptor fd) : fd(std::move(fd)) {}
  static Result<FileLock> lock(const std::string &path, const OnHeld &onHeld);

  Descriptor fd;
};

} // namespace nsa

#endif // NSA_SUPPORT_FILES_H
