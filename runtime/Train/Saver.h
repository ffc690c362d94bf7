//===- Saver.h - the checkpoints of a run -----------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_SAVER_H
#define NSA_RUNTIME_TRAIN_SAVER_H

#include "runtime/Train/CheckpointWriter.h"
#include "runtime/Train/DataGuard.h"

#include <functional>
#include <optional>
#include <string>

namespace nsa {

/// Saves checkpoints of a run, between steps or beside them. The first rank
/// saves all, but for the states that ranks share, of which each saves its own.
/// Every function that waits for other ranks is called on all of them.
class Saver {
public:
  Saver(RunContext &run, DataGuard &guard) : run(run), guard(guard) {}

  /// Says at the start that there is no room for a checkpoint.
  void checkSpace();
  /// Begins the time after which a save is due.
  void beginSteps() { lastSave = steadyClock(); }
  /// Whether a save is due by the clock of this rank.
  bool isDueByTime() const;
  /// Whether this rank has written its part of the save beside steps.
  bool hasWritten() const {
    return pendingSave >= 0 && (!writer.isBusy() || writer.isDone());
  }

  /// Saves, unless this step is saved. A full disk is an error of the `isLast`
  /// save of a run only. Returns what ends the run, if something does.
  Result<std::optional<TrainEnd>> save(bool isLast);
  /// Goes on with the save that is written beside steps once all ranks have
  /// written a part of it.
  Result<std::optional<TrainEnd>> continueSave();
  /// Ends the save that is written beside steps, on all ranks; nothing if there
  /// is none. Returns what ends the run, if something does.
  Result<std::optional<TrainEnd>> endSave(bool isLast);
  /// The same where the ranks cannot agree on its end any more.
  void endOwnSave();
  /// Saves the state after a whole step, whatever could not be read then, and
  /// returns the error that ends the run.
  Error saveUnreadable(const std::string &found);
  /// Waits until no save reads what the model has on the host.
  void join() { writer.join(); }

  /// How long steps have waited for saves.
  double seconds() const { return saveSeconds; }
  /// Saves that failed for lack of room.
  int64_t failures() const { return failedSaves; }

private:
  struct Outcome;
  Result<Outcome> synchronize(const std::string &point, const Outcome &own);
  Result<Outcome> beginShares();
  Result<Outcome> synchronizeShares(int64_t step, const Outcome &own);
  Result<Outcome> endShares();
  Outcome takeResult(const SaveResult &result);
  std::function<SaveResult(const TensorSet &)> checkpointSaver() const;
  std::function<SaveResult(const TensorSet &)> shareSaver() const;
  Result<std::optional<TrainEnd>> startSave(bool isLast, bool waits);
  Result<std::optional<TrainEnd>> report(int64_t step, Outcome outcome,
                                         bool isLast);
  Result<std::optional<TrainEnd>> reportUnsaved(int64_t step,
                                                const std::string &found);

  RunContext &run;
  DataGuard &guard;
  /// Of the first rank, and of all where they share the states.
  CheckpointWriter writer;
  /// The step of the save that is written beside steps, on every rank; -1 if
  /// there is none.
  int64_t pendingSave = -1;
  /// Whether the ranks' shares are being written, after which `saveRest`
  /// saves what else is in the checkpoint.
  bool sharesPending = false;
  std::function<SaveResult(const TensorSet &)> saveRest;
  double saveSeconds = 0;
  /// When a save was last tried, or the steps began.
  double lastSave = 0;
  int64_t failedSaves = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_SAVER_H
