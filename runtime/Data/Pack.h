//===- Pack.h - text files to token shards ----------------------*- C++ -*-===//
//
// A file is a document; its tokens are its bytes, followed by one end-of-text
// token. That token is 0: NUL does not occur in text files, so the vocabulary
// stays at 256. No byte of an accepted document is dropped or joined to another
// document. A document goes to the validation split when the XXH3 hash of its
// contents, as a fraction of 2^64, is below the validation fraction: equal
// documents always share a split.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_PACK_H
#define NSA_RUNTIME_DATA_PACK_H

#include "runtime/Data/Manifest.h"
#include "runtime/Data/TextFiles.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nsa {

struct PackOptions {
  /// Files and folders.
  std::vector<std::string> paths;
  std::string output;
  FileFilter filter;
  /// In [0, 1).
  double valFraction = 0.05;
  /// In 1..maxShardTokens.
  uint64_t shardTokens = 100000000;
  /// Files are taken in order until one would pass this many bytes; 0 takes
  /// all.
  uint64_t maxBytes = 0;
  /// A longer file is cut after the last newline within this many bytes, into
  /// documents of their own; 0 never cuts.
  uint64_t maxDocumentBytes = 0;
  /// A compressed file that inflates to more is skipped; 0 takes any.
  uint64_t maxInflatedBytes = 1000000000;
  bool overwrite = false;
  /// Name and version for the manifest.
  std::string tool;
  /// Hears about every file that cannot be read, and once about files that the
  /// user may not know to be left out, or to be no plain text.
  std::function<void(const std::string &)> warn;
};

/// Packs and returns the manifest that was written. An empty result, and an
/// empty validation split although valFraction > 0, are errors. Memory is
/// bounded by 16 MiB and maxDocumentBytes, however large a file is: a larger
/// one is read twice.
Result<Manifest> packText(const PackOptions &options);

/// The byte lengths of the documents that `size` bytes at `data` become under
/// `maxDocumentBytes`; their sum is `size`.
std::vector<size_t> cutDocuments(const char *data, size_t size,
                                 uint64_t maxDocumentBytes);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_PACK_H
