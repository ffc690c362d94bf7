//===- Checkpoint.cpp - saving and resuming a run -------------------------===//

#include "runtime/Train/Checkpoint.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Npy.h"
#include "lib/Support/Safetensors.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>

namespace nsa {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static constexpr const char *stateFile = "state.json";
static constexpr const char *configFile = "config.yaml";
static constexpr const char *modelFile = "model.safetensors";
static constexpr const char *optimizerFile = "optimizer.safetensors";
static constexpr const char *latestFile = "latest";
static constexpr const char *folderPrefix = "step-";
static constexpr const char *checkpointsFolder = "checkpoints";
static constexpr const char *asidePrefix = "abandoned-";

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static const char *safetensorsType(DataType type) {
  switch (type) {
  case DataType::F32:
    return "F32";
  case DataType::BF16:
    return "BF16";
  case DataType::F16:
    return "F16";
  case DataType::I32:
    return "I32";
  case DataType::I64:
    return "I64";
  case DataType::U8:
    return "U8";
  }
  return "U8";
}

static std::string shareFile(int rank) {
  return "optimizer_rank" + std::to_string(rank) + ".safetensors";
}

/// The file that keeps tensors of a role on one of the ranks that share
/// moments. Empty: gradients are zero between steps, and constants follow from
/// the program.
static std::string fileOf(TensorRole role, const Model &model, int rank) {
  switch (role) {
  case TensorRole::Parameter:
    return modelFile;
  case TensorRole::Moment1:
  case TensorRole::Moment2:
    return model.sharingRanks() > 0 ? shareFile(rank) : optimizerFile;
  case TensorRole::State:
    return optimizerFile;
  default:
    return "";
  }
}

static Status saveTensors(const std::string &folder, const std::string &file,
                          const Model &model, int rank) {
  std::vector<SafeTensor> tensors;
  for (const TensorView &tensor : model.tensors()) {
    if (fileOf(tensor.role, model, rank) != file)
      continue;
    if (Status status = model.toHost(tensor); !status)
      return status;
    tensors.push_back({tensor.name, safetensorsType(tensor.type), tensor.shape,
                       tensor.data, tensor.bytes});
  }
  return writeSafetensors(folder + "/" + file, tensors, {{"format", "pt"}});
}

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
    std::memcpy(tensor.data, source->data, tensor.bytes);
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
// Saving
//===----------------------------------------------------------------------===//

static std::string folderName(int64_t step) {
  char name[64];
  std::snprintf(name, sizeof name, "%s%08lld", folderPrefix,
                static_cast<long long>(step));
  return name;
}

/// The step of a checkpoint folder's name, or -1.
static int64_t stepOf(const std::string &name) {
  size_t prefix = std::strlen(folderPrefix);
  if (name.compare(0, prefix, folderPrefix) != 0 || name.size() == prefix)
    return -1;
  if (name.find_first_not_of("0123456789", prefix) != std::string::npos ||
      name.size() > prefix + 18)
    return -1;
  return std::stoll(name.substr(prefix));
}

static Status writeFolder(const std::string &folder, const Model &model,
                          const TrainState &state, const RunConfig &config) {
  for (const char *file : {modelFile, optimizerFile})
    if (Status status = saveTensors(folder, file, model, /*rank=*/0); !status)
      return status;
  if (Status status = writeFileAtomically(folder + "/" + configFile,
                                          printConfigYaml(config));
      !status)
    return status;
  Json json;
  json["format"] = 1;
  json["step"] = state.step;
  json["samples"] = state.samples;
  json["seed"] = state.seed;
  json["config_hash"] = configHash(config);
  json["artefact_hash"] = toHex(state.artefactHash);
  json["data_digest"] = toHex(state.dataDigest);
  std::vector<std::string> files = {modelFile, optimizerFile, configFile};
  for (int rank = 0; rank < model.sharingRanks(); ++rank)
    files.push_back(shareFile(rank));
  for (const std::string &file : files) {
    Result<uint64_t> hash = hashFile(folder + "/" + file);
    if (!hash)
      return hash.takeError();
    json["xxh3"][file] = toHex(*hash);
  }
  return writeFileAtomically(folder + "/" + stateFile,
                             jsonText(json, 2) + "\n");
}

/// The checkpoints below `root` by step.
static std::vector<std::pair<int64_t, fs::path>>
listCheckpoints(const std::string &root) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code code;
  for (fs::directory_iterator entry(root, code), end; !code && entry != end;
       entry.increment(code))
    if (int64_t step = stepOf(entry->path().filename().string()); step >= 0)
      found.emplace_back(step, entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Removes all but `keep` of the checkpoints up to the one of `saved`, which
/// `latest` names: the newest stay, and this one always.
static void removeOld(const std::string &root, int64_t saved, int64_t keep) {
  if (keep == 0)
    return;
  std::error_code code;
  int64_t left = keep;
  std::vector<std::pair<int64_t, fs::path>> found = listCheckpoints(root);
  for (auto entry = found.rbegin(); entry != found.rend(); ++entry)
    if (entry->first <= saved && left-- <= 0)
      fs::remove_all(entry->second, code);
}

/// Puts `temporary` in the place of `final`. If that exists, the two are
/// exchanged in one step and the old contents are removed.
static Status replaceFolder(const std::string &temporary,
                            const std::string &final) {
  if (std::rename(temporary.c_str(), final.c_str()) == 0)
    return {};
  bool exists = errno == ENOTEMPTY || errno == EEXIST;
  if (!exists || renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(),
                           RENAME_EXCHANGE) != 0)
    return systemError("cannot create", final);
  std::error_code code;
  fs::remove_all(temporary, code);
  return {};
}

/// Where the checkpoint of a step is written.
static std::string temporaryFolder(const std::string &runDirectory,
                                   int64_t step) {
  return runDirectory + "/checkpoints/.tmp-" + folderName(step);
}

void removeUnfinished(const std::string &runDirectory) {
  std::error_code code;
  fs::directory_iterator entry(runDirectory + "/checkpoints", code), end;
  std::vector<fs::path> left;
  for (; !code && entry != end; entry.increment(code))
    if (entry->path().filename().string().rfind(".tmp-", 0) == 0)
      left.push_back(entry->path());
  for (const fs::path &path : left)
    fs::remove_all(path, code);
}

Status beginCheckpoint(const std::string &runDirectory, int64_t step) {
  std::string temporary = temporaryFolder(runDirectory, step);
  std::error_code code;
  fs::remove_all(temporary, code);
  fs::create_directories(temporary, code);
  if (code)
    return Error{"cannot create '" + temporary + "': " + code.message()};
  return {};
}

Status saveShare(const std::string &runDirectory, int64_t step,
                 const Model &model, int rank) {
  return saveTensors(temporaryFolder(runDirectory, step), shareFile(rank),
                     model, rank);
}

Result<std::string> saveCheckpoint(const std::string &runDirectory,
                                   const Model &model, const TrainState &state,
                                   const RunConfig &config, int64_t keep) {
  if (model.sharingRanks() == 0)
    if (Status begun = beginCheckpoint(runDirectory, state.step); !begun)
      return Error{begun.message()};
  std::string root = runDirectory + "/checkpoints";
  std::string name = folderName(state.step);
  std::string final = root + "/" + name;
  std::string temporary = temporaryFolder(runDirectory, state.step);
  std::error_code code;
  Status status = writeFolder(temporary, model, state, config);
  if (status)
    status = syncDirectory(temporary);
  if (status)
    status = replaceFolder(temporary, final);
  if (status)
    status = syncDirectory(root);
  if (status)
    status = writeFileAtomically(root + "/" + latestFile, name + "\n");
  if (!status) {
    fs::remove_all(temporary, code);
    return Error{"no checkpoint: " + status.message()};
  }
  removeOld(root, state.step, keep);
  return final;
}

/// A name below `root` that is free, for a checkpoint that is set aside.
static fs::path asideName(const std::string &root, const std::string &name) {
  fs::path base = root + "/" + asidePrefix + name, path = base;
  std::error_code code;
  for (int attempt = 2; fs::exists(fs::symlink_status(path, code)); ++attempt)
    path = base.string() + "-" + std::to_string(attempt);
  return path;
}

Result<std::vector<std::string>> returnTo(const std::string &checkpoint) {
  fs::path folder(checkpoint);
  std::string root = folder.parent_path().string();
  std::string name = folder.filename().string();
  std::string latest = root + "/" + latestFile;
  std::vector<std::string> moved;
  // First `latest`: should this break off, the next resume ends the work.
  Result<std::string> named = readFile(latest);
  if (!named || *named != name + "\n")
    if (Status status = writeFileAtomically(latest, name + "\n"); !status)
      return Error{status.message()};
  for (const auto &[step, path] : listCheckpoints(root)) {
    if (step <= stepOf(name))
      continue;
    fs::path aside = asideName(root, path.filename().string());
    std::error_code code;
    fs::rename(path, aside, code);
    if (code)
      return Error{"cannot rename '" + path.string() + "' to '" +
                   aside.string() + "': " + code.message()};
    moved.push_back(aside.string());
  }
  if (!moved.empty())
    if (Status status = syncDirectory(root); !status)
      return Error{status.message()};
  return moved;
}

//===----------------------------------------------------------------------===//
// Loading
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

std::string runOf(const std::string &checkpoint) {
  return fs::path(checkpoint).parent_path().parent_path().string();
}

Status checkInRun(const std::string &checkpoint) {
  fs::path folder(checkpoint);
  std::string name = folder.filename().string();
  std::string rule = ": a run continues only from <run>/" +
                     std::string(checkpointsFolder) + "/" + folderPrefix + "N";
  if (stepOf(name) < 0)
    return Error{"cannot resume from '" + checkpoint + "': its name is not " +
                 folderPrefix + "N" + rule};
  if (folder.parent_path().filename() != checkpointsFolder)
    return Error{"cannot resume from '" + checkpoint + "': it lies in no '" +
                 checkpointsFolder + "' folder of a run" + rule};
  std::string run = runOf(checkpoint);
  for (const char *file : {"config.json", "env.json"}) {
    Result<bool> there = fileExists(run + "/" + file);
    if (!there)
      return there.takeError();
    if (!*there)
      return Error{"cannot resume from '" + checkpoint + "': '" + run +
                   "' is no run, it has no " + file + rule};
  }
  return {};
}

/// The absolute path; `step-4` stands for `step-00000004`.
static Result<std::string> fullPath(const std::string &path) {
  std::error_code code;
  fs::path full = fs::absolute(path, code).lexically_normal();
  if (code)
    return Error{"cannot find '" + path + "': " + code.message()};
  if (!full.has_filename() && full.has_relative_path())
    full = full.parent_path();
  Result<bool> there = fileExists(full.string());
  if (!there)
    return there.takeError();
  if (int64_t step = stepOf(full.filename().string()); !*there && step >= 0)
    full.replace_filename(folderName(step));
  return full.string();
}

Result<std::string> findCheckpoint(const std::string &path) {
  Result<std::string> full = fullPath(path);
  if (!full)
    return full;
  const std::string &clean = *full;
  Result<bool> itself = fileExists(clean + "/" + stateFile);
  if (!itself)
    return itself.takeError();
  if (*itself)
    return clean;
  for (const std::string &root : {clean + "/checkpoints", clean}) {
    Result<bool> named = fileExists(root + "/" + latestFile);
    if (!named)
      return named.takeError();
    if (!*named)
      continue;
    Result<std::string> name = readFile(root + "/" + latestFile);
    if (!name)
      return name;
    std::string folder = name->substr(0, name->find('\n'));
    if (stepOf(folder) < 0)
      return Error{"'" + root + "/" + latestFile + "' names no checkpoint: '" +
                   folder + "'"};
    return root + "/" + folder;
  }
  return Error{"'" + path + "' is neither a checkpoint nor a run with one"};
}

/// Nothing is there, which is no failure to look.
static bool isMissing(const std::error_code &code) {
  return code == std::errc::no_such_file_or_directory ||
         code == std::errc::not_a_directory;
}

Result<FoundCheckpoint> findNewestCheckpoint(const std::string &outDir,
                                             uint64_t artefactHash,
                                             uint64_t dataDigest) {
  FoundCheckpoint found;
  fs::file_time_type newest = fs::file_time_type::min();
  std::error_code code;
  fs::directory_iterator entry(outDir, code), end;
  if (isMissing(code))
    return found;
  for (; !code && entry != end; entry.increment(code)) {
    std::string run = entry->path().string();
    std::string latest = run + "/" + checkpointsFolder + "/" + latestFile;
    std::error_code failure;
    fs::file_time_type time = fs::last_write_time(latest, failure);
    if (isMissing(failure))
      continue;
    if (failure)
      return Error{"cannot inspect '" + latest + "': " + failure.message()};
    Result<std::string> path = findCheckpoint(run);
    if (!path)
      return path.takeError();
    Result<TrainState> state = loadState(*path);
    if (!state)
      return state.takeError();
    if (state->artefactHash != artefactHash ||
        state->dataDigest != dataDigest) {
      ++found.others;
    } else if (found.path.empty() || time > newest) {
      found.path = *path;
      newest = time;
    }
  }
  if (code)
    return Error{"cannot list '" + outDir + "': " + code.message()};
  return found;
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
