//===- RunDirectory.h - the files of one run --------------------*- C++ -*-===//
//
//   config.yaml, config.json  the resolved configuration
//   env.json                  machine, program, command line
//   dtypes_report.txt         every tensor's type, shape and role
//   train.log                 what the console showed
//   training.csv              step,loss,lr,grad_norm,toks_per_s
//   val.csv                   step,loss,ppl
//   heartbeat_rank{r}.jsonl   one object per step
//   tb/                       event files for TensorBoard
//   samples.txt               generated text
//   checkpoints/              see Checkpoint.h
//   metrics.json              the result, at the end
//   .anomaly_type             what went wrong last
//   .HALT                     written by the user to stop a run
//   .lock                     held by the process that writes all this
//
// Every record is written through at once.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_RUNDIRECTORY_H
#define NSA_RUNTIME_TRAIN_RUNDIRECTORY_H

#include "lib/Support/Files.h"
#include "lib/Support/RecordFile.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// UTC time such as 2025-01-31T12:00:00Z.
std::string isoTime(double secondsSinceEpoch);

/// Seconds since 1970, and seconds of a clock that never jumps.
double wallClock();
double steadyClock();

/// A table whose first column is the optimizer step.
class CsvLog {
public:
  /// Opens `path`, writing `header` if it is new. Rows of steps after
  /// `lastStep`, and an incomplete last row, are removed: a resumed run writes
  /// them again. A file with another header is an error.
  static Result<CsvLog> open(const std::string &path, const std::string &header,
                             int64_t lastStep);

  /// Appends one row; it is on its way to the disk when this returns.
  Status append(const std::string &row);

  /// The last rows that were there when it was opened, at most `keptRows`.
  const std::vector<std::string> &lastRows() const { return last; }
  static constexpr size_t keptRows = 100;

  /// See RecordFile::finish.
  Status finish() const { return file.finish(); }

private:
  CsvLog(RecordFile file, std::vector<std::string> last)
      : file(std::move(file)), last(std::move(last)) {}
  RecordFile file;
  std::vector<std::string> last;
};

/// What a look at `.HALT` gave.
struct HaltRequest {
  /// The file is meant for this run.
  bool halt = false;
  /// Set once when a file is there that is not.
  std::string ignored;
};

/// Whether a run left the result of training to its end.
bool hasResult(const std::string &runDirectory);

class RunDirectory {
public:
  /// Creates `<outDir>/<name>`, which must not exist; an empty name stands for
  /// the time and `label`.
  static Result<RunDirectory> create(const std::string &outDir,
                                     const std::string &name,
                                     const std::string &label);

  /// Takes up an existing run.
  static Result<RunDirectory> reopen(const std::string &path);

  /// Holds the run at `path` for this process, which alone may write there.
  static Result<FileLock> lock(const std::string &path);

  const std::string &path() const { return folder; }
  std::string file(const std::string &name) const {
    return folder + "/" + name;
  }

  /// Names this process's part of the run; new at every start.
  const std::string &id() const { return runId; }

  /// Writes a whole file atomically.
  Status write(const std::string &name, const std::string &contents) const;

  /// An error if the directory was removed or renamed since it was opened: what
  /// is written then would be lost.
  Status check() const;

  /// Looks for `.HALT`. It is meant for this run if it holds the run's id, or
  /// is empty and younger than the run.
  HaltRequest checkHalt();

  /// Removes an honoured `.HALT`.
  void clearHalt() const;

private:
  RunDirectory(std::string folder, HeldDirectory held);
  static Result<RunDirectory> hold(const std::string &path);

  std::string folder;
  HeldDirectory held;
  std::string runId;
  double started = 0;
  bool reportedStale = false;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_RUNDIRECTORY_H
