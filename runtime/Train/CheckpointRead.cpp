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

Result<Checkpoint> Checkpoint::open(const std::string &path) {
  std::vector<std::pair<std::string, uint64_t>> files;
  Result<TrainState> state = loadState(path, &files);
  if (!state)
    return state.takeError();
  for (const auto &[file, expected] : files) {
    std::string name = path + "/" + file;
    Result<uint64_t> hash = hashFile(name);
    if (!hash)
      return hash.takeError();
    if (*hash != expected)
      return Error{"'" + name + "' is damaged: its hash is " + toHex(*hash) +
                   ", the checkpoint says " + toHex(expected)};
  }
  Result<RunConfig> config = loadConfig(path + "/" + configFile);
  if (!config)
    return config.takeError();
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
  static const char *const free[] = {"runtime.threads",
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

Result<std::vector<std::string>> compareForResume(const RunConfig &saved,
                                                  const RunConfig &now) {
  std::vector<std::string> changes;
  for (const ConfigField &field : configSchema()) {
    std::string before = valueOf(field, saved), after = valueOf(field, now);
    if (before == after)
      continue;
    if (!mayChange(field.path()))
      return Error{"cannot resume: " + field.path() + " was " + before +
                   " and is now " + after};
    changes.push_back(field.path() + ": " + before + " -> " + after);
  }
  return changes;
}

} // namespace nsa
