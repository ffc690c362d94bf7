//===- MegatronIndex.h - the .idx beside a Megatron .bin --------*- C++ -*-===//
//
// Megatron-LM's indexed data set: PREFIX.bin has tokens without a header.
// PREFIX.idx has "MMIDIDX", two NULs, u64 version 1, u8 type of the tokens, u64
// sequences, u64 entries of the list of documents; then the length of each
// sequence (i32), its offset in PREFIX.bin (i64, bytes), and the first sequence
// of each document (i64), which the number of sequences ends.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_MEGATRONINDEX_H
#define NSA_RUNTIME_DATA_MEGATRONINDEX_H

#include "runtime/Data/Shard.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

struct MegatronIndex {
  TokenWidth width = TokenWidth::U16;
  uint64_t tokens = 0;
  /// Position of the first token of each document that has some.
  std::vector<uint64_t> documents;
  /// XXH3-64 of the file.
  uint64_t hash = 0;

  /// Another magic, version or type (uint16 and int32 are read), a file that is
  /// truncated, and sequences that do not lie one after the other are errors.
  static Result<MegatronIndex> read(const std::string &path);
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_MEGATRONINDEX_H
