//===- SplitFiles.h - files beside the shards of a split --------*- C++ -*-===//
//
// A header of 256 little-endian i32: magic, version 1, a count in two halves,
// the lower one first, zeros. After it
// - in an index (magic 20251101, number of documents), the position of each
//   document's first token in the split as u64, ascending from 0. A document
//   ends where the next one, or the split, begins or ends.
// - in marks (magic 20251127, number of tokens), a bit for each token, the
//   lowest of a byte first. With data.targets: marked, a loss counts the
//   targets whose bit is set.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_SPLITFILES_H
#define NSA_RUNTIME_DATA_SPLITFILES_H

#include "runtime/Data/Manifest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// Writes `<split>_documents.idx` and returns its name and hash.
Result<FileInfo> writeDocumentIndex(const std::string &directory,
                                    const std::string &split,
                                    const std::vector<uint64_t> &starts);

/// Where the documents of a split begin. A file that is not what the manifest
/// says, or whose positions do not ascend from 0 and stay below the split's
/// tokens, is an error that names it. Empty if the split has no index.
Result<std::vector<uint64_t>> readDocumentIndex(const std::string &directory,
                                                const SplitInfo &split);

/// Writes `<split>_targets.bits`, of a token for each of `marks`, and returns
/// its name and hash.
Result<FileInfo> writeTargetMarks(const std::string &directory,
                                  const std::string &split,
                                  const std::vector<bool> &marks);

/// The bits of a split, empty if it has none. A file that is not what the
/// manifest says is an error that names it.
Result<std::vector<uint8_t>> readTargetMarks(const std::string &directory,
                                             const SplitInfo &split);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_SPLITFILES_H
