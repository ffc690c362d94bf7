//===- TemporaryDirectory.h - files for other programs ----------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_TEMPORARYDIRECTORY_H
#define NSA_LIB_TARGET_TEMPORARYDIRECTORY_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include <string>
#include <system_error>

namespace nsa {

/// A directory of its own, which only its owner may enter, that goes with
/// everything in it.
class TemporaryDirectory {
public:
  /// Makes it where the system has temporary files (TMPDIR). `prefix` starts
  /// its name, the rest is random.
  explicit TemporaryDirectory(llvm::StringRef prefix);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;

  std::error_code getError() const { return error; }

  /// The path of a file in the directory.
  std::string getFile(const llvm::Twine &name) const;

private:
  llvm::SmallString<128> path;
  std::error_code error;
};

/// Writes a whole new file. Something that is there already is an error.
llvm::Error writeFile(llvm::StringRef path, llvm::ArrayRef<char> bytes);

} // namespace nsa

#endif // NSA_LIB_TARGET_TEMPORARYDIRECTORY_H
