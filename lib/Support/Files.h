//===- Files.h - whole files, mapped files, atomic writes -------*- C++ -*-===//
//
// Every error names the file and the reason the system gave.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_FILES_H
#define NSA_SUPPORT_FILES_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nsa {

/// An error `what 'path': <text of errno>`.
Error systemError(const std::string &what, const std::string &path);

/// Whether something is at `path`. That this cannot be said, because a folder
/// on the way may not be searched, is an error.
Result<bool> fileExists(const std::string &path);

/// A whole file in memory. A directory is an error.
Result<std::string> readFile(const std::string &path);

/// Writes `path` so that a reader, or a crash, sees the old contents or all of
/// the new ones: temporary file beside it, fsync, rename, fsync of the folder.
/// Devices and pipes are written into.
///
/// The temporary file is NAME.tmp.PID.RANDOM, PID the number of the process
/// that writes and RANDOM 16 hexadecimal digits, which nobody can guess to put
/// a link there. It is new and its owner's alone until it is complete. One
/// whose process is gone is what a crash has left, and may be removed.
Status writeFileAtomically(const std::string &path, std::string_view contents);

/// Makes a rename or a creation inside `directory` durable.
Status syncDirectory(const std::string &directory);

/// A file mapped read-only. Movable; unmapped on destruction. An empty file
/// has data() == nullptr and size() == 0.
class MappedFile {
public:
  static Result<MappedFile> open(const std::string &path);

  MappedFile() = default;
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  const uint8_t *data() const { return static_cast<const uint8_t *>(address); }
  size_t size() const { return bytes; }

private:
  void *address = nullptr;
  size_t bytes = 0;
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

  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&other) noexcept;
  ~OutputFile();

  /// Writes all of `size` bytes at the end of what was written so far.
  Status write(const void *data, size_t size);
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

  int fd = -1;
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

  FileLock(FileLock &&other) noexcept;
  FileLock &operator=(FileLock &&other) noexcept;
  ~FileLock();

  bool isHeld() const { return fd >= 0; }

private:
  explicit FileLock(int fd) : fd(fd) {}
  int fd = -1;
};

} // namespace nsa

#endif // NSA_SUPPORT_FILES_H
