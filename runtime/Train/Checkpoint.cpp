//===- Checkpoint.cpp - saving a run --------------------------------------===//

#include "runtime/Train/Checkpoint.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Safetensors.h"
#include "runtime/Train/CheckpointLayout.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>

namespace nsa {

namespace fs = std::filesystem;
using namespace checkpoint;
using Json = nlohmann::ordered_json;

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
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (file == shareFile(rank)) {
    Result<std::vector<MomentRange>> ranges = model.momentRanges(rank);
    if (!ranges)
      return ranges.takeError();
    metadata[rangesMember] = printMomentRanges(*ranges);
  }
  return writeSafetensors(folder + "/" + file, tensors, metadata);
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
  writeHistory(state.history, json);
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
  fs::create_directories(fs::path(temporary).parent_path(), code);
  // New: a link that somebody has put there would lead elsewhere.
  if (code || ::mkdir(temporary.c_str(), 0777) != 0)
    return code ? Error{"cannot create '" + temporary + "': " + code.message()}
                : systemError("cannot create", temporary);
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

} // namespace nsa
