//===- DocumentIndex.h - where documents begin ------------------*- C++ -*-===//
//
// A file beside the shards of a split: a header of 256 little-endian i32 (magic
// 20251101, version 1, number of documents in two halves, the lower one first,
// zeros), then the position of each document's first token in the split as
// u64, ascending from 0. A document ends where the next one, or the split,
// begins or ends.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_DOCUMENTINDEX_H
#define NSA_RUNTIME_DATA_DOCUMENTINDEX_H

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

} // namespace nsa

#endif // NSA_RUNTIME_DATA_DOCUMENTINDEX_H
