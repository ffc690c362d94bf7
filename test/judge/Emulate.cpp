//===- Emulate.cpp - runs a program for a GPU without one -----------------===//
//
//   nsa-emulate TARGET GRADIENTS FOLDER [SELECTED-FORM TILE-SIZE...]
//
// Compiles FOLDER/module.mlir for the emulator of unit/Emulator, with the
// gradients of these arguments ("a0,a1", or ""), runs its entry on poisoned
// memory with FOLDER/NAME.npy for each input, and writes FOLDER/NAME.npy for
// each output.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "runtime/Core/TensorFiles.h"
#include "test/unit/Emulator/EmulatedModule.h"
#include "llvm/ADT/StringExtras.h"

#include <cstdio>
#include <filesystem>

using namespace nsa;

/// Reads the tensors that have a file.
static Status readTensors(const Program &program, const std::string &folder) {
  for (const TensorView &tensor : program.tensors()) {
    std::string path = folder + "/" + tensor.name + ".npy";
    if (!std::filesystem::exists(path))
      continue;
    Result<NpyArray> array = readNpy(path);
    if (!array)
      return array.takeError();
    if (Status status = loadTensor(*array, tensor); !status)
      return status;
  }
  return {};
}

/// Writes what a run may have changed.
static Status writeTensors(const Program &program, const std::string &folder) {
  for (const TensorView &tensor : program.tensors())
    if (tensor.role == TensorRole::Output || tensor.role == TensorRole::State)
      if (Status status = writeFileAtomically(
              folder + "/" + tensor.name + ".npy", formatTensor(tensor));
          !status)
        return status;
  return {};
}

static Status run(const std::string &folder, const CompilerOptions &options) {
  Result<std::string> text = readFile(folder + "/module.mlir");
  if (!text)
    return text.takeError();
  auto compiled = emulator::compileForEmulator(*text, options);
  if (!compiled)
    return compiled.takeError();
  Result<Artifact> artifact =
      Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
  if (!artifact)
    return artifact.takeError();
  RuntimeOptions poisoned;
  poisoned.poison = true;
  Result<Program> program = Program::create(*artifact, poisoned);
  if (!program)
    return program.takeError();
  if (program->findEntry("init"))
    if (Status status = program->run("init"); !status)
      return status;
  if (Status status = readTensors(*program, folder); !status)
    return status;
  if (Status status = program->run("main"); !status)
    return status;
  return writeTensors(*program, folder);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: nsa-emulate TARGET GRADIENTS FOLDER "
                         "[SELECTED-FORM TILE-SIZE...]\n");
    return 2;
  }
  CompilerOptions options;
  options.target = argv[1];
  options.allowSlowPaths = {"all"};
  if (argc > 4)
    options.selectedForm = argv[4];
  for (int i = 5; i < argc; ++i)
    options.tileSizes.push_back(argv[i]);
  llvm::SmallVector<llvm::StringRef> names;
  llvm::StringRef(argv[2]).split(names, ',', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef name : names)
    options.gradients.push_back(name.str());
  if (Status status = run(argv[3], options); !status) {
    std::fprintf(stderr, "error: %s\n", status.message().c_str());
    return 1;
  }
  return 0;
}
