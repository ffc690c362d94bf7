//===- TokenStream.h - the shards of a split as one sequence ----*- C++ -*-===//

#ifndef NSA_RUNTIME_DATA_TOKENSTREAM_H
#define NSA_RUNTIME_DATA_TOKENSTREAM_H

#include "runtime/Data/Manifest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// The concatenated tokens of one split, read through mmap.
class TokenStream {
public:
  /// Opens the shards of `split` in order. A shard that is missing, damaged or
  /// of another size than the manifest says is an error.
  static Result<TokenStream> open(const std::string &directory,
                                  const SplitInfo &split, int64_t vocabSize);

  /// Tokens in all shards.
  uint64_t size() const { return total; }

  /// Every token that read() returns is below this.
  int64_t vocabSize() const { return vocab; }

  /// Copies tokens position .. position+count-1 to `out`; a position past the
  /// end continues at the beginning. Requires count <= size(). A token that is
  /// not below the vocabulary size is an error naming shard and position.
  Status read(uint64_t position, uint64_t count, int32_t *out) const;

private:
  std::vector<Shard> shards;
  /// First position of each shard, then the total.
  std::vector<uint64_t> starts;
  uint64_t total = 0;
  int64_t vocab = 0;
};

/// A data directory open for training.
struct Dataset {
  /// Opens manifest and shards of both splits; either may be empty here.
  static Result<Dataset> open(const std::string &directory);

  std::string directory;
  Manifest manifest;
  TokenStream train;
  TokenStream val;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_TOKENSTREAM_H
