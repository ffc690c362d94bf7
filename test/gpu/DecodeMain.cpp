//===- DecodeMain.cpp - decoding on a GPU, measured -----------------------===//
//
//   decode-on-gpu time DECODE STEPS CONTEXT...
//       prefills random tokens, and prints the time of a token at each context:
//       on the GPU, the median with its logits on the host and chosen there,
//       and the mean where the GPU chooses it; fails where these are others
//   decode-on-gpu profile DECODE CONTEXT
//       prints the commands of a step that take longest
//
// test/bench/decode.py prepares what these need.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Philox.h"
#include "nsa/Artifact/TrainingContract.h"
#include "nsa/Runtime/Runtime.h"
#include "runtime/Generate/Sampling.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

using namespace nsa;

namespace {

[[noreturn]] void fail(const std::string &message) {
  std::fprintf(stderr, "decode-on-gpu: error: %s\n", message.c_str());
  std::exit(1);
}

template <typename T>
T take(Result<T> result) {
  if (!result)
    fail(result.message());
  return std::move(*result);
}

void run(Program &program, const char *entry) {
  if (Status status = program.run(entry); !status)
    fail(status.message());
}

/// The parameters are the initial ones.
Program open(const char *path, bool profile = false) {
  RuntimeOptions options;
  options.profile = profile;
  if (const char *blas = std::getenv("NSA_BLAS"))
    options.blasLibrary = blas;
  Program program = take(Program::create(take(Artifact::open(path)), options));
  for (const char *entry : {training::initEntry, training::prepareEntry})
    if (program.findEntry(entry))
      run(program, entry);
  return program;
}

TensorView view(const Program &program, const char *name) {
  return take(program.tensor(name));
}

/// Of a tensor in f32.
const float *numbers(const TensorView &tensor) {
  if (tensor.type != DataType::F32)
    fail(tensor.name + " is not f32");
  return tensor.as<float>();
}

void setPositions(Program &program, int64_t position) {
  TensorView positions = view(program, training::positionsInput);
  std::fill_n(positions.as<int32_t>(), positions.elements(), int32_t(position));
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

/// Fills the caches with those of random tokens, as far as they go.
void prefill(Program &program, int times = 1) {
  TensorView tokens = view(program, training::tokensInput);
  size_t vocab = view(program, training::nextLogitsOutput).shape[2];
  std::mt19937 random(5);
  for (size_t i = 0; i < tokens.elements(); ++i)
    tokens.as<int32_t>()[i] = int32_t(random() % vocab);
  for (int i = 0; i < times; ++i) {
    setPositions(program, int64_t(tokens.shape[1]) - 1);
    auto start = std::chrono::steady_clock::now();
    run(program, training::prefillEntry);
    std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - start;
    if (i == 2)
      std::printf("prefill of %zu tokens: %.1f ms\n", tokens.elements(),
                  time.count());
  }
}

/// The ways in which tokens are chosen.
const SamplingOptions kChoices[] = {
    {0}, {0.8}, {0.8, 50}, {0.8, 50, 0.95}, {0.8, 0, 0.95}};

/// The number by which token `position` of a sequence is drawn.
double uniformOf(size_t sequence, int64_t position) {
  return PhiloxStream(7, sequence, uint64_t(position)).uniform();
}

double timeOfToken(Program &program, int64_t context, int64_t steps,
                   const SamplingOptions &options = {0},
                   std::vector<int32_t> *chosen = nullptr) {
  TensorView token = view(program, training::tokenInput),
             next = view(program, training::nextLogitsOutput);
  size_t batch = token.elements(), vocab = next.shape[2];
  std::vector<TokenSampler> samplers(batch, {options, int64_t(vocab)});
  SamplingThreads threads =
      take(SamplingThreads::create(int64_t(batch), int64_t(vocab)));
  std::vector<double> times;
  for (int64_t i = 0; i < steps + 3; ++i) {
    auto start = std::chrono::steady_clock::now();
    int64_t position = context - 1 - steps + i;
    setPositions(program, position);
    run(program, training::decodeEntry);
    threads.forEach(int64_t(batch), [&](int64_t b) {
      token.as<int32_t>()[b] =
          samplers[size_t(b)].choose(numbers(next) + size_t(b) * vocab,
                                     uniformOf(size_t(b), position + 1));
    });
    std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - start;
    if (chosen)
      chosen->insert(chosen->end(), token.as<int32_t>(),
                     token.as<int32_t>() + batch);
    if (i >= 3)
      times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// The same without waiting for logits, of steps one after the other.
double timeOnGPU(Program &program, int64_t context, int64_t steps) {
  const EntryInfo &entry = *program.findEntry(training::decodeEntry);
  auto runSteps = [&] {
    for (int64_t i = 0; i < steps; ++i) {
      setPositions(program, context - steps + i);
      if (Status status = program.start(entry); !status)
        fail(status.message());
    }
    if (Status status = program.finish(entry); !status)
      fail(status.message());
  };
  runSteps();
  auto start = std::chrono::steady_clock::now();
  runSteps();
  std::chrono::duration<double, std::milli> time =
      std::chrono::steady_clock::now() - start;
  return time.count() / double(steps);
}

void toDevice(Program &program, const TensorView &state) {
  if (Status status = program.toDevice(state); !status)
    fail(status.message());
}

/// Lets the entry `next` begin after `first`.
void begin(Program &program, int64_t position, const SamplingOptions &options,
           const std::vector<int32_t> &first) {
  TensorView token = view(program, training::nextTokenState),
             positions = view(program, training::nextPositionsState),
             end = view(program, training::nextEndState),
             inverse = view(program, training::nextInverseState),
             topK = view(program, training::nextTopKState),
             topP = view(program, training::nextTopPState);
  size_t batch = first.size();
  DrawParameters parameters(options);
  std::copy(first.begin(), first.end(), token.as<int32_t>());
  std::fill_n(positions.as<int32_t>(), batch, int32_t(position));
  *end.as<int32_t>() = -1;
  std::fill_n(inverse.as<float>(), batch, parameters.inverse);
  std::fill_n(topK.as<int32_t>(), batch, int32_t(parameters.topK));
  for (size_t b = 0; b < batch; ++b)
    splitFraction(parameters.topP,
                  topP.as<int32_t>() + b * training::fractionDigits);
  for (const TensorView &state : {token, positions, end, inverse, topK, topP})
    toDevice(program, state);
}

/// The same steps as those of `timeOfToken`, after `first`, whose tokens the
/// GPU chooses. 0 if the program does not.
double timeOfChosen(Program &program, int64_t context, int64_t steps,
                    const SamplingOptions &options,
                    const std::vector<int32_t> &first,
                    std::vector<int32_t> &chosen) {
  const EntryInfo *entry = program.findEntry(training::nextEntry);
  if (!entry)
    return 0;
  TensorView ids = view(program, training::nextIdsState),
             uniforms = view(program, training::nextUniformsState);
  size_t batch = first.size(), kept = ids.shape[1];
  int64_t start = context - 1 - steps, all = steps + 3;
  begin(program, start, options, first);
  auto time = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < all;) {
    if (i == 3)
      time = std::chrono::steady_clock::now();
    int64_t stop = i < 3 ? i + 1 : std::min(i + int64_t(kept), all);
    for (size_t b = 0; b < batch; ++b)
      for (int64_t at = start + i + 1; at <= start + stop; ++at)
        splitFraction(toFraction(uniformOf(b, at)),
                      uniforms.as<int32_t>() +
                          training::fractionDigits *
                              (b * kept + size_t(at) % kept));
    toDevice(program, uniforms);
    Status status;
    for (int64_t j = i; j < stop && status.ok(); ++j)
      status = program.start(*entry);
    if (status.ok())
      status = program.finish(*entry);
    if (status.ok())
      status = program.toHost(ids);
    if (!status)
      fail(status.message());
    for (; i < stop; ++i)
      for (size_t b = 0; b < batch; ++b)
        chosen.push_back(
            ids.as<int32_t>()[b * kept + size_t(start + i + 1) % kept]);
  }
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - time)
             .count() /
         double(steps);
}

int64_t toNumber(const char *text) {
  char *end = nullptr;
  int64_t number = std::strtoll(text, &end, 10);
  if (end == text || *end || number <= 0)
    fail("'" + std::string(text) + "' is not a positive number");
  return number;
}

int measure(int count, char **arguments) {
  Program program = open(arguments[0]);
  prefill(program, /*times=*/3);
  int64_t steps = toNumber(arguments[1]);
  size_t batch = view(program, training::tokenInput).elements();
  for (int i = 2; i < count; ++i) {
    int64_t context = toNumber(arguments[i]);
    std::vector<int32_t> first(batch, 1);
    TensorView token = view(program, training::tokenInput);
    std::printf("batch %zu context %lld: %.4f ms a token on the GPU\n", batch,
                static_cast<long long>(context),
                timeOnGPU(program, context, steps));
    for (const SamplingOptions &options : kChoices) {
      // Rings have the same tokens before both.
      prefill(program);
      std::vector<int32_t> host, own;
      std::copy(first.begin(), first.end(), token.as<int32_t>());
      double time = timeOfToken(program, context, steps, options, &host);
      prefill(program);
      double chosen =
          timeOfChosen(program, context, steps, options, first, own);
      size_t same =
          size_t(std::mismatch(host.begin(), host.end(), own.begin(), own.end())
                     .first -
                 host.begin());
      std::printf(
          "  temperature %g top-k %lld top-p %g: %.4f with the logits on "
          "the host, %.4f chosen on the GPU\n",
          options.temperature, static_cast<long long>(options.topK),
          options.topP, time, chosen);
      std::fflush(stdout);
      if (chosen > 0 && own != host)
        fail("the GPU chooses other tokens than the host after " +
             std::to_string(same) + " of " + std::to_string(host.size()));
    }
  }
  return 0;
}

int profile(char **arguments) {
  Program program = open(arguments[0], /*profile=*/true);
  const EntryInfo &entry = *program.findEntry(training::nextEntry);
  constexpr int runs = 20;
  std::vector<int32_t> first(view(program, training::tokenInput).elements(), 1),
      chosen;
  timeOfChosen(program, toNumber(arguments[1]), runs - 3,
               std::end(kChoices)[-2], first, chosen);
  std::map<std::string, std::pair<double, int>> byCommand;
  double all = 0;
  for (const CommandProfile &command : program.profile(entry)) {
    double time = double(command.nanoseconds) / 1e3 / runs;
    auto &[sum, number] = byCommand[command.command];
    sum += time;
    ++number;
    all += time;
  }
  std::vector<std::pair<double, std::string>> list;
  list.reserve(byCommand.size());
  for (const auto &[name, entry] : byCommand)
    list.emplace_back(entry.first, std::to_string(entry.second) + "x " + name);
  std::sort(list.rbegin(), list.rend());
  std::printf("%.1f us in all commands one by one\n", all);
  for (const auto &[time, name] : list)
    std::printf("%9.2f us %s\n", time, name.c_str());
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "time" && argc > 4)
    return measure(argc - 2, argv + 2);
  if (mode == "profile" && argc == 4)
    return profile(argv + 2);
  fail("expected time or profile and their files; see DecodeMain.cpp");
}
