//===- nsa-generate.cpp - continues texts ---------------------------------===//

#include "Options.h"
#include "lib/Support/CommandLine.h"
#include "lib/Support/Config.h"
#include "lib/Support/Files.h"
#include "lib/Support/Npy.h"
#include "lib/Support/Philox.h"
#include "lib/Support/Process.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "nsa/Runtime/StopText.h"
#include "nsa/Runtime/Weights.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Generate/Generator.h"
#include "runtime/Train/Checkpoint.h"
#include "runtime/Train/CompileConfig.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

using namespace nsa;
namespace fs = std::filesystem;

static constexpr const char *toolName = "nsa-generate";

//===----------------------------------------------------------------------===//
// Prompts
//===----------------------------------------------------------------------===//

using Tokens = std::vector<int32_t>;

/// "5,17,2", also with spaces or lines between.
static Result<Tokens> parseIds(const std::string &text) {
  Tokens ids;
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    if (*at == ',' || *at == ' ' || *at == '\n' || *at == '\t') {
      ++at;
      continue;
    }
    int32_t id = 0;
    auto [next, code] = std::from_chars(at, end, id);
    if (code != std::errc())
      return Error{"ids are numbers with commas between them, found " +
                   quote(std::string(at, end))};
    ids.push_back(id);
    at = next;
  }
  return ids;
}

/// The texts of the command line, those of files last.
static Result<std::vector<std::string>>
readPrompts(const GenerateOptions &options) {
  std::vector<std::string> texts = options.prompts;
  for (const std::string &path : options.promptFiles) {
    NSA_ASSIGN_OR_RETURN(std::string text, readFile(path));
    texts.push_back(std::move(text));
  }
  return texts;
}

/// `tokenizer` is null where prompts are ids.
static Result<std::vector<Tokens>>
encodePrompts(const std::vector<std::string> &texts,
              const Tokenizer *tokenizer) {
  auto name = [](size_t i) { return "prompt " + std::to_string(i + 1); };
  std::vector<Tokens> prompts;
  if (tokenizer) {
    NSA_ASSIGN_OR_RETURN(prompts, tokenizer->encode(texts));
  } else {
    for (const std::string &text : texts) {
      Result<Tokens> tokens = parseIds(text);
      if (!tokens)
        return Error{name(prompts.size()) + ": " + tokens.message()};
      prompts.push_back(std::move(*tokens));
    }
  }
  for (auto prompt = prompts.begin(); prompt != prompts.end(); ++prompt)
    if (prompt->empty())
      return Error{name(size_t(prompt - prompts.begin())) +
                   " is empty: it needs at least one token"};
  return prompts;
}

//===----------------------------------------------------------------------===//
// Model
//===----------------------------------------------------------------------===//

/// The tokenizer.json of a checkpoint, or nothing.
static std::string findTokenizer(const Weights &weights) {
  std::error_code code;
  fs::path own = fs::path(weights.path()) / "tokenizer.json";
  return fs::exists(own, code) ? own.string() : "";
}

/// The tokenizer of the checkpoint, or the one that was asked for.
static Result<Tokenizer> openTokenizer(const GenerateOptions &options,
                                       const Weights &weights,
                                       const RunConfig &config) {
  std::string path = options.tokenizer;
  if (path.empty())
    path = findTokenizer(weights);
  if (path.empty() && config.model.vocabSize != 256)
    return Error{"'" + weights.path() + "' has no tokenizer.json, and its " +
                 std::to_string(config.model.vocabSize) +
                 " tokens are not bytes: give --tokenizer, or ids with --ids"};
  Result<Tokenizer> tokenizer = path.empty() || path == "byte"
                                    ? Tokenizer::ofBytes()
                                    : Tokenizer::load(path);
  if (tokenizer && tokenizer->size() > config.model.vocabSize)
    return Error{"the tokenizer " + (path.empty() ? "byte" : path) + " has " +
                 std::to_string(tokenizer->size()) + " tokens, the model has " +
                 std::to_string(config.model.vocabSize) +
                 ": it is that of another model"};
  return tokenizer;
}

/// The token that ends documents: that of the training, else of the tokenizer,
/// which is null where prompts are ids; -1 if there is none.
static Result<int64_t> findEnd(const Weights &weights, const RunConfig &config,
                               const Tokenizer *tokenizer) {
  if (weights.endOfText() >= 0)
    return weights.endOfText();
  if (tokenizer)
    return tokenizer->endOfText();
  if (std::string path = findTokenizer(weights); !path.empty())
    return findEndOfText(path);
  return config.data.tokenizer == "byte" ? Tokenizer::ofBytes().endOfText()
                                         : -1;
}

/// Tokens that are prefilled at once: the sequences of the training, or twice
/// as many as often as prompts need it.
static int64_t getPrefillLength(const std::vector<Tokens> &prompts,
                                int64_t seqLen, int64_t context) {
  size_t longest = 0;
  for (const Tokens &prompt : prompts)
    longest = std::max(longest, prompt.size());
  int64_t length = seqLen;
  while (length < int64_t(longest))
    length *= 2;
  return std::min(length, std::max(context, seqLen));
}

/// Compiles the checkpoint's configuration, or finds what was compiled before.
static Result<std::string> compileModel(const GenerateOptions &options,
                                        const Weights &weights,
                                        const RunConfig &config,
                                        const std::vector<Tokens> &prompts,
                                        int64_t context) {
  CompileRequest request;
  request.config = weights.path() + "/config.yaml";
  request.gpu = options.gpu;
  request.options = options.compileOptions;
  request.options.push_back("context=" + std::to_string(context));
  request.options.push_back("micro-batch=" + std::to_string(prompts.size()));
  int64_t seqLen = config.train.seqLen;
  if (int64_t length = getPrefillLength(prompts, seqLen, context);
      length != seqLen)
    request.options.push_back("seq-len=" + std::to_string(length));
  if (!options.selectionFile.empty())
    request.options.push_back("selection");
  bool hasPart = std::any_of(request.options.begin(), request.options.end(),
                             [](const std::string &option) {
                               return option.rfind("prefill-chunk=", 0) == 0;
                             });
  if (options.consistent && !hasPart)
    request.options.push_back("prefill-chunk=64");
  NSA_ASSIGN_OR_RETURN(RunConfig whole, loadConfig(request.config, {}));
  request.stage = findStage(whole, weights.step());
  auto say = [](const std::string &text) {
    std::fprintf(stderr, "%s: %s\n", toolName, text.c_str());
  };
  return compileConfig(request, config, readVariable, say);
}

/// The model and the prompts.
namespace {
struct Job {
  std::unique_ptr<Program> program;
  Generator generator;
  std::vector<Tokens> prompts;
  /// Nothing where tokens are printed as ids.
  std::optional<Tokenizer> tokenizer;
  /// Tokens that stand for no text, which are not drawn.
  Tokens silent;
  /// The token that ends a sequence, or -1.
  int64_t end = -1;
};
} // namespace

static Result<std::unique_ptr<Program>>
openProgram(const GenerateOptions &options, const Weights &weights,
            const std::string &path) {
  NSA_ASSIGN_OR_RETURN(Artifact artifact, Artifact::open(path));
  RuntimeOptions runtime;
  runtime.threads = options.threads;
  runtime.blasLibrary = options.blasLibrary;
  runtime.device = options.gpu;
  NSA_ASSIGN_OR_RETURN(Program program, Program::create(artifact, runtime));
  NSA_RETURN_IF_ERROR(program.run(training::initEntry));
  NSA_RETURN_IF_ERROR(weights.load(program));
  return std::make_unique<Program>(std::move(program));
}

/// All prompts with what is to be generated fit the context.
static Status checkLengths(const std::vector<Tokens> &prompts, int64_t tokens,
                           int64_t context) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    int64_t all = int64_t(prompts[i].size()) + tokens;
    if (all > context)
      return Error{"prompt " + std::to_string(i + 1) + " has " +
                   std::to_string(prompts[i].size()) + " tokens and --tokens " +
                   std::to_string(tokens) + " makes them " +
                   std::to_string(all) + ", more than the context of " +
                   std::to_string(context) + ": give --context " +
                   std::to_string(all) + ", or fewer --tokens"};
  }
  return {};
}

/// The end of documents may be no token of the tokenizer.
static std::string_view textOf(const Tokenizer &tokenizer, int32_t id) {
  return id < tokenizer.size() ? tokenizer.bytesOf(id) : std::string_view();
}

static Result<Job> prepare(const GenerateOptions &options) {
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> texts, readPrompts(options));
  NSA_ASSIGN_OR_RETURN(Weights weights, Weights::open(options.checkpoint));
  NSA_ASSIGN_OR_RETURN(RunConfig config,
                       readCheckpointConfig(weights.path(), weights.step()));
  if (!options.device.empty())
    config.runtime.device = options.device;
  std::optional<Tokenizer> tokenizer;
  if (!options.ids) {
    NSA_ASSIGN_OR_RETURN(tokenizer, openTokenizer(options, weights, config));
  }
  NSA_ASSIGN_OR_RETURN(std::vector<Tokens> prompts,
                       encodePrompts(texts, tokenizer ? &*tokenizer : nullptr));
  std::string path = options.artefact;
  if (path.empty()) {
    int64_t context =
        options.context ? options.context : 4 * config.train.seqLen;
    NSA_RETURN_IF_ERROR(checkLengths(prompts, options.tokens, context));
    NSA_ASSIGN_OR_RETURN(
        path, compileModel(options, weights, config, prompts, context));
  }
  NSA_ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                       openProgram(options, weights, path));
  NSA_ASSIGN_OR_RETURN(Generator generator,
                       Generator::create(*program, options.consistent));
  if (int64_t(prompts.size()) > generator.batch())
    return Error{path + " generates " + std::to_string(generator.batch()) +
                 " sequences at once, there are " +
                 std::to_string(prompts.size()) + " prompts"};
  NSA_RETURN_IF_ERROR(
      checkLengths(prompts, options.tokens, generator.context()));
  NSA_ASSIGN_OR_RETURN(
      int64_t end, findEnd(weights, config, tokenizer ? &*tokenizer : nullptr));
  Tokens silent;
  if (tokenizer)
    silent = tokenizer->silentTokens(generator.vocab(), end);
  return Job{std::move(program), std::move(generator),
             std::move(prompts), std::move(tokenizer),
             std::move(silent),  options.ignoreEnd ? -1 : end};
}

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

namespace {
/// The continuation of one prompt. A single one is printed as it grows.
struct Continuation {
  Continuation(const GenerateOptions &options, uint64_t number, bool isSingle)
      : random(options.seed, number), stop(options.stops), isSingle(isSingle) {}

  void add(const std::string &piece) {
    if (isSingle) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    } else {
      text += piece;
    }
  }

  PhiloxStream random;
  StopText stop;
  bool isSingle;
  std::string text;
  int64_t tokens = 0;
  /// All that were drawn.
  Tokens ids;
  /// Whether the token that ends documents was drawn.
  bool ended = false;
};

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}
} // namespace

namespace {
/// Draws tokens of sequences.
struct Drawing {
  static Result<Drawing> create(const Job &job,
                                const SamplingOptions &sampling);

  /// The next token of each sequence that goes on, -1 for others.
  void draw(const Job &job, std::vector<Continuation> &all, Tokens &ids);

  std::vector<TokenSampler> samplers;
  SamplingThreads threads;
};
} // namespace

Result<Drawing> Drawing::create(const Job &job,
                                const SamplingOptions &sampling) {
  int64_t vocab = job.generator.vocab();
  std::vector<TokenSampler> samplers(job.prompts.size(),
                                     TokenSampler(sampling, vocab, job.silent));
  NSA_ASSIGN_OR_RETURN(
      SamplingThreads threads,
      SamplingThreads::create(int64_t(samplers.size()), vocab));
  return Drawing{std::move(samplers), std::move(threads)};
}

void Drawing::draw(const Job &job, std::vector<Continuation> &all,
                   Tokens &ids) {
  threads.forEach(int64_t(all.size()), [&](int64_t row) {
    if (ids[size_t(row)] >= 0)
      ids[size_t(row)] = samplers[size_t(row)].choose(
          job.generator.logits(row), all[size_t(row)].random.uniform());
  });
}

/// Adds a token to a continuation. Returns whether it goes on.
static bool addToken(const Job &job, const GenerateOptions &options,
                     Continuation &own, int32_t id) {
  own.ended = id == job.end;
  own.ids.push_back(id);
  if (!own.ended && job.tokenizer)
    own.add(own.stop.push(textOf(*job.tokenizer, id)));
  else if (!own.ended)
    own.add((own.tokens ? "," : "") + std::to_string(id));
  own.tokens += !own.ended;
  return !own.ended && !own.stop.stopped() && own.tokens < options.tokens;
}

/// Draws the next token of each sequence that goes on, by its logits; then it
/// is -1 of those that do no longer.
static void addDrawn(const Job &job, const GenerateOptions &options,
                     Drawing &drawing, std::vector<Continuation> &all,
                     Tokens &ids) {
  drawing.draw(job, all, ids);
  for (size_t row = 0; row < all.size(); ++row)
    if (ids[row] >= 0 && !addToken(job, options, all[row], ids[row]))
      ids[row] = -1;
}

static bool goesOn(const Tokens &ids) {
  return std::any_of(ids.begin(), ids.end(),
                     [](int32_t id) { return id >= 0; });
}

/// Takes `steps` tokens that the program chooses.
static Status addChosen(Job &job, const GenerateOptions &options,
                        std::vector<Continuation> &all, Tokens &ids,
                        int64_t steps) {
  std::vector<double> uniforms;
  for (const Continuation &own : all) {
    PhiloxStream random = own.random;
    for (int64_t step = 0; step < steps; ++step)
      uniforms.push_back(random.uniform());
  }
  std::vector<Tokens> chosen;
  NSA_RETURN_IF_ERROR(job.generator.appendChosen(ids, steps, uniforms, chosen));
  for (size_t row = 0; row < all.size(); ++row)
    for (int32_t id : chosen[row]) {
      if (id < 0)
        return job.generator.notFinite(int64_t(row));
      all[row].random.next();
      ids[row] = addToken(job, options, all[row], id) ? id : -1;
      if (ids[row] < 0)
        break;
    }
  return {};
}

/// All tokens of the continuations after the prompts.
static Status addAll(Job &job, const GenerateOptions &options,
                     std::vector<Continuation> &all) {
  NSA_ASSIGN_OR_RETURN(Drawing drawing, Drawing::create(job, options.sampling));
  int64_t most = job.generator.stepsAhead();
  if (most)
    NSA_RETURN_IF_ERROR(job.generator.setChoice(
        std::vector<SamplingOptions>(all.size(), options.sampling), job.silent,
        job.end));
  Tokens ids(all.size());
  addDrawn(job, options, drawing, all, ids);
  // The program goes on alone for as many steps as take little time.
  constexpr double mostSeconds = 0.05;
  for (int64_t ahead = 1; goesOn(ids);) {
    if (!most) {
      NSA_RETURN_IF_ERROR(job.generator.append(ids));
      addDrawn(job, options, drawing, all, ids);
      continue;
    }
    int64_t left = 0;
    for (size_t row = 0; row < all.size(); ++row)
      if (ids[row] >= 0)
        left = std::max(left, options.tokens - all[row].tokens);
    auto start = std::chrono::steady_clock::now();
    NSA_RETURN_IF_ERROR(
        addChosen(job, options, all, ids, std::min(ahead, left)));
    if (2 * secondsSince(start) < mostSeconds)
      ahead = std::min(2 * ahead, most);
  }
  return {};
}

static void printRate(const char *what, int64_t tokens, double seconds) {
  std::fprintf(stderr, "%s: %lld tokens in %.3f s, %.1f tokens/s\n", what,
               static_cast<long long>(tokens), seconds,
               seconds > 0 ? double(tokens) / seconds : 0.0);
}

/// Writes the blocks that were selected for all prompts, of which shorter ones
/// have lists of -1 at the end.
static Status saveSelection(const Job &job,
                            const std::vector<Continuation> &continuations,
                            const std::string &path) {
  std::vector<Selection> all;
  int64_t tokens = 0;
  for (size_t row = 0; row < continuations.size(); ++row) {
    all.push_back(job.generator.selection(int64_t(row)));
    tokens = std::max(tokens, all.back().tokens);
  }
  Tokens ids;
  for (size_t row = 0; row < all.size(); ++row) {
    const Tokens &prompt = job.prompts[row], &drawn = continuations[row].ids;
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.insert(ids.end(), drawn.begin(), drawn.end());
    ids.resize((row + 1) * size_t(tokens + 1), -1);
  }
  NSA_RETURN_IF_ERROR(writeFileAtomically(
      idsPathOf(path),
      formatNpy(NpyType::I4, {all.size(), uint64_t(tokens + 1)}, ids.data())));
  std::vector<int32_t> blocks;
  for (const Selection &own : all)
    for (int64_t head = 0; head < own.layers * own.heads; ++head) {
      auto begin = own.blocks.begin() + head * own.tokens * own.count;
      blocks.insert(blocks.end(), begin, begin + own.tokens * own.count);
      blocks.resize(blocks.size() + size_t((tokens - own.tokens) * own.count),
                    -1);
    }
  const Selection &first = all.front();
  std::vector<uint64_t> shape = {all.size(), uint64_t(first.layers),
                                 uint64_t(first.heads), uint64_t(tokens),
                                 uint64_t(first.count)};
  return writeFileAtomically(path,
                             formatNpy(NpyType::I4, shape, blocks.data()));
}

static Status generate(const GenerateOptions &options) {
  NSA_ASSIGN_OR_RETURN(Job job, prepare(options));
  if (!options.selectionFile.empty() && job.generator.selection(0).layers == 0)
    return Error{job.program->artifact().name() +
                 " does not return what layers select: nsa-compile "
                 "--selection makes one that does"};
  std::vector<Continuation> all;
  int64_t promptTokens = 0, drawn = 0;
  for (const Tokens &prompt : job.prompts) {
    all.emplace_back(options, all.size(), job.prompts.size() == 1);
    promptTokens += int64_t(prompt.size());
  }
  auto start = std::chrono::steady_clock::now();
  NSA_RETURN_IF_ERROR(job.generator.prefill(job.prompts));
  double prefillSeconds = secondsSince(start);
  start = std::chrono::steady_clock::now();
  NSA_RETURN_IF_ERROR(addAll(job, options, all));
  double seconds = secondsSince(start);
  for (size_t row = 0; row < all.size(); ++row) {
    Continuation &own = all[row];
    own.add(own.stop.finish());
    drawn += own.tokens;
    if (!own.isSingle)
      std::printf("=== %zu\n%s\n", row + 1, own.text.c_str());
  }
  if (!options.selectionFile.empty())
    NSA_RETURN_IF_ERROR(saveSelection(job, all, options.selectionFile));
  if (all.size() == 1)
    std::printf("\n");
  std::fflush(stdout);
  printRate("prefill", promptTokens, prefillSeconds);
  printRate("decode", drawn, seconds);
  return {};
}

int main(int argc, char **argv) {
  return runTool(toolName, [&] {
    GenerateOptions options;
    if (std::optional<int> code = parseOptions(options, argc, argv))
      return *code;
    Status status = generate(options);
    return status ? finishOutput(toolName, 0)
                  : reportError(toolName, status.message());
  });
}
