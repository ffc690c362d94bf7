//===- RunJournal.h - what a run says and records ---------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_RUNJOURNAL_H
#define NSA_RUNTIME_TRAIN_RUNJOURNAL_H

#include "runtime/Distributed/Ranks.h"
#include "runtime/Train/Anomaly.h"
#include "runtime/Train/Console.h"
#include "runtime/Train/RunLog.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// Something that happened in a run. Each sink takes what it records.
struct RunEvent {
  int64_t step = 0;
  /// For people.
  std::string line = {};
  /// The message of a heartbeat, or of the row of `record`.
  std::string heartbeat = {};
  const StepRecord *record = nullptr;
  /// Of held-out windows.
  std::optional<double> validationLoss = {};
  const EvaluationRecord *evaluation = nullptr;
  /// Written by the first rank.
  std::optional<AnomalyKind> anomaly = {};
  std::string sample = {};
};

/// Takes the events of a run.
class RunSink {
public:
  virtual ~RunSink() = default;
  /// An error says what could not be written.
  virtual Status take(const RunEvent &event) = 0;
};

/// Passes events on to the console, the logs and the files of a run. No weight
/// depends on a record: what cannot be written is a warning. Borrowed arguments
/// outlive it.
class RunJournal {
public:
  RunJournal(Console &console, Ranks &ranks) : console(console), ranks(ranks) {}

  void publish(const RunEvent &event);
  void heartbeat(int64_t step, const std::string &message) {
    publish({.step = step, .heartbeat = message});
  }
  void say(const std::string &line) { console.line(line); }
  /// See Console.
  void busy(const std::string &what) { console.busy(what); }
  void progress(const Progress &progress, bool logged) {
    console.progress(progress, logged);
  }

  /// Says once what is wrong, and again at the end.
  void warn(const std::string &text);
  /// Warns of a record that could not be written.
  void noteWrite(const Status &status);
  /// Keeps what is said after the header.
  void note(const std::string &text) { notes.push_back(text); }
  /// Says what was noted and warned of so far.
  void sayNotes();
  void sayWarnings();

  /// Begins to write in the run's directory, from the row after `lastStep` on
  /// and from that of validation after `lastValidation`.
  Status open(RunDirectory opened, int64_t lastStep, int64_t lastValidation);
  bool isOpen() const { return folder.has_value(); }
  RunDirectory &directory() { return *folder; }
  const RunDirectory &directory() const { return *folder; }
  const RunLog &log() const { return *records; }
  /// Warns of records that could not be written.
  void finish();

private:
  Console &console;
  Ranks &ranks;
  std::optional<RunDirectory> folder;
  std::optional<RunLog> records;
  std::vector<std::unique_ptr<RunSink>> sinks;
  std::vector<std::string> notes, warnings;
  bool hasHeader = false;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_RUNJOURNAL_H
