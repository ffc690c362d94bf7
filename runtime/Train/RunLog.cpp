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
  NSA_ASSIGN_OR_RETURN(bool there, fileExists(path));
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!there || !file || file.tellg() <= 0)
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
  NSA_RETURN_IF_ERROR(dropHalfLine(heartbeats));
  NSA_ASSIGN_OR_RETURN(RecordFile heartbeat, RecordFile::open(heartbeats));
  RunLog log(rank, std::move(heartbeat));
  if (rank != 0)
    return log;
  NSA_ASSIGN_OR_RETURN(CsvLog training,
                       CsvLog::open(directory.file("training.csv"),
                                    "step,loss,lr,grad_norm,toks_per_s",
                                    lastStep));
  NSA_ASSIGN_OR_RETURN(
      CsvLog val,
      CsvLog::open(directory.file("val.csv"), "step,loss,ppl", lastValidation));
  NSA_ASSIGN_OR_RETURN(
      EventFile events,
      EventFile::create(directory.file("tb"), wallClock(), lastStep + 1));
  std::string path = directory.file("eval.jsonl");
  NSA_RETURN_IF_ERROR(dropHalfLine(path));
  NSA_ASSIGN_OR_RETURN(RecordFile evaluations, RecordFile::open(path));
  log.tables.emplace(Tables{std::move(training), std::move(val),
                            std::move(events), std::move(evaluations), path});
  return log;
}

std::vector<float> RunLog::lastLosses() const {
  std::vector<float> losses;
  if (!tables)
    return losses;
  for (const std::string &row : tables->training.lastRows()) {
    size_t comma = row.find(',');
    if (comma == std::string::npos)
      continue;
    char *end = nullptr;
    float loss = std::strtof(row.c_str() + comma + 1, &end);
    // A step without a target has none.
    if (*end == ',' && std::isfinite(loss))
      losses.push_back(loss);
  }
  return losses;
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
  if (record.mfu)
    values.emplace_back("train/mfu", *record.mfu);
  if (record.lossScale > 0)
    values.emplace_back("train/loss_scale", record.lossScale);
  for (const auto &[name, value] : record.attention.summary())
    values.emplace_back("attention/" + name, value);
  for (const GateStatistics &gates : record.attention.gates) {
    std::string place = "gates/" + std::to_string(gates.layer);
    values.emplace_back(place + "/compressed", gates.compressed);
    values.emplace_back(place + "/selected", gates.selected);
    values.emplace_back(place + "/window", gates.window);
    values.emplace_back(place + "/entropy", gates.entropy);
  }
  return values;
}

/// Combines the failures of two writes.
static Status both(const Status &first, const Status &second) {
  if (first || second)
    return first ? second : first;
  return Error{first.message() + "; " + second.message()};
}

Status RunLog::step(const StepRecord &record, const std::string &message) {
  std::string row = std::to_string(record.step) + "," + shortest(record.loss) +
                    "," + shortest(record.lr) + "," +
                    shortest(record.gradNorm) + "," +
                    formatted("%.1f", record.toksPerSecond);
  Status written = tables ? tables->training.append(row) : Status();
  Json entry = startHeartbeat(rank, record.step, message);
  // JSON has no NaN; such a heartbeat's message says what happened.
  entry["loss"] = record.loss;
  entry["lr"] = record.lr;
  entry["grad_norm"] = record.gradNorm;
  entry["toks_per_s"] = record.toksPerSecond;
  entry["data_seconds"] = record.dataSeconds;
  if (record.mfu)
    entry["mfu"] = *record.mfu;
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

/// Of each layer that has them, its number and what its gates and its selection
/// do.
static void addLayers(const AttentionStatistics &attention, Json &entry) {
  for (const GateStatistics &gates : attention.gates) {
    entry["layers"].push_back(gates.layer);
    entry["gates"].push_back(
        {gates.compressed, gates.selected, gates.window, gates.entropy});
  }
  for (const SelectionStatistics &selected : attention.selections)
    entry["selections"].push_back(
        {selected.mean, selected.distance, selected.distinct});
}

Status RunLog::evaluation(const EvaluationRecord &record) {
  if (!tables)
    return {};
  auto describe = [](const EvaluationRecord::Positions &positions) {
    return Json{{"last", positions.last},
                {"loss", positions.loss},
                {"tokens", positions.tokens}};
  };
  Json entry = {{"ts", wallClock()},
                {"step", record.step},
                {"msg", record.message},
                {"stage", record.stage + 1}};
  if (record.loss) {
    entry["loss"] = *record.loss;
    entry["tokens"] = record.tokens;
  }
  for (const EvaluationRecord::Positions &positions : record.positions)
    entry["positions"].push_back(describe(positions));
  if (record.earlier)
    entry["earlier_length"] = describe(*record.earlier);
  addLayers(record.attention, entry);
  return tables->evaluations.write(jsonText(entry) + "\n");
}

std::optional<double> RunLog::stageEndLoss(int64_t step) const {
  std::optional<double> loss;
  if (!tables)
    return loss;
  std::ifstream file(tables->evaluationPath);
  for (std::string line; std::getline(file, line);) {
    Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_object() && entry["msg"] == stageEndMessage &&
        entry["step"] == step && entry["loss"].is_number())
      loss = entry["loss"].get<double>();
  }
  return loss;
}

Status RunLog::logHeartbeat(int64_t step, const std::string &message) {
  return appendHeartbeat(heartbeat, startHeartbeat(rank, step, message));
}

std::vector<Status> RunLog::finish() const {
  std::vector<Status> all = {heartbeat.finish()};
  if (tables)
    for (const Status &status :
         {tables->training.finish(), tables->val.finish(),
          tables->events.finish(), tables->evaluations.finish()})
      all.push_back(status);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const Status &status) { return status.ok(); }),
            all.end());
  return all;
}

} // namespace nsa
