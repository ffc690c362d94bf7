//===- BigramModel.h - a trainable program without a compiler ---*- C++ -*-===//
//
// A bigram language model with the entries that the trainer drives, computed
// on the host: logits[b,s,:] = w[tokens[b,s],:]. Its memory is its own, as a
// GPU's is: tensors reach the host and leave it where they must.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_TRAIN_BIGRAMMODEL_H
#define NSA_TEST_UNIT_TRAIN_BIGRAMMODEL_H

#include "runtime/Train/Model.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <thread>

namespace nsa {

class BigramModel final : public Model {
public:
  BigramModel(uint64_t batch, uint64_t length, uint64_t vocab, uint64_t id = 1)
      : batch(batch), length(length), vocab(vocab), id(id) {
    tokens = addInts("tokens", {batch, length});
    targets = addInts("targets", {batch, length});
    hyper = add("hyper", {8}, TensorRole::Input);
    w = add("w", {vocab, vocab}, TensorRole::Parameter);
    m = add("m.w", {vocab, vocab}, TensorRole::State);
    views.back().state = "m";
    v = add("v.w", {vocab, vocab}, TensorRole::State);
    views.back().state = "v";
    grad = add("grad.w", {vocab, vocab}, TensorRole::Gradient);
    lossSum = add("loss_sum", {}, TensorRole::State);
    fractionSum = add("target_fraction_sum", {}, TensorRole::State);
    loss = add("loss", {}, TensorRole::Output);
    gradNorm = add("grad_norm", {}, TensorRole::Output);
    lossSumOut = add("loss_sum_out", {}, TensorRole::Output);
    fractionSumOut = add("target_fraction_sum_out", {}, TensorRole::Output);
    logits = add("logits", {batch, length, vocab}, TensorRole::Output);
  }

  /// Adds the outputs of eval that a model with gates has: four means of gates
  /// and three of selected blocks.
  void addAttention(std::vector<float> gates, std::vector<float> selected) {
    attention = {std::move(gates), std::move(selected)};
    attentionOutputs = {
        add("layers.0.attention.gate.statistics", {4}, TensorRole::Output),
        add("layers.0.attention.selected.statistics", {3}, TensorRole::Output)};
  }

  /// Makes it a model whose documents do not see each other, which those of a
  /// bigram do not anyway: some targets are ignored.
  void addStarts() { addInts("start", {batch, length}); }

  /// Makes it a model whose gradients are scaled, as in fp16. Here the scale is
  /// a number that only overflows change.
  void addLossScale(float first) {
    firstScale = first;
    scale = add("loss_scale", {}, TensorRole::State);
    scaleOut = add("loss_scale_out", {}, TensorRole::Output);
    skippedOut = add("skipped_updates_out", {}, TensorRole::Output);
  }

  /// Makes it a program that continues samples of so many tokens by `decode`.
  void addDecode(int64_t most) {
    context = most;
    token = addInts("token", {1, 1});
    positions = addInts("positions", {1});
    nextLogits = add("next_logits", {1, 1, vocab}, TensorRole::Output);
    add("cache.0", {4}, TensorRole::State);
  }
  int64_t sampleContext() const override { return context; }

  /// Whether some entry generates.
  bool hasSamples = true;
  /// Of the configuration that the program carries.
  int64_t knownVocab = 0;
  int64_t vocabSize() const override { return knownVocab; }

  /// Adds a gradient that the command of this number writes first. Nothing else
  /// uses it.
  float *addGradient(const std::string &name, size_t writer) {
    writers[name] = writer;
    return add(name, {4}, TensorRole::Gradient);
  }
  size_t firstWriter(std::string_view,
                     const TensorView &tensor) const override {
    auto found = writers.find(tensor.name);
    return found == writers.end() ? 0 : found->second;
  }

  /// This call of accumulate stops as --check-finite does.
  int64_t stopAt = -1;
  bool foundNonFinite() const override { return stopAt == accumulated; }

  /// Floating-point operations by entry; others have none.
  std::map<std::string, uint64_t> operations;
  uint64_t flops(std::string_view entry) const override {
    auto found = operations.find(std::string(entry));
    return found == operations.end() ? 0 : found->second;
  }

  /// What happens before calls of accumulate (from 0).
  std::map<int64_t, std::function<void()>> before;
  /// Changes an element of a tensor, such as a moment.
  void set(std::string_view name, uint64_t index, float value) {
    device.at(std::string(name))[index] = value;
  }
  /// The host sees every step in its copies of parameters and states, as it
  /// does on the CPU; else only what toHost brings.
  bool isLive = false;
  bool hostIsCopy() const override { return !isLive; }

  /// Ranks that each keep moments of their own.
  int sharing = 0;
  int sharingRanks() const override { return sharing; }

  /// The calls of accumulate (from 0) that take this long, in seconds.
  std::map<int64_t, double> slow;
  /// Seconds that a parameter takes to the host, as in a slow save.
  double slowToHost = 0;
  /// Seconds that pass after the last reduction of every step.
  double slowFinish = 0;
  /// Every gradient is 0.
  bool zeroGradients = false;
  /// From this call of accumulate on, and before the other, one gradient
  /// element is NaN.
  int64_t poisonAt = -1;
  int64_t poisonEnd = std::numeric_limits<int64_t>::max();
  /// In this call of accumulate the process is killed.
  int64_t dieAt = -1;
  /// Hears of every call of accumulate (from 0).
  std::function<void(int64_t)> onAccumulate;
  /// What averages gradients and losses before an update; null for one rank.
  Communicator *communicator = nullptr;
  /// Entries run so far, by name.
  std::vector<std::string> calls;

  Status run(std::string_view entry) override {
    if (Status status = start(entry); !status)
      return status;
    return finish(entry);
  }

  Status start(std::string_view entry) override {
    calls.emplace_back(entry);
    if (foundNonFinite() && (entry == "accumulate" || entry == "step"))
      return Error{"command 7 wrote nan"};
    copyRole(TensorRole::Input, /*isUpload=*/true);
    if (entry == "init")
      init();
    else if (entry == "accumulate")
      accumulate();
    else if (entry == "update")
      return update();
    else if (entry == "step")
      return accumulate(), update();
    else if (entry == "eval")
      evaluate();
    else if (entry == "forward" && !nextLogits)
      forward();
    else if (entry == "decode" && nextLogits && *positions < context)
      std::memcpy(nextLogits, w + uint64_t(*token) * vocab,
                  vocab * sizeof(float));
    else
      return Error{"no entry '" + std::string(entry) + "'"};
    return {};
  }

  Status finish(std::string_view entry) override {
    if (entry == "step")
      std::this_thread::sleep_for(std::chrono::duration<double>(slowFinish));
    copyRole(TensorRole::Output, /*isUpload=*/false);
    if (isLive)
      for (TensorRole role : {TensorRole::Parameter, TensorRole::State})
        copyRole(role, /*isUpload=*/false);
    return {};
  }

  Status toDevice(const TensorView &tensor) const override {
    std::memcpy(device.at(tensor.name), tensor.data, tensor.bytes);
    return {};
  }
  Status toHost(const TensorView &tensor) const override {
    if (tensor.role == TensorRole::Parameter)
      std::this_thread::sleep_for(std::chrono::duration<double>(slowToHost));
    std::memcpy(tensor.data, device.at(tensor.name), tensor.bytes);
    return {};
  }

  bool hasEntry(std::string_view entry) const override {
    return entry == "init" || entry == "accumulate" || entry == "update" ||
           entry == "step" || entry == "eval" ||
           (hasSamples && entry == (nextLogits ? "decode" : "forward"));
  }
  const std::vector<TensorView> &tensors() const override { return views; }
  const TensorView *input(std::string_view,
                          std::string_view name) const override {
    return find(name);
  }
  const TensorView *output(std::string_view,
                           std::string_view name) const override {
    return find(name);
  }
  uint64_t hash() const override { return id; }

  const TensorView *find(std::string_view name) const {
    for (const TensorView &view : views)
      if (view.name == name)
        return &view;
    return nullptr;
  }

  std::vector<float> weights() const { return {w, w + vocab * vocab}; }

private:
  float *add(const std::string &name, std::vector<uint64_t> shape,
             TensorRole role) {
    uint64_t elements = 1;
    for (uint64_t extent : shape)
      elements *= extent;
    storage.emplace_back(elements, 0.0f);
    float *data = storage.back().data();
    views.push_back(
        {name, DataType::F32, shape, data, elements * 4, role, false});
    storage.emplace_back(elements, 0.0f);
    return device[name] = storage.back().data();
  }
  void copyRole(TensorRole role, bool isUpload) {
    for (const TensorView &view : views)
      if (view.role == role)
        (void)(isUpload ? toDevice(view) : toHost(view));
  }
  int32_t *addInts(const std::string &name, std::vector<uint64_t> shape) {
    float *data = add(name, shape, TensorRole::Input);
    views.back().type = DataType::I32;
    return reinterpret_cast<int32_t *>(data);
  }

  void init() {
    for (uint64_t i = 0; i < vocab * vocab; ++i) {
      w[i] = 0.01f * float(int(i * 7919 % 13) - 6);
      m[i] = v[i] = grad[i] = 0;
    }
    *lossSum = *fractionSum = 0;
    if (scale)
      *scale = firstScale;
  }

  /// The number of targets that are not ignored.
  double countTargets() const {
    return double(std::count_if(targets, targets + batch * length,
                                [](int32_t target) { return target >= 0; }));
  }

  /// The sum of losses divided by `count`; adds its gradient to `into` if
  /// given.
  float sumLosses(double count, float *into) {
    double sum = 0;
    for (uint64_t i = 0; i < batch * length; ++i) {
      if (targets[i] < 0)
        continue;
      const float *row = w + uint64_t(tokens[i]) * vocab;
      double total = 0;
      for (uint64_t x = 0; x < vocab; ++x)
        total += std::exp(double(row[x]));
      sum += std::log(total) - row[targets[i]];
      if (!into)
        continue;
      float *g = into + uint64_t(tokens[i]) * vocab;
      for (uint64_t x = 0; x < vocab; ++x)
        g[x] += float(std::exp(double(row[x])) / total / count);
      g[targets[i]] -= float(1.0 / count);
    }
    return float(sum / count);
  }

  void evaluate() {
    *loss = sumLosses(std::max(countTargets(), 1.0), nullptr);
    for (size_t i = 0; i < attentionOutputs.size(); ++i)
      std::copy(attention[i].begin(), attention[i].end(), attentionOutputs[i]);
  }

  void accumulate() {
    if (onAccumulate)
      onAccumulate(accumulated);
    if (accumulated == dieAt)
      std::raise(SIGKILL);
    if (auto found = before.find(accumulated); found != before.end())
      found->second();
    if (auto found = slow.find(accumulated); found != slow.end())
      std::this_thread::sleep_for(std::chrono::duration<double>(found->second));
    double all = double(batch * length);
    *loss = sumLosses(all, grad);
    *lossSum += *loss;
    *fractionSum += float(countTargets() / all);
    if (zeroGradients)
      std::fill(grad, grad + vocab * vocab, 0.0f);
    if (accumulated >= poisonAt && poisonAt >= 0 && accumulated < poisonEnd)
      grad[5] = std::numeric_limits<float>::quiet_NaN();
    ++accumulated;
  }

  Status average(float *data, uint64_t count) {
    return communicator ? communicator->wait(communicator->startAverage(
                              data, int64_t(count), DataType::F32))
                        : Status();
  }

  Status update() {
    if (Status status = average(grad, vocab * vocab); !status)
      return status;
    for (float *sum : {lossSum, fractionSum})
      if (Status status = average(sum, 1); !status)
        return status;
    double squares = 0;
    for (uint64_t i = 0; i < vocab * vocab; ++i)
      squares += double(grad[i]) * double(grad[i]);
    *gradNorm = float(std::sqrt(squares));
    *lossSumOut = *lossSum;
    *fractionSumOut = *fractionSum;
    bool finite = std::isfinite(*gradNorm) && std::isfinite(*lossSum);
    if (finite && *fractionSum > 0)
      adam(hyper[6] / *fractionSum);
    if (scale) {
      *scale *= finite ? 1.0f : 0.5f;
      *skippedOut += finite ? 0.0f : 1.0f;
      *scaleOut = *scale;
    }
    std::fill(grad, grad + vocab * vocab, 0.0f);
    *lossSum = *fractionSum = 0;
    return {};
  }

  void adam(float gradScale) {
    float norm = *gradNorm * gradScale;
    float clip = hyper[5] > 0 && norm > hyper[5] ? hyper[5] / norm : 1.0f;
    float c1 = 1 - std::pow(hyper[1], hyper[7]);
    float c2 = 1 - std::pow(hyper[2], hyper[7]);
    for (uint64_t i = 0; i < vocab * vocab; ++i) {
      float g = grad[i] * gradScale * clip;
      w[i] -= hyper[0] * hyper[4] * w[i];
      m[i] = hyper[1] * m[i] + (1 - hyper[1]) * g;
      v[i] = hyper[2] * v[i] + (1 - hyper[2]) * g * g;
      w[i] -= hyper[0] * (m[i] / c1) / (std::sqrt(v[i] / c2) + hyper[3]);
    }
  }

  void forward() {
    for (uint64_t i = 0; i < batch * length; ++i)
      std::memcpy(logits + i * vocab, w + uint64_t(tokens[i]) * vocab,
                  vocab * sizeof(float));
  }

  uint64_t batch, length, vocab, id;
  int64_t context = 0;
  int32_t *token = nullptr, *positions = nullptr;
  float *nextLogits = nullptr;
  int64_t accumulated = 0;
  float firstScale = 0;
  float *scale = nullptr, *scaleOut = nullptr, *skippedOut = nullptr;
  std::vector<std::vector<float>> attention;
  std::vector<float *> attentionOutputs;
  std::map<std::string, size_t> writers;
  std::list<std::vector<float>> storage;
  /// Where the tensors lie in the model's own memory.
  std::map<std::string, float *> device;
  std::vector<TensorView> views;
  int32_t *tokens, *targets;
  float *hyper, *w, *m, *v, *grad, *lossSum, *fractionSum, *loss, *gradNorm,
      *lossSumOut, *fractionSumOut, *logits;
};

} // namespace nsa

#endif // NSA_TEST_UNIT_TRAIN_BIGRAMMODEL_H
