//===- CheckpointSearch.cpp - the checkpoints of runs ---------------------===//

#include "lib/Support/Files.h"
#include "runtime/Train/Checkpoint.h"
#include "runtime/Train/CheckpointLayout.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <tuple>

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
    NSA_RETURN_IF_ERROR(writeFileAtomically(latest, name + "\n"));
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
    NSA_RETURN_IF_ERROR(syncDirectory(root));
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
    NSA_ASSIGN_OR_RETURN(bool there, fileExists(run + "/" + file));
    if (!there)
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
  NSA_ASSIGN_OR_RETURN(bool there, fileExists(full.string()));
  if (int64_t step = stepOf(full.filename().string()); !there && step >= 0)
    full.replace_filename(folderName(step));
  return full.string();
}

//===----------------------------------------------------------------------===//
// In a run
//===----------------------------------------------------------------------===//

/// The checkpoints of a run that are in force, the newest first: the one that
/// `latest` names, whether it is there or not, and those before it; all that
/// are there if `latest` is missing.
static Result<std::vector<std::string>>
checkpointsInForce(const std::string &root) {
  std::string latest = root + "/" + latestFile;
  std::vector<std::string> paths;
  NSA_ASSIGN_OR_RETURN(bool there, fileExists(latest));
  int64_t before = std::numeric_limits<int64_t>::max();
  if (there) {
    NSA_ASSIGN_OR_RETURN(std::string text, readFile(latest));
    std::string name = text.substr(0, text.find('\n'));
    before = stepOf(name);
    if (before < 0)
      return Error{"'" + latest + "' names no checkpoint: '" + name + "'"};
    paths.push_back(root + "/" + name);
  }
  std::vector<std::pair<int64_t, fs::path>> all = listCheckpoints(root);
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry)
    if (entry->first < before)
      paths.push_back(entry->second.string());
  if (there && paths.size() == 1) {
    NSA_ASSIGN_OR_RETURN(bool named, fileExists(paths.front()));
    if (!named)
      return Error{"'" + latest + "' names '" +
                   fs::path(paths.front()).filename().string() +
                   "', which is missing, and there is none before it"};
  }
  return paths;
}

/// The first good one of checkpoints in force, after at most `most` that are
/// not (0: any number).
static Result<FoundCheckpoint> takeGood(const std::string &root,
                                        const std::vector<std::string> &paths,
                                        int64_t most) {
  FoundCheckpoint found;
  std::string bad;
  NSA_ASSIGN_OR_RETURN(bool named, fileExists(root + "/" + latestFile));
  if (!named)
    found.warnings.push_back("'" + root + "/" + latestFile +
                             "' is missing, the newest good checkpoint beside "
                             "it is taken");
  for (const std::string &path : paths) {
    Result<Checkpoint> opened = Checkpoint::open(path);
    if (opened) {
      found.path = path;
      found.opened = std::move(*opened);
      return found;
    }
    bad += (bad.empty() ? "" : "; ") + opened.message();
    found.warnings.push_back("skipped a bad checkpoint: " + opened.message());
    if (int64_t(found.warnings.size()) - (named ? 0 : 1) > most && most > 0)
      break;
  }
  return Error{"no good checkpoint in '" + root + "': " + bad};
}

Result<FoundCheckpoint> findCheckpoint(const std::string &path, int64_t most) {
  NSA_ASSIGN_OR_RETURN(std::string full, fullPath(path));
  const std::string &clean = full;
  NSA_ASSIGN_OR_RETURN(bool itself, fileExists(clean + "/" + stateFile));
  FoundCheckpoint found;
  found.path = clean;
  if (itself)
    return found;
  for (const std::string &root : {clean + "/" + checkpointsFolder, clean}) {
    NSA_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                         checkpointsInForce(root));
    if (!paths.empty())
      return takeGood(root, paths, most);
  }
  if (Result<bool> there = fileExists(clean);
      there && *there && stepOf(fs::path(clean).filename().string()) >= 0)
    return Error{"'" + path + "' is no checkpoint, it has no " + stateFile};
  return Error{"'" + path + "' is neither a checkpoint nor a run with one " +
               "(nsa-import makes one of a model of transformers)"};
}

//===----------------------------------------------------------------------===//
// In a folder of runs
//===----------------------------------------------------------------------===//

/// Nothing is there, which is no failure to look.
static bool isMissing(const std::error_code &code) {
  return code == std::errc::no_such_file_or_directory ||
         code == std::errc::not_a_directory;
}

namespace {

/// A run with checkpoints.
struct SavedRun {
  std::string root;
  /// In force, the newest first.
  std::vector<std::string> paths;
  /// Whether the newest that can be read is one to go on from.
  bool isMatch = false;
  fs::file_time_type time;
};

} // namespace

/// Looks at a folder that may be a run with checkpoints; no paths if it is not.
static Result<SavedRun> inspectRun(const std::string &run,
                                   const CheckpointFilter &matches) {
  SavedRun saved;
  saved.root = run + "/" + checkpointsFolder;
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                       checkpointsInForce(saved.root));
  saved.paths = paths;
  if (paths.empty())
    return saved;
  std::string problem;
  for (const std::string &path : paths) {
    Result<TrainState> state = readTrainState(path);
    Result<bool> isMatch =
        state ? matches(path, *state) : Result<bool>(state.takeError());
    if (!isMatch) {
      problem = problem.empty() ? isMatch.message() : problem;
      continue;
    }
    saved.isMatch = *isMatch;
    std::error_code code;
    saved.time = fs::last_write_time(saved.root + "/" + latestFile, code);
    if (isMissing(code))
      saved.time = fs::last_write_time(path, code);
    if (code)
      return Error{"cannot inspect '" + saved.root + "': " + code.message()};
    return saved;
  }
  return Error{problem};
}

Result<FoundCheckpoint> findNewestCheckpoint(const std::string &outDir,
                                             const CheckpointFilter &matches,
                                             int64_t most) {
  FoundCheckpoint found;
  std::vector<SavedRun> runs;
  std::vector<std::string> bad;
  std::error_code code;
  fs::directory_iterator entry(outDir, code), end;
  if (isMissing(code))
    return found;
  for (; !code && entry != end; entry.increment(code)) {
    Result<SavedRun> run = inspectRun(entry->path().string(), matches);
    if (!run)
      bad.push_back(run.message());
    else if (run->paths.empty())
      continue;
    else if (!run->isMatch)
      ++found.others;
    else
      runs.push_back(std::move(*run));
  }
  if (code)
    return Error{"cannot list '" + outDir + "': " + code.message()};
  std::sort(runs.begin(), runs.end(), [](const auto &a, const auto &b) {
    return std::tie(b.time, a.root) < std::tie(a.time, b.root);
  });
  for (const SavedRun &run : runs) {
    Result<FoundCheckpoint> good = takeGood(run.root, run.paths, most);
    if (good) {
      found.path = good->path;
      found.opened = std::move(good->opened);
      found.warnings = std::move(good->warnings);
      break;
    }
    bad.push_back(good.message());
  }
  // Such a run may be the one to continue.
  if (found.path.empty() && !bad.empty())
    return Error{"a run below '" + outDir +
                 "' cannot be continued, and no other run can: " + bad[0]};
  for (const std::string &text : bad)
    found.warnings.push_back("passed over a run: " + text);
  return found;
}

} // namespace nsa
