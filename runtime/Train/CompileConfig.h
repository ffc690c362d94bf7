//===- CompileConfig.h - a configuration to an artefact ---------*- C++ -*-===//
//
// Runs nsa-model and nsa-compile, which are programs of their own: nothing of
// the compiler is part of nsa-train.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_COMPILECONFIG_H
#define NSA_RUNTIME_TRAIN_COMPILECONFIG_H

#include "lib/Support/Config.h"
#include "lib/Support/Process.h"
#include "nsa/Runtime/ArtifactCache.h"
#include "runtime/Distributed/Ranks.h"
#include "runtime/Train/Estimate.h"

#include <string>
#include <vector>

namespace nsa {

/// Whether a path names a configuration (.yaml, .yml or .json) and not an
/// artefact.
bool namesConfiguration(const std::string &path);

/// Checks an option for nsa-compile, "NAME" or "NAME=VALUE": one that changes
/// the artefact, and that no key of the configuration stands for.
Status checkCompileOption(const std::string &option);

struct CompileRequest {
  /// The file, and what overrides it.
  std::string config;
  std::vector<std::string> overrides;
  /// Of a configuration with stages, the one whose model is compiled.
  size_t stage = 0;
  /// Options for nsa-compile, as checkCompileOption takes them.
  std::vector<std::string> options;
  /// The GPU that runs the artefact, if it is not for the CPU.
  int gpu = 0;
  /// The target, where it is not that of this machine.
  std::string target;
  /// Bytes that the artefact may plan; 0 allows any number.
  uint64_t memory = 0;
};

/// The options of nsa-compile that give an artefact for a configuration:
/// target, precision, optimizer and recomputation, then `options`.
std::vector<std::string>
makeCompileOptions(const RunConfig &config, const std::string &target,
                   const std::vector<std::string> &options);

/// Compiles a configuration, unless the cache has the artefact; returns its
/// path. The compiler is looked for beside this program, then on PATH. `say`
/// gets a line when it starts, with the commands, and one when it ends.
Result<std::string> compileConfig(const CompileRequest &request,
                                  const RunConfig &config,
                                  const Variables &variables,
                                  const ArtifactCache::Say &say);

/// What the model of a configuration needs; makes no artefact.
Result<Estimate> estimateConfig(const CompileRequest &request,
                                const RunConfig &config,
                                const Variables &variables);

/// As compileConfig for all ranks: the first of each machine compiles, the
/// others wait for it and use what it made.
Result<std::string> compileForRanks(const CompileRequest &request,
                                    const RunConfig &config,
                                    const Variables &variables,
                                    const ArtifactCache::Say &say,
                                    Ranks &ranks);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_COMPILECONFIG_H
