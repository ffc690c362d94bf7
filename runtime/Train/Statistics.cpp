//===- Statistics.cpp - what gates and selections do ----------------------===//

#include "runtime/Train/Statistics.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace nsa {

static bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

Result<StatisticsBinding> StatisticsBinding::create(const Model &model) {
  StatisticsBinding binding;
  binding.sequenceRanks = model.sequenceRanks();
  struct Kind {
    const char *suffix;
    uint64_t numbers;
    std::vector<std::pair<int64_t, const float *>> &found;
  } kinds[] = {{".gate.statistics", 4, binding.gates},
               {".selected.statistics", 3, binding.selections}};
  for (const TensorView &tensor : model.tensors())
    for (Kind &kind : kinds) {
      if (tensor.role != TensorRole::Output ||
          !endsWith(tensor.name, kind.suffix))
        continue;
      if (tensor.type != DataType::F32 || tensor.shape.size() != 1 ||
          tensor.shape[0] != kind.numbers)
        return Error{"the artefact's output '" + tensor.name + "' has " +
                     std::to_string(tensor.elements()) +
                     " elements, expected " + std::to_string(kind.numbers) +
                     " of f32"};
      // A model that names its layers otherwise has them counted.
      int64_t layer = int64_t(kind.found.size());
      constexpr std::string_view layers = "layers.";
      if (tensor.name.compare(0, layers.size(), layers) == 0)
        std::from_chars(tensor.name.data() + layers.size(),
                        tensor.name.data() + tensor.name.size(), layer);
      kind.found.emplace_back(layer, tensor.as<const float>());
    }
  return binding;
}

AttentionStatistics StatisticsBinding::readOwn() const {
  AttentionStatistics statistics;
  for (auto [layer, x] : gates)
    statistics.gates.push_back({x[0], x[1], x[2], x[3], layer});
  for (auto [layer, x] : selections)
    statistics.selections.push_back({x[0], x[1], x[2], layer});
  return statistics;
}

/// Numbers of one layer on a rank that has one of `share` parts of the tokens.
static void addShare(GateStatistics &sum, const GateStatistics &own,
                     double share) {
  sum.compressed += own.compressed * share;
  sum.selected += own.selected * share;
  sum.window += own.window * share;
  sum.entropy += own.entropy * share;
}

/// Distances are means over blocks.
static void addShare(SelectionStatistics &sum, const SelectionStatistics &own,
                     double share) {
  double blocks = sum.mean + own.mean * share;
  if (blocks > 0)
    sum.distance =
        (sum.distance * sum.mean + own.distance * own.mean * share) / blocks;
  sum.mean = blocks;
  sum.distinct += own.distinct * share;
}

template <typename T>
static void addShares(std::vector<T> &sums, const char *bytes, double share) {
  for (T &sum : sums) {
    T own;
    std::memcpy(&own, bytes, sizeof own);
    bytes += sizeof own;
    addShare(sum, own, share);
  }
}

Result<AttentionStatistics>
StatisticsBinding::read(Ranks &ranks, const std::string &name) const {
  AttentionStatistics own = readOwn();
  if (sequenceRanks == 1)
    return own;
  size_t gateBytes = own.gates.size() * sizeof(GateStatistics);
  size_t selectionBytes = own.selections.size() * sizeof(SelectionStatistics);
  std::string bytes(gateBytes + selectionBytes, '\0');
  std::memcpy(bytes.data(), own.gates.data(), gateBytes);
  std::memcpy(bytes.data() + gateBytes, own.selections.data(), selectionBytes);
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                       ranks.exchange("statistics, " + name, bytes));
  AttentionStatistics sums;
  for (const GateStatistics &gate : own.gates)
    sums.gates.push_back({0, 0, 0, 0, gate.layer});
  for (const SelectionStatistics &selection : own.selections)
    sums.selections.push_back({0, 0, 0, selection.layer});
  size_t first = size_t(ranks.rank() / sequenceRanks * sequenceRanks);
  double share = 1.0 / double(sequenceRanks);
  for (size_t rank = first; rank < first + size_t(sequenceRanks); ++rank) {
    if (all[rank].size() != bytes.size())
      return Error{"rank " + std::to_string(rank) +
                   " is of another version of the trainer"};
    addShares(sums.gates, all[rank].data(), share);
    addShares(sums.selections, all[rank].data() + gateBytes, share);
  }
  return sums;
}

std::vector<std::pair<std::string, double>>
AttentionStatistics::summary() const {
  std::vector<std::pair<std::string, double>> result;
  auto addMean = [&](const char *name, const auto &layers, auto member) {
    double sum = 0;
    for (const auto &layer : layers)
      sum += layer.*member;
    result.emplace_back(name, sum / double(layers.size()));
  };
  if (!gates.empty()) {
    addMean("gate_compressed", gates, &GateStatistics::compressed);
    addMean("gate_selected", gates, &GateStatistics::selected);
    addMean("gate_window", gates, &GateStatistics::window);
    addMean("gate_entropy", gates, &GateStatistics::entropy);
    auto lowest =
        std::min_element(gates.begin(), gates.end(),
                         [](const GateStatistics &a, const GateStatistics &b) {
                           return a.entropy < b.entropy;
                         });
    result.emplace_back("gate_entropy_min", lowest->entropy);
  }
  if (!selections.empty()) {
    addMean("sel_k_mean", selections, &SelectionStatistics::mean);
    addMean("sel_k_distance", selections, &SelectionStatistics::distance);
    addMean("sel_k_distinct", selections, &SelectionStatistics::distinct);
  }
  return result;
}

} // namespace nsa
