//===- ManifestFuzzer.cpp - any text as the manifest of token shards ------===//

#include "lib/Support/Files.h"
#include "runtime/Data/Verifier.h"
#include "test/fuzz/Fuzz.h"

#include <fcntl.h>
#include <unistd.h>

using namespace nsa;
using namespace nsa::fuzz;

/// A directory of this process, removed at its end.
static const std::string &directory() {
  static struct Directory {
    std::string path = "/dev/shm/nsa-fuzz-manifest-XXXXXX";
    Directory() {
      require(::mkdtemp(path.data()) != nullptr, "a directory can be made");
    }
    ~Directory() {
      ::unlink((path + "/" + manifestName).c_str());
      ::rmdir(path.c_str());
    }
  } directory;
  return directory.path;
}

static void write(const std::string &text) {
  Result<OutputFile> file =
      OutputFile::create(directory() + "/" + manifestName);
  require(file.ok() && file->write(text).ok(), "a manifest can be written");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  write(std::string(reinterpret_cast<const char *>(data), size));
  Result<Manifest> manifest = Manifest::load(directory());
  if (!manifest) {
    requireMessage(manifest.message());
    return 0;
  }
  Status verified = verifyShards(directory(), *manifest);
  if (!verified)
    requireMessage(verified.message());
  write(manifest->print());
  Result<Manifest> again = Manifest::load(directory());
  require(again.ok(), "a printed manifest reads", manifest->print());
  require(again->digest() == manifest->digest() &&
              again->print() == manifest->print(),
          "printing keeps the manifest", manifest->print());
  return 0;
}
