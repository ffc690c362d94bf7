//===- ArtifactCache.cpp - artefacts that were compiled before ------------===//

#include "nsa/Runtime/ArtifactCache.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Artifact.h"

#include <algorithm>
#include <filesystem>

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

bool ArtifactCache::isOff(const Variables &variables) {
  return variables("NSA_CACHE") == "0";
}

Result<ArtifactCache> ArtifactCache::open(const Variables &variables,
                                          uint64_t limit) {
  NSA_ASSIGN_OR_RETURN(std::string path, findFolder(variables));
  if (Status status = openOwnFolder(path, "the folder for compiled models");
      !status)
    return Error{status.message() +
                 " (XDG_CACHE_HOME names the folder that it lies in)"};
  return ArtifactCache(path, limit, isOff(variables));
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
static std::string hashesOf(const std::string &entry) {
  return entry + "/hashes";
}

static void removeFiles(const std::string &entry) {
  std::error_code code;
  for (const std::string &file :
       {artifactOf(entry), modelOf(entry), hashesOf(entry)})
    fs::remove(file, code);
}

/// What an entry says of its artefact, so that one of other inputs, or of
/// another entry, is not taken for it.
static std::string describeEntry(const CompileInputs &inputs,
                                 const std::string &artifact) {
  return "inputs " + inputs.hash() + "\nartefact " +
         toHex(hashBytes(artifact)) + "\n";
}

/// Why an entry does not match its name; empty if it does.
static std::string findDamage(const std::string &entry,
                              const CompileInputs &inputs) {
  const std::string model = modelOf(entry), artifact = artifactOf(entry);
  Result<std::string> text = readOwnFile(model, mostPipedBytes);
  if (!text)
    return text.message();
  if (*text != inputs.model)
    return model + " is not the text that the configuration gives";
  Result<std::string> bytes = readOwnFile(artifact, mostDataBytes);
  if (!bytes)
    return bytes.message();
  Result<std::string> hashes = readOwnFile(hashesOf(entry), mostFileBytes);
  if (!hashes)
    return hashes.message();
  if (*hashes != describeEntry(inputs, *bytes))
    return artifact + " is not what was compiled here of this model and these "
                      "options";
  Result<Artifact> opened = Artifact::open(artifact);
  return opened ? "" : opened.message();
}

/// Completes an entry whose artefact has been made.
static Status sealEntry(const std::string &entry, const CompileInputs &inputs) {
  std::error_code code;
  fs::permissions(artifactOf(entry),
                  fs::perms::owner_read | fs::perms::owner_write, code);
  Result<std::string> bytes = readOwnFile(artifactOf(entry), mostDataBytes);
  if (!bytes)
    return Error{"the compiler made no artefact: " + bytes.message()};
  return writeFileAtomically(hashesOf(entry), describeEntry(inputs, *bytes),
                             /*isOwn=*/true);
}

Status ArtifactCache::ensure(const std::string &folder,
                             const CompileInputs &inputs,
                             const Compile &compile, const Say &say,
                             bool isHeld) const {
  const std::string model = modelOf(folder), artifact = artifactOf(folder);
  NSA_ASSIGN_OR_RETURN(bool exists, fileExists(artifact));
  if (exists && !off) {
    std::string damage = findDamage(folder, inputs);
    if (damage.empty()) {
      say("using " + artifact + ", compiled before");
      // Its time of change is when it was last used. Who may not set it has an
      // entry that goes earlier.
      std::error_code code;
      fs::last_write_time(artifact, fs::file_time_type::clock::now(), code);
      return {};
    }
    say("compiling again: " + damage);
    removeFiles(folder);
  }
  if (isHeld)
    removeRemains(folder);
  NSA_RETURN_IF_ERROR(writeFileAtomically(model, inputs.model, /*isOwn=*/true));
  NSA_RETURN_IF_ERROR(compile(model, artifact));
  NSA_RETURN_IF_ERROR(sealEntry(folder, inputs));
  if (std::string damage = findDamage(folder, inputs); !damage.empty())
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
    removeFiles(entry.folder);
    bytes -= entry.bytes;
  }
}

/// The lock of an entry, whose folder is made if needed.
static Result<FileLock> lockEntry(const std::string &folder,
                                  const ArtifactCache::Say &say) {
  NSA_RETURN_IF_ERROR(openOwnFolder(folder, "the folder"));
  return FileLock::await(folder + "/lock", [&](const std::string &holder) {
    say("waiting for " + holder + ", which compiles the same model");
  });
}

Result<std::string> ArtifactCache::get(const std::string &name,
                                       const CompileInputs &inputs,
                                       const Compile &compile,
                                       const Say &say) const {
  const std::string folder = entry(name, inputs);
  NSA_ASSIGN_OR_RETURN(FileLock lock, lockEntry(folder, say));
  NSA_RETURN_IF_ERROR(ensure(folder, inputs, compile, say, lock.isHeld()));
  return artifactOf(folder);
}

Result<std::string> ArtifactCache::read(const std::string &name,
                                        const CompileInputs &inputs,
                                        const Compile &compile,
                                        const Say &say) const {
  const std::string folder = entry(name, inputs);
  NSA_ASSIGN_OR_RETURN(FileLock lock, lockEntry(folder, say));
  NSA_RETURN_IF_ERROR(ensure(folder, inputs, compile, say, lock.isHeld()));
  return readFile(artifactOf(folder), mostDataBytes);
}
