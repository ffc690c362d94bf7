//===- TokenShards.h - token ids as a data set ------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TOKENSHARDS_H
#define NSA_RUNTIME_TOKENSHARDS_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nsa {

/// What the manifest of a data set says beside its files.
struct TokenShardsInfo {
  /// text, or tokens where the ids come from elsewhere.
  std::string kind;
  /// Name and version of what made them.
  std::string tool;
  /// The token that ends a document, or -1.
  int64_t endOfText = -1;
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<std::pair<std::string, uint64_t>> counts;
  /// A hash of the source; 0 where there is none.
  uint64_t sourceDigest = 0;
};

/// Writes token ids that were made elsewhere, document by document, as a data
/// set for nsa-train: shards, indices of documents, the tokenizer if one is
/// given, and the manifest.
class TokenShardsWriter {
public:
  /// Tokens are below `vocabSize`, which is in 1..2^20 and decides their width;
  /// a shard holds at most `tokensPerShard`, in 1..2^31 - 1. A data set that
  /// lies in `directory` stays until finish(), and is an error unless
  /// `overwrite`.
  static Result<TokenShardsWriter> create(const std::string &directory,
                                          bool overwrite, int64_t vocabSize,
                                          uint64_t tokensPerShard);

  TokenShardsWriter(TokenShardsWriter &&) noexcept;
  ~TokenShardsWriter();

  /// 2 or 4, the bytes of a token.
  size_t tokenBytes() const;

  /// Appends documents to a split, "train" or "val": `tokens` has `count` of
  /// them, unsigned and each of tokenBytes(), `lengths` how many each of the
  /// documents has, at least one. A token that is not below the vocabulary is
  /// an error that names it and its position in the split.
  Status append(const std::string &split, const void *tokens, uint64_t count,
                const uint64_t *lengths, size_t documents);

  /// Keeps the text of the tokenizer.json that made the tokens.
  Status setTokenizer(std::string_view text);

  /// Renames the data set to its path. No training token is an error.
  Status finish(const TokenShardsInfo &info);

private:
  struct Impl;
  explicit TokenShardsWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

/// A data set that is open for reading. Several threads may read at once.
class TokenShards {
public:
  static Result<TokenShards> open(const std::string &directory);

  TokenShards(TokenShards &&) noexcept;
  ~TokenShards();

  /// Every token is below this.
  int64_t vocabSize() const;
  /// The token that ends a document, or -1.
  int64_t endOfText() const;
  /// text, tokens, markov or recall.
  const std::string &kind() const;

  /// Tokens of a split, "train" or "val"; another name is an error.
  Result<uint64_t> size(const std::string &split) const;

  /// Copies tokens position .. position+count-1 of a split to `out`.
  Status read(const std::string &split, uint64_t position, uint64_t count,
              int32_t *out) const;

  /// Where the documents of a split begin; empty if the data set does not say.
  Result<std::vector<uint64_t>> documents(const std::string &split) const;

  /// The text of its tokenizer.json; empty if it has none.
  Result<std::string> tokenizer() const;

  /// Compares every file with its hash, and every token with the vocabulary.
  Status verify() const;

private:
  struct Impl;
  explicit TokenShards(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

/// What the tokens of a tokenizer.json stand for.
struct TokenBytes {
  /// By id: nothing for one that is special.
  std::vector<std::string> bytes;
  /// Whether the first token of each text has a space which the text has not.
  bool addsBlank = false;
  /// How texts are changed before, such as `NFC, Lowercase`; nothing if not.
  std::string changes;
};

/// `name` is the file in messages; tokenizers whose tokens do not say their
/// bytes are an error.
Result<TokenBytes> readTokenBytes(std::string text, const std::string &name);

} // namespace nsa

#endif // NSA_RUNTIME_TOKENSHARDS_H
