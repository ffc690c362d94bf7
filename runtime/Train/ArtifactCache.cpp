//===- ArtifactCache.cpp - artefacts that were compiled before ------------===//

#include "runtime/Train/ArtifactCache.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Artifact.h"

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

static Result<std::string> findFolder(const Variables &variables) {
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

Result<ArtifactCache> ArtifactCache::open(const Variables &variables) {
  Result<std::string> path = findFolder(variables);
  if (!path)
    return path.takeError();
  if (Status status = createFolders(fs::path(*path).parent_path()); !status)
    return Error{status.message()};
  if (::mkdir(path->c_str(), 0700) != 0 && errno != EEXIST)
    return systemError("cannot create folder", *path);
  if (Status status = checkOwner(*path); !status)
    return Error{status.message()};
  return ArtifactCache(*path);
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

Result<std::string> ArtifactCache::get(const std::string &name,
                                       const CompileInputs &inputs,
                                       const Compile &compile,
                                       const Say &say) const {
  const std::string folder = entry(name, inputs),
                    model = folder + "/model.mlir",
                    artifact = folder + "/model.nsax";
  if (Status status = createFolders(folder); !status)
    return Error{status.message()};
  Result<FileLock> lock =
      FileLock::await(folder + "/lock", [&](const std::string &holder) {
        say("waiting for " + holder + ", which compiles the same model");
      });
  if (!lock)
    return lock.takeError();
  Result<bool> exists = fileExists(artifact);
  if (!exists)
    return exists.takeError();
  if (*exists) {
    std::string damage = findDamage(model, artifact, inputs);
    if (damage.empty()) {
      say("using " + artifact + ", compiled before");
      return artifact;
    }
    say("compiling again: " + damage);
  }
  if (lock->isHeld())
    removeRemains(folder);
  if (Status status = writeFileAtomically(model, inputs.model); !status)
    return Error{status.message()};
  if (Status status = compile(model, artifact); !status)
    return Error{status.message()};
  if (std::string damage = findDamage(model, artifact, inputs); !damage.empty())
    return Error{"nsa-compile made no artefact: " + damage};
  return artifact;
}
