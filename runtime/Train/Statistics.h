//===- Statistics.h - what gates and selections do --------------*- C++ -*-===//
//
// The entry `eval` of a sparse model gives a few numbers per layer, as outputs
// `<layer>.attention.gate.statistics` and `.selected.statistics`.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_STATISTICS_H
#define NSA_RUNTIME_TRAIN_STATISTICS_H

#include "runtime/Distributed/Ranks.h"
#include "runtime/Train/Model.h"

#include <string>
#include <utility>
#include <vector>

namespace nsa {

/// Means over the tokens and heads of a layer.
struct GateStatistics {
  double compressed = 0, selected = 0, window = 0;
  /// Of a token's gates, divided by their sum; log 3 = 1.0986 where all three
  /// are equal.
  double entropy = 0;
  /// The number that the layer has in the model, from 0.
  int64_t layer = 0;

  double sum() const { return compressed + selected + window; }
};

struct SelectionStatistics {
  /// Selected blocks of a query.
  double mean = 0;
  /// How many blocks before that of the query they lie.
  double distance = 0;
  /// Different blocks that the queries of one block select.
  double distinct = 0;
  int64_t layer = 0;
};

/// One entry per layer that has the branch.
struct AttentionStatistics {
  std::vector<GateStatistics> gates;
  std::vector<SelectionStatistics> selections;

  /// Means over the layers, by the names of the run's records: gate_compressed,
  /// gate_selected, gate_window, gate_entropy, gate_entropy_min (the lowest of
  /// a layer), sel_k_mean, sel_k_distance, sel_k_distinct. Empty without
  /// layers.
  std::vector<std::pair<std::string, double>> summary() const;
};

/// Where a program leaves the numbers.
class StatisticsBinding {
public:
  /// Finds the outputs; a model without gates has none. An output of another
  /// shape is an error.
  static Result<StatisticsBinding> create(const Model &model);

  bool empty() const { return gates.empty() && selections.empty(); }

  /// What the last run of `eval` gave; of the ranks that share sequences, what
  /// they have together. `name` is this reading's alone in the run.
  Result<AttentionStatistics> read(Ranks &ranks, const std::string &name) const;

private:
  AttentionStatistics readOwn() const;

  int64_t sequenceRanks = 1;
  /// By the numbers of their layers.
  std::vector<std::pair<int64_t, const float *>> gates, selections;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_STATISTICS_H
