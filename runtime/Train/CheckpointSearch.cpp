//===- CheckpointSearch.cpp - the checkpoints of runs ---------------------===//

#include "lib/Support/Files.h"
#include "runtime/Train/Checkpoint.h"
#include "runtime/Train/CheckpointLayout.h"

#include <filesystem>

namespace nsa {

namespace fs = std::filesystem;
using namespace checkpoint;

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
                                             const CheckpointFilter &matches) {
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
    Result<TrainState> state = readTrainState(*path);
    if (!state)
      return state.takeError();
    Result<bool> matching = matches(*path, *state);
    if (!matching)
      return matching.takeError();
    if (!*matching) {
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

} // namespace nsa
