//===- Files.cpp - whole files, mapped files, atomic writes ---------------===//

#include "lib/Support/Files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace nsa {

Error systemError(const std::string &what, const std::string &path) {
  return Error{what + " '" + path + "': " + std::strerror(errno)};
}

namespace {

/// Closes a descriptor at the end of a scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};

} // namespace

Result<std::string> readFile(const std::string &path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0)
    return systemError("cannot open", path);
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    ssize_t got = ::read(file.fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return systemError("cannot read", path);
    if (got == 0)
      return contents;
    contents.append(buffer, size_t(got));
  }
}

Status syncDirectory(const std::string &directory) {
  Descriptor folder{
      ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd < 0 || ::fsync(folder.fd) < 0)
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

Status writeFileAtomically(const std::string &path, std::string_view contents) {
  if (isDevice(path)) {
    Result<OutputFile> device = OutputFile::create(path);
    return device ? device->write(contents) : device.takeError();
  }
  std::string temporary = path + ".tmp." + std::to_string(::getpid());
  Result<OutputFile> file = OutputFile::create(temporary);
  if (!file)
    return file.takeError();
  Status status = file->write(contents);
  if (status)
    status = file->finish();
  if (status && std::rename(temporary.c_str(), path.c_str()) != 0)
    status = systemError("cannot replace", path);
  if (!status) {
    ::unlink(temporary.c_str());
    return status;
  }
  size_t slash = path.rfind('/');
  return syncDirectory(slash == std::string::npos ? "."
                                                  : path.substr(0, slash + 1));
}

Result<MappedFile> MappedFile::open(const std::string &path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0)
    return systemError("cannot open", path);
  struct stat info;
  if (::fstat(file.fd, &info) != 0)
    return systemError("cannot inspect", path);
  if (!S_ISREG(info.st_mode))
    return Error{"cannot map '" + path + "': not a regular file"};
  MappedFile mapped;
  if (info.st_size == 0)
    return mapped;
  void *address =
      ::mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_SHARED, file.fd, 0);
  if (address == MAP_FAILED)
    return systemError("cannot map", path);
  mapped.address = address;
  mapped.bytes = size_t(info.st_size);
  return mapped;
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : address(std::exchange(other.address, nullptr)),
      bytes(std::exchange(other.bytes, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(address, other.address);
  std::swap(bytes, other.bytes);
  return *this;
}

MappedFile::~MappedFile() {
  if (address)
    ::munmap(address, bytes);
}

Result<OutputFile> OutputFile::create(const std::string &path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("cannot create", path);
  return OutputFile(fd, path);
}

Result<OutputFile> OutputFile::append(const std::string &path) {
  int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("cannot open", path);
  return OutputFile(fd, path);
}

OutputFile::OutputFile(OutputFile &&other) noexcept
    : fd(std::exchange(other.fd, -1)), path(std::move(other.path)) {}

OutputFile &OutputFile::operator=(OutputFile &&other) noexcept {
  std::swap(fd, other.fd);
  std::swap(path, other.path);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd >= 0)
    ::close(fd);
}

Status OutputFile::write(const void *data, size_t size) {
  const char *next = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t written = ::write(fd, next, size);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return systemError("cannot write", path);
    next += written;
    size -= size_t(written);
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
  int closing = std::exchange(fd, -1);
  if (::close(closing) != 0)
    return systemError("cannot close", path);
  return {};
}

} // namespace nsa
