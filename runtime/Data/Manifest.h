//===- Manifest.h - what a data directory holds -----------------*- C++ -*-===//
//
// `manifest.json` is written last and atomically: a directory without one is
// unfinished. It carries no time and no machine name, so packing the same
// files with the same options gives the same bytes.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_MANIFEST_H
#define NSA_RUNTIME_DATA_MANIFEST_H

#include "runtime/Data/Shard.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nsa {

/// Name of the manifest inside a data directory.
constexpr const char *manifestName = "manifest.json";
/// Name of the tokenizer there.
inline constexpr const char *tokenizerName = "tokenizer.json";
/// Inside a data set: a complete one that is taking its place.
inline constexpr const char *replacementName = ".nsa-data.ready";

/// A file of a data directory beside its shards.
struct FileInfo {
  /// File name inside the directory; empty if there is none.
  std::string file;
  /// XXH3-64 of the file.
  uint64_t hash = 0;
};

struct SplitInfo {
  uint64_t tokens = 0;
  uint64_t documents = 0;
  std::vector<ShardInfo> shards;
  /// Where documents begin, see SplitFiles.h.
  FileInfo index = {};
  /// Which of its tokens are targets, see SplitFiles.h.
  FileInfo marks = {};
};

struct Manifest {
  /// Name and version of the tool that wrote the directory.
  std::string tool;
  /// text, tokens (ids that another program made), markov or recall.
  std::string kind;
  /// Every token is below this.
  int64_t vocabSize = 0;
  /// The token that ends a document, or -1.
  int64_t endOfText = -1;
  /// The tokenizer.json that made the tokens, if one did.
  FileInfo tokenizer;
  /// Options in the order of the help text, resolved.
  std::vector<std::pair<std::string, std::string>> options;
  /// Counts about the source, such as files and bytes.
  std::vector<std::pair<std::string, uint64_t>> counts;
  /// Known quantities of a synthetic source, nats per token.
  std::vector<std::pair<std::string, double>> facts;
  /// XXH3-64 over (path, size, hash) of every document; 0 if synthetic.
  uint64_t sourceDigest = 0;
  SplitInfo train;
  SplitInfo val;
  /// The hash of the rest of the file that was read, as it says; format 1 says
  /// none.
  std::optional<uint64_t> ownHash;

  /// Compares it with what was read from `directory`. Shards are checked first:
  /// their names say more.
  Status checkOwnHash(const std::string &directory) const;

  /// Whether every token is a byte of text.
  bool isBytes() const {
    return kind == "text" && vocabSize == 256 && tokenizer.file.empty();
  }

  /// Whether the files are another project's, without a manifest.
  bool isForeign() const { return kind == "llm.c" || kind == "megatron"; }

  /// Whether a tokenizer has made the tokens that is not here.
  bool isOfUnknownTokenizer() const {
    return tokenizer.file.empty() && (kind == "tokens" || isForeign());
  }

  /// What losses count: "nats/byte", or "nats/token" for other vocabularies.
  const char *lossUnit() const {
    return isBytes() ? "nats/byte" : "nats/token";
  }

  /// A known quantity by name.
  std::optional<double> fact(const std::string &name) const;
  std::optional<uint64_t> count(const std::string &name) const;

  /// XXH3-64 over the shards of both splits: equal data, equal digest.
  uint64_t digest() const;

  /// The file's text: JSON with a final newline, and its own hash.
  std::string print() const;

  /// Reads `<directory>/manifest.json`; an error names the file and the key.
  static Result<Manifest> load(const std::string &directory);

  /// Writes `<directory>/manifest.json` atomically.
  Status save(const std::string &directory) const;

private:
  uint64_t contentHash() const;
};

/// The text of the tokenizer.json of a data directory, which has the hash that
/// the manifest says; empty if there is none.
Result<std::string> readTokenizerText(const std::string &directory,
                                      const Manifest &manifest);

/// Names of facts and counts of synthetic sources.
inline constexpr const char *entropyAfter = "entropy_after_";
inline constexpr const char *documentTokensKey = "document_tokens";

/// What the best model of a synthetic source loses for each target of windows
/// of `seqLen` tokens. Nothing for other data, and where windows cut off what
/// documents show: recall takes windows that begin at documents and hold them
/// whole, for all targets as many as fill them.
std::optional<double> reachableEntropy(const Manifest &manifest, int64_t seqLen,
                                       bool beginsAtDocuments, bool isIsolated,
                                       bool isMarked);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_MANIFEST_H
