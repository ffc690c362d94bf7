//===- Options.h - the command line of nsa-train ----------------*- C++ -*-===//

#ifndef NSA_TOOLS_NSA_TRAIN_OPTIONS_H
#define NSA_TOOLS_NSA_TRAIN_OPTIONS_H

#include "lib/Support/Config.h"
#include "runtime/Distributed/RankEnvironment.h"
#include "runtime/Train/Trainer.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nsa {

/// What the command line of nsa-train says.
struct CommandLine {
  /// What is to be trained: a compiled model, or the configuration that is
  /// compiled first.
  std::string model;
  /// The file of the configuration, whichever of both it is.
  std::string config;
  /// The compiled model; nothing until it is compiled.
  std::string artefact;
  std::vector<std::string> data;
  std::vector<double> dataWeights;
  /// From --set, and from the flags that stand for a key.
  std::vector<std::string> settings;
  std::vector<std::string> flags;
  /// For nsa-compile, as checkCompileOption takes them.
  std::vector<std::string> compileOptions;
  /// Whether `model` is a run or a checkpoint that a new run begins with.
  bool fineTune = false;
  bool noProgress = false;
  std::string blasLibrary;
  /// -1: the rank's number on its machine.
  int gpu = -1;
  bool noGraph = false;
  bool checkFinite = false;
  /// Steps to profile; 0 for none.
  int64_t profileSteps = 0;
  /// Whether to print what a run of `ranks` on `target` takes, in its place.
  bool estimate = false;
  int64_t ranks = 1;
  std::string target;
  /// Ranks to start; 0 to be a rank.
  int numRanks = 0;
  double rankSeconds = 300;
  bool trustNetwork = false;
  std::string gloo;
  std::string nccl;
  TrainOptions train;
  /// Names of the options that were given.
  std::set<std::string> given;

  /// --set and the flags, in the order in which they count.
  std::vector<std::string> overrides() const;
};

/// Reads the command line into `line`. Returns the code to exit with if there
/// is nothing left to do.
std::optional<int> parseOptions(CommandLine &line, int argc, char **argv);

/// Options that have no effect are mistakes: those of the launcher,
Status checkLaunch(const CommandLine &line);

/// and those of one device, or of several ranks.
Status checkEffect(const CommandLine &line, const RunConfig &config,
                   const RankEnvironment &environment);

} // namespace nsa

#endif // NSA_TOOLS_NSA_TRAIN_OPTIONS_H
