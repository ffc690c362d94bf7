//===- ArtifactFuzzer.cpp - any bytes as an artefact ----------------------===//
//
// The bytes are read as they are and, so that mutations reach the checks
// after the hash, once more under a header that fits them. What opens is
// printed; if it needs no machine code and little memory, its entries run.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Hash.h"
#include "nsa/Runtime/Runtime.h"
#include "runtime/Core/Dump.h"
#include "test/fuzz/Fuzz.h"

#include <cstring>

using namespace nsa;
using namespace nsa::fuzz;

/// Whether the commands are few and cheap enough to run them for every input.
static bool isSmall(const artifact::Artifact &root) {
  constexpr uint64_t mostBytes = 1 << 16, mostCommands = 32, mostSize = 64;
  if (root.kernels()->size() > 0 || root.segments()->size() > 8)
    return false;
  for (const artifact::Segment *segment : *root.segments())
    if (segment->size() > mostBytes)
      return false;
  uint64_t commands = 0;
  for (const artifact::Entry *entry : *root.entries())
    for (const artifact::Command *command : *entry->commands()) {
      const auto *gemm = command->action_as_Gemm();
      if (++commands > mostCommands ||
          (gemm && (gemm->m() > mostSize || gemm->n() > mostSize ||
                    gemm->k() > mostSize)))
        return false;
    }
  return true;
}

static void run(const Artifact &artifact) {
  RuntimeOptions options;
  options.threads = 1;
  options.poison = true;
  options.checkFinite = true;
  Result<Program> program = Program::create(artifact, options);
  if (!program)
    return requireMessage(program.message());
  for (const EntryInfo &entry : program->entries()) {
    Status status = program->run(entry);
    if (!status)
      requireMessage(status.message());
    program->profile(entry);
  }
  for (const TensorView &tensor : program->tensors())
    touch(tensor.data, tensor.bytes);
}

static void check(const std::string &file) {
  Result<Artifact> artifact = Artifact::fromBytes(file.data(), file.size());
  if (!artifact)
    return requireMessage(artifact.message());
  DumpOptions options;
  options.program = options.memory = options.kernels = true;
  require(!dumpArtifact(*artifact, options).empty(), "an artefact has a dump");
  if (isSmall(artifact->root()))
    run(*artifact);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string file(reinterpret_cast<const char *>(data), size);
  check(file);
  if (size < sizeof(artifact::FileHeader))
    return 0;
  size_t payload = size - sizeof(artifact::FileHeader);
  artifact::FileHeader header = artifact::makeFileHeader(
      payload, hashBytes(file.data() + sizeof header, payload));
  std::memcpy(file.data(), &header, sizeof header);
  check(file);
  return 0;
}
