//===- DataFolder.cpp - where a data set is made --------------------------===//

#include "runtime/Data/DataFolder.h"
#include "lib/Support/Files.h"

#include <filesystem>
#include <set>
#include <sys/stat.h>
#include <utility>

namespace nsa {

namespace fs = std::filesystem;

static constexpr const char *stagingName = ".nsa-data.new";

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

/// The files that a manifest names: shards.
static std::vector<std::string> shardNames(const Manifest &manifest) {
  std::vector<std::string> names;
  for (const SplitInfo *split : {&manifest.train, &manifest.val})
    for (const ShardInfo &shard : split->shards)
      if (fs::path(shard.file).extension() == ".bin")
        names.push_back(shard.file);
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
  Result<std::string> found = findData(directory);
  if (!found)
    return found.takeError();
  if (!found->empty() && !overwrite)
    return Error{"'" + directory + "' already holds '" + *found +
                 "' (--overwrite replaces the data set)"};

  std::string temporary = directory + "/" + stagingName;
  // Of a process that was killed.
  fs::remove_all(temporary, code);
  // New: a link that somebody has put there would lead elsewhere.
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

Status DataFolder::removeOld(const std::vector<std::string> &old) const {
  // First the manifest: a folder without one is no data set.
  std::vector<std::string> names = {manifestName};
  names.insert(names.end(), old.begin(), old.end());
  for (const std::string &name : names) {
    std::string path = directory + "/" + name;
    std::error_code code;
    fs::remove(path, code);
    if (code)
      return Error{"cannot remove '" + path + "': " + code.message()};
  }
  return syncDirectory(directory);
}

Status DataFolder::publish(const Manifest &manifest) {
  if (Status status = manifest.save(temporary); !status)
    return status;
  std::vector<std::string> old, names = shardNames(manifest);
  if (Result<Manifest> before = Manifest::load(directory); before.ok())
    old = shardNames(*before);
  std::error_code code;
  const std::set<std::string> replaced(old.begin(), old.end());
  for (const std::string &name : names)
    if (replaced.count(name) == 0 &&
        fs::exists(fs::symlink_status(directory + "/" + name, code)))
      return Error{"'" + directory + "/" + name +
                   "' is in the way: no readable manifest there names it, so "
                   "--overwrite does not replace it"};
  if (Status status = removeOld(old); !status)
    return status;
  names.emplace_back(manifestName);
  for (const std::string &name : names) {
    fs::rename(temporary + "/" + name, directory + "/" + name, code);
    if (code)
      return Error{"cannot rename '" + temporary + "/" + name +
                   "': " + code.message()};
  }
  return syncDirectory(directory);
}

} // namespace nsa
