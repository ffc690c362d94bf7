//===- RunJournal.cpp - what a run says and records -----------------------===//

#include "runtime/Train/RunJournal.h"

#include <algorithm>
#include <utility>

namespace nsa {

namespace {

/// The tables, heartbeats and event files.
class LogSink final : public RunSink {
public:
  explicit LogSink(RunLog &log) : log(log) {}

  Status take(const RunEvent &event) override {
    Status status;
    if (event.record)
      status = log.step(*event.record, event.heartbeat);
    if (event.validationLoss && status)
      status = log.validation(event.step, *event.validationLoss);
    if (!event.heartbeat.empty() && !event.record && status)
      status = log.logHeartbeat(event.step, event.heartbeat);
    if (event.evaluation && status)
      status = log.evaluation(*event.evaluation);
    return status;
  }

private:
  RunLog &log;
};

/// Files of the first rank that hold the last anomaly, and samples.
class FileSink final : public RunSink {
public:
  explicit FileSink(const RunDirectory &directory) : directory(directory) {}

  Status take(const RunEvent &event) override {
    Status status;
    if (event.anomaly)
      status = directory.write(".anomaly_type",
                               std::string(anomalyName(*event.anomaly)) + "\n");
    if (event.sample.empty() || !status)
      return status;
    Result<OutputFile> file = OutputFile::append(directory.file("samples.txt"));
    return file ? file->write(event.sample) : file.takeError();
  }

private:
  const RunDirectory &directory;
};

} // namespace

void RunJournal::publish(const RunEvent &event) {
  if (!event.line.empty())
    say(event.line);
  for (const std::unique_ptr<RunSink> &sink : sinks)
    noteWrite(sink->take(event));
}

void RunJournal::noteWrite(const Status &status) {
  if (!status)
    warn(status.message() + "; training goes on");
}

void RunJournal::warn(const std::string &text) {
  if (std::find(warnings.begin(), warnings.end(), text) != warnings.end())
    return;
  warnings.push_back(text);
  if (!ranks.isFirst())
    std::fprintf(stderr, "nsa-train: warning: rank %d: %s\n", ranks.rank(),
                 text.c_str());
  else if (hasHeader)
    say("warning: " + text);
}

void RunJournal::sayNotes() {
  for (const std::string &note : notes)
    say(note);
}

void RunJournal::sayWarnings() {
  for (const std::string &text : warnings)
    say("warning: " + text);
  hasHeader = true;
}

Status RunJournal::open(RunDirectory opened, int64_t lastStep,
                        int64_t lastValidation) {
  folder = std::move(opened);
  NSA_ASSIGN_OR_RETURN(RunLog log, RunLog::open(*folder, lastStep, ranks.rank(),
                                                lastValidation));
  records.emplace(std::move(log));
  sinks.push_back(std::make_unique<LogSink>(*records));
  if (!ranks.isFirst())
    return {};
  sinks.push_back(std::make_unique<FileSink>(*folder));
  return console.logTo(folder->file("train.log"));
}

void RunJournal::finish() {
  for (const Status &status : records->finish())
    warn(status.message());
  if (Status status = console.finish(); !status)
    warn(status.message());
}

} // namespace nsa
