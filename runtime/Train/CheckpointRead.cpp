//===- CheckpointRead.cpp - resuming from a checkpoint --------------------===//

#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Npy.h"
#include "lib/Support/Safetensors.h"
#include "lib/Support/Text.h"
#include "runtime/Train/Checkpoint.h"
#include "runtime/Train/CheckpointLayout.h"

#include <algorithm>
#include <cstring>

namespace nsa {

using namespace checkpoint;
using Json = nlohmann::ordered_json;

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static Status loadTensors(const std::string &folder, const std::string &file,
                          const Model &model, int rank) {
  std::string path = folder + "/" + file;
  Result<SafetensorsFile> saved = SafetensorsFile::open(path);
  if (!saved)
    return saved.takeError();
  size_t used = 0;
  for (const TensorView &tensor : model.tensors()) {
    if (fileOf(tensor.role, model, rank) != file)
      continue;
    const SafeTensor *source = saved->find(tensor.name);
    if (!source)
      return Error{"'" + path + "' has no tensor '" + tensor.name + "'"};
    std::string type = safetensorsType(tensor.type);
    if (source->dtype != type || source->shape != tensor.shape)
      return Error{"tensor '" + tensor.name + "' of '" + path + "' is " +
                   source->dtype + "[" + shapeText(source->shape) +
                   "], the artefact's is " + type + "[" +
                   shapeText(tensor.shape) + "]"};
    if (Status status = saved->read(*source, tensor.data); !status)
      return status;
    if (Status status = model.toDevice(tensor); !status)
      return status;
    ++used;
  }
  if (used != saved->tensors().size())
    return Error{"'" + path + "' has " +
                 std::to_string(saved->tensors().size()) +
                 " tensors, the artefact has " + std::to_string(used)};
  return {};
}

//===----------------------------------------------------------------------===//
// The state
//===----------------------------------------------------------------------===//

static uint64_t readHash(const Json &value) {
  Result<uint64_t> hash = fromHex(value.get<std::string>());
  if (!hash)
    throw std::runtime_error(hash.message());
  return *hash;
}

static TrainState readState(const Json &json) {
  if (int64_t format = readInteger(json.at("format")); format != 1)
    throw std::runtime_error("format " + std::to_string(format) +
                             ", expected 1");
  TrainState state;
  state.step = readInteger(json.at("step"));
  state.samples = readUnsigned(json.at("samples"));
  state.seed = readUnsigned(json.at("seed"));
  state.artefactHash = readHash(json.at("artefact_hash"));
  state.dataDigest = readHash(json.at("data_digest"));
  state.history = readHistory(json);
  if (state.step < 0)
    throw std::runtime_error("step " + std::to_string(state.step));
  return state;
}

/// Reads only state.json; the hashes of the other files go to `files`.
static Result<TrainState>
loadState(const std::string &path,
          std::vector<std::pair<std::string, uint64_t>> *files = nullptr) {
  std::string name = path + "/" + stateFile;
  Result<std::string> text = readFile(name);
  if (!text)
    return Error{"'" + path + "' is no checkpoint: " + text.message()};
  try {
    auto json = parseJson<Json>(text->begin(), text->end());
    TrainState state = readState(json);
    for (const char *file : {modelFile, optimizerFile, configFile})
      if (files)
        files->emplace_back(file, readHash(json.at("xxh3").at(file)));
    for (int rank = 0; files && json.at("xxh3").contains(shareFile(rank));
         ++rank)
      files->emplace_back(shareFile(rank),
                          readHash(json.at("xxh3").at(shareFile(rank))));
    return state;
  } catch (const std::exception &error) {
    return Error{"'" + name + "' is damaged: " + oneLine(error.what())};
  }
}

Result<TrainState> readTrainState(const std::string &checkpoint) {
  return loadState(checkpoint);
}

Result<RunConfig> readCheckpointConfig(const std::string &checkpoint) {
  return loadConfig(checkpoint + "/" + configFile);
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
  return {};
}

static Status checkHash(const std::string &name, uint64_t expected) {
  Result<uint64_t> hash = hashFile(name);
  if (!hash)
    return hash.takeError();
  if (*hash != expected)
    return Error{"'" + name + "' is damaged: its hash is " + toHex(*hash) +
                 ", the checkpoint says " + toHex(expected)};
  return {};
}

Status checkpoint::checkFile(const std::string &folder,
                             const std::string &file) {
  std::vector<std::pair<std::string, uint64_t>> files;
  if (Result<TrainState> state = loadState(folder, &files); !state)
    return state.takeError();
  for (const auto &[name, expected] : files)
    if (name == file)
      return checkHash(folder + "/" + file, expected);
  return Error{"'" + folder + "/" + stateFile + "' has no hash of '" + file +
               "'"};
}

Result<Checkpoint> Checkpoint::open(const std::string &path) {
  std::vector<std::pair<std::string, uint64_t>> files;
  Result<TrainState> state = loadState(path, &files);
  if (!state)
    return state.takeError();
  for (const auto &[file, expected] : files) {
    std::string name = path + "/" + file;
    if (Status status = checkHash(name, expected); !status)
      return Error{status.message()};
  }
  Result<RunConfig> config = readCheckpointConfig(path);
  if (!config)
    return config.takeError();
  // Before there was a history, all steps were alike.
  if (state->history.data.empty())
    state->history.setData(0, state->dataDigest);
  if (state->history.batches.empty())
    state->history.setBatch(0, 0, config->train.batchSize);
  else if (Status status = checkState(path, *state, *config); !status)
    return Error{status.message()};
  return Checkpoint{path, *state, std::move(*config)};
}

Status Checkpoint::restore(const Model &model, int rank) const {
  std::vector<std::string> files = {modelFile, optimizerFile};
  if (model.sharingRanks() > 0)
    files.push_back(shareFile(rank));
  for (const std::string &file : files)
    if (Status status = loadTensors(path, file, model, rank); !status)
      return status;
  return {};
}

//===----------------------------------------------------------------------===//
// Resuming with another configuration
//===----------------------------------------------------------------------===//

/// Whether a run may continue with another value of the key.
static bool mayChange(const std::string &path) {
  static const char *const free[] = {"runtime.device",
                                     "runtime.precision",
                                     "runtime.gradient_checkpointing",
                                     "runtime.threads",
                                     "train.micro_batch",
                                     "train.steps",
                                     "train.lr",
                                     "train.lr_schedule",
                                     "train.lr_min",
                                     "train.warmup_steps",
                                     "train.weight_decay",
                                     "train.beta1",
                                     "train.beta2",
                                     "train.adam_eps",
                                     "train.grad_clip",
                                     "train.log_every",
                                     "train.eval_every",
                                     "train.eval_batches",
                                     "train.final_eval_batches",
                                     "train.save_every",
                                     "train.keep_checkpoints",
                                     "train.out_dir",
                                     "train.sample_bytes",
                                     "train.sample_prompt",
                                     "train.sample_temperature",
                                     "train.sample_top_k",
                                     "train.accumulate_grad_batches"};
  return std::find(std::begin(free), std::end(free), path) != std::end(free);
}

static std::string valueOf(const ConfigField &field, RunConfig config) {
  return std::visit(
      [&](const auto &access) { return jsonText(Json(access(config))); },
      field.access);
}

/// What to do about a key that may not change.
static const char *adviceFor(const std::string &path) {
  if (path == "train.batch_size")
    return " (--allow-changed-batch goes on with it)";
  if (path == "train.seq_len")
    return " (--init-from begins a run with the weights alone)";
  return "";
}

Result<std::vector<std::string>> compareForResume(const RunConfig &saved,
                                                  const RunConfig &now,
                                                  bool allowBatch) {
  std::vector<std::string> changes;
  for (const ConfigField &field : configSchema()) {
    std::string before = valueOf(field, saved), after = valueOf(field, now);
    if (before == after)
      continue;
    bool allowed = allowBatch && field.path() == "train.batch_size";
    if (!allowed && !mayChange(field.path()))
      return Error{"cannot resume: " + field.path() + " was " + before +
                   " and is now " + after + adviceFor(field.path())};
    changes.push_back(field.path() + ": " + before + " -> " + after);
  }
  return changes;
}

} // namespace nsa
