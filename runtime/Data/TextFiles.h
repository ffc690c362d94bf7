//===- TextFiles.h - the user's files as documents --------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DATA_TEXTFILES_H
#define NSA_RUNTIME_DATA_TEXTFILES_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// Which files a walk takes. A glob with a slash is matched against the whole
/// path, one without against the file name.
struct FileFilter {
  /// Empty takes every file.
  std::vector<std::string> include;
  std::vector<std::string> exclude;

  bool accepts(const std::string &path) const;
};

/// What a walk found.
struct FileList {
  /// In byte-wise order, without duplicates.
  std::vector<std::string> paths;
  uint64_t filtered = 0;
  /// Hidden entries, symbolic links and special files below the roots.
  uint64_t ignored = 0;
  /// Folders that could not be listed.
  uint64_t unreadable = 0;
};

/// Every regular file under `roots` (files or folders, recursively). Hidden
/// entries and symbolic links below a root are not followed. A root that does
/// not exist is an error.
Result<FileList> listFiles(const std::vector<std::string> &roots,
                           const FileFilter &filter);

/// Whether the bytes are text: no NUL, and at most a tenth of the bytes are
/// control characters or belong to no valid UTF-8 sequence.
bool isText(const uint8_t *data, size_t size);

/// The contents of `path`, decompressed if it is a gzip file.
Result<std::string> readDocument(const std::string &path);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_TEXTFILES_H
