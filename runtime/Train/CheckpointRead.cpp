//===- CheckpointRead.cpp - resuming from a checkpoint --------------------===//

#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Safetensors.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Text.h"
#include "runtime/Train/Checkpoint.h"
#include "runtime/Train/CheckpointLayout.h"

#include <filesystem>

namespace nsa {

using namespace checkpoint;
using Json = nlohmann::ordered_json;

//===----------------------------------------------------------------------===//
// The state
//===----------------------------------------------------------------------===//

/// Checks the hash that a state.json has of itself; returns whether it has one.
static bool checkSeal(Json json) {
  int64_t format = readInteger(json.at("format"));
  if (format < 1 || format > stateFormat)
    throw std::runtime_error("format " + std::to_string(format) +
                             ", expected 1 to " + std::to_string(stateFormat));
  if (format == 1 && !json.contains(stateHashMember))
    return false;
  uint64_t expected = readHash(json.at(stateHashMember));
  json.erase(stateHashMember);
  uint64_t hash = hashBytes(jsonText(json));
  if (hash != expected)
    throw std::runtime_error("its hash is " + toHex(hash) + ", it says " +
                             toHex(expected));
  return true;
}

static TrainState readState(const Json &json) {
  TrainState state;
  state.step = readInteger(json.at("step"));
  state.samples = readUnsigned(json.at("samples"));
  state.seed = readUnsigned(json.at("seed"));
  state.artefactHash = readHash(json.at("artefact_hash"));
  state.dataDigest = readHash(json.at("data_digest"));
  if (json.contains(endOfTextMember))
    state.endOfText = readInteger(json.at(endOfTextMember));
  state.history = readHistory(json);
  if (state.step < 0)
    throw std::runtime_error("step " + std::to_string(state.step));
  return state;
}

namespace {

/// The contents of a state.json.
struct StateFile {
  TrainState state;
  bool isSealed = true;
  /// The other files and their hashes.
  std::vector<std::pair<std::string, uint64_t>> files;
};

} // namespace

/// Refuses a state that lies in the folder of another step.
static Status checkFolder(const std::string &path, const TrainState &state) {
  std::filesystem::path folder =
      std::filesystem::path(path + "/").lexically_normal().parent_path();
  int64_t named = stepOf(folder.filename().string());
  if (named < 0 || named == state.step)
    return {};
  return Error{"'" + path + "/" + stateFile + "' is damaged: it says step " +
               std::to_string(state.step) + ", its folder is of step " +
               std::to_string(named)};
}

/// Reads only state.json.
static Result<StateFile> loadState(const std::string &path) {
  std::string name = path + "/" + stateFile;
  Result<std::string> text = readFile(name);
  if (!text)
    return Error{"'" + path + "' is no checkpoint: " + text.message()};
  try {
    auto json = parseJson<Json>(text->begin(), text->end());
    StateFile found;
    found.isSealed = checkSeal(json);
    found.state = readState(json);
    NSA_RETURN_IF_ERROR(checkFolder(path, found.state));
    const Json &hashes = json.at("xxh3");
    for (const char *file : {modelFile, optimizerFile, configFile})
      found.files.emplace_back(file, readHash(hashes.at(file)));
    if (hashes.contains(tokenizerFile)) {
      found.state.tokenizerHash = readHash(hashes.at(tokenizerFile));
      found.files.emplace_back(tokenizerFile, found.state.tokenizerHash);
    }
    for (int rank = 0; hashes.contains(shareFile(rank)); ++rank)
      found.files.emplace_back(shareFile(rank),
                               readHash(hashes.at(shareFile(rank))));
    return found;
  } catch (const std::exception &error) {
    return Error{"'" + name + "' is damaged: " + oneLine(error.what())};
  }
}

Result<TrainState> readTrainState(const std::string &checkpoint) {
  Result<StateFile> found = loadState(checkpoint);
  return found ? Result<TrainState>(found->state) : found.takeError();
}

/// Refuses values from which no run can go on.
static Status checkFinite(const std::string &name) {
  NSA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(name));
  NSA_ASSIGN_OR_RETURN(std::string found, file.findNonFinite());
  if (!found.empty())
    return Error{"'" + name + "' has a value that is not finite: " + found};
  return {};
}

static bool isTensorFile(const std::string &name) {
  return std::filesystem::path(name).extension() == ".safetensors";
}

Result<RunConfig> readCheckpointConfig(const std::string &checkpoint,
                                       int64_t step) {
  Result<RunConfig> config = loadConfig(checkpoint + "/" + configFile);
  if (config)
    applyStage(*config, findStage(*config, step));
  return config;
}

Result<bool> hasModelOf(const std::string &checkpoint, int64_t step,
                        const RunConfig &config) {
  NSA_ASSIGN_OR_RETURN(RunConfig then, readCheckpointConfig(checkpoint, step));
  RunConfig now = withStage(config, findStage(config, step));
  return then.train.seqLen == now.train.seqLen &&
         printModelJson(then) == printModelJson(now);
}

/// The steps of a run and their batches, such as "15 steps of 6".
static std::string describeSteps(const TrainState &state) {
  std::string text;
  const std::vector<BatchPeriod> &batches = state.history.batches;
  for (size_t i = 0; i < batches.size(); ++i) {
    int64_t end = i + 1 < batches.size() ? batches[i + 1].fromStep : state.step;
    text += (i ? " and " : "") + std::to_string(end - batches[i].fromStep) +
            (i ? " of " : " steps of ") + std::to_string(batches[i].batchSize);
  }
  return text;
}

/// Refuses a state that is not one of a run with the configuration.
static Status checkState(const std::string &path, const TrainState &state,
                         const RunConfig &config) {
  std::string name = "'" + path + "/" + stateFile + "' is damaged: ";
  Result<uint64_t> samples = state.history.samplesAt(state.step);
  if (!samples)
    return Error{name + samples.message()};
  if (*samples != state.samples)
    return Error{name + "it says " + std::to_string(state.samples) +
                 " samples, " + describeSteps(state) + " have " +
                 std::to_string(*samples)};
  if (int64_t last = state.history.batches.back().batchSize;
      last != config.train.batchSize)
    return Error{name + "it says batches of " + std::to_string(last) + ", " +
                 configFile + " says " +
                 std::to_string(config.train.batchSize)};
  if (state.seed != uint64_t(config.train.seed))
    return Error{name + "it says seed " + std::to_string(state.seed) + ", " +
                 configFile + " says " + std::to_string(config.train.seed)};
  return {};
}

Status checkpoint::checkHash(const std::string &name, uint64_t expected) {
  NSA_ASSIGN_OR_RETURN(uint64_t hash, hashFile(name));
  if (hash != expected)
    return Error{"'" + name + "' is damaged: its hash is " + toHex(hash) +
                 ", the checkpoint says " + toHex(expected)};
  return {};
}

Result<uint64_t> checkpoint::savedHash(const std::string &folder,
                                       const std::string &file) {
  NSA_ASSIGN_OR_RETURN(StateFile found, loadState(folder));
  for (const auto &[name, hash] : found.files)
    if (name == file)
      return hash;
  return Error{"'" + folder + "/" + stateFile + "' has no hash of '" + file +
               "'"};
}

Result<Checkpoint> Checkpoint::open(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(StateFile found, loadState(path));
  for (const auto &[file, expected] : found.files) {
    std::string name = path + "/" + file;
    NSA_RETURN_IF_ERROR(checkHash(name, expected));
    if (isTensorFile(file))
      NSA_RETURN_IF_ERROR(checkFinite(name));
  }
  NSA_ASSIGN_OR_RETURN(RunConfig config,
                       readCheckpointConfig(path, found.state.step));
  // Before there was a history, all steps were alike.
  TrainState &state = found.state;
  if (state.history.data.empty())
    state.history.setData(0, state.dataDigest);
  if (state.history.batches.empty())
    state.history.setBatch(0, 0, config.train.batchSize);
  NSA_RETURN_IF_ERROR(checkState(path, state, config));
  return Checkpoint{path, state, std::move(config), found.isSealed};
}

//===----------------------------------------------------------------------===//
// Resuming with another configuration
//===----------------------------------------------------------------------===//

/// How to handle a key that must not change.
static const char *adviceFor(const std::string &path) {
  if (path == "train.batch_size")
    return " (--allow-changed-batch goes on with it)";
  if (path == "train.seq_len" || path == "train.optimizer")
    return " (--init-from begins a run with the weights alone)";
  return "";
}

Result<std::vector<std::string>> compareForResume(const RunConfig &saved,
                                                  const RunConfig &now,
                                                  bool allowBatch) {
  std::vector<std::string> changes;
  for (const auto &[field, before, after] : compareConfigs(saved, now)) {
    std::string path = field->path();
    bool allowed = allowBatch && path == "train.batch_size";
    if (!allowed && !field->mayChange)
      return Error{"cannot resume: " + path + " was " + before +
                   " and is now " + after + adviceFor(path)};
    changes.push_back(path + ": " + before + " -> " + after);
  }
  return changes;
}

} // namespace nsa
