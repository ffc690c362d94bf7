//===- Evaluator.cpp - held-out losses of a run ---------------------------===//

#include "runtime/Train/Evaluator.h"
#include "lib/Support/Text.h"
#include "runtime/Data/Ngram.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

namespace nsa {

/// Tokens that the n-gram baseline is fitted on at most: a few seconds.
static constexpr uint64_t maxNgramTokens = 200000000;

/// The windows of an evaluation during training.
static std::vector<uint64_t> chooseWindows(const RunConfig &config,
                                           const ValidationWindows &windows) {
  return windows.choose(uint64_t(config.train.evalBatches) *
                        uint64_t(config.train.microBatch));
}

Status Evaluator::open() {
  NSA_ASSIGN_OR_RETURN(
      windows, ValidationWindows::create(run.data.val, run.plan.seqLen));
  return split.open(run.config.data, run.data.valDocuments, *windows);
}

Status Evaluator::checkTargets() const {
  if (run.config.train.evalEvery > 0)
    NSA_RETURN_IF_ERROR(checkTargets(chooseWindows(run.config, *windows)));
  return checkTargets(finalWindows());
}

Status Evaluator::checkTargets(const std::vector<uint64_t> &chosen) const {
  std::vector<int32_t> tokens(size_t(run.plan.seqLen)), targets = tokens,
                                                        starts = tokens;
  for (uint64_t window : chosen) {
    NSA_RETURN_IF_ERROR(
        windows->read(window, tokens.data(), targets.data(), starts.data()));
    if (std::any_of(targets.begin(), targets.end(),
                    [](int32_t target) { return target >= 0; }))
      return {};
  }
  return Error{"the validation split has no target in the " +
               std::to_string(chosen.size()) + " windows of " +
               std::to_string(run.plan.seqLen) +
               " tokens that are evaluated: each token is " +
               (run.config.data.targets == "marked"
                    ? "without a mark, and data.targets is marked"
                    : "the first of its document, and data.isolate_documents "
                      "is true")};
}

Result<double> Evaluator::measureBytesPerToken() {
  NSA_ASSIGN_OR_RETURN(TextSize size,
                       measureHeldOut(chooseWindows(run.config, *windows)));
  return size.targets == 0 ? 0.0 : double(size.bytes) / double(size.targets);
}

/// What a mean loss of the targets of windows is for each byte of their text;
/// 0 where tokens are bytes or stand for no text, and on other ranks than the
/// first.
Result<double> Evaluator::bitsPerByte(const std::vector<uint64_t> &chosen,
                                      const EvalResult &result) {
  if (!run.tokenizer || run.data.manifest.isBytes() || !run.ranks.isFirst())
    return 0.0;
  NSA_ASSIGN_OR_RETURN(TextSize size, measureHeldOut(chosen));
  double nats = result.loss * double(result.tokens);
  return size.bytes == 0 ? 0.0 : nats / std::log(2.0) / double(size.bytes);
}

/// Bits per byte for people, and of which text they are.
std::string Evaluator::bitsText(double bits) const {
  std::string text = formatted(" | %.4f bits/byte", bits);
  return run.tokenizer->changes().empty()
             ? text
             : text + (" of text after " + run.tokenizer->changes());
}

/// The text of held-out windows, which are the same in all evaluations during
/// training.
Result<TextSize>
Evaluator::measureHeldOut(const std::vector<uint64_t> &chosen) {
  if (chosen == measuredWindows)
    return measuredText;
  Result<TextSize> size =
      measureText(*windows, chosen, run.plan.seqLen, *run.tokenizer,
                  run.data.manifest.endOfText);
  if (size) {
    measuredWindows = chosen;
    measuredText = *size;
  }
  return size;
}

/// The windows of the final evaluation.
std::vector<uint64_t> Evaluator::finalWindows() const {
  int64_t batches = run.config.train.finalEvalBatches;
  return windows->choose(batches == 0 ? windows->size()
                                      : uint64_t(batches) *
                                            uint64_t(run.plan.microBatch));
}

Status Evaluator::validate(bool &unreadable) {
  run.journal.busy("validating");
  std::vector<uint64_t> chosen = chooseWindows(run.config, *windows);
  NSA_ASSIGN_OR_RETURN(
      EvalResult result,
      evaluate(run.model, run.binding, *windows, chosen, run.ranks,
               "validation after step " + std::to_string(run.state.step),
               &unreadable));
  Result<double> bits = bitsPerByte(chosen, result);
  unreadable = !bits;
  if (!bits)
    return bits.takeError();
  std::string line = formatted(
      "step %04" PRId64 " | validation loss %.4f | ppl %.3f | %" PRIu64
      " tokens",
      run.state.step, result.loss, std::exp(result.loss), result.tokens);
  if (*bits > 0)
    line += bitsText(*bits);
  run.journal.publish({.step = run.state.step,
                       .line = line,
                       .heartbeat = "validated",
                       .validationLoss = result.loss});
  return record("validated", result);
}

/// Evaluates windows up to a position, or from one to another.
Result<EvalResult>
Evaluator::evaluatePositions(const std::vector<uint64_t> &chosen,
                             PositionRange positions, const char *why) {
  return evaluate(run.model, run.binding, *windows, chosen, run.ranks,
                  std::string(why) + " after step " +
                      std::to_string(run.state.step) + ", positions " +
                      std::to_string(positions.first) + " to " +
                      std::to_string(positions.last),
                  /*unreadable=*/nullptr, positions);
}

/// Of an evaluation at this step, with no results.
EvaluationRecord Evaluator::recordOf(const char *message) const {
  EvaluationRecord record;
  record.step = run.state.step;
  record.message = message;
  record.stage = run.options.stage;
  return record;
}

/// Writes what an evaluation gave besides its mean: the statistics of its last
/// micro-batch by layer, losses by position, and that at the length of the
/// stage before. Each takes at most as long as an evaluation during training.
Status Evaluator::record(const char *message, const EvalResult &result) {
  EvaluationRecord entry = recordOf(message);
  entry.loss = result.loss;
  entry.tokens = result.tokens;
  if (!run.statistics.empty()) {
    NSA_ASSIGN_OR_RETURN(
        entry.attention,
        run.statistics.read(run.ranks, std::string(message) + " at step " +
                                           std::to_string(run.state.step)));
  }
  std::vector<PositionRange> ranges = positionRanges(run.plan.seqLen);
  if (ranges.size() > 1) {
    int64_t batches = std::max<int64_t>(
        run.config.train.evalBatches / int64_t(ranges.size()), 1);
    std::vector<uint64_t> chosen =
        windows->choose(uint64_t(batches * run.plan.microBatch));
    for (PositionRange range : ranges) {
      NSA_ASSIGN_OR_RETURN(EvalResult part,
                           evaluatePositions(chosen, range, message));
      entry.positions.push_back({range.last, part.loss, part.tokens});
    }
  }
  if (run.options.stage > 0) {
    NSA_ASSIGN_OR_RETURN(
        EvalResult part,
        evaluateAtEarlierLength(chooseWindows(run.config, *windows), message));
    entry.earlier = {earlierLength(), part.loss, part.tokens};
  }
  run.journal.publish({.step = run.state.step, .evaluation = &entry});
  return {};
}

//===----------------------------------------------------------------------===//
// Between two stages
//===----------------------------------------------------------------------===//

/// Of the sequences of the stage before this one.
int64_t Evaluator::earlierLength() const {
  return run.config.stages[run.options.stage - 1].seqLen;
}

/// The loss of the targets that sequences of the stage before have too: they
/// begin at the same tokens and see the same ones.
Result<EvalResult>
Evaluator::evaluateAtEarlierLength(const std::vector<uint64_t> &chosen,
                                   const char *why) {
  return evaluatePositions(chosen, {0, earlierLength()},
                           (std::string("the length before, ") + why).c_str());
}

/// Evaluates the first tokens of those windows that the next stage begins with,
/// by which the two can be compared.
Status Evaluator::evaluateBeforeSwitch() {
  if (run.config.data.window == "document")
    return {};
  RunConfig next = withStage(run.config, run.options.stage + 1);
  int64_t length = next.train.seqLen;
  if (length % run.plan.seqLen != 0) {
    run.journal.say("no loss at equal length before and after: sequences of " +
                    std::to_string(length) + " tokens are no multiple of " +
                    std::to_string(run.plan.seqLen));
    return {};
  }
  run.journal.busy("validating");
  NSA_ASSIGN_OR_RETURN(ValidationWindows longer,
                       ValidationWindows::create(run.data.val, length));
  std::vector<uint64_t> chosen = chooseWindows(next, longer);
  for (uint64_t &window : chosen)
    window *= uint64_t(length / run.plan.seqLen);
  NSA_ASSIGN_OR_RETURN(EvalResult result,
                       evaluatePositions(chosen, {}, "the end of the stage"));
  run.journal.say(formatted("step %04" PRId64 " | loss of %" PRIu64
                            " held-out tokens in sequences of %" PRId64 " %.4f",
                            run.state.step, result.tokens, run.plan.seqLen,
                            result.loss));
  EvaluationRecord record = recordOf(stageEndMessage);
  record.loss = result.loss;
  record.tokens = result.tokens;
  run.journal.publish({.step = run.state.step, .evaluation = &record});
  return {};
}

/// The same tokens with the program of this stage, before its first step.
Status Evaluator::evaluateAfterSwitch() {
  if (run.options.stage == 0 || run.config.data.window == "document" ||
      run.state.step != getLastStep(run.config, run.options.stage - 1) ||
      run.plan.seqLen % earlierLength() != 0)
    return {};
  run.journal.busy("validating");
  NSA_ASSIGN_OR_RETURN(
      EvalResult result,
      evaluateAtEarlierLength(chooseWindows(run.config, *windows),
                              "the begin of the stage"));
  std::string line = formatted("step %04" PRId64 " | loss of %" PRIu64
                               " held-out tokens, the first %" PRId64
                               " of sequences of %" PRId64 ", %.4f",
                               run.state.step, result.tokens, earlierLength(),
                               run.plan.seqLen, result.loss);
  if (std::optional<double> before =
          run.journal.log().stageEndLoss(run.state.step))
    line += formatted(" (%+.2f %% of %.4f before)",
                      100 * (result.loss / *before - 1), *before);
  run.journal.say(line);
  EvaluationRecord record = recordOf("stage_begun");
  record.earlier = {earlierLength(), result.loss, result.tokens};
  run.journal.publish({.step = run.state.step, .evaluation = &record});
  return {};
}

//===----------------------------------------------------------------------===//
// After the last step
//===----------------------------------------------------------------------===//

Status Evaluator::evaluateAtEnd() {
  run.journal.busy("validating");
  std::vector<uint64_t> chosen = finalWindows();
  NSA_ASSIGN_OR_RETURN(EvalResult result,
                       evaluate(run.model, run.binding, *windows, chosen,
                                run.ranks, "the final evaluation"));
  final.emplace();
  final->loss = result.loss;
  final->tokens = result.tokens;
  NSA_ASSIGN_OR_RETURN(double bits, bitsPerByte(chosen, result));
  if (bits > 0)
    final->bitsPerByte = bits;
  run.journal.publish({.step = run.state.step, .validationLoss = result.loss});
  NSA_RETURN_IF_ERROR(record("final", result));
  // The others have nothing more to do. The n-gram models know nothing of
  // weights, documents and marks.
  if (!run.ranks.isFirst() || run.data.manifest.vocabSize > Ngram::maxVocab ||
      !run.data.sources.empty() || run.config.data.isolateDocuments ||
      run.config.data.targets == "marked")
    return {};
  return evaluateNgrams(chosen);
}

Status Evaluator::evaluateNgrams(const std::vector<uint64_t> &chosen) {
  run.journal.busy("fitting the n-gram baseline");
  NSA_ASSIGN_OR_RETURN(Ngram baseline,
                       Ngram::fit(run.data.train, maxNgramTokens));
  if (baseline.fitted() < run.data.train.size())
    final->ngramNote = "n-gram models fitted on the first " +
                       grouped(baseline.fitted()) + " of " +
                       grouped(run.data.train.size()) + " training tokens";
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  ranges.reserve(chosen.size());
  for (uint64_t window : chosen)
    ranges.emplace_back(windows->position(window), run.plan.seqLen);
  NSA_ASSIGN_OR_RETURN(NgramLoss loss, baseline.evaluate(run.data.val, ranges));
  final->order1 = loss.order1;
  final->order2 = loss.order2;
  return {};
}

} // namespace nsa
