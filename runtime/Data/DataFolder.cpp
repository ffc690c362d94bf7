//===- DataFolder.cpp - where a data set is made --------------------------===//

#include "runtime/Data/DataFolder.h"
#include "lib/Support/Files.h"

#include <filesystem>
#include <set>
#include <sys/stat.h>
#include <utility>

namespace nsa {

namespace fs = std::filesystem;

/// Where a data set is written.
static constexpr const char *stagingName = ".nsa-data.new";
/// In the folder of a replacement, where the manifest of the old data set is
/// kept.
static constexpr const char *oldName = "old";

/// The name of a file of `directory` that belongs to a data set, or looks like
/// it; empty if there is none.
static Result<std::string> findData(const std::string &directory) {
  std::string found;
  std::error_code code;
  for (fs::directory_iterator entry(directory, code), end;
       !code && entry != end; entry.increment(code)) {
    std::string name = entry->path().filename().string();
    bool isShard = name.rfind("train_", 0) == 0 || name.rfind("val_", 0) == 0;
    if (name == manifestName)
      return name;
    if (isShard && entry->path().extension() == ".bin")
      found = name;
  }
  if (code)
    return Error{"cannot list '" + directory + "': " + code.message()};
  return found;
}

/// The files that a manifest names, as far as their names are those of such.
static std::vector<std::string> fileNames(const Manifest &manifest) {
  std::vector<std::string> names;
  for (const SplitInfo *split : {&manifest.train, &manifest.val}) {
    for (const ShardInfo &shard : split->shards)
      if (fs::path(shard.file).extension() == ".bin")
        names.push_back(shard.file);
    if (fs::path(split->index.file).extension() == ".idx")
      names.push_back(split->index.file);
    if (fs::path(split->marks.file).extension() == ".bits")
      names.push_back(split->marks.file);
  }
  if (manifest.tokenizer.file == tokenizerName)
    names.push_back(tokenizerName);
  return names;
}

Result<DataFolder> DataFolder::open(const std::string &directory,
                                    bool overwrite) {
  DataFolder folder;
  std::error_code code;
  folder.isNew = fs::create_directories(directory, code);
  if (code)
    return Error{"cannot create '" + directory + "': " + code.message()};
  folder.directory = directory;
  NSA_RETURN_IF_ERROR(finishReplacement(directory));
  NSA_ASSIGN_OR_RETURN(std::string found, findData(directory));
  if (!found.empty() && !overwrite)
    return Error{"'" + directory + "' already holds '" + found +
                 "' (--overwrite replaces the data set)"};

  std::string temporary = directory + "/" + stagingName;
  // Of a process that was killed.
  fs::remove_all(temporary, code);
  // New: a link that another process put there would lead elsewhere.
  if (::mkdir(temporary.c_str(), 0777) != 0)
    return systemError("cannot create", temporary);
  folder.temporary = temporary;
  return folder;
}

DataFolder::DataFolder(DataFolder &&other) noexcept
    : directory(std::exchange(other.directory, "")),
      temporary(std::exchange(other.temporary, "")), isNew(other.isNew) {}

DataFolder::~DataFolder() {
  std::error_code code;
  if (!temporary.empty())
    fs::remove_all(temporary, code);
  // Only if nothing is in it.
  if (isNew && !directory.empty())
    fs::remove(directory, code);
}

static Status move(const std::string &from, const std::string &to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code)
    return Error{"cannot rename '" + from + "' to '" + to +
                 "': " + code.message()};
  return {};
}

/// Puts the old manifest aside and removes the old shards that no new one
/// replaces. A folder without a manifest is no data set.
static Status retireOld(const std::string &directory, const std::string &ready,
                        const std::vector<std::string> &names) {
  std::string aside = ready + "/" + oldName,
              manifest = "/" + std::string(manifestName);
  Result<bool> isRetired = fileExists(aside + manifest);
  Result<bool> isThere = fileExists(directory + manifest);
  if (!isRetired || !isThere)
    return Error{isRetired ? isThere.message() : isRetired.message()};
  if (*isThere && !*isRetired) {
    std::error_code code;
    fs::create_directories(aside, code);
    if (code)
      return Error{"cannot create '" + aside + "': " + code.message()};
    NSA_RETURN_IF_ERROR(move(directory + manifest, aside + manifest));
    NSA_RETURN_IF_ERROR(syncDirectory(directory));
  }
  Result<Manifest> old = Manifest::load(aside);
  if (!old)
    return {};
  const std::set<std::string> kept(names.begin(), names.end());
  for (const std::string &name : fileNames(*old)) {
    std::string path = directory + "/" + name;
    std::error_code code;
    if (kept.count(name) == 0)
      fs::remove(path, code);
    if (code)
      return Error{"cannot remove '" + path + "': " + code.message()};
  }
  return {};
}

Status finishReplacement(const std::string &directory) {
  std::string ready = directory + "/" + replacementName;
  NSA_ASSIGN_OR_RETURN(bool isOpen, fileExists(ready + "/" + manifestName));
  if (isOpen) {
    NSA_ASSIGN_OR_RETURN(Manifest manifest, Manifest::load(ready));
    std::vector<std::string> names = fileNames(manifest);
    NSA_RETURN_IF_ERROR(retireOld(directory, ready, names));
    for (const std::string &name : names) {
      // Those that are gone from there were moved before.
      NSA_ASSIGN_OR_RETURN(bool there, fileExists(ready + "/" + name));
      if (!there)
        continue;
      NSA_RETURN_IF_ERROR(move(ready + "/" + name, directory + "/" + name));
    }
    // The shards first, on the disk as well.
    NSA_RETURN_IF_ERROR(syncDirectory(directory));
    NSA_RETURN_IF_ERROR(
        move(ready + "/" + manifestName, directory + "/" + manifestName));
    NSA_RETURN_IF_ERROR(syncDirectory(directory));
  }
  std::error_code code;
  fs::remove_all(ready, code);
  if (code)
    return Error{"cannot remove '" + ready + "': " + code.message()};
  return {};
}

Status DataFolder::publish(const Manifest &manifest) {
  NSA_RETURN_IF_ERROR(manifest.save(temporary));
  std::vector<std::string> old;
  if (Result<Manifest> before = Manifest::load(directory); before.ok())
    old = fileNames(*before);
  std::error_code code;
  const std::set<std::string> replaced(old.begin(), old.end());
  for (const std::string &name : fileNames(manifest))
    if (replaced.count(name) == 0 &&
        fs::exists(fs::symlink_status(directory + "/" + name, code)))
      return Error{"'" + directory + "/" + name +
                   "' is in the way: no readable manifest there names it, so "
                   "--overwrite does not replace it"};
  // From here on the new data set is the one that stays.
  NSA_RETURN_IF_ERROR(move(temporary, directory + "/" + replacementName));
  temporary.clear();
  isNew = false;
  NSA_RETURN_IF_ERROR(syncDirectory(directory));
  return finishReplacement(directory);
}

} // namespace nsa
