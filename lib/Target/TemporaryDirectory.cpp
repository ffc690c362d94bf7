//===- TemporaryDirectory.cpp - files for other programs ------------------===//

#include "lib/Target/TemporaryDirectory.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

nsa::TemporaryDirectory::TemporaryDirectory(StringRef prefix) {
  error = sys::fs::createUniqueDirectory(prefix, path);
}

nsa::TemporaryDirectory::~TemporaryDirectory() {
  if (error)
    return;
  // Nothing can be done about a file that stays behind.
  [[maybe_unused]] std::error_code failure = sys::fs::remove_directories(path);
}

std::string nsa::TemporaryDirectory::getFile(const Twine &name) const {
  SmallString<128> file(path);
  sys::path::append(file, name);
  return std::string(file);
}

Error nsa::writeFile(StringRef path, ArrayRef<char> bytes) {
  std::error_code error;
  raw_fd_ostream stream(path, error);
  if (error)
    return createStringError(error, "cannot write '" + path + "'");
  stream.write(bytes.data(), bytes.size());
  stream.close();
  if (std::error_code failure = stream.error()) {
    stream.clear_error();
    return createStringError(failure, "cannot write '" + path + "'");
  }
  return Error::success();
}
