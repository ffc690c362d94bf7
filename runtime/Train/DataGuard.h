//===- DataGuard.h - data that is damaged or cannot be read -----*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_DATAGUARD_H
#define NSA_RUNTIME_TRAIN_DATAGUARD_H

#include "runtime/Train/RunContext.h"

#include <string>

namespace nsa {

/// What is known of the data of a rank, or of all ranks the worst.
struct DataHealth {
  enum Failure : int32_t { None, Unreadable, Damaged } failure = None;
  bool isVerified = true;
};

/// Sees that no checkpoint is made of data that was not verified: a shard whose
/// hash is wrong was perhaps trained on. One that cannot be read any more has
/// spoilt nothing.
class DataGuard {
public:
  explicit DataGuard(RunContext &run) : run(run) {}

  /// Waits for the verifier as long as the options say.
  Status verifyAtStart();
  /// The files are to be those that a checkpoint was made of.
  Status expectFiles(const Checkpoint &checkpoint);

  /// Looks after a step, of whose next samples `samples` says whether they were
  /// read. `add` takes what other ranks say.
  DataHealth look(const Status &samples);
  void add(const DataHealth &other);
  bool hasFailed() const { return all.failure != DataHealth::None; }

  /// Waits, with all ranks, until the verifiers are done. False means that the
  /// run was asked to stop before, which was reported.
  Result<bool> awaitVerified();
  /// That no file was written since it was verified.
  Status checkUnchanged();

  /// What has failed on some rank, said on every one. Where data is damaged, it
  /// is the end of the run without a checkpoint.
  std::string describeFailure(const Status &samples);
  bool isDamaged() const { return all.failure == DataHealth::Damaged; }
  Error damaged(const std::string &found) const;

private:
  Status waitAtStart(DataVerifier &verifier) const;
  void reportUnverified();

  RunContext &run;
  /// After the last step.
  DataHealth own, all;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_DATAGUARD_H
