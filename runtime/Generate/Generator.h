//===- Generator.h - sequences that grow by a token -------------*- C++ -*-===//
//
// Drives a program with the entries `prefill` and `decode`
// (nsa/Artifact/TrainingContract.h), one batch of sequences at a time.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_GENERATE_GENERATOR_H
#define NSA_RUNTIME_GENERATE_GENERATOR_H

#include "nsa/Runtime/Runtime.h"
#include "runtime/Generate/PagePool.h"
#include "runtime/Generate/Sampling.h"

#include <cstdint>
#include <vector>

namespace nsa {

class Generator {
public:
  /// Takes a program whose weights are loaded, and which outlives it. An error
  /// names the entry, the tensor or the option that a program which generates
  /// has; one that is trained has no prefill.
  /// `consistent` computes each token that is appended by the entry that takes
  /// in parts of prompts: its logits and selections are then the bits that it
  /// has as a part of a prompt. It is an error if there is no such entry.
  static Result<Generator> create(Program &program, bool consistent = false);

  /// Sequences of a batch; tokens of each at most; tokens that there are.
  int64_t batch() const { return rows; }
  int64_t context() const { return limit; }
  int64_t vocab() const { return tokens; }

  /// Begins a batch: a prompt of at least one token for each of its first
  /// sequences. An error names an empty prompt, one that is longer than the
  /// context, and an id that is no token's.
  Status prefill(const std::vector<std::vector<int32_t>> &prompts);

  /// Appends a token to each sequence; -1 leaves one alone. Allocates nothing
  /// but for selections. A sequence that is full, or whose logits are not
  /// finite, is an error.
  Status append(const std::vector<int32_t> &ids);

  /// What `prefill` and `append` consist of, for sequences that begin and end
  /// at different times: what is wrong with a prompt of this name; a sequence
  /// without tokens, which keeps the pages of its first `kept`; the beginnings
  /// of prompts, of at most `prefillLength` tokens, which are none for
  /// sequences that are left alone; and a token more of each.
  Status check(const std::string &name,
               const std::vector<int32_t> &prompt) const;
  Status clear(int64_t sequence, int64_t kept = 0);
  Status fill(const std::vector<std::vector<int32_t>> &prompts);
  Status step(const std::vector<int32_t> &ids);
  int64_t prefillLength() const { return promptLength; }

  /// Whether prompts are taken in by parts of `prefillLength` tokens, one
  /// sequence at a time, and not as whole sequences: `fill` is not for it.
  bool takesParts() const { return partEntry; }
  /// Takes in the next part of a prompt of which the sequence has the
  /// beginning.
  Status fillPart(int64_t sequence, const std::vector<int32_t> &prompt);
  /// Makes a sequence the first `count` tokens of another, or of its own:
  /// a multiple of `prefixStep`.
  Status copyPrefix(int64_t from, int64_t to, int64_t count);
  int64_t prefixStep() const;

  /// Whose pages are whose; without pages, sequences have rows of their own.
  PagePool &pagePool() { return pool; }
  const PagePool &pagePool() const { return pool; }

  /// Whether as many tokens are prefilled in less time than they are appended.
  /// All are that are consistent.
  bool isWorthPrefill(int64_t tokens) const;
  /// Whether the logits of a sequence are, and an error that says no.
  bool isFinite(int64_t sequence) const { return finite[size_t(sequence)]; }
  Error notFinite(int64_t sequence) const;
  /// Whether all logits were, since the sequence was cleared.
  bool isClean(int64_t sequence) const { return !unclean[size_t(sequence)]; }

  /// Steps for which the program may choose tokens itself; 0 if it does not.
  int64_t stepsAhead() const;
  /// For `appendChosen`: how tokens of each sequence are chosen, which never
  /// are, and the one that ends a sequence, or -1.
  Status setChoice(const std::vector<SamplingOptions> &options,
                   const std::vector<int32_t> &excluded, int64_t end);
  /// Appends a token to each sequence, as `append` does, and `steps` - 1 times
  /// the next one, which the program chooses, with a temperature by
  /// `uniforms` [sequences, steps]. `chosen` has the token after each step,
  /// fewer where a sequence ended, and -1 last where logits are not finite.
  /// The last of a sequence's tokens is not appended. There are no logits
  /// afterwards.
  Status appendChosen(const std::vector<int32_t> &ids, int64_t steps,
                      const std::vector<double> &uniforms,
                      std::vector<std::vector<int32_t>> &chosen);

  /// The logits of the token after the last one of a sequence, as f32. Valid
  /// until the next token of any sequence.
  const float *logits(int64_t sequence) const {
    return lastLogits[size_t(sequence)];
  }
  /// Tokens of a sequence.
  int64_t length(int64_t sequence) const { return lengths[size_t(sequence)]; }

  /// What layers selected for the tokens of a sequence.
  /// Without layers where the program does not return them (nsa-compile
  /// --selection).
  Selection selection(int64_t sequence) const;

private:
  explicit Generator(Program &program) : model(&program) {}
  Status bind();
  Status bindNext();
  /// Runs an entry, and keeps the logits of sequences without a position.
  Status run(const EntryInfo &entry);
  /// Takes in the part that a sequence ends with, of its tokens `tails`.
  Status runPart(int64_t sequence);
  void takeLogits(int64_t row);
  void checkLogits(int64_t row);
  void keepLogits(int64_t row, const TensorView &view, int64_t source);
  /// An error for the first sequence that has just grown and is not finite.
  Status checkFinite() const;
  void takeSelection(int64_t row, const std::vector<TensorView> &layers,
                     int64_t source, int64_t count);
  Status bindParts();
  Status bindPages();
  Status givePages(int64_t sequences);
  Status clean(int64_t sequence);
  Status placeTokens(const std::vector<int32_t> &ids, const TensorView &token,
                     const TensorView &positions);
  std::vector<int32_t> takeChosen(int64_t row, int64_t steps);

  Program *model;
  const EntryInfo *prefillEntry = nullptr, *decodeEntry = nullptr,
                  *nextEntry = nullptr;
  TensorView promptTokens, token, positions, nextLogits;
  const EntryInfo *partEntry = nullptr, *copyEntry = nullptr;
  struct {
    TensorView at, from, last, logits, position;
  } part;
  /// Caches with rows of each sequence, and those with pages.
  std::vector<TensorView> rowCaches, pageCaches;
  PagePool pool;
  /// What the entry `next` goes on with.
  struct {
    TensorView token, positions, ids, end, bias, uniforms, inverse, topK, topP;
  } next;
  bool draws = false, isConsistent = false;
  int64_t rows = 0, limit = 0, tokens = 0, promptLength = 0;
  /// Of each sequence, where the entries leave them or in `keptLogits`.
  std::vector<const float *> lastLogits;
  std::vector<float> keptLogits;
  std::vector<int64_t> lengths;
  std::vector<std::vector<int32_t>> tails;
  std::vector<bool> finite;
  /// Whether some logits of a sequence were not, since its caches were cleaned.
  std::vector<bool> unclean;
  /// Selected blocks of each layer, and of each sequence and layer those so
  /// far, [tokens, heads, count].
  std::vector<TensorView> promptSelection, stepSelection;
  std::vector<std::vector<std::vector<int32_t>>> selected;
};

} // namespace nsa

#endif // NSA_RUNTIME_GENERATE_GENERATOR_H
