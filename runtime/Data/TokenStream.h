//===- TokenStream.h - the shards of a split as one sequence ----*- C++ -*-===//

#ifndef NSA_RUNTIME_DATA_TOKENSTREAM_H
#define NSA_RUNTIME_DATA_TOKENSTREAM_H

#include "runtime/Data/Manifest.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// The concatenated tokens of one split, read from the files as they are
/// needed.
class TokenStream {
public:
  /// Opens the shards of `split` in order. A shard that is missing, damaged or
  /// of another size than the manifest says is an error, and so are tokens of
  /// two widths.
  static Result<TokenStream> open(const std::string &directory,
                                  const SplitInfo &split, int64_t vocabSize);

  /// The tokens of shards that are open, one after the other. Two widths are an
  /// error.
  static Result<TokenStream> make(std::vector<Shard> shards, int64_t vocabSize);

  /// Tokens in all shards.
  uint64_t size() const { return total; }

  /// Every token that read() returns is below this.
  int64_t vocabSize() const { return vocab; }

  /// Copies tokens position .. position+count-1 to `out`; a position past the
  /// end continues at the beginning. Requires count <= size(). A token that is
  /// not below the vocabulary size, and a shard that cannot be read, are errors
  /// naming shard and position.
  Status read(uint64_t position, uint64_t count, int32_t *out) const;

  const std::vector<Shard> &parts() const { return shards; }

  /// Puts the tokens of another stream after those of this one. Two widths are
  /// an error.
  Status append(TokenStream other);

private:
  Status add(Shard shard);

  std::vector<Shard> shards;
  /// First position of each shard, then the total.
  std::vector<uint64_t> starts;
  uint64_t total = 0;
  int64_t vocab = 0;
};

/// The first of `count` tokens that is not below `vocab`, or `count`. Looking
/// for the largest first is many at a time.
template <typename T>
size_t findOutside(const T *tokens, size_t count, int64_t vocab) {
  T most = 0;
  for (size_t i = 0; i < count; ++i)
    most = std::max(most, tokens[i]);
  if (int64_t(most) < vocab)
    return count;
  return size_t(std::find_if(tokens, tokens + count,
                             [&](T token) { return int64_t(token) >= vocab; }) -
                tokens);
}

/// The error about a token of a shard that the vocabulary does not have.
Error tokenOutside(const Shard &shard, uint64_t position, uint32_t token,
                   int64_t vocab);

/// One of several sources of a training split.
struct DataSource {
  std::string name;
  /// Its tokens in the split.
  uint64_t begin = 0, tokens = 0;
  /// Its share of the training windows.
  double weight = 1;
};

/// What says where the documents of some tokens of a split begin.
struct DocumentSource {
  /// What the tokens were opened as, and their offset in the split.
  std::string name;
  uint64_t begin = 0, tokens = 0;
  /// The token that ends a document, or -1; `info` may have an index, which is
  /// in the folder `name`.
  int64_t endOfText = -1;
  SplitInfo info;
  /// In the place of an index that is a file of another project: positions in
  /// these tokens, ascending.
  std::vector<uint64_t> starts = {};
};

/// A data directory open for training, or a mixture of several.
struct Dataset {
  /// Opens manifest and shards of both splits; either may be empty here.
  /// `directory` may also be what openForeignShards takes, with `vocabSize`.
  static Result<Dataset> open(const std::string &directory,
                              int64_t vocabSize = 0);

  /// The same for a manifest that was read.
  static Result<Dataset> open(const std::string &directory, Manifest manifest);

  /// Opens several, whose windows are drawn by weight; without weights, by
  /// tokens. Weights that are not positive and finite, or of another number,
  /// are errors, and so are other tokenizers, kinds or ends of text in one
  /// mixture.
  static Result<Dataset> openMixture(const std::vector<std::string> &paths,
                                     std::vector<double> weights,
                                     int64_t vocabSize = 0);

  /// What it was opened as.
  std::string name() const;

  /// Equal data, mixed alike: equal digest.
  uint64_t digest() const;

  /// Of a mixture, that of the first source.
  std::string directory;
  /// Of a mixture, what the sources have in common, and the shards of all.
  Manifest manifest;
  TokenStream train;
  TokenStream val;
  /// Of the training split of a mixture; empty for one source.
  std::vector<DataSource> sources;
  /// Of each source, in the order of their tokens.
  std::vector<DocumentSource> trainDocuments, valDocuments;
  /// Indices of other projects, which no manifest names.
  std::vector<FileInfo> indices;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_TOKENSTREAM_H
