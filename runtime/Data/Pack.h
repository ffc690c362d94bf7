//===- Pack.h - the bytes of files as token shards --------------*- C++ -*-===//
//
// A file is a document; its tokens are its bytes, followed by one end-of-text
// token. That token is 0, so the vocabulary stays at 256: a file with a NUL is
// left out as binary. No byte of a document is dropped or joined to another
// document. A document goes to the validation split when the XXH3 hash of its
// contents, as a fraction of 2^64, is below the validation fraction: equal
// documents always share a split. Text inside of other files, and tokenizers,
// are for nsa.data in Python.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_PACK_H
#define NSA_RUNTIME_DATA_PACK_H

#include "runtime/Data/Manifest.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nsa {

struct PackOptions {
  /// Files and folders.
  std::vector<std::string> paths;
  std::string output;
  /// In (0, 1).
  double valFraction = 0.05;
  /// In 1..maxShardTokens.
  uint64_t shardTokens = 100000000;
  /// Files are taken in order until one would pass this many bytes; 0 takes
  /// all.
  uint64_t maxBytes = 0;
  /// A longer file is cut after the last newline within this many bytes, into
  /// documents of their own; 0 never cuts.
  uint64_t maxDocumentBytes = 0;
  bool overwrite = false;
  /// Name and version for the manifest.
  std::string tool;
  /// Hears about files that the user may not know to be left out.
  std::function<void(const std::string &)> warn;
};

/// Packs and returns the manifest that was written. An empty split is an error,
/// and so is a file that cannot be read, or is known not to be plain text.
/// Memory is bounded by maxDocumentBytes, however large a file is: each is read
/// twice.
Result<Manifest> packFiles(const PackOptions &options);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_PACK_H
