//===- Options.h - the command line of nsa-generate -------------*- C++ -*-===//

#ifndef NSA_TOOLS_NSA_GENERATE_OPTIONS_H
#define NSA_TOOLS_NSA_GENERATE_OPTIONS_H

#include "nsa/Support/Result.h"
#include "runtime/Generate/Sampling.h"

#include <optional>
#include <string>
#include <vector>

namespace nsa {

struct GenerateOptions {
  /// A checkpoint, or a run directory.
  std::string checkpoint;
  std::vector<std::string> prompts, promptFiles;
  /// Prompts are ids of tokens, and so is what is printed.
  bool ids = false;
  /// Tokens to generate for each prompt, at most.
  int64_t tokens = 256;
  SamplingOptions sampling;
  uint64_t seed = 0;
  bool consistent = false;
  std::vector<std::string> stops;
  /// A .npy file of the blocks that layers select; empty for none.
  std::string selectionFile;
  /// Whether sequences go on after the token that ends documents.
  bool ignoreEnd = false;
  /// 0: four times the sequences of the training.
  int64_t context = 0;
  /// "byte" or the path of a tokenizer.json; empty: that of the checkpoint.
  std::string tokenizer;
  /// Compiled with --context; empty: the checkpoint's configuration is
  /// compiled.
  std::string artefact;
  /// cpu or cuda; empty: what the run was trained on.
  std::string device;
  int threads = 0, gpu = 0;
  std::string blasLibrary;
  std::vector<std::string> compileOptions;
};

/// Returns the code to exit with if there is nothing left to do.
std::optional<int> parseOptions(GenerateOptions &options, int argc,
                                char **argv);

} // namespace nsa

#endif // NSA_TOOLS_NSA_GENERATE_OPTIONS_H
