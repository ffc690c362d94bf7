//===- Evaluator.h - held-out losses of a run -------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_EVALUATOR_H
#define NSA_RUNTIME_TRAIN_EVALUATOR_H

#include "runtime/Train/Evaluate.h"
#include "runtime/Train/RunContext.h"
#include "runtime/Train/SplitDocuments.h"

#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// What the final evaluation gave.
struct FinalLosses {
  /// Nats per target.
  double loss = 0;
  uint64_t tokens = 0;
  /// Of text in other tokens than bytes.
  std::optional<double> bitsPerByte = {};
  /// Of n-gram models of the training split.
  std::optional<double> order1 = {}, order2 = {};
  std::string ngramNote = {};
};

/// Evaluates held-out windows, and publishes what that gives. All ranks call
/// its functions.
class Evaluator {
public:
  explicit Evaluator(RunContext &run) : run(run) {}

  /// Opens the windows of the validation split.
  Status open();
  /// Losses of windows whose tokens are all ignored would be means of nothing.
  Status checkTargets() const;
  /// Bytes of a held-out target's text; 0 if it has no target.
  Result<double> measureBytesPerToken();

  /// During training. Sets `unreadable` if the error is that of a window that
  /// cannot be read.
  Status validate(bool &unreadable);
  /// Before the next stage, and before the first step of this one: the same
  /// tokens, by which the two can be compared.
  Status evaluateBeforeSwitch();
  Status evaluateAfterSwitch();
  /// After the last step.
  Status evaluateAtEnd();

  const std::optional<FinalLosses> &finalLosses() const { return final; }
  /// Bits per byte for people, and of which text they are.
  std::string bitsText(double bits) const;

private:
  Status checkTargets(const std::vector<uint64_t> &chosen) const;
  std::vector<uint64_t> finalWindows() const;
  EvaluationRecord recordOf(const char *message) const;
  Status record(const char *message, const EvalResult &result);
  Result<EvalResult> evaluatePositions(const std::vector<uint64_t> &chosen,
                                       PositionRange positions,
                                       const char *why);
  int64_t earlierLength() const;
  Result<EvalResult>
  evaluateAtEarlierLength(const std::vector<uint64_t> &chosen, const char *why);
  Result<double> bitsPerByte(const std::vector<uint64_t> &chosen,
                             const EvalResult &result);
  Result<TextSize> measureHeldOut(const std::vector<uint64_t> &chosen);
  Status evaluateNgrams(const std::vector<uint64_t> &chosen);

  RunContext &run;
  std::optional<ValidationWindows> windows;
  SplitDocuments split;
  /// The windows whose text was measured last, and its size.
  std::vector<uint64_t> measuredWindows;
  TextSize measuredText;
  std::optional<FinalLosses> final;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_EVALUATOR_H
