//===- TemporaryDirectory.cpp - files for other programs ------------------===//

#include "lib/Target/TemporaryDirectory.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <cerrno>
#include <cstdlib>

using namespace llvm;

nsa::TemporaryDirectory::TemporaryDirectory(StringRef prefix) {
  sys::path::system_temp_directory(/*ErasedOnReboot=*/true, path);
  sys::path::append(path, prefix + "-XXXXXX");
  // Its owner's alone, whatever the umask: no other user can put a link in it.
  if (!::mkdtemp(const_cast<char *>(path.c_str())))
    error = std::error_code(errno, std::generic_category());
}

nsa::TemporaryDirectory::~TemporaryDirectory() {
  if (error)
    return;
  // Nothing can be done about a file that remains.
  [[maybe_unused]] std::error_code failure = sys::fs::remove_directories(path);
}

std::string nsa::TemporaryDirectory::getFile(const Twine &name) const {
  SmallString<128> file(path);
  sys::path::append(file, name);
  return std::string(file);
}

Error nsa::writeFile(StringRef path, ArrayRef<char> bytes) {
  int fd = -1;
  if (std::error_code error =
          sys::fs::openFileForWrite(path, fd, sys::fs::CD_CreateNew))
    return createStringError(error,
                             "cannot write '" + path + "': " + error.message());
  raw_fd_ostream stream(fd, /*shouldClose=*/true);
  stream.write(bytes.data(), bytes.size());
  stream.close();
  if (std::error_code failure = stream.error()) {
    stream.clear_error();
    return createStringError(failure, "cannot write '" + path +
                                          "': " + failure.message());
  }
  return Error::success();
}
