//===- Ngram.cpp - the baseline a language model must beat ----------------===//

#include "runtime/Data/Ngram.h"

#include <algorithm>
#include <cmath>

namespace nsa {

static constexpr uint64_t chunkTokens = 1 << 20;

Ngram::Ngram(int64_t vocab)
    : vocab(uint64_t(vocab)), unigrams(this->vocab),
      bigrams(this->vocab * this->vocab),
      trigrams(this->vocab * this->vocab * this->vocab), context1(this->vocab),
      context2(this->vocab * this->vocab), types1(this->vocab),
      types2(this->vocab * this->vocab) {}

Result<Ngram> Ngram::fit(const TokenStream &stream, uint64_t maxTokens) {
  if (stream.vocabSize() > maxVocab)
    return Error{"the n-gram baseline takes a vocabulary of at most " +
                 std::to_string(maxVocab) + " tokens, the data has " +
                 std::to_string(stream.vocabSize())};
  if (stream.size() == 0)
    return Error{"the training split is empty, no n-gram model can be fitted"};
  Ngram model(stream.vocabSize());
  model.total = maxTokens ? std::min(maxTokens, stream.size()) : stream.size();
  const uint64_t v = model.vocab;
  std::vector<int32_t> chunk(std::min(chunkTokens, model.total));
  uint64_t a = 0, b = 0;
  for (uint64_t done = 0; done < model.total;) {
    uint64_t count = std::min(chunkTokens, model.total - done);
    NSA_RETURN_IF_ERROR(stream.read(done, count, chunk.data()));
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t x = uint64_t(chunk[i]);
      ++model.unigrams[x];
      if (done + i >= 1)
        ++model.bigrams[b * v + x];
      uint32_t *cell = &model.trigrams[(a * v + b) * v + x];
      // A count that saturates is far beyond what changes a probability.
      if (done + i >= 2 && *cell != UINT32_MAX)
        ++*cell;
      a = b;
      b = x;
    }
    done += count;
  }
  model.countTypes();
  return model;
}

void Ngram::countTypes() {
  for (uint64_t x = 0; x < vocab; ++x)
    types0 += unigrams[x] != 0;
  for (uint64_t cell = 0; cell < bigrams.size(); ++cell) {
    context1[cell / vocab] += bigrams[cell];
    types1[cell / vocab] += bigrams[cell] != 0;
  }
  for (uint64_t cell = 0; cell < trigrams.size(); ++cell) {
    context2[cell / vocab] += trigrams[cell];
    types2[cell / vocab] += trigrams[cell] != 0;
  }
}

double Ngram::order0(int32_t x) const {
  double types = double(types0);
  return (double(unigrams[size_t(x)]) + types / double(vocab)) /
         (double(total) + types);
}

double Ngram::order1(int32_t b, int32_t x) const {
  double types = types1[size_t(b)];
  if (types == 0)
    return order0(x);
  return (double(bigrams[uint64_t(b) * vocab + uint64_t(x)]) +
          types * order0(x)) /
         (double(context1[size_t(b)]) + types);
}

double Ngram::order2(int32_t a, int32_t b, int32_t x) const {
  uint64_t context = uint64_t(a) * vocab + uint64_t(b);
  double types = types2[context];
  double lower = order1(b, x);
  if (types == 0)
    return lower;
  return (double(trigrams[context * vocab + uint64_t(x)]) + types * lower) /
         (double(context2[context]) + types);
}

Result<NgramLoss> Ngram::evaluate(
    const TokenStream &stream,
    const std::vector<std::pair<uint64_t, uint64_t>> &ranges) const {
  if (stream.vocabSize() > int64_t(vocab))
    return Error{"the n-gram model knows " + std::to_string(vocab) +
                 " tokens, the data has " + std::to_string(stream.vocabSize())};
  NgramLoss loss;
  std::vector<int32_t> chunk(chunkTokens + 2);
  for (auto [first, count] : ranges) {
    assert(first + count < stream.size() && "range outside the stream");
    while (count > 0) {
      uint64_t step = std::min(chunkTokens, count);
      // chunk[0..1] are the two tokens before the first prediction.
      uint64_t history = first >= 1 ? 2 : 1;
      int32_t *tokens = chunk.data() + (2 - history);
      NSA_RETURN_IF_ERROR(
          stream.read(first + 1 - history, step + history, tokens));
      for (uint64_t i = 2; i < step + 2; ++i) {
        double p1 = order1(chunk[i - 1], chunk[i]);
        bool alone = history == 1 && i == 2;
        double p2 = alone ? p1 : order2(chunk[i - 2], chunk[i - 1], chunk[i]);
        loss.order1 -= std::log(p1);
        loss.order2 -= std::log(p2);
      }
      loss.tokens += step;
      first += step;
      count -= step;
    }
  }
  if (loss.tokens == 0)
    return Error{"no validation tokens to evaluate the n-gram model on"};
  loss.order1 /= double(loss.tokens);
  loss.order2 /= double(loss.tokens);
  return loss;
}

Result<NgramLoss> Ngram::evaluate(const TokenStream &stream) const {
  if (stream.size() < 2)
    return Error{"no validation tokens to evaluate the n-gram model on"};
  return evaluate(stream, {{0, stream.size() - 1}});
}

} // namespace nsa
