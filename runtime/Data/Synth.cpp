//===- Synth.cpp - sources of known entropy -------------------------------===//

#include "runtime/Data/Synth.h"
#include "lib/Support/Philox.h"
#include "lib/Support/Text.h"
#include "runtime/Data/DataFolder.h"
#include "runtime/Data/SplitFiles.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nsa {

// Streams of the seed's Philox generator.
static constexpr uint64_t tableStream = uint64_t(3) << 56;
static constexpr uint64_t sampleStream = uint64_t(4) << 56;
static constexpr uint64_t recallStream = uint64_t(5) << 56;

//===----------------------------------------------------------------------===//
// Markov chains
//===----------------------------------------------------------------------===//

Result<MarkovChain> MarkovChain::create(int64_t order, int64_t vocab,
                                        double sharpness, uint64_t seed) {
  constexpr double maxCells = 1 << 24;
  if (order < 1 || vocab < 2 || vocab > 65536 ||
      std::pow(double(vocab), double(order + 1)) > maxCells)
    return Error{"a Markov chain of order " + std::to_string(order) + " over " +
                 std::to_string(vocab) +
                 " tokens is not possible: the order must be at least 1, the "
                 "vocabulary at least 2, and vocab^(order + 1) at most " +
                 std::to_string(1 << 24)};
  // Beyond this, probabilities underflow and entropies with them.
  constexpr double maxSharpness = 20;
  if (!(sharpness >= 0 && sharpness <= maxSharpness))
    return Error{"the sharpness must be in 0.." + shortest(maxSharpness) +
                 ", not " + shortest(sharpness)};
  MarkovChain chain;
  chain.order = uint64_t(order);
  chain.vocab = uint64_t(vocab);
  chain.seed = seed;
  chain.contexts = 1;
  for (int64_t i = 0; i < order; ++i)
    chain.contexts *= chain.vocab;
  chain.table.resize(chain.contexts * chain.vocab);
  chain.cumulative.resize(chain.table.size());
  PhiloxStream random(seed, tableStream);
  for (uint64_t c = 0; c < chain.contexts; ++c) {
    double *row = &chain.table[c * chain.vocab];
    double sum = 0;
    for (uint64_t x = 0; x < chain.vocab; ++x) {
      double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
      double normal = radius * std::cos(2 * M_PI * random.uniform());
      row[x] = std::exp(sharpness * normal);
      sum += row[x];
    }
    double running = 0;
    for (uint64_t x = 0; x < chain.vocab; ++x) {
      row[x] /= sum;
      running += row[x];
      chain.cumulative[c * chain.vocab + x] = running;
    }
  }
  return chain;
}

std::vector<double> MarkovChain::entropies() const {
  std::vector<double> now(contexts, 1.0 / double(contexts)), next(contexts);
  double change = 1;
  for (int iteration = 0; iteration < 10000 && change > 1e-12; ++iteration) {
    std::fill(next.begin(), next.end(), 0.0);
    for (uint64_t c = 0; c < contexts; ++c)
      for (uint64_t x = 0; x < vocab; ++x)
        next[(c * vocab + x) % contexts] += now[c] * table[c * vocab + x];
    change = 0;
    for (uint64_t c = 0; c < contexts; ++c)
      change += std::fabs(next[c] - now[c]);
    now.swap(next);
  }
  std::vector<double> entropies;
  for (uint64_t known = vocab; known <= contexts; known *= vocab) {
    // The joint distribution of the last known tokens and the next one.
    std::vector<double> joint(known * vocab), context(known);
    for (uint64_t c = 0; c < contexts; ++c) {
      context[c % known] += now[c];
      for (uint64_t x = 0; x < vocab; ++x)
        joint[c % known * vocab + x] += now[c] * table[c * vocab + x];
    }
    double nats = 0;
    for (uint64_t i = 0; i < joint.size(); ++i)
      if (joint[i] > 0)
        nats -= joint[i] * std::log(joint[i] / context[i / vocab]);
    entropies.push_back(nats);
  }
  return entropies;
}

std::vector<uint16_t> MarkovChain::sample(uint64_t count,
                                          uint64_t stream) const {
  constexpr uint64_t burnIn = 1000;
  PhiloxStream random(seed, sampleStream | stream);
  uint64_t context = random.below(contexts);
  std::vector<uint16_t> tokens(count);
  for (uint64_t i = 0; i < burnIn + count; ++i) {
    const double *row = &cumulative[context * vocab];
    double target = random.uniform() * row[vocab - 1];
    uint64_t x = uint64_t(std::upper_bound(row, row + vocab, target) - row);
    x = std::min(x, vocab - 1);
    if (i >= burnIn)
      tokens[i - burnIn] = uint16_t(x);
    context = (context * vocab + x) % contexts;
  }
  return tokens;
}

double MarkovChain::loss(const std::vector<uint16_t> &tokens) const {
  uint64_t context = 0;
  double sum = 0;
  for (uint64_t i = 0; i < tokens.size(); ++i) {
    if (i >= order)
      sum -= std::log(table[context * vocab + tokens[i]]);
    context = (context * vocab + tokens[i]) % contexts;
  }
  return tokens.size() > order ? sum / double(tokens.size() - order) : 0.0;
}

//===----------------------------------------------------------------------===//
// Associative recall
//===----------------------------------------------------------------------===//

Status RecallTask::validate() const {
  if (vocab < 4 || vocab > 65536)
    return Error{"recall needs a vocabulary of 4 to 65536 tokens, not " +
                 std::to_string(vocab)};
  if (pairs < 1 || pairs > alphabet())
    return Error{"recall shows 1 to " + std::to_string(alphabet()) +
                 " pairs with a vocabulary of " + std::to_string(vocab) +
                 ", not " + std::to_string(pairs)};
  if (queries < 1 || queries > pairs)
    return Error{"recall asks for 1 to " + std::to_string(pairs) +
                 " of its pairs, not " + std::to_string(queries)};
  if (distance < 0 || distance > (1 << 24))
    return Error{"the recall distance must be in 0.." +
                 std::to_string(1 << 24) + ", not " + std::to_string(distance)};
  return {};
}

double RecallTask::lossWithRecall() const {
  double nats = double(pairs) * std::log(double(alphabet()));
  for (int64_t i = 0; i < pairs; ++i)
    nats += std::log(double(alphabet() - i));
  for (int64_t i = 0; i < queries; ++i)
    nats += std::log(double(pairs - i));
  return nats / double(documentTokens());
}

double RecallTask::lossBehindFirst() const {
  // The first token is any of the keys.
  double nats = lossWithRecall() * double(documentTokens());
  return (nats - std::log(double(alphabet()))) / double(documentTokens() - 1);
}

double RecallTask::lossWithoutRecall() const {
  return lossWithRecall() + double(queries) * std::log(double(alphabet())) /
                                double(documentTokens());
}

/// Moves `count` random elements of `items` to its front, in random order.
static void drawFront(std::vector<uint16_t> &items, size_t count,
                      PhiloxStream &random) {
  for (size_t i = 0; i < count; ++i)
    std::swap(items[i], items[i + random.below(items.size() - i)]);
}

std::vector<uint16_t> RecallTask::document(uint64_t seed,
                                           uint64_t index) const {
  PhiloxStream random(seed, recallStream | index);
  const uint64_t size = uint64_t(alphabet());
  std::vector<uint16_t> keys(size);
  std::iota(keys.begin(), keys.end(), uint16_t(1));
  drawFront(keys, size_t(pairs), random);
  std::vector<uint16_t> values(static_cast<size_t>(pairs));
  for (uint16_t &value : values)
    value = uint16_t(1 + size + random.below(size));
  std::vector<uint16_t> order(static_cast<size_t>(pairs));
  std::iota(order.begin(), order.end(), uint16_t(0));
  drawFront(order, size_t(queries), random);

  std::vector<uint16_t> tokens;
  tokens.reserve(size_t(documentTokens()));
  for (size_t i = 0; i < values.size(); ++i) {
    tokens.push_back(keys[i]);
    tokens.push_back(values[i]);
  }
  tokens.insert(tokens.end(), size_t(distance), uint16_t(1 + 2 * size));
  for (size_t i = 0; i < size_t(queries); ++i) {
    tokens.push_back(keys[order[i]]);
    tokens.push_back(values[order[i]]);
  }
  tokens.push_back(0);
  return tokens;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static Result<SplitInfo>
writeTokens(const SynthOptions &options, const std::string &directory,
            const std::string &split, const std::vector<uint16_t> &tokens,
            uint64_t documents, const std::vector<bool> &marks) {
  SplitWriter writer(directory, split, options.shardTokens);
  NSA_RETURN_IF_ERROR(writer.append(tokens.data(), tokens.size()));
  NSA_ASSIGN_OR_RETURN(std::vector<ShardInfo> shards, writer.finish());
  SplitInfo info{tokens.size(), documents, std::move(shards)};
  if (marks.empty())
    return info;
  NSA_ASSIGN_OR_RETURN(info.marks, writeTargetMarks(directory, split, marks));
  return info;
}

/// The two splits of a source and the documents in each.
struct SynthTokens {
  std::vector<uint16_t> train, val;
  /// Empty where none are marked.
  std::vector<bool> trainMarks, valMarks;
  uint64_t trainDocuments = 1, valDocuments = 1;
};

static Result<SynthTokens> drawMarkov(const SynthOptions &options,
                                      uint64_t valTokens, Manifest &manifest) {
  NSA_ASSIGN_OR_RETURN(MarkovChain chain,
                       MarkovChain::create(options.order, options.vocab,
                                           options.sharpness, options.seed));
  if (valTokens <= uint64_t(options.order))
    return Error{
        "a validation split of " + std::to_string(valTokens) +
        " tokens is too short for a chain of order " +
        std::to_string(options.order) + ": " + std::to_string(options.tokens) +
        " tokens at a validation fraction of " + shortest(options.valFraction)};
  SynthTokens tokens;
  tokens.train = chain.sample(options.tokens - valTokens, 0);
  tokens.val = chain.sample(valTokens, 1);
  manifest.options.insert(manifest.options.end(),
                          {{"order", std::to_string(options.order)},
                           {"sharpness", shortest(options.sharpness)}});
  std::vector<double> entropies = chain.entropies();
  manifest.facts = {{"entropy", entropies.back()},
                    {"source_val_loss", chain.loss(tokens.val)}};
  for (size_t known = 1; known < entropies.size(); ++known)
    manifest.facts.emplace_back(entropyAfter + std::to_string(known),
                                entropies[known - 1]);
  return tokens;
}

static Result<SynthTokens> drawRecall(const SynthOptions &options,
                                      uint64_t valTokens, Manifest &manifest) {
  RecallTask task{options.vocab, options.pairs, options.distance,
                  options.queries};
  NSA_RETURN_IF_ERROR(task.validate());
  SynthTokens tokens;
  uint64_t length = uint64_t(task.documentTokens());
  tokens.valDocuments = valTokens / length;
  tokens.trainDocuments = (options.tokens - valTokens) / length;
  for (uint64_t i = 0; i < tokens.trainDocuments + tokens.valDocuments; ++i) {
    std::vector<uint16_t> document = task.document(options.seed, i);
    bool isTrain = i < tokens.trainDocuments;
    std::vector<uint16_t> &split = isTrain ? tokens.train : tokens.val;
    split.insert(split.end(), document.begin(), document.end());
    std::vector<bool> &marks = isTrain ? tokens.trainMarks : tokens.valMarks;
    for (int64_t at = 0; at < task.documentTokens(); ++at)
      marks.push_back(task.isAnswer(at));
  }
  manifest.endOfText = 0;
  manifest.options.insert(manifest.options.end(),
                          {{"pairs", std::to_string(options.pairs)},
                           {"distance", std::to_string(options.distance)},
                           {"queries", std::to_string(options.queries)}});
  manifest.facts = {
      {"entropy", task.lossWithRecall()},
      {"entropy_without_recall", task.lossWithoutRecall()},
      {"entropy_isolated", task.lossBehindFirst()},
      {"entropy_marked", 0},
      {"entropy_marked_without_recall", std::log(double(task.alphabet()))}};
  manifest.counts = {{documentTokensKey, length}};
  return tokens;
}

Result<Manifest> synthesize(const SynthOptions &options) {
  if (!(options.valFraction > 0 && options.valFraction < 1))
    return Error{"the validation fraction must be in (0, 1), not " +
                 shortest(options.valFraction)};
  if (options.shardTokens < 1 || options.shardTokens > maxShardTokens)
    return Error{"a shard holds 1 to " + std::to_string(maxShardTokens) +
                 " tokens, not " + std::to_string(options.shardTokens)};
  Manifest manifest;
  manifest.tool = options.tool;
  manifest.kind = options.kind;
  manifest.vocabSize = options.vocab;
  manifest.options = {{"kind", options.kind},
                      {"vocab", std::to_string(options.vocab)},
                      {"tokens", std::to_string(options.tokens)},
                      {"val_fraction", shortest(options.valFraction)},
                      {"seed", std::to_string(options.seed)},
                      {"shard_tokens", std::to_string(options.shardTokens)}};
  uint64_t valTokens = uint64_t(double(options.tokens) * options.valFraction);
  NSA_ASSIGN_OR_RETURN(SynthTokens tokens,
                       options.kind == "markov"
                           ? drawMarkov(options, valTokens, manifest)
                           : drawRecall(options, valTokens, manifest));
  if (tokens.train.empty() || tokens.val.empty())
    return Error{
        std::to_string(options.tokens) +
        " tokens are too few for two splits: the validation fraction " +
        shortest(options.valFraction) + " leaves " + std::to_string(valTokens) +
        " tokens for it"};
  NSA_ASSIGN_OR_RETURN(DataFolder folder,
                       DataFolder::open(options.output, options.overwrite));
  NSA_ASSIGN_OR_RETURN(manifest.train,
                       writeTokens(options, folder.staging(), "train",
                                   tokens.train, tokens.trainDocuments,
                                   tokens.trainMarks));
  NSA_ASSIGN_OR_RETURN(manifest.val,
                       writeTokens(options, folder.staging(), "val", tokens.val,
                                   tokens.valDocuments, tokens.valMarks));
  NSA_RETURN_IF_ERROR(folder.publish(manifest));
  return manifest;
}

} // namespace nsa
