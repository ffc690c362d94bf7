//===- Console.h - what people see of a run ---------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_CONSOLE_H
#define NSA_RUNTIME_TRAIN_CONSOLE_H

#include "lib/Support/RecordFile.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace nsa {

/// The numbers of a progress line.
struct Progress {
  int64_t step = 0;
  int64_t steps = 0;
  double loss = 0;
  double lr = 0;
  double toksPerSecond = 0;
  double secondsLeft = 0;
  /// Of the last steps, if there is more to say than the loss of this one.
  std::optional<double> meanLoss = {};
  /// What that is for each byte of text, if that is known.
  std::optional<double> bitsPerByte = {};
  /// A part of 1.
  std::optional<double> mfu = {};
};

/// Prints lines to `out` and to the run's train.log. On a terminal, the
/// progress of the current step is redrawn in place below them.
class Console {
public:
  /// `live` redraws the progress line at each step.
  Console(std::FILE *out, bool live) : out(out), live(live) {}
  ~Console() { clearBar(); }

  /// Lines printed from now on, and those before, also go to `path`.
  Status logTo(const std::string &path);

  /// Prints a line (without its newline).
  void line(const std::string &text);

  /// Shows a step's progress: the bar of a live console, else a line if
  /// `logged`. train.log gets it if `logged`.
  void progress(const Progress &progress, bool logged);

  /// On a live console, says what takes time until the next line.
  void busy(const std::string &what);

  /// See RecordFile::finish.
  Status finish() const { return log ? log->finish() : Status(); }

  /// `step 0020 | loss 5.6123 | lr 2.00e-05 | toks/s 785 | eta 03:12`, and what
  /// else there is before `eta`: `mean 5.7012 | bits/byte 8.2251 | mfu 31.2 %`.
  static std::string format(const Progress &progress);

  /// A progress line for a terminal of this width: with a bar of 20 cells, a
  /// shorter one, or none.
  static std::string withBar(const std::string &text, const Progress &progress,
                             int columns);

  /// `[####....]` of `width` cells.
  static std::string bar(int64_t step, int64_t steps, int width);

  /// `03:12`, or `1:03:12` from an hour on.
  static std::string duration(double seconds);

private:
  int columns() const;
  void show(const std::string &text);
  void clearBar();
  void record(const std::string &text);

  std::FILE *out;
  bool live;
  bool barShown = false;
  std::string early;
  std::optional<RecordFile> log;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_CONSOLE_H
