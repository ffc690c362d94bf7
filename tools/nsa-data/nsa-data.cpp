//===- nsa-data.cpp - makes and inspects token shards ---------------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "runtime/Data/DataFolder.h"
#include "runtime/Data/Ngram.h"
#include "runtime/Data/Pack.h"
#include "runtime/Data/Synth.h"
#include "runtime/Data/Verifier.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

using namespace nsa;

static constexpr const char *toolName = "nsa-data";
static constexpr const char *toolVersion = "nsa-data " NSA_VERSION;

static void printSplit(const char *name, const SplitInfo &split) {
  std::printf("%-6s %12" PRIu64 " tokens %8" PRIu64 " documents %4zu shards\n",
              name, split.tokens, split.documents, split.shards.size());
}

static void printManifest(const Manifest &manifest) {
  std::printf("kind   %s, vocabulary %" PRId64 ", end-of-text %" PRId64
              ", by %s\n",
              manifest.kind.c_str(), manifest.vocabSize, manifest.endOfText,
              manifest.tool.c_str());
  for (const auto &[key, value] : manifest.options)
    std::printf("option %s = %s\n", key.c_str(), value.c_str());
  for (const auto &[key, value] : manifest.counts)
    std::printf("count  %s = %" PRIu64 "\n", key.c_str(), value);
  for (const auto &[key, value] : manifest.facts)
    std::printf("fact   %s = %.6f nats/token\n", key.c_str(), value);
  printSplit("train", manifest.train);
  printSplit("val", manifest.val);
  for (const SplitInfo *split : {&manifest.train, &manifest.val})
    for (const ShardInfo &shard : split->shards)
      std::printf("shard  %s %" PRIu64 " tokens%s%s\n", shard.file.c_str(),
                  shard.tokens, shard.isHashed ? ", xxh3 " : "",
                  shard.isHashed ? toHex(shard.hash).c_str() : "");
  std::printf("digest %s\n", toHex(manifest.digest()).c_str());
}

static Status runPack(const PackOptions &options) {
  NSA_ASSIGN_OR_RETURN(Manifest manifest, packFiles(options));
  for (const auto &[key, value] : manifest.counts)
    if (value != 0)
      std::printf("%s: %" PRIu64 "\n", key.c_str(), value);
  printSplit("train", manifest.train);
  printSplit("val", manifest.val);
  std::printf("wrote %s/%s\n", options.output.c_str(), manifestName);
  return {};
}

static Status runSynth(const SynthOptions &options) {
  NSA_ASSIGN_OR_RETURN(Manifest manifest, synthesize(options));
  for (const auto &[key, value] : manifest.facts)
    std::printf("%s: %.6f nats/token\n", key.c_str(), value);
  if (std::optional<uint64_t> length = manifest.count(documentTokensKey))
    std::printf("windows of a multiple of %" PRIu64
                " tokens that begin at documents (data.window: document) reach "
                "this entropy\n",
                *length);
  printSplit("train", manifest.train);
  printSplit("val", manifest.val);
  std::printf("wrote %s/%s\n", options.output.c_str(), manifestName);
  return {};
}

static Status runInfo(const std::string &path) {
  if (std::filesystem::is_directory(path))
    NSA_RETURN_IF_ERROR(finishReplacement(path));
  NSA_ASSIGN_OR_RETURN(Dataset data, Dataset::open(path));
  printManifest(data.manifest);
  NSA_RETURN_IF_ERROR(verifyShards(data));
  std::printf(data.manifest.isForeign() ? "tokens read\n"
                                        : "hashes verified\n");
  return {};
}

static Status runNgram(const std::string &directory, int order) {
  NSA_ASSIGN_OR_RETURN(Dataset data, Dataset::open(directory));
  NSA_RETURN_IF_ERROR(verifyShards(data));
  NSA_ASSIGN_OR_RETURN(Ngram model, Ngram::fit(data.train));
  NSA_ASSIGN_OR_RETURN(NgramLoss loss, model.evaluate(data.val));
  std::printf("order-%d validation loss %.4f %s (%" PRIu64
              " tokens, fitted on %" PRIu64 ")\n",
              order, order == 1 ? loss.order1 : loss.order2,
              data.manifest.lossUnit(), loss.tokens, model.fitted());
  return {};
}

/// An option that takes a count such as 5M.
static void addCount(CLI::App *app, const std::string &name, uint64_t &value,
                     const std::string &help) {
  app->add_option_function<std::string>(
         name,
         [&value, name](const std::string &text) {
           auto count = parseCount(text);
           if (!count)
             throw CLI::ValidationError(
                 name, quote(text) + " is not a count such as 100, 20k or 5M");
           value = *count;
         },
         help + " [" + std::to_string(value) + "]")
      ->type_name("COUNT");
}

static void addPack(CLI::App &app, PackOptions &options) {
  CLI::App *pack = app.add_subcommand(
      "pack", "Byte tokens from plain text files, split by document");
  pack->option_defaults()->always_capture_default();
  pack->add_option("paths", options.paths, "Files and folders")
      ->default_str("")
      ->required();
  pack->add_option("-o,--output", options.output, "Folder for the shards")
      ->required();
  pack->add_option("--val-fraction", options.valFraction,
                   "Share of documents held out");
  addCount(pack, "--shard-tokens", options.shardTokens, "Tokens per shard");
  addCount(pack, "--max-bytes", options.maxBytes,
           "Stop before the file that would pass this; 0 takes all");
  addCount(pack, "--max-document-bytes", options.maxDocumentBytes,
           "Cut longer files at a newline into documents; 0 never cuts");
  pack->add_flag("--overwrite", options.overwrite,
                 "Replace the data set in the folder");
  for (const char *name : {"--include", "--exclude", "--max-inflated-bytes"})
    pack->add_option_function<std::string>(
            name,
            [name](const std::string &) {
              throw CLI::ValidationError(
                  name, "an option of python -m nsa.data pack, which reads "
                        "the same files with --tokenizer byte");
            })
        ->group("");
}

static void addSynth(CLI::App &app, SynthOptions &options) {
  CLI::App *synth =
      app.add_subcommand("synth", "Tokens from a source of known entropy");
  synth->option_defaults()->always_capture_default();
  synth->add_option("--kind", options.kind, "markov or recall")
      ->check(CLI::IsMember({"markov", "recall"}));
  synth->add_option("-o,--output", options.output, "Folder for the shards")
      ->required();
  synth->add_option("--vocab", options.vocab, "Vocabulary size");
  synth->add_option("--seed", options.seed, "Seed");
  addCount(synth, "--tokens", options.tokens, "Tokens in both splits");
  synth->add_option("--val-fraction", options.valFraction,
                    "Share of tokens held out");
  addCount(synth, "--shard-tokens", options.shardTokens, "Tokens per shard");
  synth->add_option("--order", options.order, "markov: preceding tokens");
  synth->add_option("--sharpness", options.sharpness,
                    "markov: 0..20, larger gives less entropy");
  synth->add_option("--pairs", options.pairs, "recall: pairs shown");
  synth->add_option("--distance", options.distance,
                    "recall: filler between pairs and queries");
  synth->add_option("--queries", options.queries, "recall: queries");
  synth->add_flag("--overwrite", options.overwrite,
                  "Replace the data set in the folder");
}

static int runMain(int argc, char **argv) {
  CLI::App app("Makes and inspects token shards for nsa-train", toolName);
  app.set_version_flag("--version", toolVersion);
  app.require_subcommand(1);
  PackOptions pack;
  pack.tool = toolVersion;
  pack.warn = [](const std::string &message) {
    std::fprintf(stderr, "%s: warning: %s\n", toolName, message.c_str());
  };
  addPack(app, pack);
  SynthOptions synth;
  synth.tool = toolVersion;
  addSynth(app, synth);
  std::string directory;
  CLI::App *info = app.add_subcommand(
      "info", "Print the manifest and verify every shard's hash");
  info->add_option("directory", directory,
                   "Folder of shards, or .bin files of llm.c or Megatron")
      ->required();
  CLI::App *ngram = app.add_subcommand(
      "ngram", "Validation loss of a Witten-Bell n-gram model fitted on the "
               "training split");
  ngram->option_defaults()->always_capture_default();
  int order = 2;
  ngram->add_option("directory", directory, "Folder of shards")->required();
  ngram->add_option("--order", order, "Preceding tokens: 1 or 2")
      ->check(CLI::IsMember({1, 2}));

  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return *code;
  Status status = app.got_subcommand("pack")    ? runPack(pack)
                  : app.got_subcommand("synth") ? runSynth(synth)
                  : app.got_subcommand(info)    ? runInfo(directory)
                                                : runNgram(directory, order);
  return status ? 0 : reportError(toolName, status.message());
}

int main(int argc, char **argv) {
  return runTool(toolName,
                 [&] { return finishOutput(toolName, runMain(argc, argv)); });
}
