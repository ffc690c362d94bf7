//===- Scheduler.h - many prompts at once -----------------------*- C++ -*-===//
//
// Requests wait for one of the sequences of a program that generates (a slot)
// and for pages of its caches, if it has them, take part in its steps until
// they end, and leave both to the next. Tokens
// and log-probabilities of a request are the same bits alone and among others.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_SCHEDULER_H
#define NSA_RUNTIME_SCHEDULER_H

#include "nsa/Runtime/Session.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace nsa {

/// From which tokens one is drawn. Restrictions apply in this order.
struct SamplingOptions {
  /// What logits are divided by; 0 takes the most likely token.
  double temperature = 1.0;
  /// The most likely tokens, so many; 0 for all.
  int64_t topK = 0;
  /// Of these, the fewest most likely ones that have this part of the
  /// probability together; 1 for all.
  double topP = 1.0;

  /// Names the option that is out of its range, with the value.
  Status check() const;
};

/// A token and the natural logarithm of its probability.
struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0;
};

/// The blocks that layers selected for the tokens of a sequence, ascending and
/// -1 past the last.
struct Selection {
  int64_t layers = 0, heads = 0, tokens = 0, count = 0;
  /// [layers, heads, tokens, count]
  std::vector<int32_t> blocks;
};

/// A prompt that is to be continued.
struct Request {
  std::vector<int32_t> prompt;
  /// Tokens to generate, at most.
  int64_t tokens = 0;
  SamplingOptions sampling;
  /// Which numbers decide the draws: those of nsa-generate with this --seed for
  /// its prompt of this number, from 0.
  uint64_t seed = 0, stream = 0;
  /// Tokens that end it, and those that are never drawn.
  std::vector<int32_t> ends, excluded;
  /// Tokens that are taken in the place of drawn ones.
  std::vector<int32_t> given;
  /// How many of the most likely tokens are named beside the one that was
  /// drawn; -1: without log-probabilities.
  int64_t logprobs = -1;
};

/// A token of a request. It is the last one unless `finish` is `No`.
struct GeneratedToken {
  enum class Finish {
    No,
    /// Drew a token that ends it.
    End,
    /// Has all of its tokens.
    Length,
    /// Its logits are not finite: there is no token.
    NotFinite
  };
  uint64_t request = 0;
  int32_t token = -1;
  Finish finish = Finish::No;
  /// Of the token, then of the most likely ones, as they were asked for.
  std::vector<TokenLogprob> logprobs;
};

/// Any number of threads may use it.
class Scheduler {
public:
  /// The session, whose weights are loaded, outlives it; nothing else runs its
  /// entries `decode` and `prefill`. With `prefills`, prompts are prefilled as
  /// whole sequences as far as that is worth it, which computes as many
  /// sequences as there are slots; else a prompt goes on one token a step, and
  /// it is an error if slots do not compute the same bits (some BLAS libraries
  /// treat rows differently). With `consistent`, tokens that are generated are
  /// computed by the entry that takes in parts of prompts, and have the bits
  /// that they have in a prompt; it is an error if there is no such entry.
  static Result<std::unique_ptr<Scheduler>>
  create(Session &session, bool prefills, bool consistent = false);
  ~Scheduler();

  /// Sequences at once, and tokens of each at most.
  int64_t slots() const;
  int64_t context() const;
  /// Tokens of a prompt and of what follows that there is room for: fewer than
  /// the context where its pages are fewer.
  int64_t longest() const;

  /// Queues a request; returns its number. An error says what is wrong with
  /// it. Where sequences share pages, it joins once there are pages for all of
  /// its tokens.
  Result<uint64_t> add(Request request);
  /// Ends a request, whose slot is free at the next step. Returns whether it
  /// had not ended yet.
  Result<bool> cancel(uint64_t request);

  /// Lets requests join free slots, appends a token to each that has a slot,
  /// and returns the tokens that were drawn; several of each, in the order of
  /// steps, where all of them have tokens already, need no logits, exclude the
  /// same ids, and none waits. Nothing is left to do if there is
  /// no request. After an error the scheduler is of no more use.
  Result<std::vector<GeneratedToken>> step();

  /// Requests that wait for a slot, and those that have one.
  struct Count {
    size_t waiting = 0, running = 0;
  };
  Result<Count> count();

  /// What layers selected for a request that goes on, or that ended since the
  /// last step began; without layers where the program does not return it
  /// (nsa-compile --selection).
  Result<Selection> selection(uint64_t request);

private:
  class Slots;
  explicit Scheduler(Session &session);

  /// Calls `action` with the slots while no other thread uses the session.
  template <typename T, typename Action>
  Result<T> use(const Action &action);

  Session &session;
  std::unique_ptr<Slots> own;
};

} // namespace nsa

#endif // NSA_RUNTIME_SCHEDULER_H
