//===- SampleWriter.h - texts that a run shows ------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_SAMPLEWRITER_H
#define NSA_RUNTIME_TRAIN_SAMPLEWRITER_H

#include "runtime/Train/RunContext.h"

#include <string>
#include <vector>

namespace nsa {

/// Continues the prompt of the configuration, on the first rank, for the
/// console and samples.txt.
class SampleWriter {
public:
  explicit SampleWriter(RunContext &run) : run(run) {}

  /// Notes before training what configured samples will lack.
  Status check();
  /// Shows a sample, of which `title` says when it is made. It is cut where it
  /// takes longer than `secondsAllowed`.
  Status show(const std::string &title, double secondsAllowed);
  /// How long all of them took.
  double seconds() const { return allSeconds; }

private:
  RunContext &run;
  /// The prompt as tokens; empty where there are no samples.
  std::vector<int32_t> prompt;
  double allSeconds = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_SAMPLEWRITER_H
