//===- Evaluate.h - validation loss -----------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_EVALUATE_H
#define NSA_RUNTIME_TRAIN_EVALUATE_H

#include "runtime/Data/Sampler.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Distributed/Ranks.h"
#include "runtime/Train/Model.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace nsa {

/// A mean loss over `tokens` targets.
struct EvalResult {
  double loss = 0;
  uint64_t tokens = 0;
};

/// Targets of a window that count: from position `first` to `last`, which does
/// not count any more.
struct PositionRange {
  int64_t first = 0;
  int64_t last = std::numeric_limits<int64_t>::max();
};

/// Positions by which losses are told apart: up to 64, and each range twice as
/// long as all before it, up to `seqLen`.
std::vector<PositionRange> positionRanges(int64_t seqLen);

/// Mean loss in nats per token over the given windows. The last micro-batch is
/// filled with ignored targets. Ranks share the micro-batches; the result is
/// the same for any number of them. `name` is this evaluation's alone in the
/// run. A window that some rank cannot read is an error on all of them, and
/// `unreadable` is set.
Result<EvalResult> evaluate(Model &model, const TrainBinding &binding,
                            const ValidationWindows &data,
                            const std::vector<uint64_t> &windows, Ranks &ranks,
                            const std::string &name, bool *unreadable = nullptr,
                            PositionRange positions = {});

/// How many targets windows have, and the bytes of text that these stand for:
/// a space that the tokenizer puts before a document, which is the target
/// after one of `endOfText`, is none.
struct TextSize {
  uint64_t targets = 0;
  uint64_t bytes = 0;
};
Result<TextSize> measureText(const ValidationWindows &data,
                             const std::vector<uint64_t> &windows,
                             int64_t seqLen, const Tokenizer &tokenizer,
                             int64_t endOfText);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_EVALUATE_H
