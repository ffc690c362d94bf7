//===- CheckpointWriter.h - saving beside training --------------*- C++ -*-===//
//
// Training only waits until the tensors of a checkpoint are copied to memory
// that later steps do not change; a thread writes the files.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_CHECKPOINTWRITER_H
#define NSA_RUNTIME_TRAIN_CHECKPOINTWRITER_H

#include "runtime/CPU/Memory.h"
#include "runtime/Train/Checkpoint.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace nsa {

/// The tensors of a rank's model, as they were at one time: what saveShare and,
/// of the first rank, saveCheckpoint save.
class Snapshot final : public TensorSet {
public:
  /// Brings the tensors of a checkpoint to the host, and, if it `copies`, into
  /// `memory` where entries of the model would change them there. `memory`
  /// grows if it has to, and outlives the snapshot as the model does.
  static Result<std::unique_ptr<Snapshot>> take(const Model &model,
                                                PageMemory &memory,
                                                int rank = 0,
                                                bool copies = true);

  const std::vector<TensorView> &tensors() const override { return views; }
  int sharingRanks() const override { return numSharing; }
  /// Of the rank that it was taken on.
  Result<std::vector<StateRange>> stateRanges(int) const override {
    return ranges;
  }

private:
  std::vector<TensorView> views;
  int numSharing = 0;
  std::vector<StateRange> ranges;
};

/// How a save ended.
struct SaveResult {
  /// The checkpoint, or why there is none.
  Result<std::string> path = Error{"nothing was saved"};
  SaveReport report;
};

/// Saves one checkpoint at a time on a thread of its own.
class CheckpointWriter {
public:
  ~CheckpointWriter() { (void)wait(); }

  /// Whether a save was begun that `wait` has not returned.
  bool isBusy() const { return busy; }
  /// Whether `wait` returns at once.
  bool isDone() const { return done; }

  /// Takes a snapshot of the model, and begins to save it by `save`; none may
  /// be in progress. An error is the snapshot's.
  Status start(const Model &model,
               std::function<SaveResult(const TensorSet &)> save, int rank = 0,
               bool copies = true);

  /// Goes on with the snapshot of a save that `wait` has returned with
  /// `keepSnapshot`.
  void goOn(std::function<SaveResult(const TensorSet &)> save);

  /// Waits until the save in progress, if there is one, reads nothing any more
  /// of what the model has on the host.
  void join();

  /// The end of the save in progress; nothing if there is none.
  std::optional<SaveResult> wait(bool keepSnapshot = false);

private:
  PageMemory memory;
  std::unique_ptr<Snapshot> snapshot;
  SaveResult result;
  bool busy = false;
  std::atomic<bool> done{false};
  std::thread thread;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_CHECKPOINTWRITER_H
