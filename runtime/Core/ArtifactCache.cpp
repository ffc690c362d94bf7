//===- ArtifactCache.cpp - artefacts that were compiled before ------------===//

#include "nsa/Runtime/ArtifactCache.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Process.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Artifact.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace nsa;

std::string CompileInputs::hash() const {
  StreamHash hash;
  auto add = [&](const std::string &part) {
    hash.update(std::to_string(part.size()) + ":" + part);
  };
  add(model);
  for (const std::string &option : options)
    add(option);
  add(toHex(compiler));
  add(toHex(assembler));
  return toHex(hash.digest());
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

static Result<std::string>
findFolder(const ArtifactCache::Variables &variables) {
  // Relative paths are invalid by the XDG base directory specification.
  std::string cache = variables("XDG_CACHE_HOME").value_or("");
  if (!cache.empty() && cache[0] == '/')
    return cache + "/nsa";
  std::string home = variables("HOME").value_or("");
  if (!home.empty() && home[0] == '/')
    return home + "/.cache/nsa";
  return Error{"there is no folder for compiled models: neither "
               "XDG_CACHE_HOME nor HOME is an absolute path"};
}

/// What is run with the user's rights, nobody else may have written.
static Status checkOwner(const std::string &path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return systemError("cannot inspect", path);
  if (info.st_uid != ::geteuid())
    return Error{"the folder for compiled models " + quote(path) +
                 " belongs to user " + std::to_string(info.st_uid) +
                 ", this process runs as " + std::to_string(::geteuid()) +
                 "; set XDG_CACHE_HOME to a folder of your own"};
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    return Error{"others may write to the folder for compiled models " +
                 quote(path) +
                 ", and artefacts hold machine code: chmod go-w " +
                 quoteCommand({path})};
  return {};
}

bool ArtifactCache::isOff(const Variables &variables) {
  return variables("NSA_CACHE") == "0";
}

Result<ArtifactCache> ArtifactCache::open(const Variables &variables,
                                          uint64_t limit) {
  Result<std::string> path = findFolder(variables);
  if (!path)
    return path.takeError();
  if (Status status = createFolders(fs::path(*path).parent_path()); !status)
    return Error{status.message()};
  if (::mkdir(path->c_str(), 0700) != 0 && errno != EEXIST)
    return systemError("cannot create folder", *path);
  if (Status status = checkOwner(*path); !status)
    return Error{status.message()};
  return ArtifactCache(*path, limit, isOff(variables));
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

std::string ArtifactCache::entry(const std::string &name,
                                 const CompileInputs &inputs) const {
  // With the hash, it is a file name of any file system.
  constexpr size_t mostOfName = 64;
  return path + "/" + shortened(name, mostOfName) + "-" + inputs.hash();
}

/// Why an entry does not hold what its name says; empty if it does.
static std::string findDamage(const std::string &model,
                              const std::string &artifact,
                              const CompileInputs &inputs) {
  Result<std::string> text = readFile(model, mostPipedBytes);
  if (!text)
    return text.message();
  if (*text != inputs.model)
    return model + " is not the text that the configuration gives";
  Result<Artifact> opened = Artifact::open(artifact);
  return opened ? "" : opened.message();
}

/// Removes what a process that was killed has left of a file. To be called
/// under the lock.
static void removeRemains(const std::string &entry) {
  std::error_code code;
  for (const fs::directory_entry &file : fs::directory_iterator(entry, code))
    if (file.path().filename().string().find(".tmp.") != std::string::npos)
      fs::remove(file.path(), code);
}

static std::string modelOf(const std::string &entry) {
  return entry + "/model.mlir";
}
static std::string artifactOf(const std::string &entry) {
  return entry + "/model.nsax";
}

Status ArtifactCache::ensure(const std::string &folder,
                             const CompileInputs &inputs,
                             const Compile &compile, const Say &say,
                             bool isHeld) const {
  const std::string model = modelOf(folder), artifact = artifactOf(folder);
  Result<bool> exists = fileExists(artifact);
  if (!exists)
    return exists.takeError();
  if (*exists && !off) {
    std::string damage = findDamage(model, artifact, inputs);
    if (damage.empty()) {
      say("using " + artifact + ", compiled before");
      // Its time of change is when it was last used. Who may not set it has an
      // entry that goes earlier.
      std::error_code code;
      fs::last_write_time(artifact, fs::file_time_type::clock::now(), code);
      return {};
    }
    say("compiling again: " + damage);
  }
  if (isHeld)
    removeRemains(folder);
  if (Status status = writeFileAtomically(model, inputs.model); !status)
    return status;
  if (Status status = compile(model, artifact); !status)
    return status;
  if (std::string damage = findDamage(model, artifact, inputs); !damage.empty())
    return Error{"the compiler made no artefact: " + damage};
  removeOldest(folder);
  return {};
}

namespace {

/// An entry as it counts for the size of the cache.
struct Entry {
  std::string folder;
  fs::file_time_type used;
  uint64_t bytes;
};

} // namespace

static uint64_t bytesOf(const std::string &file) {
  std::error_code code;
  uint64_t bytes = fs::file_size(file, code);
  return code ? 0 : bytes;
}

static std::vector<Entry> listEntries(const std::string &path) {
  std::vector<Entry> entries;
  std::error_code code;
  for (const fs::directory_entry &entry : fs::directory_iterator(path, code)) {
    std::string folder = entry.path();
    std::error_code missing;
    fs::file_time_type used = fs::last_write_time(artifactOf(folder), missing);
    if (!missing)
      entries.push_back(
          {folder, used,
           bytesOf(artifactOf(folder)) + bytesOf(modelOf(folder))});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.used < b.used; });
  return entries;
}

/// Empties the entries that were not used for longest, until all are small
/// enough. Folders and locks stay: another process may wait there. Those that
/// are in use stay as well.
void ArtifactCache::removeOldest(const std::string &kept) const {
  std::vector<Entry> entries = listEntries(path);
  uint64_t bytes = 0;
  for (const Entry &entry : entries)
    bytes += entry.bytes;
  for (const Entry &entry : entries) {
    if (bytes <= limit)
      return;
    if (entry.folder == kept)
      continue;
    Result<FileLock> lock = FileLock::take(entry.folder + "/lock", "the entry");
    if (!lock)
      continue;
    std::error_code code;
    fs::remove(artifactOf(entry.folder), code);
    fs::remove(modelOf(entry.folder), code);
    bytes -= entry.bytes;
  }
}

/// The lock of an entry, whose folder is made if needed.
static Result<FileLock> lockEntry(const std::string &folder,
                                  const ArtifactCache::Say &say) {
  if (Status status = createFolders(folder); !status)
    return Error{status.message()};
  return FileLock::await(folder + "/lock", [&](const std::string &holder) {
    say("waiting for " + holder + ", which compiles the same model");
  });
}

Result<std::string> ArtifactCache::get(const std::string &name,
                                       const CompileInputs &inputs,
                                       const Compile &compile,
                                       const Say &say) const {
  const std::string folder = entry(name, inputs);
  Result<FileLock> lock = lockEntry(folder, say);
  if (!lock)
    return lock.takeError();
  if (Status status = ensure(folder, inputs, compile, say, lock->isHeld());
      !status)
    return Error{status.message()};
  return artifactOf(folder);
}

Result<std::string> ArtifactCache::read(const std::string &name,
                                        const CompileInputs &inputs,
                                        const Compile &compile,
                                        const Say &say) const {
  const std::string folder = entry(name, inputs);
  Result<FileLock> lock = lockEntry(folder, say);
  if (!lock)
    return lock.takeError();
  if (Status status = ensure(folder, inputs, compile, say, lock->isHeld());
      !status)
    return Error{status.message()};
  return readFile(artifactOf(folder), mostDataBytes);
}
