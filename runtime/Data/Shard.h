//===- Shard.h - one file of tokens -----------------------------*- C++ -*-===//
//
// The .bin layouts of llm.c: a header of 256 little-endian i32 (magic, version,
// token count, zeros), then the tokens. Magic 20240520 with version 1 has u16,
// 20240801 with version 7 u32. A file holds at most 2^31 - 1 tokens because the
// header's count is an i32; all our offsets and sums are 64-bit.
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

/// Bytes of a token in a file.
enum class TokenWidth : unsigned { U16 = 2, U32 = 4 };

/// "u16" or "u32".
const char *widthName(TokenWidth width);

/// What a shard with tokens of one width begins with.
struct ShardFormat {
  TokenWidth width;
  int32_t magic;
  int32_t version;
};
inline constexpr ShardFormat shardFormats[] = {{TokenWidth::U16, 20240520, 1},
                                               {TokenWidth::U32, 20240801, 7}};
const ShardFormat &shardFormat(TokenWidth width);

/// The largest vocabulary of models and data.
constexpr int64_t maxVocabulary = 1 << 20;

/// The narrowest width that holds every token of a vocabulary.
constexpr TokenWidth widthFor(int64_t vocabulary) {
  return vocabulary <= 65536 ? TokenWidth::U16 : TokenWidth::U32;
}

constexpr size_t shardHeaderBytes = 256 * sizeof(int32_t);
constexpr uint64_t maxShardTokens = 2147483647;

/// What a manifest says about one shard.
struct ShardInfo {
  /// File name inside the data directory.
  std::string file;
  uint64_t tokens = 0;
  /// XXH3-64 of the whole file, header included.
  uint64_t hash = 0;
  /// Files of other projects come without a hash: then `hash` is one of the
  /// size and of parts of the file, which tells it from others.
  bool isHashed = true;
};

/// A shard that is open for reading. Several threads may read at once.
class Shard {
public:
  /// Checks magic, version, and that the size is the one the header promises.
  static Result<Shard> open(const std::string &path);

  /// Opens a file of `tokens` tokens without a header; another size is an
  /// error.
  static Result<Shard> openRaw(const std::string &path, TokenWidth width,
                               uint64_t tokens);

  /// Leaves the tokens first .. first+number-1 of those that it has.
  void narrow(uint64_t first, uint64_t number);

  uint64_t size() const { return count; }
  TokenWidth width() const { return tokenWidth; }
  size_t tokenBytes() const { return size_t(tokenWidth); }
  const std::string &path() const { return file.path(); }

  /// Bytes of the file, header included.
  uint64_t bytes() const { return file.size(); }

  /// Of the file, as it is now.
  Result<FileStamp> stamp() const { return file.stamp(); }

  /// Where its tokens are in the file.
  uint64_t firstByte() const { return begin; }
  uint64_t endByte() const { return begin + count * tokenBytes(); }

  /// Copies the tokens first .. first+number-1, each of `tokenBytes`, to `out`.
  /// A file that shrank, or was replaced while it was closed, is an error that
  /// names it.
  Status read(uint64_t first, uint64_t number, void *out) const {
    return readBytes(begin + first * tokenBytes(), number * tokenBytes(), out);
  }

  /// The same for any bytes of the file.
  Status readBytes(uint64_t offset, uint64_t number, void *out) const;

  /// Keeps no descriptor: each read opens the file again. For data sets of more
  /// shards than a process may have files.
  void close() { file.close(); }

private:
  explicit Shard(InputFile file) : file(std::move(file)) {}

  InputFile file;
  TokenWidth tokenWidth = TokenWidth::U16;
  uint64_t begin = shardHeaderBytes;
  uint64_t count = 0;
};

/// Writes one split as `<split>_000000.bin`, `<split>_000001.bin`, ...; a new
/// file begins when one holds `tokensPerShard` tokens.
class SplitWriter {
public:
  /// `tokensPerShard` is in 1..maxShardTokens.
  SplitWriter(std::string directory, std::string split, uint64_t tokensPerShard,
              TokenWidth width = TokenWidth::U16);

  /// Tokens of the width that the shards have.
  Status append(const uint16_t *tokens, uint64_t count);
  Status append(const uint32_t *tokens, uint64_t count);

  /// Completes the last file. Returns every shard, none if nothing came.
  Result<std::vector<ShardInfo>> finish();

  uint64_t tokens() const { return total; }

private:
  Status appendRaw(const char *tokens, uint64_t count);
  Status openNext();
  Status closeCurrent();
  Status flush();

  std::string directory;
  std::string split;
  uint64_t tokensPerShard;
  TokenWidth width;
  uint64_t total = 0;
  /// Tokens of the current file, buffered ones included.
  uint64_t inShard = 0;
  std::vector<char> buffer;
  std::vector<ShardInfo> done;
  std::optional<OutputFile> file;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_SHARD_H
