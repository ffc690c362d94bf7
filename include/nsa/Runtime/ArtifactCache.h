//===- ArtifactCache.h - artefacts that were compiled before ----*- C++ -*-===//
//
// A folder with one entry for each source that nsa-train or nsa.compile
// compiled: its text model.mlir, the artefact model.nsax, the hashes of what it
// was made from and of itself, and a lock that the process holds which compiles
// it. Entries are named by the first of these hashes, so that nothing is wrong
// when a source, an option or the compiler changes. Those that were not used
// for longest go when all together are too large. The folder may be deleted at
// any time.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_ARTIFACTCACHE_H
#define NSA_RUNTIME_ARTIFACTCACHE_H

#include "nsa/Support/Result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// Everything that an artefact is made from.
struct CompileInputs {
  /// The text of the model.
  std::string model;
  /// Options of the compilation, in their order.
  std::vector<std::string> options;
  /// Of the compiler's file or build, and XXH3-64 of ptxas; 0 without one.
  uint64_t compiler = 0, assembler = 0;

  /// 16 hexadecimal digits, which differ where any of these does.
  std::string hash() const;
};

class ArtifactCache {
public:
  /// The value of a variable of the environment, if it is set.
  using Variables =
      std::function<std::optional<std::string>(const std::string &)>;
  /// Prints a line about the progress.
  using Say = std::function<void(const std::string &)>;
  /// Makes the artefact `artifact` from the text in the file `model`.
  using Compile = std::function<Status(const std::string &model,
                                       const std::string &artifact)>;

  /// Bytes of all entries at most; the one that was made last stays whatever
  /// its size.
  static constexpr uint64_t mostBytes = uint64_t(2) << 30;

  /// Whether the variable NSA_CACHE is 0: nothing is taken from the cache.
  static bool isOff(const Variables &variables);

  /// $XDG_CACHE_HOME/nsa, or $HOME/.cache/nsa if that variable is not an
  /// absolute path; created if needed, for its owner alone. One of another
  /// user, or that others may write to, is an error: artefacts hold machine
  /// code.
  static Result<ArtifactCache> open(const Variables &variables,
                                    uint64_t limit = mostBytes);

  const std::string &folder() const { return path; }

  /// The folder of an entry. `name` is what a person calls the model.
  std::string entry(const std::string &name, const CompileInputs &inputs) const;

  /// The path of the artefact, made by `compile` unless the entry holds it and
  /// NSA_CACHE is not 0. An entry that is damaged is made again. Processes and
  /// threads that ask for the same one wait for the first. Where the file
  /// system has no locks, each makes it, and the last one stays.
  Result<std::string> get(const std::string &name, const CompileInputs &inputs,
                          const Compile &compile, const Say &say) const;

  /// The same, but the contents of the artefact.
  Result<std::string> read(const std::string &name, const CompileInputs &inputs,
                           const Compile &compile, const Say &say) const;

private:
  ArtifactCache(std::string path, uint64_t mostBytes, bool isOff)
      : path(std::move(path)), limit(mostBytes), off(isOff) {}
  /// Makes the entry unless it is there. To be called under its lock.
  Status ensure(const std::string &folder, const CompileInputs &inputs,
                const Compile &compile, const Say &say, bool isHeld) const;
  void removeOldest(const std::string &kept) const;

  std::string path;
  uint64_t limit;
  bool off;
};

} // namespace nsa

#endif // NSA_RUNTIME_ARTIFACTCACHE_H
