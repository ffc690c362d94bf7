//===- Options.cpp - the command line of nsa-generate ---------------------===//

#include "Options.h"
#include "lib/Support/CommandLine.h"
#include "runtime/Train/CompileConfig.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

using namespace nsa;

static constexpr const char *toolName = "nsa-generate";

static void addTextOptions(CLI::App &app, GenerateOptions &options) {
  app.add_option("checkpoint", options.checkpoint,
                 "Checkpoint (step-N) of nsa-train, or a run directory, whose "
                 "newest good one is taken")
      ->required();
  app.add_option("--prompt", options.prompts,
                 "Text to continue (repeatable: all prompts are continued as "
                 "one batch)")
      ->allow_extra_args(false);
  app.add_option("--prompt-file", options.promptFiles,
                 "File with a text to continue (repeatable)")
      ->allow_extra_args(false);
  app.add_flag("--ids", options.ids,
               "Prompts are the ids of tokens, such as 5,17,2, and ids are "
               "printed");
  app.add_option("--tokens", options.tokens,
                 "Tokens to generate for each prompt, at most")
      ->check(atLeast(1))
      ->capture_default_str();
  app.add_option("--stop", options.stops,
                 "End a text before this string (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--save-selection", options.selectionFile,
                 "File (.npy) for the blocks that layers select for each token "
                 "but the last: i32 [prompts, sparse layers, key heads, "
                 "tokens, blocks], -1 past the last; and FILE.ids.npy beside "
                 "it for the ids, i32 [prompts, tokens + 1]");
  app.add_flag("--ignore-end", options.ignoreEnd,
               "Go on after the token that ends documents; else a text ends "
               "before it");
}

static void addSamplingOptions(CLI::App &app, GenerateOptions &options) {
  app.add_option("--temperature", options.sampling.temperature,
                 "What logits are divided by; 0 takes the most likely token")
      ->check(checkFinite)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.topK,
                 "Choose from so many of the most likely tokens; 0 for all")
      ->check(atLeast(0))
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.topP,
                 "Of these, from the fewest most likely ones that have this "
                 "part of the probability; 1 for all")
      ->check(checkFinite)
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--seed", options.seed,
                 "The same seed gives the same text on the same machine")
      ->capture_default_str();
  app.add_flag("--consistent", options.consistent,
               "Compute each token as it is computed in a prompt, bit for bit, "
               "which takes longer: by nsa-compile --prefill-chunk, 64 unless "
               "given");
}

static void addProgramOptions(CLI::App &app, GenerateOptions &options) {
  app.add_option("--context", options.context,
                 "Tokens of a prompt and its continuation at most [4 times "
                 "train.seq_len]")
      ->check(between(1, 1 << 24));
  app.add_option("--tokenizer", options.tokenizer,
                 "byte, or a tokenizer.json [that of the checkpoint]");
  app.add_option("--artifact", options.artefact,
                 "What nsa-compile --context made of the model; else the "
                 "checkpoint's configuration is compiled, unless that was done "
                 "before");
  app.add_option("--device", options.device,
                 "cpu or cuda [that of the training]")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--gpu", options.gpu, "Number of the GPU to use")
      ->check(atLeast(0))
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Threads of the CPU; 0 takes all processors")
      ->check(between(0, 4096))
      ->capture_default_str();
  app.add_option("--blas", options.blasLibrary,
                 "OpenBLAS or, on a GPU, cuBLASLt: the library, or the folder "
                 "that holds it");
  app.add_option("--compile-option", options.compileOptions,
                 "An option of nsa-compile that the artefact depends on, NAME "
                 "or NAME=VALUE (repeatable)")
      ->allow_extra_args(false);
}

static Status check(const GenerateOptions &options) {
  if (options.prompts.empty() && options.promptFiles.empty())
    return Error{"a text needs a beginning: give --prompt or --prompt-file"};
  if (options.ids && !options.stops.empty())
    return Error{"--stop has no effect with --ids"};
  if (options.ids && !options.tokenizer.empty())
    return Error{"--tokenizer has no effect with --ids"};
  for (const std::string &stop : options.stops)
    if (stop.empty())
      return Error{"--stop is empty, which every text contains"};
  if (!options.artefact.empty() && !options.compileOptions.empty())
    return Error{"--compile-option has no effect on " + options.artefact +
                 ", which is compiled"};
  if (!options.artefact.empty() && options.context != 0)
    return Error{"--context has no effect on " + options.artefact +
                 ", which is compiled for one"};
  for (const std::string &option : options.compileOptions)
    NSA_RETURN_IF_ERROR(checkCompileOption(option));
  return {};
}

std::optional<int> nsa::parseOptions(GenerateOptions &options, int argc,
                                     char **argv) {
  CLI::App app("Continues texts with a model that nsa-train trained", toolName);
  app.set_version_flag("--version", std::string(toolName) + " " + NSA_VERSION);
  app.footer("The texts are printed, without their prompts; numbers of tokens "
             "and times go to the standard error.\nAn artefact holds machine "
             "code, which runs with your rights: use only those that you "
             "trust.");
  addTextOptions(app, options);
  addSamplingOptions(app, options);
  addProgramOptions(app, options);
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return code;
  if (Status status = check(options); !status) {
    reportError(toolName, status.message());
    return exitUsage;
  }
  return std::nullopt;
}
