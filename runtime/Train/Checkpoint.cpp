//===- Checkpoint.cpp - saving a run --------------------------------------===//

#include "runtime/Train/Checkpoint.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Safetensors.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Train/CheckpointLayout.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <string_view>
#include <sys/stat.h>

namespace nsa {

namespace fs = std::filesystem;
using namespace checkpoint;
using Json = nlohmann::ordered_json;

/// Saves the tensors of a file, all of which must be finite.
static Status saveTensors(const std::string &folder, const std::string &file,
                          const TensorSet &model, int rank,
                          SaveFailure &failure) {
  std::vector<SafeTensor> tensors;
  for (const TensorView &tensor : model.tensors()) {
    if (fileOf(tensor, model, rank) != file)
      continue;
    NSA_RETURN_IF_ERROR(model.toHost(tensor));
    tensors.push_back({tensor.name, safetensorsType(tensor.type), tensor.shape,
                       tensor.data, tensor.bytes});
    std::string found = findNonFinite(tensors.back());
    if (found.empty())
      continue;
    failure = SaveFailure::NotFinite;
    return Error{std::string(roleName(tensor.role)) + " '" + tensor.name + "'" +
                 found};
  }
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (isRankFile(file, rank)) {
    NSA_ASSIGN_OR_RETURN(std::vector<StateRange> ranges,
                         model.stateRanges(rank));
    auto isElsewhere = [&](const StateRange &range) {
      return std::none_of(
          tensors.begin(), tensors.end(),
          [&](const SafeTensor &own) { return own.name == range.tensor; });
    };
    ranges.erase(std::remove_if(ranges.begin(), ranges.end(), isElsewhere),
                 ranges.end());
    metadata[rangesMember] = printStateRanges(ranges);
  }
  return writeSafetensors(folder + "/" + file, tensors, metadata);
}

/// Puts weights of which each rank has saved a part together, where the model
/// has them whole.
static Status gatherWeights(const std::string &folder, const TensorSet &model) {
  std::map<std::string, TensorView> whole;
  for (const TensorView &tensor : model.tensors())
    if (tensor.sharded)
      whole.emplace(tensor.name, tensor);
  for (int rank = 0; !whole.empty() && rank < model.sharingRanks(); ++rank) {
    std::string path = folder + "/" + weightsFile(rank);
    NSA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
    auto text = file.metadata().find(rangesMember);
    if (text == file.metadata().end())
      return Error{"'" + path + "' does not say whose weights it has"};
    NSA_ASSIGN_OR_RETURN(std::vector<StateRange> ranges,
                         parseStateRanges(text->second));
    for (const StateRange &range : ranges)
      NSA_RETURN_IF_ERROR(
          file.read(*file.find(range.tensor), range.offset * sizeof(float),
                    range.count * sizeof(float),
                    whole.at(range.parameter).as<float>() + range.first));
    std::error_code code;
    fs::remove(path, code);
    if (code)
      return Error{"cannot remove '" + path + "': " + code.message()};
  }
  return {};
}

static Status writeFolder(const std::string &folder, const TensorSet &model,
                          const TrainState &state, const RunConfig &config,
                          const std::string &tokenizer, SaveFailure &failure) {
  NSA_RETURN_IF_ERROR(gatherWeights(folder, model));
  for (const char *file : {modelFile, optimizerFile})
    NSA_RETURN_IF_ERROR(saveTensors(folder, file, model, /*rank=*/0, failure));
  discardSharded(model);
  NSA_RETURN_IF_ERROR(
      writeFileAtomically(folder + "/" + configFile, printConfigYaml(config)));
  Json json;
  json["format"] = stateFormat;
  json["step"] = state.step;
  json["samples"] = state.samples;
  json["seed"] = state.seed;
  json["config_hash"] = configHash(config);
  json["artefact_hash"] = toHex(state.artefactHash);
  json["data_digest"] = toHex(state.dataDigest);
  if (state.endOfText >= 0)
    json[endOfTextMember] = state.endOfText;
  writeHistory(state.history, json);
  std::vector<std::string> files = {modelFile, optimizerFile, configFile};
  if (!tokenizer.empty()) {
    NSA_RETURN_IF_ERROR(
        writeFileAtomically(folder + "/" + tokenizerFile, tokenizer));
    files.push_back(tokenizerFile);
  }
  for (int rank = 0; rank < model.sharingRanks(); ++rank)
    files.push_back(shareFile(rank));
  for (const std::string &file : files) {
    NSA_ASSIGN_OR_RETURN(uint64_t hash, hashFile(folder + "/" + file));
    json["xxh3"][file] = toHex(hash);
  }
  json[stateHashMember] = toHex(hashBytes(jsonText(json)));
  return writeFileAtomically(folder + "/" + stateFile,
                             jsonText(json, 2) + "\n");
}

/// Removes a file or a folder, or adds to `failures` why it stays.
static void removeAll(const fs::path &path,
                      std::vector<std::string> &failures) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code)
    failures.push_back("cannot remove '" + path.string() +
                       "': " + code.message());
}

/// Removes all but `keep` of the checkpoints up to the one of `saved`, which
/// `latest` names: the newest stay, and this one always. Returns which could
/// not be removed.
static std::vector<std::string> removeOld(const std::string &root,
                                          int64_t saved, int64_t keep) {
  std::vector<std::string> failures;
  if (keep == 0)
    return failures;
  int64_t left = keep;
  std::vector<std::pair<int64_t, fs::path>> found = listCheckpoints(root);
  for (auto entry = found.rbegin(); entry != found.rend(); ++entry)
    if (entry->first <= saved && left-- <= 0)
      removeAll(entry->second, failures);
  return failures;
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

/// Whether a file is one that writeFileAtomically was about to put in the place
/// of another when its process ended.
static bool isLeftBehind(const std::string &name) {
  static constexpr std::string_view mark = ".tmp.";
  size_t at = name.rfind(mark);
  if (at == std::string::npos || at == 0)
    return false;
  const char *begin = name.data() + at + mark.size();
  const char *end = name.data() + name.size();
  pid_t pid = 0;
  std::from_chars_result parsed = std::from_chars(begin, end, pid);
  if (parsed.ec != std::errc() || pid <= 0)
    return false;
  // Older versions wrote no random part.
  std::string_view rest(parsed.ptr, size_t(end - parsed.ptr));
  if (!rest.empty() && (rest[0] != '.' || !fromHex(rest.substr(1))))
    return false;
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

std::vector<std::string> removeUnfinished(const std::string &runDirectory) {
  std::vector<fs::path> left;
  std::string root = runDirectory + "/" + checkpointsFolder;
  for (const std::string &folder : {runDirectory, root}) {
    std::error_code code;
    fs::directory_iterator entry(folder, code), end;
    for (; !code && entry != end; entry.increment(code)) {
      std::string name = entry->path().filename().string();
      bool isBegun = folder == root && name.rfind(".tmp-", 0) == 0;
      if (isBegun || isLeftBehind(name))
        left.push_back(entry->path());
    }
  }
  std::vector<std::string> failures;
  for (const fs::path &path : left)
    removeAll(path, failures);
  return failures;
}

CheckpointSize checkpointSize(const TensorSet &model) {
  std::map<std::string, uint64_t> files;
  int ranks = std::max(model.sharingRanks(), 1);
  for (int rank = 0; rank < ranks; ++rank)
    for (const TensorView &tensor : model.tensors())
      if (std::string file = fileOf(tensor, model, rank);
          rank == 0 || isRankFile(file, rank))
        files[file] += tensor.bytes;
  files.erase("");
  CheckpointSize size;
  for (const auto &[file, bytes] : files) {
    size.bytes += bytes;
    size.largestFile = std::max(size.largestFile, bytes);
  }
  return size;
}

Status beginCheckpoint(const std::string &runDirectory, int64_t step) {
  std::string temporary = temporaryFolder(runDirectory, step);
  std::error_code code;
  fs::remove_all(temporary, code);
  fs::create_directories(fs::path(temporary).parent_path(), code);
  // New: a link that another process put there would lead elsewhere.
  if (code || ::mkdir(temporary.c_str(), 0777) != 0)
    return code ? Error{"cannot create '" + temporary + "': " + code.message()}
                : systemError("cannot create", temporary);
  return {};
}

/// The kind of a failure of which `found` is known so far.
static SaveFailure kindOf(const Status &status, SaveFailure found) {
  bool isFull = !status && saysNoSpace(status.message());
  return found == SaveFailure::Other && isFull ? SaveFailure::NoSpace : found;
}

Status saveShare(const std::string &runDirectory, int64_t step,
                 const TensorSet &model, int rank, SaveFailure *failure) {
  SaveFailure found = SaveFailure::Other;
  std::string folder = temporaryFolder(runDirectory, step);
  Status status = saveTensors(folder, shareFile(rank), model, rank, found);
  bool hasWeights = std::any_of(
      model.tensors().begin(), model.tensors().end(),
      [](const TensorView &own) { return own.state == training::weightState; });
  if (status && hasWeights)
    status = saveTensors(folder, weightsFile(rank), model, rank, found);
  if (failure)
    *failure = kindOf(status, found);
  return status;
}

void dropCheckpoint(const std::string &runDirectory, int64_t step) {
  std::error_code code;
  fs::remove_all(temporaryFolder(runDirectory, step), code);
}

Result<std::string>
saveCheckpoint(const std::string &runDirectory, const TensorSet &model,
               const TrainState &state, const RunConfig &config, int64_t keep,
               SaveReport *report, const std::string &tokenizer) {
  SaveReport ignored;
  SaveReport &found = report ? *report : ignored;
  found = {};
  std::string root = runDirectory + "/" + checkpointsFolder;
  std::string name = folderName(state.step);
  std::string final = root + "/" + name;
  std::string temporary = temporaryFolder(runDirectory, state.step);
  Status status;
  if (model.sharingRanks() == 0)
    status = beginCheckpoint(runDirectory, state.step);
  if (status)
    status =
        writeFolder(temporary, model, state, config, tokenizer, found.failure);
  if (status)
    status = syncDirectory(temporary);
  if (status)
    status = replaceFolder(temporary, final);
  if (status)
    status = syncDirectory(root);
  if (status)
    status = writeFileAtomically(root + "/" + latestFile, name + "\n");
  if (!status) {
    found.failure = kindOf(status, found.failure);
    dropCheckpoint(runDirectory, state.step);
    return Error{status.message()};
  }
  found.warnings = removeOld(root, state.step, keep);
  return final;
}

} // namespace nsa
