//===- Documents.h - documents that share a window --------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DATA_DOCUMENTS_H
#define NSA_RUNTIME_DATA_DOCUMENTS_H

#include "runtime/Data/TokenStream.h"

#include <cstdint>
#include <vector>

namespace nsa {

/// Where the documents of a split begin: as the index of a source says, or
/// after each token that ends one.
class Documents {
public:
  /// Reads the indices. A source that has neither an index nor such a token is
  /// an error that names it.
  static Result<Documents> open(const std::vector<DocumentSource> &sources);

  /// The first tokens of windows of `length` tokens in begin .. end-1, each of
  /// which begins at a document: the one that the window before does not hold
  /// as a whole. What is longer than a window goes on in the next one. Where no
  /// index says where documents begin, all tokens of `stream` are read.
  Result<std::vector<uint64_t>> findWindows(const TokenStream &stream,
                                            uint64_t begin, uint64_t end,
                                            uint64_t length) const;

  /// Sets `begins[i]` where token `position + i` of the split begins a
  /// document. `tokens` are the `count` tokens from `position` on; what comes
  /// before the first one is not looked at.
  void mark(uint64_t position, const int32_t *tokens, uint64_t count,
            char *begins) const;

  /// Whether some token of `split` follows another one of its document.
  Result<bool> hasTargets(const TokenStream &split) const;

private:
  Result<std::vector<uint64_t>> findStarts(const TokenStream &stream,
                                           uint64_t begin, uint64_t end) const;

  struct Source {
    uint64_t begin, end;
    int64_t endOfText;
    /// Positions in the split; empty where the tokens say it.
    std::vector<uint64_t> starts;
  };
  std::vector<Source> sources;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_DOCUMENTS_H
