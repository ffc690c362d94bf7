//===- ObjectCache.cpp - code that was generated before -------------------===//

#include "lib/Target/ObjectCache.h"
#include "lib/Support/Hash.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/Caching.h"
#include "llvm/Support/SHA256.h"
#include <cstdlib>

using namespace llvm;

static std::string getKey(const Module &module, StringRef processor) {
  SmallString<0> bitcode;
  raw_svector_ostream stream(bitcode);
  WriteBitcodeToFile(module, stream);
  SHA256 hash;
  // NSA_CODE_GENERATORS is a hash of their sources.
  for (StringRef part : {StringRef(LLVM_VERSION_STRING),
                         StringRef(NSA_CODE_GENERATORS), processor}) {
    hash.update(part);
    hash.update(StringRef("\0", 1));
  }
  hash.update(bitcode);
  return toHex(hash.final(), /*LowerCase=*/true);
}

static std::string getChecksum(StringRef code) {
  return nsa::toHex(nsa::hashBytes(code.data(), code.size()));
}

/// What a file holds behind the checksum of it; none if they do not agree.
static std::optional<std::string> readChecked(StringRef contents) {
  StringRef code = contents;
  if (!code.consume_front(getChecksum(contents.substr(16))))
    return std::nullopt;
  return code.str();
}

Expected<std::string>
nsa::generateOnce(const Module &module, StringRef processor,
                  function_ref<Expected<std::string>()> generate) {
  const char *folder = std::getenv("NSA_KERNEL_CACHE");
  if (!folder || !*folder)
    return generate();
  std::optional<std::string> found;
  auto read = [&](unsigned, const Twine &,
                  std::unique_ptr<MemoryBuffer> buffer) {
    found = readChecked(buffer->getBuffer());
  };
  Expected<FileCache> cache = localCache("kernel", "kernel", folder, read);
  if (!cache)
    return cache.takeError();
  Expected<AddStreamFn> addStream =
      (*cache)(/*Task=*/0, getKey(module, processor), /*ModuleName=*/"");
  if (!addStream)
    return addStream.takeError();
  if (found)
    return std::move(*found);
  Expected<std::string> code = generate();
  // Without a way to add it, a damaged file is there.
  if (!code || !*addStream)
    return code;
  auto file = (*addStream)(/*Task=*/0, /*ModuleName=*/"");
  if (!file)
    return file.takeError();
  *(*file)->OS << getChecksum(*code) << *code;
  if (llvm::Error error = (*file)->commit())
    return error;
  CachePruningPolicy policy;
  policy.MaxSizeBytes = uint64_t(2) << 30;
  pruneCache(folder, policy);
  return code;
}
