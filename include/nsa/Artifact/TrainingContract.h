//===- TrainingContract.h - what a trainable program looks like -*- C++ -*-===//
//
// What the compiler calls the entries and tensors of a trainable program, and
// the trainer looks for. A trainable program has the entries
//
//   init                            gives every persistent tensor its value
//   accumulate(tokens, targets)     adds gradients, loss and the fraction of
//                                   targets that count; output `loss`
//   update(hyper)                   divides the sums by that of the fractions
//                                   and updates the parameters, then all sums
//                                   are 0; outputs `grad_norm`, `loss_sum_out`,
//                                   `target_fraction_sum_out`
//   eval(tokens, targets)           output `loss`
//   forward(tokens)                 output `logits` [B, S, V]
//
// Where ranks keep a part of the weights each (nsa-compile --shard), it also
// has the entry `scatter`, which takes this rank's part of weights that lie on
// the host: after `init`, and after weights were read. Unless weights are
// gathered where they are used (--shard=parameters), the first pass of a step
// is gather_accumulate or gather_step, which gather the whole weights that the
// others read; before eval, forward and samples the entry `gather` does, on all
// ranks, where weights were updated since.
//
// and optionally step(tokens, targets, hyper) = accumulate, then update.
// A program that generates text (nsa-compile --context N) has instead
//
//   init                            as above
//   prepare                         what follows from the parameters alone,
//                                   once they changed; not if that is nothing
//   prefill(tokens, positions)      fills the caches; output `next_logits`
//   decode(token, positions)        the same for one token more
//   next()                          the same for the token next.token [B, 1] at
//                                   next.positions [B], which become a token
//                                   that is chosen and its position
//
// With --prefill-chunk P, prompts are taken in by parts, and prefill is not
// there:
//
//   prefill_part(part_tokens, part_at, part_last)
//                                   P tokens of one sequence from a position
//                                   on; output `part_logits` of the last one
//   copy_prefix(part_from, part_at, part_last)
//                                   the beginning of another sequence
//
// part_tokens is i32 [1, P], part_at and part_from i32 [1, 2]: the sequence,
// from 0, and the position where the part begins; part_last i32 [1] the
// position of its last token, from which copy_prefix copies no more.
// part_logits is [1, 1, V].
//
// With --pages, caches of tokens are pages, cache.pages.I [pages, K, Hkv, D],
// that all sequences share. decode and prefill_part also take pages, i32 [B,
// N]: row i of a sequence is in its page i / K, whose number, from 1, is there,
// or 0 for none. prefill_part takes part_position, i32 [1, 2], too: 0 and the
// position of part_at. copy_prefix copies what has no pages; it is not there if
// all has.
//
// A trainable program that generates samples (nsa-compile --sample-context N)
// has decode, for B = 1, and prepare in place of forward; one that generates
// none (--no-forward) has neither, but says its configuration.
//
// token is i32 [B, 1], positions i32 [B]: in each sequence, the position of the
// last token, from 0 to N - 1, or -1 for a sequence that is left alone.
// next_logits [B, 1, V] are those of that token. Caches are states cache.I,
// what was prepared prepared.I. What next goes on with are states next.*:
// next.ids [B, R] has the tokens of a sequence at their positions modulo R; one
// ends, at position -1, with the token next.end [1], with the context, and with
// logits that are not finite, after which the token is -1. next.bias [V] is
// added to logits. The token is the most likely one if next.inverse [B] is 0;
// of 1 / temperature it is drawn by next.uniforms [B, R, 3] at its position
// modulo R, of those that next.top_k [B] and next.top_p [B, 3] leave (nn.draw).
//
// tokens and targets are i32 [B, S], hyper is f32 [numHyper], losses are f32
// scalars. That of eval is the mean over the targets that are not negative.
// accumulate and step add up micro-batches with different numbers of them:
// their losses and gradients are sums over these targets divided by the number
// of all, B * S, and the fraction is that of the targets that are not negative.
// Where documents do not
// see each other, accumulate, step, eval and forward also take start, i32
// [B, S]: the index in its row of the first token of each token's document.
// Where C ranks share sequences (--context-parallel), tokens and targets of
// accumulate, step and eval are this rank's chunks [2B, S / 2C] (see chunkOf),
// and at, i32 [2B, 2], has the sequence and the first position of each.
// Programs in f16 keep
// the scale of their loss and output it from `update` and `step`.
//
// The roles of tensors are those of Artifact.fbs (TensorRole).
//
//===----------------------------------------------------------------------===//

#ifndef NSA_ARTIFACT_TRAININGCONTRACT_H
#define NSA_ARTIFACT_TRAININGCONTRACT_H

#include <cstddef>
#include <string>
#include <string_view>

namespace nsa::training {

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

inline constexpr const char initEntry[] = "init";
inline constexpr const char accumulateEntry[] = "accumulate";
inline constexpr const char updateEntry[] = "update";
inline constexpr const char stepEntry[] = "step";
inline constexpr const char scatterEntry[] = "scatter";
inline constexpr const char gatherEntry[] = "gather";
inline constexpr std::string_view gatherPrefix = "gather_";
inline constexpr const char evalEntry[] = "eval";
inline constexpr const char forwardEntry[] = "forward";
inline constexpr const char prepareEntry[] = "prepare";
inline constexpr const char prefillEntry[] = "prefill";
inline constexpr const char prefillPartEntry[] = "prefill_part";
inline constexpr const char copyPrefixEntry[] = "copy_prefix";
inline constexpr const char decodeEntry[] = "decode";
inline constexpr const char nextEntry[] = "next";

/// What an entry does besides gathering weights.
inline std::string_view withoutGathers(std::string_view entry) {
  bool gathers = entry.substr(0, gatherPrefix.size()) == gatherPrefix;
  return entry.substr(gathers ? gatherPrefix.size() : 0);
}

/// Whether an entry updates weights, at the end of a step.
inline bool endsStep(std::string_view entry) {
  std::string_view name = withoutGathers(entry);
  return name == updateEntry || name == stepEntry;
}

//===----------------------------------------------------------------------===//
// Inputs and outputs
//===----------------------------------------------------------------------===//

inline constexpr const char tokensInput[] = "tokens";
inline constexpr const char targetsInput[] = "targets";
inline constexpr const char startInput[] = "start";
inline constexpr const char atInput[] = "at";
/// Of windows, `window_at.H` for rows that have the H tokens before a chunk:
/// the number of the row, and H, or 0 for a first chunk.
inline constexpr const char windowAtPrefix[] = "window_at.";
inline constexpr const char hyperInput[] = "hyper";
inline constexpr const char tokenInput[] = "token";
inline constexpr const char positionsInput[] = "positions";
inline constexpr const char partTokensInput[] = "part_tokens";
inline constexpr const char partAtInput[] = "part_at";
inline constexpr const char partFromInput[] = "part_from";
inline constexpr const char partLastInput[] = "part_last";
inline constexpr const char partPositionInput[] = "part_position";
inline constexpr const char partLogitsOutput[] = "part_logits";
inline constexpr const char pagesInput[] = "pages";
inline constexpr const char lossOutput[] = "loss";
inline constexpr const char logitsOutput[] = "logits";
inline constexpr const char nextLogitsOutput[] = "next_logits";
/// The blocks that layers select are `selection.0`, `selection.1`, ..., in
/// `decode` `next_selection.0`, ...: i32 [B, Hkv, tokens, blocks], -1 past the
/// last; of `decode` on a GPU in no order.
inline constexpr const char selectionPrefix[] = "selection.";
inline constexpr const char nextSelectionPrefix[] = "next_selection.";
/// The global norm of the gradient sums, without the scale of the loss; it and
/// the loss sum are means once they are divided by the sum of the fractions.
inline constexpr const char gradNormOutput[] = "grad_norm";
inline constexpr const char lossSumOutput[] = "loss_sum_out";
inline constexpr const char targetFractionSumOutput[] =
    "target_fraction_sum_out";
inline constexpr const char lossScaleOutput[] = "loss_scale_out";
inline constexpr const char skippedUpdatesOutput[] = "skipped_updates_out";

//===----------------------------------------------------------------------===//
// Persistent tensors
//===----------------------------------------------------------------------===//

/// The sum of the losses since the last update.
inline constexpr const char lossSumState[] = "loss_sum";
/// The sum of the fractions of targets that count; between differentiation and
/// the optimizer, accumulate has that of its micro-batch as a result.
inline constexpr const char targetFractionSumState[] = "target_fraction_sum";
inline constexpr const char targetFractionResult[] = "target_fraction";
/// By these f16 gradients are kept in range: the scale of the loss, the finite
/// steps since it last changed, and the steps that were no updates.
inline constexpr const char lossScaleState[] = "loss_scale";
inline constexpr const char lossScaleStreakState[] = "loss_scale_streak";
inline constexpr const char skippedUpdatesState[] = "skipped_updates";

/// Caches of a program that generates text are `cache.0`, `cache.1`, ...
inline constexpr const char cachePrefix[] = "cache.";
/// Those that sequences share by pages are `cache.pages.0` and so on.
inline constexpr const char pageCachePrefix[] = "cache.pages.";
/// What it computes of its parameters once is `prepared.0`, `prepared.1`, ...
inline constexpr const char preparedPrefix[] = "prepared.";

/// What the entry `next` goes on with, of programs that have it.
inline constexpr const char nextTokenState[] = "next.token";
inline constexpr const char nextPositionsState[] = "next.positions";
inline constexpr const char nextIdsState[] = "next.ids";
inline constexpr const char nextEndState[] = "next.end";
inline constexpr const char nextBiasState[] = "next.bias";
inline constexpr const char nextUniformsState[] = "next.uniforms";
inline constexpr const char nextInverseState[] = "next.inverse";
inline constexpr const char nextTopKState[] = "next.top_k";
inline constexpr const char nextTopPState[] = "next.top_p";
/// Fractions are digits of so many bits, the first one highest.
inline constexpr int fractionDigits = 3, fractionDigitBits = 12;

/// Weights that ranks have gathered are `gathered.N.TYPE`.
inline constexpr const char gatheredPrefix[] = "gathered.";

inline bool isGathered(std::string_view name) {
  return name.rfind(gatheredPrefix, 0) == 0;
}

/// Whether a state follows from parameters and tokens, and is no part of what
/// training goes on with: caches, what is prepared, and what is gathered.
inline bool isDerivedState(std::string_view name) {
  return name.rfind(cachePrefix, 0) == 0 ||
         name.rfind(preparedPrefix, 0) == 0 || isGathered(name);
}

/// The option of an artefact that says the context of its samples.
inline constexpr const char sampleContextOption[] = "sample-context";
/// What the name of a constant ends with that is longer for samples than for
/// training.
inline constexpr const char contextSuffix[] = ".context";

/// The optimizer of a program that asks for none.
inline constexpr const char defaultOptimizer[] = "adamw";

/// The sum of the gradients of parameter `w` is `grad.w`, a state `s` that the
/// optimizer keeps for it is `s.w`.
inline constexpr const char gradientPrefix[] = "grad.";
/// Where ranks share the states (nsa-compile --shard), a rank's part
/// of those of all parameters with weight decay is one tensor, and that of the
/// others another: these take the place of a parameter's name.
inline constexpr const char sharedDecayed[] = "decayed";
inline constexpr const char sharedOthers[] = "others";
/// Where ranks share the weights, too, `weight.decayed` is a rank's part of
/// those with weight decay.
inline constexpr const char weightState[] = "weight";

inline std::string gradientName(std::string_view parameter) {
  return gradientPrefix + std::string(parameter);
}

//===----------------------------------------------------------------------===//
// The hyper-parameters of an update
//===----------------------------------------------------------------------===//

/// Elements of `hyper`.
enum HyperSlot : int {
  learningRateSlot,
  beta1Slot,
  beta2Slot,
  epsilonSlot,
  weightDecaySlot,
  /// The largest global gradient norm; 0 switches clipping off.
  maxNormSlot,
  /// What the mean gradients are multiplied with: 1.
  gradScaleSlot,
  /// Of the update, 1-based.
  stepSlot,
  numHyper
};

} // namespace nsa::training

#endif // NSA_ARTIFACT_TRAININGCONTRACT_H
