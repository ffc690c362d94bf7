//===- Tokenizer.h - what tokens stand for ----------------------*- C++ -*-===//
//
// The table id -> bytes of a tokenizer.json (of the Python library tokenizers),
// which is what samples and losses per byte need. Texts become tokens by the
// library alone.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_TOKENIZER_H
#define NSA_RUNTIME_DATA_TOKENIZER_H

#include "runtime/Data/TokenStream.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

class Tokenizer {
public:
  /// 256 tokens, each a byte.
  static Tokenizer ofBytes();

  /// Reads a tokenizer.json, which lies at `path`: byte-level (GPT-2, Llama 3,
  /// Qwen), or with U+2581 for spaces, also with bytes as `<0x41>` (Llama 2).
  /// One whose tokens do not say which bytes they stand for is an error.
  static Result<Tokenizer> parse(std::string text, const std::string &path);
  static Result<Tokenizer> load(const std::string &path);

  /// One more than the largest id.
  int64_t size() const { return int64_t(table.size()); }

  /// What a token stands for: nothing if it is special, or no token.
  std::string_view bytesOf(int32_t id) const { return table[size_t(id)]; }

  /// Whether it puts a space before each text, which its first token has
  /// and the text has not.
  bool addsBlank() const { return blankInFront; }

  /// How it changes texts before it chooses tokens, which then stand for other
  /// bytes than the text's, such as `NFC, Lowercase`; nothing if it does not.
  const std::string &changes() const { return textChanges; }

  /// The token that ends documents, as nsa.data finds it by its name, or that
  /// nsa-data ends those of bytes with; -1 if there is none.
  int64_t endOfText() const { return end; }

  /// The tokens of texts, without special ones: bytes, or what the Python
  /// package tokenizers chooses, which the python3 of the PATH has to have.
  Result<std::vector<std::vector<int32_t>>>
  encode(const std::vector<std::string> &texts) const;

  /// Those of a model's `vocab` tokens that stand for nothing and are not the
  /// `end` of documents: a text has none of them.
  std::vector<int32_t> silentTokens(int64_t vocab, int64_t end) const;

  /// Its file, and the hash of that; nothing and 0 for bytes.
  const std::string &text() const { return source; }
  uint64_t hash() const { return sourceHash; }

  /// Whether the tokenizer.json at `path`, whose hash is `fileHash`, gives
  /// every token the id that this one gives it: files may differ in their
  /// layout, and in what no id depends on. One that cannot be read does not.
  bool hasIdsOf(const std::string &path, uint64_t fileHash) const;

private:
  Tokenizer() = default;

  std::string path;
  std::string source;
  uint64_t sourceHash = 0;
  int64_t end = -1;
  std::vector<std::string> table;
  bool blankInFront = false;
  std::string textChanges;
};

/// The endOfText() of a file, also of one whose tokens do not say which bytes
/// they stand for.
Result<int64_t> findEndOfText(const std::string &path);

/// The tokenizer of a data set, where `setting` is data.tokenizer: `byte`,
/// `shards` for the one that the data set has, or the path of a tokenizer.json.
/// One that is not that of the data is an error. Nothing if the tokens stand
/// for no text, or for an unknown one.
Result<std::optional<Tokenizer>> openTokenizer(const Dataset &data,
                                               const std::string &setting);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_TOKENIZER_H
