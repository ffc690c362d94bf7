//===- RunSession.h - the run that a process begins or continues *- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_RUNSESSION_H
#define NSA_RUNTIME_TRAIN_RUNSESSION_H

#include "runtime/Train/DataGuard.h"

#include <optional>
#include <string>

namespace nsa {

/// Chooses a run, holds it for this process, and takes up its state: that of a
/// checkpoint, weights to begin with, or none. All ranks call its functions;
/// the first one decides for all.
class RunSession {
public:
  RunSession(RunContext &run, DataGuard &guard) : run(run), guard(guard) {}

  /// Takes the weights that a new run is to begin with.
  Status loadInitial();
  /// Opens the run's directory, log and state.
  Status open();
  /// That the run to go on with is finished, and was not opened; else empty.
  const std::string &finishedRun() const { return finished; }

private:
  struct Choice;
  Result<FoundCheckpoint> findStart();
  Result<Choice> choose();
  Status hold(const Choice &choice);
  Status enter(const Choice &choice);
  Result<bool> isOfThisRun(const std::string &folder,
                           const TrainState &saved) const;
  Status takeOver(const Checkpoint &checkpoint);
  Status resumeFrom(const std::string &folder,
                    const std::optional<Checkpoint> &opened);
  Status writeRunFiles() const;

  RunContext &run;
  DataGuard &guard;
  /// Of the first rank.
  std::optional<FileLock> lock;
  std::string finished;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_RUNSESSION_H
