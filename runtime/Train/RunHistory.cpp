//===- RunHistory.cpp - what a run has gone through -----------------------===//

#include "runtime/Train/RunHistory.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"

namespace nsa {

using Json = nlohmann::ordered_json;

/// Takes back a period of no steps.
template <typename Period>
static void removeFrom(std::vector<Period> &periods, int64_t step) {
  while (!periods.empty() && periods.back().fromStep >= step)
    periods.pop_back();
}

uint64_t convertSamples(uint64_t samples, int64_t before, int64_t after) {
  if (before == after)
    return samples;
  auto tokens = static_cast<unsigned __int128>(samples) * uint64_t(before);
  return uint64_t((tokens + uint64_t(after) - 1) / uint64_t(after));
}

void RunHistory::setBatch(int64_t step, uint64_t samples, int64_t batchSize,
                          int64_t seqLen) {
  removeFrom(batches, step);
  if (batches.empty() || batches.back().batchSize != batchSize ||
      batches.back().seqLen != seqLen)
    batches.push_back({step, samples, batchSize, seqLen});
}

void RunHistory::setData(int64_t step, uint64_t digest) {
  removeFrom(data, step);
  if (data.empty() || data.back().digest != digest)
    data.push_back({step, digest});
}

/// Samples consumed at a step of the period.
static Result<uint64_t> samplesIn(const BatchPeriod &period, int64_t step) {
  uint64_t steps = uint64_t(step) - uint64_t(period.fromStep), samples = 0;
  if (__builtin_mul_overflow(steps, uint64_t(period.batchSize), &samples) ||
      __builtin_add_overflow(samples, period.samples, &samples))
    return Error{std::to_string(steps) + " steps of " +
                 std::to_string(period.batchSize) +
                 " sequences are more than 2^64"};
  return samples;
}

Result<uint64_t> RunHistory::samplesAt(int64_t step) const {
  uint64_t samples = 0;
  const BatchPeriod *last = nullptr;
  for (const BatchPeriod &period : batches) {
    if (last ? period.fromStep <= last->fromStep : period.fromStep != 0)
      return Error{
          "batches from step " + std::to_string(period.fromStep) +
          (last ? " follow those from step " + std::to_string(last->fromStep)
                : " come first")};
    if (period.fromStep > step)
      return Error{"batches from step " + std::to_string(period.fromStep) +
                   " are later than step " + std::to_string(step)};
    if (period.batchSize < 1)
      return Error{"a batch of " + std::to_string(period.batchSize)};
    if (period.seqLen < 0 || (last && !period.seqLen != !last->seqLen))
      return Error{"batches from step " + std::to_string(period.fromStep) +
                   " are of sequences of " + std::to_string(period.seqLen) +
                   " tokens"};
    if (last) {
      NSA_ASSIGN_OR_RETURN(uint64_t before, samplesIn(*last, period.fromStep));
      samples = period.seqLen
                    ? convertSamples(before, last->seqLen, period.seqLen)
                    : before;
    }
    if (period.samples != samples)
      return Error{"batches from step " + std::to_string(period.fromStep) +
                   " begin at sample " + std::to_string(period.samples) +
                   ", those before end at " + std::to_string(samples)};
    last = &period;
  }
  if (!last)
    return Error{"no batches"};
  return samplesIn(*last, step);
}

void writeHistory(const RunHistory &history, Json &state) {
  for (const BatchPeriod &period : history.batches) {
    Json batch = {{"from_step", period.fromStep},
                  {"samples", period.samples},
                  {"batch_size", period.batchSize}};
    if (period.seqLen)
      batch["seq_len"] = period.seqLen;
    state["batches"].push_back(batch);
  }
  for (const DataPeriod &period : history.data)
    state["data"].push_back(
        Json{{"from_step", period.fromStep}, {"digest", toHex(period.digest)}});
  if (!history.initFrom.empty())
    state["init_from"] =
        Json{{"path", history.initFrom}, {"xxh3", toHex(history.initHash)}};
  for (const DataFile &file : history.files) {
    Json entry = {{"file", file.file}, {"xxh3", toHex(file.hash)}};
    if (file.stamp.bytes > 0) {
      entry["bytes"] = file.stamp.bytes;
      entry["modified"] = file.stamp.modified;
    }
    state["data_files"].push_back(std::move(entry));
  }
}

RunHistory readHistory(const Json &state) {
  RunHistory history;
  if (state.contains("batches"))
    for (const Json &period : state.at("batches"))
      history.batches.push_back(
          {readInteger(period.at("from_step")),
           readUnsigned(period.at("samples")),
           readInteger(period.at("batch_size")),
           period.contains("seq_len") ? readInteger(period.at("seq_len")) : 0});
  if (state.contains("data"))
    for (const Json &period : state.at("data"))
      history.data.push_back(
          {readInteger(period.at("from_step")), readHash(period.at("digest"))});
  if (state.contains("init_from")) {
    history.initFrom = state.at("init_from").at("path").get<std::string>();
    history.initHash = readHash(state.at("init_from").at("xxh3"));
  }
  if (state.contains("data_files"))
    for (const Json &entry : state.at("data_files")) {
      DataFile file;
      file.file = entry.at("file").get<std::string>();
      file.hash = readHash(entry.at("xxh3"));
      if (entry.contains("bytes"))
        file.stamp = {readUnsigned(entry.at("bytes")),
                      readInteger(entry.at("modified"))};
      history.files.push_back(std::move(file));
    }
  return history;
}

} // namespace nsa
