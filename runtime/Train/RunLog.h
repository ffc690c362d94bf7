//===- RunLog.h - the records of a run --------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_RUNLOG_H
#define NSA_RUNTIME_TRAIN_RUNLOG_H

#include "lib/Support/EventFile.h"
#include "runtime/Train/RunDirectory.h"
#include "runtime/Train/Statistics.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// What one optimizer step gave.
struct StepRecord {
  /// 1-based.
  int64_t step = 0;
  float loss = 0;
  double lr = 0;
  float gradNorm = 0;
  /// Whether its sequences have a target. Without one nothing is updated, and
  /// loss and norm are NaN.
  bool hasTargets = true;
  double toksPerSecond = 0;
  /// For the step after this one; 0 where gradients are not scaled.
  float lossScale = 0;
  /// Of the step, what this rank did not spend waiting for others; 0 for one
  /// rank alone.
  double ownSeconds = 0;
  /// How long it took, until the ranks had agreed on it.
  double seconds = 0;
  /// Of the step, what reading the samples of the next one took; a GPU is at
  /// work meanwhile.
  double dataSeconds = 0;
  /// See Utilization.h; nothing where it is not known.
  std::optional<double> mfu = {};
  /// Of a logged step, if the model has gates.
  AttentionStatistics attention = {};
};

/// What an evaluation of held-out windows gave.
struct EvaluationRecord {
  /// A mean loss of targets up to position `last` of their windows, from where
  /// the entry before ends.
  struct Positions {
    int64_t last = 0;
    double loss = 0;
    uint64_t tokens = 0;
  };

  int64_t step = 0;
  /// validated, final, stage_end or stage_begun.
  std::string message;
  /// 0-based.
  size_t stage = 0;
  /// Of all windows; nothing where only `earlier` was evaluated.
  std::optional<double> loss = {};
  uint64_t tokens = 0;
  /// Of the last micro-batch, by layer.
  AttentionStatistics attention = {};
  std::vector<Positions> positions = {};
  /// Of the targets that sequences of the stage before have too.
  std::optional<Positions> earlier = {};
};

/// The message of the evaluation that the next stage compares its own with.
inline constexpr const char *stageEndMessage = "stage_end";

/// training.csv, val.csv, eval.jsonl, heartbeat_rank{r}.jsonl and tb/. Numbers
/// are printed so that they read back bit for bit. Ranks but the first write
/// heartbeats only. What cannot be written is kept for the next record; a
/// failure is reported when records begin to be kept.
class RunLog {
public:
  /// Opens the files; rows after `lastStep` are removed from the tables, and
  /// those of validation after `lastValidation`.
  static Result<RunLog> open(const RunDirectory &directory, int64_t lastStep,
                             int rank, int64_t lastValidation);
  static Result<RunLog> open(const RunDirectory &directory, int64_t lastStep,
                             int rank = 0) {
    return open(directory, lastStep, rank, lastStep);
  }

  /// The losses of the last rows of training.csv as it was opened, at most
  /// CsvLog::keptRows.
  std::vector<float> lastLosses() const;

  /// A training row and a heartbeat with `message`.
  Status step(const StepRecord &record, const std::string &message);

  Status validation(int64_t step, double loss);

  /// A line of eval.jsonl.
  Status evaluation(const EvaluationRecord &record);

  /// The last loss that eval.jsonl has of the end of a stage at this step.
  std::optional<double> stageEndLoss(int64_t step) const;

  /// A heartbeat without a step's numbers.
  Status logHeartbeat(int64_t step, const std::string &message);

  /// An error for each file whose last records could not be written.
  std::vector<Status> finish() const;

private:
  struct Tables {
    CsvLog training;
    CsvLog val;
    EventFile events;
    RecordFile evaluations;
    std::string evaluationPath;
  };

  RunLog(int rank, RecordFile heartbeat)
      : rank(rank), heartbeat(std::move(heartbeat)) {}

  int rank;
  RecordFile heartbeat;
  /// Of the first rank.
  std::optional<Tables> tables;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_RUNLOG_H
