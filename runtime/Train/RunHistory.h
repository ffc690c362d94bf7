//===- RunHistory.h - what a run has gone through ---------------*- C++ -*-===//
//
// A run may go on with another batch size or other data where that is allowed
// by name, and may begin with weights of another one. Its checkpoints say when
// and what: in the members `batches`, `data`, `init_from` and `data_files` of
// state.json.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_RUNHISTORY_H
#define NSA_RUNTIME_TRAIN_RUNHISTORY_H

#include "runtime/Data/Verifier.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace nsa {

/// Steps of one batch size: those after step `fromStep`, at which `samples`
/// had been consumed.
struct BatchPeriod {
  int64_t fromStep = 0;
  uint64_t samples = 0;
  int64_t batchSize = 0;
  /// Tokens of a sample; 0 in runs without stages, where all are alike.
  int64_t seqLen = 0;
};

/// The samples of `after` tokens that begin where as many of `before` end.
uint64_t convertSamples(uint64_t samples, int64_t before, int64_t after);

/// The steps after `fromStep` took these data.
struct DataPeriod {
  int64_t fromStep = 0;
  uint64_t digest = 0;
};

struct RunHistory {
  /// Ascending, from step 0. Empty in checkpoints of before there was one.
  std::vector<BatchPeriod> batches;
  std::vector<DataPeriod> data;
  /// The file that the first weights came from, with its hash; empty if they
  /// were drawn from the seed.
  std::string initFrom;
  uint64_t initHash = 0;
  /// The files of the data, as they were verified last. Empty in checkpoints of
  /// before that was kept.
  std::vector<DataFile> files;

  /// The steps after `step`, at which `samples` were consumed, have this batch
  /// size, or take these data.
  void setBatch(int64_t step, uint64_t samples, int64_t batchSize,
                int64_t seqLen = 0);
  void setData(int64_t step, uint64_t digest);

  /// Samples consumed at a step. An error where the batches say nothing that
  /// can be: they do not begin at step 0, do not ascend, or contradict each
  /// other.
  Result<uint64_t> samplesAt(int64_t step) const;
};

/// Adds the members to the object of a state.json.
void writeHistory(const RunHistory &history, nlohmann::ordered_json &state);

/// Reads them back; throws on what they are not. Members that are not there
/// leave their part empty.
RunHistory readHistory(const nlohmann::ordered_json &state);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_RUNHISTORY_H
