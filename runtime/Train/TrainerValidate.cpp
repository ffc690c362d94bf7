//===- TrainerValidate.cpp - held-out losses of a run ---------------------===//

#include "lib/Support/Text.h"
#include "runtime/Data/Ngram.h"
#include "runtime/Train/Evaluate.h"
#include "runtime/Train/Trainer.h"

#include <cinttypes>
#include <cmath>

namespace nsa {

/// Tokens that the n-gram baseline is fitted on at most: a few seconds.
static constexpr uint64_t maxNgramTokens = 200000000;

/// What a mean loss of the targets of windows is for each byte of their text;
/// 0 where tokens are bytes or stand for no text, and on other ranks than the
/// first.
Result<double> Trainer::bitsPerByte(const std::vector<uint64_t> &chosen,
                                    const EvalResult &result) {
  if (!tokenizer || data.manifest.isBytes() || !ranks.isFirst())
    return 0.0;
  NSA_ASSIGN_OR_RETURN(TextSize size, measureHeldOut(chosen));
  double nats = result.loss * double(result.tokens);
  return size.bytes == 0 ? 0.0 : nats / std::log(2.0) / double(size.bytes);
}

/// Bits per byte for people, and of which text they are.
std::string Trainer::bitsText(double bits) const {
  std::string text = formatted(" | %.4f bits/byte", bits);
  return tokenizer->changes().empty()
             ? text
             : text + (" of text after " + tokenizer->changes());
}

/// The text of held-out windows, which are the same in all evaluations during
/// training.
Result<TextSize> Trainer::measureHeldOut(const std::vector<uint64_t> &chosen) {
  if (chosen == measuredWindows)
    return measuredText;
  Result<TextSize> size = measureText(*windows, chosen, plan.seqLen, *tokenizer,
                                      data.manifest.endOfText);
  if (size) {
    measuredWindows = chosen;
    measuredText = *size;
  }
  return size;
}

std::vector<uint64_t> Trainer::chooseWindows(const RunConfig &config,
                                             const ValidationWindows &windows) {
  return windows.choose(uint64_t(config.train.evalBatches) *
                        uint64_t(config.train.microBatch));
}

std::vector<uint64_t> Trainer::finalWindows() const {
  int64_t batches = config.train.finalEvalBatches;
  return windows->choose(batches == 0
                             ? windows->size()
                             : uint64_t(batches) * uint64_t(plan.microBatch));
}

Status Trainer::validate() {
  console.busy("validating");
  std::vector<uint64_t> chosen = chooseWindows(config, *windows);
  bool unreadable = false;
  Result<EvalResult> result = evaluate(
      model, binding, *windows, chosen, ranks,
      "validation after step " + std::to_string(state.step), &unreadable);
  if (!result)
    return unreadable ? saveUnreadable(result.message()) : result.takeError();
  Result<double> bits = bitsPerByte(chosen, *result);
  if (!bits)
    return saveUnreadable(bits.message());
  std::string line = formatted(
      "step %04" PRId64 " | validation loss %.4f | ppl %.3f | %" PRIu64
      " tokens",
      state.step, result->loss, std::exp(result->loss), result->tokens);
  if (*bits > 0)
    line += bitsText(*bits);
  console.line(line);
  noteWrite(log->validation(state.step, result->loss));
  noteWrite(log->logHeartbeat(state.step, "validated"));
  return recordEvaluation("validated", *result);
}

/// Evaluates windows up to a position, or from one to another.
Result<EvalResult>
Trainer::evaluatePositions(const ValidationWindows &held,
                           const std::vector<uint64_t> &chosen,
                           PositionRange positions, const char *why) {
  return evaluate(model, binding, held, chosen, ranks,
                  std::string(why) + " after step " +
                      std::to_string(state.step) + ", positions " +
                      std::to_string(positions.first) + " to " +
                      std::to_string(positions.last),
                  /*unreadable=*/nullptr, positions);
}

/// Of an evaluation at this step, with no results.
EvaluationRecord Trainer::recordOf(const char *message) const {
  EvaluationRecord record;
  record.step = state.step;
  record.message = message;
  record.stage = options.stage;
  return record;
}

/// Writes what an evaluation gave besides its mean: the statistics of its last
/// micro-batch by layer, losses by position, and that at the length of the
/// stage before. Each takes at most as long as an evaluation during training.
Status Trainer::recordEvaluation(const char *message,
                                 const EvalResult &result) {
  EvaluationRecord record = recordOf(message);
  record.loss = result.loss;
  record.tokens = result.tokens;
  if (!statistics.empty())
    record.attention = statistics.read();
  std::vector<PositionRange> ranges = positionRanges(plan.seqLen);
  if (ranges.size() > 1) {
    int64_t batches =
        std::max<int64_t>(config.train.evalBatches / int64_t(ranges.size()), 1);
    std::vector<uint64_t> chosen =
        windows->choose(uint64_t(batches * plan.microBatch));
    for (PositionRange range : ranges) {
      NSA_ASSIGN_OR_RETURN(EvalResult part,
                           evaluatePositions(*windows, chosen, range, message));
      record.positions.push_back({range.last, part.loss, part.tokens});
    }
  }
  if (options.stage > 0) {
    NSA_ASSIGN_OR_RETURN(
        EvalResult part,
        evaluateAtEarlierLength(chooseWindows(config, *windows), message));
    record.earlier = {earlierLength(), part.loss, part.tokens};
  }
  noteWrite(log->evaluation(record));
  return {};
}

//===----------------------------------------------------------------------===//
// Between two stages
//===----------------------------------------------------------------------===//

/// Of the sequences of the stage before this one.
int64_t Trainer::earlierLength() const {
  return config.stages[options.stage - 1].seqLen;
}

/// The loss of the targets that sequences of the stage before have too: they
/// begin at the same tokens and see the same ones.
Result<EvalResult>
Trainer::evaluateAtEarlierLength(const std::vector<uint64_t> &chosen,
                                 const char *why) {
  return evaluatePositions(*windows, chosen, {0, earlierLength()},
                           (std::string("the length before, ") + why).c_str());
}

/// Evaluates the first tokens of those windows that the next stage begins with,
/// by which the two can be compared.
Status Trainer::evaluateBeforeSwitch() {
  if (config.data.window == "document")
    return {};
  RunConfig next = withStage(config, options.stage + 1);
  int64_t length = next.train.seqLen;
  if (length % plan.seqLen != 0) {
    console.line("no loss at equal length before and after: sequences of " +
                 std::to_string(length) + " tokens are no multiple of " +
                 std::to_string(plan.seqLen));
    return {};
  }
  console.busy("validating");
  NSA_ASSIGN_OR_RETURN(ValidationWindows longer,
                       ValidationWindows::create(data.val, length));
  std::vector<uint64_t> chosen = chooseWindows(next, longer);
  for (uint64_t &window : chosen)
    window *= uint64_t(length / plan.seqLen);
  NSA_ASSIGN_OR_RETURN(
      EvalResult result,
      evaluatePositions(*windows, chosen, {}, "the end of the stage"));
  console.line(formatted("step %04" PRId64 " | loss of %" PRIu64
                         " held-out tokens in sequences of %" PRId64 " %.4f",
                         state.step, result.tokens, plan.seqLen, result.loss));
  EvaluationRecord record = recordOf(stageEndMessage);
  record.loss = result.loss;
  record.tokens = result.tokens;
  noteWrite(log->evaluation(record));
  return {};
}

/// The same tokens with the program of this stage, before its first step.
Status Trainer::evaluateAfterSwitch() {
  if (options.stage == 0 || config.data.window == "document" ||
      state.step != getLastStep(config, options.stage - 1) ||
      plan.seqLen % earlierLength() != 0)
    return {};
  console.busy("validating");
  NSA_ASSIGN_OR_RETURN(EvalResult result,
                       evaluateAtEarlierLength(chooseWindows(config, *windows),
                                               "the begin of the stage"));
  std::string line = formatted("step %04" PRId64 " | loss of %" PRIu64
                               " held-out tokens, the first %" PRId64
                               " of sequences of %" PRId64 ", %.4f",
                               state.step, result.tokens, earlierLength(),
                               plan.seqLen, result.loss);
  if (std::optional<double> before = log->stageEndLoss(state.step))
    line += formatted(" (%+.2f %% of %.4f before)",
                      100 * (result.loss / *before - 1), *before);
  console.line(line);
  EvaluationRecord record = recordOf("stage_begun");
  record.earlier = {earlierLength(), result.loss, result.tokens};
  noteWrite(log->evaluation(record));
  return {};
}

//===----------------------------------------------------------------------===//
// After the last step
//===----------------------------------------------------------------------===//

Status Trainer::finalEvaluation() {
  console.busy("validating");
  std::vector<uint64_t> chosen = finalWindows();
  NSA_ASSIGN_OR_RETURN(EvalResult result,
                       evaluate(model, binding, *windows, chosen, ranks,
                                "the final evaluation"));
  final.emplace();
  final->loss = result.loss;
  final->tokens = result.tokens;
  NSA_ASSIGN_OR_RETURN(double bits, bitsPerByte(chosen, result));
  if (bits > 0)
    final->bitsPerByte = bits;
  noteWrite(log->validation(state.step, result.loss));
  NSA_RETURN_IF_ERROR(recordEvaluation("final", result));
  // The others have nothing more to do.
  if (!ranks.isFirst())
    return {};
  // The n-gram models know nothing of weights, documents and marks.
  if (data.manifest.vocabSize > Ngram::maxVocab || !data.sources.empty() ||
      config.data.isolateDocuments || config.data.targets == "marked")
    return {};
  console.busy("fitting the n-gram baseline");
  NSA_ASSIGN_OR_RETURN(Ngram baseline, Ngram::fit(data.train, maxNgramTokens));
  if (baseline.fitted() < data.train.size())
    final->ngramNote = "n-gram models fitted on the first " +
                       grouped(baseline.fitted()) + " of " +
                       grouped(data.train.size()) + " training tokens";
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  ranges.reserve(chosen.size());
  for (uint64_t window : chosen)
    ranges.emplace_back(windows->position(window), plan.seqLen);
  NSA_ASSIGN_OR_RETURN(NgramLoss loss, baseline.evaluate(data.val, ranges));
  final->order1 = loss.order1;
  final->order2 = loss.order2;
  return {};
}

} // namespace nsa
