//===- Files.cpp - reading files, atomic writes ---------------------------===//

#include "lib/Support/Files.h"
#include "lib/Support/Random.h"
#include "lib/Support/Text.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace nsa {

Error systemError(const std::string &what, const std::string &path) {
  return Error{what + " '" + path + "': " + std::strerror(errno)};
}

void ignoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

bool saysNoSpace(const std::string &message) {
  for (int code : {ENOSPC, EDQUOT, EFBIG}) {
    std::string end = std::string(": ") + std::strerror(code);
    if (message.size() >= end.size() &&
        message.compare(message.size() - end.size(), end.size(), end) == 0)
      return true;
  }
  return false;
}

Descriptor::~Descriptor() {
  if (fd >= 0)
    ::close(fd);
}

Result<bool> fileExists(const std::string &path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0)
    return true;
  if (errno == ENOENT || errno == ENOTDIR)
    return false;
  return systemError("cannot inspect", path);
}

Status createFolders(const std::string &path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code)
    return Error{"cannot create folder '" + path + "': " + code.message()};
  return {};
}

static Error tooLarge(const std::string &path, const std::string &size,
                      uint64_t mostBytes) {
  return Error{"cannot read '" + path + "': it has " + size + " bytes, " +
               std::to_string(mostBytes) + " are allowed"};
}

/// Waits until a pipe or a device has something, or has ended.
static Status waitForInput(int fd, const std::string &path, int milliseconds) {
  struct pollfd polled = {fd, POLLIN, 0};
  int ready = 0;
  do
    ready = ::poll(&polled, 1, milliseconds);
  while (ready < 0 && errno == EINTR);
  if (ready < 0)
    return systemError("cannot read", path);
  if (ready == 0)
    return Error{"cannot read '" + path + "': nothing came from it for " +
                 std::to_string(milliseconds) + " ms"};
  return {};
}

/// Opening a pipe that nobody writes to would wait for ever without O_NONBLOCK,
/// which regular files ignore.
static constexpr int inputFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

static Result<std::string> readAll(const Descriptor &file,
                                   const struct stat &info,
                                   const std::string &path, uint64_t mostBytes,
                                   int mostMilliseconds) {
  bool isRegular = S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
  std::string contents;
  if (S_ISREG(info.st_mode)) {
    if (uint64_t(info.st_size) > mostBytes)
      return tooLarge(path, std::to_string(info.st_size), mostBytes);
    contents.reserve(size_t(info.st_size));
  }
  // People, and what they pipe in, may take their time.
  if (path == "/dev/stdin" || ::isatty(file))
    mostMilliseconds = -1;
  char buffer[1 << 16];
  while (true) {
    if (!isRegular)
      NSA_RETURN_IF_ERROR(waitForInput(file, path, mostMilliseconds));
    ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (got < 0)
      return systemError("cannot read", path);
    if (got == 0)
      return contents;
    if (uint64_t(got) > mostBytes - contents.size())
      return tooLarge(path, "more than " + std::to_string(mostBytes),
                      mostBytes);
    contents.append(buffer, size_t(got));
  }
}

Result<std::string> readFile(const std::string &path, uint64_t mostBytes,
                             int mostMilliseconds) {
  Descriptor file{::open(path.c_str(), inputFlags)};
  if (file < 0)
    return systemError("cannot open", path);
  struct stat info;
  if (::fstat(file, &info) != 0)
    return systemError("cannot inspect", path);
  return readAll(file, info, path, mostBytes, mostMilliseconds);
}

/// Whether this user alone may write to what `info` describes, else an error
/// that begins with `what`.
static Status checkOwn(const struct stat &info, const std::string &path,
                       const std::string &what) {
  if (info.st_uid == ::geteuid() && !(info.st_mode & (S_IWGRP | S_IWOTH)))
    return {};
  return Error{what + " '" + path + "' belongs to user " +
               std::to_string(info.st_uid) + " and has mode " +
               formatted("%04o", unsigned(info.st_mode & 07777)) +
               ": it holds code that runs with the rights of user " +
               std::to_string(::geteuid()) +
               ", to whom it must belong, and nobody else may write to it"};
}

Status openOwnFolder(const std::string &path, const std::string &what) {
  std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty())
    NSA_RETURN_IF_ERROR(createFolders(parent));
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return systemError("cannot create folder", path);
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return systemError("cannot inspect", path);
  if (!S_ISDIR(info.st_mode))
    return Error{what + " '" + path + "' is no folder"};
  return checkOwn(info, path, what);
}

Result<std::string> readOwnFile(const std::string &path, uint64_t mostBytes) {
  Descriptor file{::open(path.c_str(), inputFlags | O_NOFOLLOW)};
  if (file < 0)
    return systemError("cannot open", path);
  struct stat info;
  if (::fstat(file, &info) != 0)
    return systemError("cannot inspect", path);
  if (!S_ISREG(info.st_mode))
    return Error{"'" + path + "' is not a regular file"};
  NSA_RETURN_IF_ERROR(checkOwn(info, path, "the file"));
  return readAll(file, info, path, mostBytes, mostReadMilliseconds);
}

Status syncDirectory(const std::string &directory) {
  Descriptor folder{
      ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder < 0 || ::fsync(folder) < 0)
    return systemError("cannot sync", directory);
  return {};
}

/// Whether a device or a pipe is there: something to write into, not a file
/// that another can replace.
static bool isDevice(const std::string &path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) &&
         !S_ISDIR(info.st_mode);
}

/// Writes a new file that no other user may read before it is complete.
static Status writeNewFile(const std::string &path, std::string_view contents,
                           bool isOwn) {
  NSA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  Status status = file.restrictToOwner();
  if (status)
    status = file.write(contents);
  if (status && !isOwn)
    status = file.restoreMode();
  if (status)
    status = file.finish();
  if (!status)
    ::unlink(path.c_str());
  return status;
}

Status writeFileAtomically(const std::string &path, std::string_view contents,
                           bool isOwn) {
  if (isDevice(path)) {
    Result<OutputFile> device = OutputFile::openDevice(path);
    return device ? device->write(contents) : device.takeError();
  }
  NSA_ASSIGN_OR_RETURN(std::string suffix, randomHex(8));
  std::string temporary =
      path + ".tmp." + std::to_string(::getpid()) + "." + suffix;
  NSA_RETURN_IF_ERROR(writeNewFile(temporary, contents, isOwn));
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    Error error = systemError("cannot replace", path);
    ::unlink(temporary.c_str());
    return error;
  }
  size_t slash = path.rfind('/');
  return syncDirectory(slash == std::string::npos ? "."
                                                  : path.substr(0, slash + 1));
}

Result<HeldDirectory> HeldDirectory::open(const std::string &path) {
  int fd = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return systemError("cannot open", path);
  return HeldDirectory(fd, path);
}

Result<bool> HeldDirectory::isThere() const {
  struct stat held, found;
  if (::fstat(fd, &held) != 0)
    return systemError("cannot inspect", path);
  if (::stat(path.c_str(), &found) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return false;
    return systemError("cannot inspect", path);
  }
  return held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

Result<InputFile> InputFile::open(const std::string &path) {
  InputFile file;
  file.fd = ::open(path.c_str(), inputFlags);
  if (file.fd < 0)
    return systemError("cannot open", path);
  struct stat info;
  if (::fstat(file.fd, &info) != 0)
    return systemError("cannot inspect", path);
  if (!S_ISREG(info.st_mode))
    return Error{"cannot open '" + path + "': not a regular file"};
  file.bytes = uint64_t(info.st_size);
  file.device = uint64_t(info.st_dev);
  file.inode = uint64_t(info.st_ino);
  file.name = path;
  return file;
}

Status InputFile::readAt(uint64_t offset, void *data, size_t size) const {
  char *next = static_cast<char *>(data);
  while (size > 0) {
    ssize_t got = ::pread(fd, next, size, off_t(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return systemError("cannot read", name);
    if (got == 0)
      return Error{"'" + name + "' has shrunk: it ends before byte " +
                   std::to_string(offset + size) + ", it had " +
                   std::to_string(bytes) + " bytes when it was opened"};
    next += got;
    offset += uint64_t(got);
    size -= size_t(got);
  }
  return {};
}

Result<FileStamp> InputFile::stamp() const {
  struct stat info;
  if ((isOpen() ? ::fstat(fd, &info) : ::stat(name.c_str(), &info)) != 0)
    return systemError("cannot inspect", name);
  return FileStamp{uint64_t(info.st_size),
                   int64_t(info.st_mtim.tv_sec) * 1'000'000'000 +
                       info.st_mtim.tv_nsec};
}

Result<OutputFile> OutputFile::create(const std::string &path) {
  ::unlink(path.c_str());
  int fd = ::open(path.c_str(),
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("cannot create", path);
  return OutputFile(fd, path);
}

Result<OutputFile> OutputFile::openDevice(const std::string &path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (fd < 0)
    return systemError("cannot open", path);
  OutputFile device(fd, path);
  // What was looked at by its name may have been replaced since.
  struct stat info;
  if (::fstat(fd, &info) != 0)
    return systemError("cannot inspect", path);
  if (S_ISREG(info.st_mode))
    return Error{"cannot open '" + path + "': not a device"};
  return device;
}

Status OutputFile::restrictToOwner() {
  struct stat info;
  if (::fstat(fd, &info) != 0 || ::fchmod(fd, S_IRUSR | S_IWUSR) != 0)
    return systemError("cannot restrict access to", path);
  mode = info.st_mode & 07777;
  return {};
}

Status OutputFile::restoreMode() {
  return ::fchmod(fd, mode) == 0
             ? Status()
             : systemError("cannot restore access to", path);
}

Result<OutputFile> OutputFile::append(const std::string &path) {
  int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("cannot open", path);
  return OutputFile(fd, path);
}

Status OutputFile::write(const void *data, size_t size, size_t *written) {
  const char *bytes = static_cast<const char *>(data);
  size_t ignored = 0, &done = written ? *written : ignored;
  for (done = 0; done < size;) {
    ssize_t count = ::write(fd, bytes + done, size - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return systemError("cannot write", path);
    done += size_t(count);
  }
  return {};
}

Status OutputFile::writeAt(uint64_t offset, const void *data, size_t size) {
  const char *next = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t written = ::pwrite(fd, next, size, off_t(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return systemError("cannot write", path);
    next += written;
    offset += uint64_t(written);
    size -= size_t(written);
  }
  return {};
}

Status OutputFile::finish() {
  if (::fsync(fd) != 0)
    return systemError("cannot sync", path);
  if (::close(fd.release()) != 0)
    return systemError("cannot close", path);
  return {};
}

//===----------------------------------------------------------------------===//
// Locks
//===----------------------------------------------------------------------===//

/// The holder of a lock, as its file names it.
static std::string findHolder(int fd) {
  char holder[32] = {};
  ssize_t got = ::pread(fd, holder, sizeof holder - 1, 0);
  std::string pid(holder, size_t(got > 0 ? got : 0));
  pid = pid.substr(0, pid.find_first_not_of("0123456789"));
  return pid.empty() ? "another process" : "process " + pid;
}

Result<FileLock> FileLock::lock(const std::string &path, const OnHeld &onHeld) {
  Descriptor file{
      ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666)};
  if (file < 0)
    return systemError("cannot open", path);
  for (int operation = LOCK_EX | LOCK_NB; ::flock(file, operation) != 0;) {
    if (errno == EWOULDBLOCK) {
      NSA_RETURN_IF_ERROR(onHeld(findHolder(file)));
      operation = LOCK_EX;
    } else if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) {
      return FileLock(-1);
    } else if (errno != EINTR) {
      return systemError("cannot lock", path);
    }
  }
  std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, pid.data(), pid.size(), 0) != ssize_t(pid.size()))
    return systemError("cannot write", path);
  return FileLock(std::move(file));
}

Result<FileLock> FileLock::take(const std::string &path,
                                const std::string &what) {
  return lock(path, [&](const std::string &holder) -> Status {
    return Error{what + " is in use by " + holder};
  });
}

Result<FileLock>
FileLock::await(const std::string &path,
                const std::function<void(const std::string &holder)> &onWait) {
  return lock(path, [&](const std::string &holder) -> Status {
    onWait(holder);
    return {};
  });
}

} // namespace nsa
