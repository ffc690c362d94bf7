//===- RecordFile.h - records at the end of a file --------------*- C++ -*-===//

#ifndef NSA_SUPPORT_RECORDFILE_H
#define NSA_SUPPORT_RECORDFILE_H

#include "lib/Support/Files.h"

#include <string>
#include <string_view>

namespace nsa {

/// A file to whose end records are written, each at once. What cannot be
/// written, because the disk is full, is kept and written before the next
/// record: what reaches the file has no gap.
class RecordFile {
public:
  /// Opens `path`, creating it if needed.
  static Result<RecordFile> open(const std::string &path);

  /// Writes what was kept, then a record. Of failures in a row the first alone
  /// is reported.
  Status write(std::string_view record);

  /// An error that says how many bytes are kept, if there are any.
  Status finish() const;

private:
  RecordFile(OutputFile file, std::string path)
      : file(std::move(file)), path(std::move(path)) {}

  OutputFile file;
  std::string path;
  std::string kept;
  bool isFailing = false;
};

} // namespace nsa

#endif // NSA_SUPPORT_RECORDFILE_H
