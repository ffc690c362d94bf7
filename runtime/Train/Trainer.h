//===- Trainer.h - the training loop ----------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_TRAINER_H
#define NSA_RUNTIME_TRAIN_TRAINER_H

#include "lib/Support/Stages.h"
#include "runtime/Data/Sampler.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Data/Verifier.h"
#include "runtime/Distributed/Ranks.h"
#include "runtime/Train/Anomaly.h"
#include "runtime/Train/CheckpointWriter.h"
#include "runtime/Train/Console.h"
#include "runtime/Train/Evaluate.h"
#include "runtime/Train/RunLog.h"
#include "runtime/Train/Schedule.h"
#include "runtime/Train/Signals.h"
#include "runtime/Train/StepSamples.h"
#include "runtime/Train/Utilization.h"

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nsa {

struct TrainOptions {
  /// Where the configuration came from, for messages and the run's name.
  std::string configPath;
  /// Folder of the run below train.out_dir; empty makes a name from the time.
  std::string runName;
  /// Empty starts anew; `auto` takes the newest matching checkpoint below
  /// train.out_dir, if there is one; else a checkpoint or run directory.
  std::string resume;
  /// A run directory to go on in: from its latest checkpoint, or from step 0 if
  /// there is none yet. Not together with `resume`.
  std::string restart;
  /// What the search for these has given, where it was made before.
  std::optional<FoundCheckpoint> found;
  /// A checkpoint, run or file whose weights a new run begins with; empty draws
  /// them from the seed. Not together with `resume`.
  std::string initFrom;
  /// Takes the parameters that both have, and leaves the others.
  bool initPartial = false;
  /// Let a run go on with another train.batch_size, or other data.
  bool allowChangedBatch = false;
  bool allowChangedData = false;
  /// Of a configuration with stages, the one to train, whose values it has. A
  /// run goes on with the next one by `resume`.
  size_t stage = 0;
  /// Stops after this many optimizer steps of this process; 0 does not.
  int64_t stopAfter = 0;
  /// Runs accumulate and update although the program has a step entry.
  bool separateUpdate = false;
  /// A step that takes longer is a heartbeat_stall; 0 allows any time.
  double stallSeconds = 1800;
  /// Compares the shards with their manifest; null takes them as they are.
  DataVerifier *verifier = nullptr;
  /// How long training waits for it; what is left is verified beside.
  double verifySeconds = 2;
  /// How long a run that a signal asked to stop still waits for it.
  double stopSeconds = 10;
  /// What else every rank must have been given alike, such as
  /// {"--check-finite", "on"}.
  std::vector<std::pair<std::string, std::string>> sameOnAllRanks;
  /// What the device of a rank does at its peak, floating-point operations per
  /// second; 0 where that is not known. runtime.peak_tflops comes before it.
  double peakFlops = 0;
  /// Written to env.json.
  std::vector<std::pair<std::string, std::string>> facts;
  /// Told the run directory as soon as it is known, on the first rank.
  std::function<void(const std::string &)> onRunDirectory;
};

/// Why training ended.
enum class TrainEnd {
  Finished,
  /// The last step of a stage that others follow, which is saved.
  StageEnded,
  /// A .HALT file, or stopAfter.
  Halted,
  /// SIGINT, SIGTERM or SIGHUP.
  Interrupted,
  /// The loss or the gradient norm was not finite, and no update was applied;
  /// or what was to be saved was not finite, and nothing was saved.
  NonFinite,
};

/// finished, stage_ended, halted, interrupted or nan_loss.
const char *endName(TrainEnd end);

/// One run, or the continuation of one. Borrowed arguments outlive it. Every
/// rank of a run has a trainer; the first one writes, the others only their
/// heartbeats.
class Trainer {
public:
  Trainer(Model &model, const Dataset &data, const RunConfig &config,
          const TrainOptions &options, Console &console, Ranks &ranks)
      : model(model), data(data), config(config), options(options),
        console(console), ranks(ranks) {}

  /// Trains to the end. Whatever stops a run in a planned way is a TrainEnd;
  /// an error means that something does not work.
  Result<TrainEnd> run();

  /// Optimizer steps of this process.
  int64_t stepsDone() const { return state.step - firstStep; }

  /// Valid after run() got as far as creating it.
  std::string runDirectory() const {
    return directory ? directory->path() : "";
  }

private:
  // Before the first step.
  Status prepare();
  Status checkTargets() const;
  Status checkTargets(const std::vector<uint64_t> &chosen) const;
  Status openDocuments();
  Status openMarks();
  Status openText();
  Status checkSamples();
  Status checkSameRun();
  Status openRun();
  struct RunChoice;
  Result<RunChoice> chooseRun();
  Result<FoundCheckpoint> findStart();
  Status lockRun(const RunChoice &choice);
  Status enterRun(const RunChoice &choice);
  Status loadInitial();
  Result<bool> isOfThisRun(const std::string &folder,
                           const TrainState &saved) const;
  Status takeOver(const Checkpoint &checkpoint);
  Status resumeFrom(const std::string &folder,
                    const std::optional<Checkpoint> &opened);
  Status writeRunFiles() const;
  Status planMeasures();
  void printHeader();

  Result<TrainEnd> trainAndFinish();
  Status endStage();
  /// The last step of the stage, or of the run.
  int64_t lastStep() const { return getLastStep(config, options.stage); }

  // A step.
  Result<StepRecord> runStep();
  void addSeconds(StepRecord &record, double seconds);
  Result<TrainEnd> loop();
  Status afterStep(StepRecord record);
  void showProgress(const StepRecord &record, bool logged);
  bool isLogged(int64_t step) const;
  Status addStatistics(StepRecord &record);
  void reportAnomaly(const Anomaly &anomaly, int64_t step);
  Result<std::optional<TrainEnd>> synchronizeStep(StepRecord &record);
  std::optional<TrainEnd> stopReason();
  Result<TrainEnd> reportNonFinite(const StepRecord &record);
  Result<std::string> findFirstNonFinite();
  Result<TrainEnd> stopAll(const std::string &found);
  Result<TrainEnd> reportStopped(const std::string &found);
  Status writeAnomaly(AnomalyKind kind) const;

  // Data.
  struct DataHealth {
    enum Failure : int32_t { None, Unreadable, Damaged } failure = None;
    bool isVerified = true;
  };
  Status verifyAtStart();
  DataHealth ownDataHealth() const;
  Status waitAtStart(DataVerifier &verifier) const;
  Result<bool> awaitVerified();
  Status checkUnchanged();
  Status expectFiles(const Checkpoint &checkpoint);
  TrainEnd reportUnverified();
  Error damagedData(const std::string &found) const;
  Result<TrainEnd> endOnData();
  Error saveUnreadable(const std::string &found);

  // Around steps.
  /// How long a rank that is at work may take for a checkpoint: file systems
  /// can be slower than any step.
  static constexpr Milliseconds mostToSave{30 * 60 * 1000};
  void checkSpace();
  bool isSaveDueByTime() const;
  struct SaveOutcome;
  Result<SaveOutcome> synchronizeSave(const std::string &point,
                                      const SaveOutcome &own);
  Result<SaveOutcome> beginShares();
  Result<SaveOutcome> synchronizeShares(int64_t step, const SaveOutcome &own);
  Result<SaveOutcome> saveShares();
  Result<SaveOutcome> saveAll();
  SaveOutcome takeResult(const SaveResult &result);
  std::function<SaveResult(const Model &)> saver() const;
  std::function<SaveResult(const Model &)> shareSaver() const;
  Result<std::optional<TrainEnd>> startSave();
  /// Goes on with the save that is written beside steps once a part of it is.
  Result<std::optional<TrainEnd>> continueSave();
  Result<SaveOutcome> endShares();
  /// Ends the save that is written beside steps, on all ranks; nothing if there
  /// is none. Returns what ends the run, if something does.
  Result<std::optional<TrainEnd>> endSave(bool isLast);
  /// The same where the ranks cannot agree on its end any more.
  void endOwnSave();
  Result<std::optional<TrainEnd>> reportSave(int64_t step, SaveOutcome outcome,
                                             bool isLast);
  /// Saves, unless this step is saved. A full disk is an error of the `isLast`
  /// save of a run only. Returns what ends the run, if something does.
  Result<std::optional<TrainEnd>> save(bool isLast);
  Result<std::optional<TrainEnd>> reportUnsaved(int64_t step,
                                                const std::string &found);
  Status validate();
  /// The windows of an evaluation during training.
  static std::vector<uint64_t> chooseWindows(const RunConfig &config,
                                             const ValidationWindows &windows);
  /// The windows of the final evaluation.
  std::vector<uint64_t> finalWindows() const;
  EvaluationRecord recordOf(const char *message) const;
  Status recordEvaluation(const char *message, const EvalResult &result);
  Result<EvalResult> evaluatePositions(const ValidationWindows &held,
                                       const std::vector<uint64_t> &chosen,
                                       PositionRange positions,
                                       const char *why);
  int64_t earlierLength() const;
  Result<EvalResult>
  evaluateAtEarlierLength(const std::vector<uint64_t> &chosen, const char *why);
  Status evaluateBeforeSwitch();
  Status evaluateAfterSwitch();
  std::string bitsText(double bits) const;
  Result<double> bitsPerByte(const std::vector<uint64_t> &chosen,
                             const EvalResult &result);
  Result<TextSize> measureHeldOut(const std::vector<uint64_t> &chosen);
  /// Whether `step` computes what accumulate and update do.
  bool usesStep() const { return binding.hasStep && !options.separateUpdate; }
  Status dumpState(const StepRecord &record);
  Status writeSample(const std::string &text);
  Status showSample(const std::string &title, double secondsAllowed);

  // Anomalies that do not end the run.
  void warn(const std::string &text);
  void noteWrite(const Status &status);

  // After the last step.
  Status finish(TrainEnd end);
  Status finalEvaluation();
  Status writeMetrics(TrainEnd end) const;
  void printSummary(TrainEnd end);

  Model &model;
  const Dataset &data;
  const RunConfig config;
  const TrainOptions options;
  Console &console;
  Ranks &ranks;
  SignalScope signals;

  TrainBinding binding;
  StatisticsBinding statistics;
  AnomalyMonitor monitor;
  BatchPlan plan;
  /// What tokens stand for, if that is known.
  std::optional<Tokenizer> tokenizer;
  std::optional<TrainSampler> sampler;
  /// Of both splits, where documents do not see each other.
  Documents trainDocuments, valDocuments;
  /// The same of targets, where only the marked ones count.
  TargetMarks trainMarks, valMarks;
  StepSamples samples;
  /// After the last step: of this rank, and of all ranks the worst.
  DataHealth ownHealth, dataHealth;
  std::optional<ValidationWindows> windows;
  /// The windows whose text was measured last, and its size.
  std::vector<uint64_t> measuredWindows;
  TextSize measuredText;
  /// Of the first rank.
  std::optional<FileLock> lock;
  std::optional<RunDirectory> directory;
  std::optional<RunLog> log;
  TrainState state;
  int64_t savedStep = -1;
  /// Of the first rank, and of all where they share the states.
  CheckpointWriter writer;
  /// The step of the save that is written beside steps, on every rank; -1 if
  /// there is none. Whether it is written, as of the last step.
  int64_t pendingSave = -1;
  bool isSaveWritten = false;
  /// Whether the ranks' shares are being written, after which `saveRest`
  /// saves what else is in the checkpoint.
  bool sharesPending = false;
  std::function<SaveResult(const Model &)> saveRest;
  /// How long steps have waited for saves.
  double saveSeconds = 0;
  /// How long samples took.
  double sampleSeconds = 0;
  /// When a save was last tried, or the steps began.
  double lastSave = 0;
  /// Whether a save is due by the clock of the first rank, as of the last step.
  bool saveDueByTime = false;
  int64_t failedSaves = 0;
  std::string lastCheckpoint;
  /// A message that there is nothing to do; else empty.
  std::string finishedRun;
  /// What was decided before the header could be printed.
  std::vector<std::string> notes;
  /// Said after the header, and again at the end.
  std::vector<std::string> warnings;
  bool hasHeader = false;

  // Timing of this process.
  int64_t firstStep = 0;
  double stepSeconds = 0;
  /// Of these, spent reading samples.
  double dataSeconds = 0;
  double recentSeconds = 0;
  int64_t recentSteps = 0;
  Utilization utilization;
  RunningMean recentLoss{CsvLog::keptRows};
  /// Of a token, in the held-out text; 0 where tokens are no text.
  double bytesPerToken = 0;
  /// The largest spread of what ranks need for a step, as a part of it, since
  /// the last line, and the rank that needed most.
  double recentSpread = 0;
  int slowestRank = 0;
  double started = 0;
  /// NaN, null in metrics.json, where no step has ended well.
  float lastLoss = std::numeric_limits<float>::quiet_NaN();

  // The final evaluation.
  struct Final {
    double loss = 0;
    uint64_t tokens = 0;
    /// Of text in other tokens than bytes.
    std::optional<double> bitsPerByte;
    std::optional<double> order1, order2;
    std::string ngramNote;
  };
  std::optional<Final> final;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_TRAINER_H
