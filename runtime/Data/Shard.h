//===- Shard.h - one file of tokens -----------------------------*- C++ -*-===//
//
// The .bin layout of llm.c: a header of 256 little-endian i32 (magic 20240520,
// version 1, token count, zeros), then the tokens as u16. A file holds at most
// 2^31 - 1 tokens because the header's count is an i32; all our offsets and
// sums are 64-bit.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_SHARD_H
#define NSA_RUNTIME_DATA_SHARD_H

#include "lib/Support/Files.h"
#include "nsa/Support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

constexpr int32_t shardMagic = 20240520;
constexpr int32_t shardVersion = 1;
constexpr size_t shardHeaderBytes = 256 * sizeof(int32_t);
constexpr uint64_t maxShardTokens = 2147483647;

/// What a manifest says about one shard.
struct ShardInfo {
  /// File name inside the data directory.
  std::string file;
  uint64_t tokens = 0;
  /// XXH3-64 of the whole file, header included.
  uint64_t hash = 0;
};

/// A shard that is open for reading. Several threads may read at once.
class Shard {
public:
  /// Checks magic, version, and that the size is the one the header promises.
  static Result<Shard> open(const std::string &path);

  uint64_t size() const { return count; }
  const std::string &path() const { return file.path(); }

  /// Bytes of the file, header included.
  uint64_t bytes() const { return file.size(); }

  /// Copies the tokens first .. first+number-1 to `out`. A file that shrank, or
  /// was replaced while it was closed, is an error that names it.
  Status read(uint64_t first, uint64_t number, uint16_t *out) const {
    return readBytes(shardHeaderBytes + first * sizeof(uint16_t),
                     number * sizeof(uint16_t), out);
  }

  /// The same for any bytes of the file.
  Status readBytes(uint64_t offset, uint64_t number, void *out) const;

  /// Keeps no descriptor: each read opens the file again. For data sets of more
  /// shards than a process may have files.
  void close() { file.close(); }

private:
  explicit Shard(InputFile file) : file(std::move(file)) {}

  InputFile file;
  uint64_t count = 0;
};

/// Writes one split as `<split>_000000.bin`, `<split>_000001.bin`, ...; a new
/// file begins when one holds `tokensPerShard` tokens.
class SplitWriter {
public:
  /// `tokensPerShard` is in 1..maxShardTokens.
  SplitWriter(std::string directory, std::string split,
              uint64_t tokensPerShard);

  Status append(const uint16_t *tokens, uint64_t count);

  /// Completes the last file. Returns every shard, none if nothing came.
  Result<std::vector<ShardInfo>> finish();

  uint64_t tokens() const { return total; }

private:
  Status openNext();
  Status closeCurrent();
  Status flush();

  std::string directory;
  std::string split;
  uint64_t tokensPerShard;
  uint64_t total = 0;
  /// Tokens of the current file, buffered ones included.
  uint64_t inShard = 0;
  std::vector<uint16_t> buffer;
  std::vector<ShardInfo> done;
  std::optional<OutputFile> file;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_SHARD_H
