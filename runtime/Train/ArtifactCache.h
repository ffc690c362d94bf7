//===- ArtifactCache.h - artefacts that were compiled before ----*- C++ -*-===//
//
// A folder with one entry for each model that was compiled for a run: its text
// model.mlir, the artefact model.nsax, and a lock that the process holds which
// compiles it. Entries are named by the hash of what they are made from, so
// nothing has to be thrown away when a model, an option or the compiler
// changes. The folder may be deleted at any time.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_ARTIFACTCACHE_H
#define NSA_RUNTIME_TRAIN_ARTIFACTCACHE_H

#include "lib/Support/Process.h"
#include "nsa/Support/Result.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nsa {

/// Everything that an artefact is made from.
struct CompileInputs {
  /// The text of the model.
  std::string model;
  /// Options of nsa-compile, in their order.
  std::vector<std::string> options;
  /// XXH3-64 of the file nsa-compile, and of ptxas; 0 without one.
  uint64_t compiler = 0, assembler = 0;

  /// 16 hexadecimal digits, which differ where any of these does.
  std::string hash() const;
};

class ArtifactCache {
public:
  /// A line for people about what is going on.
  using Say = std::function<void(const std::string &)>;
  /// Makes the artefact `artifact` from the text in the file `model`.
  using Compile = std::function<Status(const std::string &model,
                                       const std::string &artifact)>;

  /// $XDG_CACHE_HOME/nsa, or $HOME/.cache/nsa if that variable is not an
  /// absolute path; created if needed, for its owner alone. One that others may
  /// write to is an error: artefacts hold machine code.
  static Result<ArtifactCache> open(const Variables &variables);

  const std::string &folder() const { return path; }

  /// The folder of an entry. `name` is what a person calls the model.
  std::string entry(const std::string &name, const CompileInputs &inputs) const;

  /// The path of the artefact, made by `compile` unless the entry holds it. An
  /// entry that is damaged is made again. Processes that ask for the same one
  /// wait for the first. Where the file system has no locks, each makes it, and
  /// the last one stays.
  Result<std::string> get(const std::string &name, const CompileInputs &inputs,
                          const Compile &compile, const Say &say) const;

private:
  explicit ArtifactCache(std::string path) : path(std::move(path)) {}

  std::string path;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_ARTIFACTCACHE_H
