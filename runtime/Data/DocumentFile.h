//===- DocumentFile.h - a user's file, in pieces ----------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DATA_DOCUMENTFILE_H
#define NSA_RUNTIME_DATA_DOCUMENTFILE_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace nsa {

/// The contents of a file from their beginning, decompressed if its name ends
/// in .gz.
class DocumentFile {
public:
  /// `mostInflated` bounds what a compressed file may grow to; 0 does not.
  static Result<DocumentFile> open(const std::string &path,
                                   uint64_t mostInflated);

  DocumentFile(DocumentFile &&) noexcept;
  DocumentFile &operator=(DocumentFile &&) noexcept;
  ~DocumentFile();

  /// Fills `data` as far as there are bytes, and returns how many: fewer than
  /// `size` at the end.
  Result<size_t> read(char *data, size_t size);

private:
  struct State;
  explicit DocumentFile(std::unique_ptr<State> state);

  std::unique_ptr<State> state;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_DOCUMENTFILE_H
