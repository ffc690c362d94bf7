//===- SelectionReplay.h - blocks that a rollout selected -------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_SELECTIONREPLAY_H
#define NSA_RUNTIME_TRAIN_SELECTIONREPLAY_H

#include "lib/Support/Npy.h"
#include "runtime/Train/Model.h"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace nsa {

/// The blocks that layers select for sequences, in place of their own choice:
/// what nsa-generate --save-selection writes. Sequences are known by their
/// tokens.
class SelectionReplay {
public:
  /// Reads FILE.npy and FILE.ids.npy. An error says what is not that of the
  /// program, or is no selection of blocks of `selectBlock` tokens.
  static Result<SelectionReplay> open(const std::string &path,
                                      const TrainBinding &binding,
                                      int64_t selectBlock);

  /// The row whose first tokens these are.
  Result<uint64_t> find(const int32_t *tokens) const;
  /// Copies what a row has to sequence `sequence` of a micro-batch.
  void load(uint64_t row, int64_t sequence, const TrainBinding &binding) const;

private:
  Status checkShape(const TrainBinding &binding) const;
  Status checkLists(uint64_t row, int64_t selectBlock) const;
  std::string keyOf(const int32_t *tokens) const;

  std::string path;
  NpyArray blocks, ids;
  int64_t seqLen = 0;
  std::unordered_map<std::string, uint64_t> rows;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_SELECTIONREPLAY_H
