//===- ObjectCache.cpp - code that was generated before -------------------===//

#include "lib/Target/ObjectCache.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SHA256.h"
#include <cstdlib>

using namespace llvm;

static std::string getKey(function_ref<void(raw_ostream &)> writeInputs) {
  SmallString<0> inputs;
  raw_svector_ostream stream(inputs);
  // The number is that of the layout of files.
  stream << '2' << '\0';
  writeInputs(stream);
  return toHex(SHA256::hash(arrayRefFromStringRef(inputs)), /*LowerCase=*/true);
}

static std::string getChecksum(StringRef code) {
  return nsa::toHex(nsa::hashBytes(code.data(), code.size()));
}

/// The code of a file that holds what `key` says, the checksum of the code, and
/// the code; none of one that does not.
static std::optional<std::string> readChecked(StringRef code, StringRef key) {
  if (!code.consume_front(key) ||
      !code.consume_front(getChecksum(code.substr(16))))
    return std::nullopt;
  return code.str();
}

Expected<std::string>
nsa::generateOnce(function_ref<void(raw_ostream &)> writeInputs,
                  function_ref<Expected<std::string>()> generate,
                  function_ref<void(const std::string &)> warn) {
  const char *folder = std::getenv("NSA_KERNEL_CACHE");
  if (!folder || !*folder)
    return generate();
  if (Status status = openOwnFolder(folder, "the folder in NSA_KERNEL_CACHE,");
      !status)
    return createStringError(status.message());
  std::string key = getKey(writeInputs);
  // pruneCache only removes files with this prefix.
  std::string path = std::string(folder) + "/llvmcache-" + key;
  Result<bool> exists = fileExists(path);
  if (!exists)
    return createStringError(exists.message());
  if (*exists) {
    Result<std::string> contents = readOwnFile(path, mostPipedBytes);
    if (contents)
      if (std::optional<std::string> code = readChecked(*contents, key))
        return std::move(*code);
    warn((contents ? "'" + path + "' is damaged" : contents.message()) +
         "; its code is generated again");
    if (std::error_code error = sys::fs::remove(path))
      return createStringError(error, "cannot remove '" + path + "'");
  }
  Expected<std::string> code = generate();
  if (!code)
    return code;
  if (Status status =
          writeFileAtomically(path, key + getChecksum(*code) + *code,
                              /*isOwn=*/true);
      !status)
    return createStringError(status.message());
  CachePruningPolicy policy;
  policy.MaxSizeBytes = uint64_t(2) << 30;
  pruneCache(folder, policy);
  return code;
}

Expected<std::string>
nsa::generateOnce(const Module &module, StringRef processor,
                  function_ref<Expected<std::string>()> generate,
                  function_ref<void(const std::string &)> warn) {
  auto writeInputs = [&](raw_ostream &inputs) {
    // NSA_CODE_GENERATORS is a hash of their sources.
    for (StringRef part : {StringRef(LLVM_VERSION_STRING),
                           StringRef(NSA_CODE_GENERATORS), processor})
      inputs << part << '\0';
    WriteBitcodeToFile(module, inputs);
  };
  return generateOnce(writeInputs, generate, warn);
}
