//===- RunLog.cpp - the records of a run ----------------------------------===//

#include "runtime/Train/RunLog.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"
#include "runtime/Train/Environment.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace nsa {

using Json = nlohmann::ordered_json;

/// Cuts off the line that a process which was killed did not end.
static Status dropHalfLine(const std::string &path) {
  Result<bool> there = fileExists(path);
  if (!there)
    return there.takeError();
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!*there || !file || file.tellg() <= 0)
    return {};
  std::streamoff size = file.tellg(), kept = size;
  for (char last = 0; kept > 0; --kept) {
    file.seekg(kept - 1);
    if (!file.get(last) || last == '\n')
      break;
  }
  if (kept < size && ::truncate(path.c_str(), kept) != 0)
    return systemError("cannot shorten", path);
  return {};
}

Result<RunLog> RunLog::open(const RunDirectory &directory, int64_t lastStep,
                            int rank, int64_t lastValidation) {
  std::string heartbeats =
      directory.file("heartbeat_rank" + std::to_string(rank) + ".jsonl");
  if (Status status = dropHalfLine(heartbeats); !status)
    return Error{status.message()};
  Result<RecordFile> heartbeat = RecordFile::open(heartbeats);
  if (!heartbeat)
    return heartbeat.takeError();
  RunLog log(rank, std::move(*heartbeat));
  if (rank != 0)
    return log;
  Result<CsvLog> training =
      CsvLog::open(directory.file("training.csv"),
                   "step,loss,lr,grad_norm,toks_per_s", lastStep);
  if (!training)
    return training.takeError();
  Result<CsvLog> val =
      CsvLog::open(directory.file("val.csv"), "step,loss,ppl", lastValidation);
  if (!val)
    return val.takeError();
  Result<EventFile> events =
      EventFile::create(directory.file("tb"), wallClock(), lastStep + 1);
  if (!events)
    return events.takeError();
  log.tables.emplace(
      Tables{std::move(*training), std::move(*val), std::move(*events)});
  return log;
}

std::optional<float> RunLog::lastLoss() const {
  if (!tables)
    return std::nullopt;
  const std::string &row = tables->training.lastRow();
  size_t comma = row.find(',');
  if (comma == std::string::npos)
    return std::nullopt;
  char *end = nullptr;
  float loss = std::strtof(row.c_str() + comma + 1, &end);
  return *end == ',' ? std::optional<float>(loss) : std::nullopt;
}

static Json startHeartbeat(int rank, int64_t step, const std::string &message) {
  double now = wallClock();
  return {{"ts", now},    {"iso", isoTime(now)}, {"pid", ::getpid()},
          {"rank", rank}, {"step", step},        {"msg", message}};
}

static Status appendHeartbeat(RecordFile &file, Json entry) {
  entry["memory"] = processMemory().resident;
  return file.write(jsonText(entry) + "\n");
}

/// The scalars of a step, gates also by layer.
static std::vector<std::pair<std::string, double>>
eventValues(const StepRecord &record) {
  std::vector<std::pair<std::string, double>> values = {
      {"train/loss", record.loss},
      {"train/lr", record.lr},
      {"train/grad_norm", record.gradNorm},
      {"train/toks_per_s", record.toksPerSecond},
      {"train/data_seconds", record.dataSeconds}};
  if (record.lossScale > 0)
    values.emplace_back("train/loss_scale", record.lossScale);
  for (const auto &[name, value] : record.attention.summary())
    values.emplace_back("attention/" + name, value);
  for (size_t layer = 0; layer < record.attention.gates.size(); ++layer) {
    const GateStatistics &gates = record.attention.gates[layer];
    std::string place = "gates/" + std::to_string(layer);
    values.emplace_back(place + "/compressed", gates.compressed);
    values.emplace_back(place + "/selected", gates.selected);
    values.emplace_back(place + "/window", gates.window);
    values.emplace_back(place + "/entropy", gates.entropy);
  }
  return values;
}

/// What failed of two writes.
static Status both(const Status &first, const Status &second) {
  if (first || second)
    return first ? second : first;
  return Error{first.message() + "; " + second.message()};
}

Status RunLog::step(const StepRecord &record, const std::string &message) {
  char speed[32];
  std::snprintf(speed, sizeof speed, "%.1f", record.toksPerSecond);
  std::string row = std::to_string(record.step) + "," + shortest(record.loss) +
                    "," + shortest(record.lr) + "," +
                    shortest(record.gradNorm) + "," + speed;
  Status written = tables ? tables->training.append(row) : Status();
  Json entry = startHeartbeat(rank, record.step, message);
  // JSON has no NaN; such a heartbeat's message says what happened.
  entry["loss"] = record.loss;
  entry["lr"] = record.lr;
  entry["grad_norm"] = record.gradNorm;
  entry["toks_per_s"] = record.toksPerSecond;
  entry["data_seconds"] = record.dataSeconds;
  if (record.lossScale > 0)
    entry["loss_scale"] = record.lossScale;
  for (const auto &[name, value] : record.attention.summary())
    entry[name] = value;
  if (record.ownSeconds > 0)
    entry["own_seconds"] = record.ownSeconds;
  written = both(written, appendHeartbeat(heartbeat, std::move(entry)));
  if (!tables)
    return written;
  return both(written, tables->events.scalars(wallClock(), record.step,
                                              eventValues(record)));
}

Status RunLog::validation(int64_t step, double loss) {
  if (!tables)
    return {};
  Status written =
      tables->val.append(std::to_string(step) + "," + shortest(loss) + "," +
                         shortest(std::exp(loss)));
  return both(written, tables->events.scalars(
                           wallClock(), step,
                           {{"val/loss", loss}, {"val/ppl", std::exp(loss)}}));
}

Status RunLog::logHeartbeat(int64_t step, const std::string &message) {
  return appendHeartbeat(heartbeat, startHeartbeat(rank, step, message));
}

std::vector<Status> RunLog::finish() const {
  std::vector<Status> all = {heartbeat.finish()};
  if (tables)
    for (const Status &status : {tables->training.finish(),
                                 tables->val.finish(), tables->events.finish()})
      all.push_back(status);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const Status &status) { return status.ok(); }),
            all.end());
  return all;
}

} // namespace nsa
