//===- InitialWeights.h - a run that begins with weights --------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_INITIALWEIGHTS_H
#define NSA_RUNTIME_TRAIN_INITIALWEIGHTS_H

#include "lib/Support/Config.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Train/Model.h"

#include <string>
#include <vector>

namespace nsa {

/// Where the first weights of a run came from.
struct InitialWeights {
  /// The file, as an absolute path, and its XXH3-64.
  std::string file;
  uint64_t hash = 0;
  /// Of the tokenizer.json that a checkpoint has; 0 if that is not known.
  uint64_t tokenizerHash = 0;
  /// What is to be said about them, for the log.
  std::vector<std::string> notes;
};

/// The file that `from` means, as loadInitialWeights takes it: verified where
/// it has a hash, and of a checkpoint whose tokens have the ids that this
/// tokenizer gives them, where both are known.
Result<InitialWeights> findInitialWeights(const std::string &from,
                                          const RunConfig &config,
                                          const Tokenizer *tokenizer);

/// Copies the parameters of `from`, a checkpoint, a run directory (its latest
/// checkpoint) or a file of safetensors, into a model whose `init` has run:
/// weights only, whatever length, precision and data they were trained with.
/// An error names parameters that only one of both has, unless `partial`: then
/// the notes name them, and what the file lacks keeps its initial value.
/// Another type or shape is always an error, and so is a value that is not
/// finite, and a checkpoint whose weights do not have the hash it says.
Result<InitialWeights> loadInitialWeights(const std::string &from,
                                          const Model &model,
                                          const RunConfig &config, bool partial,
                                          const Tokenizer *tokenizer = nullptr);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_INITIALWEIGHTS_H
